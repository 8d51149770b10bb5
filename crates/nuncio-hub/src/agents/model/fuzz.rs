//! Answers of arbitrary bytes, for fuzz tests.

use nuncio_protocol::wire::sse::Decoder;

use super::{
    dialect::{self, Item, Piece, Prompt, Speaker, ToolResult, Turn},
    progress::{MAX_ARGUMENT_BYTES, MAX_CALLS, Progress},
    rounds::Round,
};
use crate::config::ModelDialect;

/// The maximum size of an event here.
const MAX_EVENT_BYTES: usize = 4096;

/// Reads the answer of a provider, and what is made of it. The first byte selects the dialect, the second one the sizes in
/// which the rest arrives.
#[doc(hidden)]
pub fn fuzz_model_answer(data: &[u8]) {
    let Some(([dialect, size], stream)) = data.split_first_chunk() else { return };
    let dialects = [ModelDialect::OpenAi, ModelDialect::Anthropic];
    let dialect = dialects[usize::from(*dialect) % dialects.len()];
    let pieces = pieces_of(dialect, stream, usize::MAX);
    let arrived = pieces_of(dialect, stream, usize::from(*size).max(1));
    assert_eq!(pieces, arrived, "an answer does not depend on the sizes in which it arrives");
    let mut progress = Progress::new(0);
    progress.begin(&Prompt::default());
    pieces.iter().for_each(|piece| progress.take(piece));
    let texts = pieces.iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(progress.text, texts.collect::<String>(), "no text is lost");
    assert!(!progress.words_of_refusal().is_empty());
    let _ = progress.tokens().total();
    progress.round(1).iter().for_each(check);
    let _ = dialect::error_message(stream);
    let _ = dialect::decode_models(stream);
}

/// The pieces until the first event that cannot be read, or is not of the dialect.
fn pieces_of(dialect: ModelDialect, stream: &[u8], size: usize) -> Vec<Piece> {
    let mut decoder = Decoder::new(MAX_EVENT_BYTES);
    let mut pieces = Vec::new();
    for chunk in stream.chunks(size) {
        decoder.push(chunk.to_vec().into());
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return pieces,
            };
            match dialect::decode(dialect, frame.data) {
                Ok(more) => pieces.extend(more),
                Err(_) => return pieces,
            }
        }
    }
    pieces
}

/// Checks a round of tools, and writes it into prompts of both dialects.
fn check(round: &Round) {
    assert!((1..=MAX_CALLS).contains(&round.calls.len()));
    for call in &round.calls {
        assert!(!call.id.is_empty() && !call.name.is_empty() && call.arguments.len() <= MAX_ARGUMENT_BYTES);
        let _ = dialect::arguments(call);
    }
    let results = round.calls.iter().map(|call| ToolResult { id: call.id.clone(), ..ToolResult::default() });
    let turns = vec![
        Turn { speaker: Speaker::User, items: vec![Item::Text("hi".to_owned())] },
        Turn { speaker: Speaker::Model, items: round.calls.iter().cloned().map(Item::Call).collect() },
        Turn { speaker: Speaker::User, items: results.map(Item::Result).collect() },
    ];
    let prompt = Prompt { turns, ..Prompt::default() };
    for dialect in [ModelDialect::OpenAi, ModelDialect::Anthropic] {
        assert!(
            dialect::encode(dialect, &prompt, false)["messages"].as_array().is_some_and(|it| it.len() >= 3)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations;

    /// Tokens of both dialects and of event streams.
    const TOKENS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\u0000",
        "\\ud800",
        "null",
        "true",
        "-1",
        "1e999",
        "99999999999999999999",
        "\n",
        "\r\n",
        "\n\n",
        "data:",
        "data: [DONE]\n\n",
        "event: error\n",
        "\u{feff}",
        "\"choices\":[]",
        "\"delta\":",
        "\"content\":",
        "\"tool_calls\":",
        "\"index\":",
        "\"function\":",
        "\"arguments\":",
        "\"finish_reason\":\"length\"",
        "\"usage\":",
        "\"error\":",
        "\"type\":\"content_block_delta\"",
        "\"type\":\"input_json_delta\"",
        "\"type\":\"message_stop\"",
        "\"stop_reason\":\"tool_use\"",
        "ä",
        "\0",
    ];

    #[test]
    fn no_bytes_of_a_provider_are_fatal() {
        mutations::run(&mutations::corpus("model"), TOKENS, fuzz_model_answer);
    }
}
