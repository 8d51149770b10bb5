//! OpenAI chat completions, as many servers speak them.

use serde_json::{Map, Value, json};

use super::{
    Finish, Item, Media, OutputForm, Piece, Prompt, Speaker, ToolCall, ToolResult, ToolSpec, Turn,
    Undecodable, Usage, parse, text_of,
};

/// The data of the last event.
const DONE: &str = "[DONE]";

pub(super) fn encode(prompt: &Prompt, is_default_provider: bool) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(prompt.model));
    body.insert("messages".to_owned(), Value::Array(messages(prompt)));
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    if let Some(limit) = prompt.max_tokens {
        // OpenAI's own models refuse the older name, and most other servers know only that.
        let key = if is_default_provider { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.to_owned(), json!(limit));
    }
    match &prompt.output {
        OutputForm::Text => {}
        OutputForm::Json => {
            body.insert("response_format".to_owned(), json!({ "type": "json_object" }));
        }
        OutputForm::Schema(schema) => {
            let format =
                json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema } });
            body.insert("response_format".to_owned(), format);
        }
    }
    // At the end of the rounds they are left out: not every server knows `tool_choice`.
    if !prompt.tools.is_empty() && !prompt.tools_are_over {
        body.insert("tools".to_owned(), prompt.tools.iter().map(tool).collect());
    }
    for (key, value) in &prompt.parameters {
        body.insert(key.clone(), value.clone());
    }
    Value::Object(body)
}

fn messages(prompt: &Prompt) -> Vec<Value> {
    let mut messages = Vec::new();
    if let Some(instructions) = super::instructions(prompt) {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    for turn in &prompt.turns {
        match turn.speaker {
            Speaker::User => {
                messages.extend(turn.items.iter().filter_map(result_message));
                messages.extend(user_message(turn));
            }
            Speaker::Model => messages.push(model_message(turn)),
        }
    }
    messages
}

fn tool(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, schema } = tool;
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": schema } })
}

/// The message with a result; errors are told in the text.
fn result_message(item: &Item) -> Option<Value> {
    let Item::Result(ToolResult { id, text, is_error: _ }) = item else { return None };
    Some(json!({ "role": "tool", "tool_call_id": id, "content": text }))
}

/// The message of the caller; `None` for a turn that has only results.
fn user_message(turn: &Turn) -> Option<Value> {
    let mut content = Vec::new();
    for item in &turn.items {
        match item {
            Item::Text(text) => content.push(json!({ "type": "text", "text": text })),
            Item::Image(media) => {
                content.push(json!({ "type": "image_url", "image_url": { "url": media.url() } }));
            }
            Item::Audio(media) => content.push(audio(media)),
            Item::Document(media) => {
                let filename = media.filename.as_deref().unwrap_or("document.pdf");
                let file = json!({ "filename": filename, "file_data": media.url() });
                content.push(json!({ "type": "file", "file": file }));
            }
            Item::Reasoning { .. } | Item::Call(_) | Item::Result(_) => {}
        }
    }
    match &turn.items[..] {
        // Text alone as text: some servers do not take a list.
        [Item::Text(text)] => Some(json!({ "role": "user", "content": text })),
        _ if content.is_empty() => None,
        _ => Some(json!({ "role": "user", "content": content })),
    }
}

fn audio(media: &Media) -> Value {
    let format = match media.media_type.as_str() {
        "audio/mpeg" | "audio/mp3" => "mp3",
        _ => "wav",
    };
    json!({ "type": "input_audio", "input_audio": { "data": media.base64(), "format": format } })
}

fn model_message(turn: &Turn) -> Value {
    let texts = turn.items.iter().filter_map(|item| match item {
        Item::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let text: String = texts.collect();
    let calls = turn.items.iter().filter_map(|item| match item {
        Item::Call(call) => Some(self::call(call)),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    match (text.is_empty(), calls.is_empty()) {
        (_, true) => json!({ "role": "assistant", "content": text }),
        (true, false) => json!({ "role": "assistant", "content": null, "tool_calls": calls }),
        (false, false) => json!({ "role": "assistant", "content": text, "tool_calls": calls }),
    }
}

fn call(call: &ToolCall) -> Value {
    let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
}

/// Decodes the data of a chunk.
pub(super) fn decode(data: &str) -> Result<Vec<Piece>, Undecodable> {
    let data = data.trim();
    if data == DONE {
        return Ok(vec![Piece::End]);
    }
    let chunk = parse(data)?;
    let mut pieces = Vec::new();
    if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
        let message = error.get("message").unwrap_or(error);
        let text = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
        return Ok(vec![Piece::Error(text)]);
    }
    // The chunk with the usage has no choices.
    if let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) {
        self::choice(choice, &mut pieces);
    }
    if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
        pieces.push(Piece::Usage(self::usage(usage)));
    }
    Ok(pieces)
}

fn choice(choice: &Value, pieces: &mut Vec<Piece>) {
    let none = Value::Null;
    // A server that does not stream answers with a whole message.
    let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&none);
    for key in ["reasoning_content", "reasoning"] {
        let text = text_of(delta, key);
        if !text.is_empty() {
            pieces.push(Piece::Reasoning(text));
            break;
        }
    }
    let text = text_of(delta, "content");
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    let refusal = text_of(delta, "refusal");
    if !refusal.is_empty() {
        pieces.push(Piece::Refusal(refusal));
    }
    for (at, call) in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let function = call.get("function").unwrap_or(&none);
        // Some servers write the arguments as an object.
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(object) => object.to_string(),
        };
        let index = call.get("index").and_then(Value::as_u64).unwrap_or(at as u64);
        let call = ToolCall { id: text_of(call, "id"), name: text_of(function, "name"), arguments };
        pieces.push(Piece::Call { index, call });
    }
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|it| !it.is_empty()) {
        pieces.push(Piece::Finish(match reason {
            "stop" | "eos" => Finish::Stop,
            "length" => Finish::Length,
            "tool_calls" | "function_call" => Finish::Tools,
            "content_filter" | "refusal" => Finish::Refused,
            _ => Finish::Other,
        }));
    }
}

fn usage(usage: &Value) -> Usage {
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
    let detail = |of: &str, key: &str| usage.get(of).and_then(|details| number(details, key));
    Usage {
        input: number(usage, "prompt_tokens"),
        output: number(usage, "completion_tokens"),
        cached: detail("prompt_tokens_details", "cached_tokens"),
        reasoning: detail("completion_tokens_details", "reasoning_tokens"),
    }
}
