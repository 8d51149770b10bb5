"""Writes a model of random weights that llama.cpp loads in a few milliseconds: write.py FILE"""

import sys

import gguf
import numpy

WIDTH, FEED_FORWARD, HEADS, CONTEXT = 64, 128, 4, 4096
WORDS = "a the model says one two three hello world yes no and or of in to is it".split()
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(path: str) -> None:
    # Always the same weights.
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581" + word for word in WORDS]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(WORDS)
    scores = [0.0] * 3 + [-1000.0] * 256 + [-float(at) for at in range(len(WORDS))]
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)

    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.05).astype(numpy.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, numpy.ones(WIDTH, numpy.float32))

    weights("token_embd.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    weights("output.weight", len(tokens), WIDTH)
    ones("blk.0.attn_norm.weight")
    ones("blk.0.ffn_norm.weight")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weights(f"blk.0.{name}.weight", WIDTH, WIDTH)
    weights("blk.0.ffn_gate.weight", FEED_FORWARD, WIDTH)
    weights("blk.0.ffn_up.weight", FEED_FORWARD, WIDTH)
    weights("blk.0.ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


write(sys.argv[1])
