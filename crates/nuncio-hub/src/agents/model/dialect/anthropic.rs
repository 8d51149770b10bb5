//! Anthropic Messages.

use serde_json::{Map, Value, json};

use super::{
    Finish, Item, Media, OutputForm, Piece, Prompt, Source, Speaker, ToolCall, ToolResult, ToolSpec, Turn,
    Undecodable, Usage, arguments, parse, text_of,
};

/// The limit of tokens that a request needs, if none is configured.
const DEFAULT_MAX_TOKENS: u64 = 4096;

pub(super) fn encode(prompt: &Prompt) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(prompt.model));
    body.insert("max_tokens".to_owned(), json!(prompt.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)));
    body.insert("stream".to_owned(), json!(true));
    if let Some(instructions) = super::instructions(prompt) {
        body.insert("system".to_owned(), json!(instructions));
    }
    body.insert("messages".to_owned(), Value::Array(messages(&prompt.turns)));
    if let OutputForm::Schema(schema) = &prompt.output {
        let format = json!({ "format": { "type": "json_schema", "schema": schema } });
        body.insert("output_config".to_owned(), format);
    }
    if !prompt.tools.is_empty() {
        body.insert("tools".to_owned(), prompt.tools.iter().map(tool).collect());
        // They stay listed: a conversation with calls is refused without them.
        if prompt.tools_are_over {
            body.insert("tool_choice".to_owned(), json!({ "type": "none" }));
        }
    }
    for (key, value) in &prompt.parameters {
        body.insert(key.clone(), value.clone());
    }
    Value::Object(body)
}

fn tool(tool: &ToolSpec) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
}

/// Turns of the same side are joined: the provider demands that they alternate.
fn messages(turns: &[Turn]) -> Vec<Value> {
    let mut messages: Vec<(Speaker, Vec<Value>)> = Vec::new();
    for turn in turns {
        let blocks = turn.items.iter().filter_map(block);
        match messages.last_mut() {
            Some((speaker, before)) if *speaker == turn.speaker => before.extend(blocks),
            _ => messages.push((turn.speaker, blocks.collect())),
        }
    }
    let message = |(speaker, content): (Speaker, Vec<Value>)| {
        let role = match speaker {
            Speaker::User => "user",
            Speaker::Model => "assistant",
        };
        json!({ "role": role, "content": content })
    };
    messages.into_iter().filter(|(_, content)| !content.is_empty()).map(message).collect()
}

fn block(item: &Item) -> Option<Value> {
    Some(match item {
        // An empty text is refused.
        Item::Text(text) if text.is_empty() => return None,
        Item::Text(text) => json!({ "type": "text", "text": text }),
        Item::Image(media) => json!({ "type": "image", "source": source(media) }),
        Item::Document(media) => json!({ "type": "document", "source": source(media) }),
        Item::Audio(_) => return None,
        Item::Reasoning { text, signature } => {
            json!({ "type": "thinking", "thinking": text, "signature": signature })
        }
        Item::Call(call) => {
            // What is not an object was told to the model as a mistake.
            let input = arguments(call).unwrap_or_default();
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
        }
        Item::Result(ToolResult { id, text, is_error }) => {
            json!({ "type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error })
        }
    })
}

fn source(media: &Media) -> Value {
    match &media.source {
        Source::Bytes(_) => {
            json!({ "type": "base64", "media_type": media.media_type, "data": media.base64() })
        }
        Source::Url(url) => json!({ "type": "url", "url": url }),
    }
}

/// Decodes the data of an event.
pub(super) fn decode(data: &str) -> Result<Vec<Piece>, Undecodable> {
    let event = parse(data)?;
    let none = Value::Null;
    let delta = event.get("delta").unwrap_or(&none);
    Ok(match event.get("type").and_then(Value::as_str).unwrap_or_default() {
        "message_start" => {
            let usage = event.get("message").and_then(|message| message.get("usage"));
            usage.map(|usage| Piece::Usage(self::usage(usage))).into_iter().collect()
        }
        "content_block_start" => block_pieces(index(&event), event.get("content_block").unwrap_or(&none)),
        "content_block_delta" => block_pieces(index(&event), delta),
        "message_delta" => {
            let usage = event.get("usage").map(|usage| Piece::Usage(self::usage(usage)));
            let reason = delta.get("stop_reason").and_then(Value::as_str);
            reason.map(|reason| Piece::Finish(finish(reason))).into_iter().chain(usage).collect()
        }
        "message_stop" => vec![Piece::End],
        "error" => {
            let error = event.get("error").unwrap_or(&none);
            vec![Piece::Error(text_of(error, "message"))]
        }
        // Pings, ends of blocks, and events of a later version.
        _ => Vec::new(),
    })
}

fn index(event: &Value) -> u64 {
    event.get("index").and_then(Value::as_u64).unwrap_or_default()
}

/// The pieces of a block, or of an addition to it.
fn block_pieces(index: u64, block: &Value) -> Vec<Piece> {
    match block.get("type").and_then(Value::as_str).unwrap_or_default() {
        "text" | "text_delta" => text(text_of(block, "text"), Piece::Text),
        "thinking" | "thinking_delta" => text(text_of(block, "thinking"), Piece::Reasoning),
        "signature_delta" => text(text_of(block, "signature"), Piece::Signature),
        "tool_use" => {
            // A whole input where nothing is streamed; an empty one announces the pieces.
            let input = block.get("input").filter(|input| input.as_object().is_some_and(|it| !it.is_empty()));
            let arguments = input.map(Value::to_string).unwrap_or_default();
            let call = ToolCall { id: text_of(block, "id"), name: text_of(block, "name"), arguments };
            vec![Piece::Call { index, call }]
        }
        "input_json_delta" => {
            let call = ToolCall { arguments: text_of(block, "partial_json"), ..ToolCall::default() };
            vec![Piece::Call { index, call }]
        }
        _ => Vec::new(),
    }
}

fn text(text: String, piece: fn(String) -> Piece) -> Vec<Piece> {
    if text.is_empty() { Vec::new() } else { vec![piece(text)] }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::Refused,
        "tool_use" => Finish::Tools,
        _ => Finish::Other,
    }
}

/// The tokens read from the provider's cache are part of the input, as in the other dialect.
fn usage(usage: &Value) -> Usage {
    let number = |key: &str| usage.get(key).and_then(Value::as_u64);
    let cached = number("cache_read_input_tokens");
    let written = number("cache_creation_input_tokens");
    let input = number("input_tokens").map(|input| {
        input.saturating_add(cached.unwrap_or_default()).saturating_add(written.unwrap_or_default())
    });
    Usage { input, output: number("output_tokens"), cached, reasoning: None }
}
