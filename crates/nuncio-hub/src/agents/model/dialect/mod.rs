//! The dialects of providers: a prompt as the body of a request, and the events of an answer as pieces.
//!
//! Pure: bytes in, values out. Reading order: this file has the vocabulary that both dialects share; `openai` (chat
//! completions) and `anthropic` (Messages) are the dialects.

mod anthropic;
mod openai;
#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::ModelDialect as Dialect;

/// The instruction for an answer in JSON. Providers with a JSON mode demand that the prompt asks for it, too.
const JSON_INSTRUCTION: &str = "Answer with one JSON value and nothing else.";

/// A prompt: the input of a model for one answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompt {
    pub(crate) model: String,
    pub(crate) instructions: Option<String>,
    /// The conversation, oldest first. The last turn is not the model's.
    pub(crate) turns: Vec<Turn>,
    pub(crate) output: OutputForm,
    /// The tools that the model may call.
    pub(crate) tools: Vec<ToolSpec>,
    /// No tool may be called any more.
    pub(crate) tools_are_over: bool,
    pub(crate) max_tokens: Option<u64>,
    /// Further members of the request, as the operator configured them.
    pub(crate) parameters: Map<String, Value>,
}

/// One side's contribution to the conversation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Turn {
    pub(crate) speaker: Speaker,
    pub(crate) items: Vec<Item>,
}

/// The side that a turn belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// The caller.
    User,
    /// The model.
    Model,
}

/// A piece of a turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    Text(String),
    Image(Media),
    Audio(Media),
    Document(Media),
    /// Reasoning before a call of a tool, with the provider's signature: some demand it back.
    Reasoning {
        text: String,
        signature: String,
    },
    /// The model calls a tool.
    Call(ToolCall),
    /// The result of such a call.
    Result(ToolResult),
}

/// A tool, as the model is told of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ToolSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The JSON Schema of its arguments.
    pub(crate) schema: Value,
}

/// A call of a tool by the model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    /// The name in the [`ToolSpec`].
    pub(crate) name: String,
    /// JSON, as the model wrote it.
    pub(crate) arguments: String,
}

/// The result of a call, for the model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToolResult {
    /// The id of the call.
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// A file in a prompt.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Media {
    pub(crate) media_type: String,
    pub(crate) filename: Option<String>,
    pub(crate) source: Source,
}

/// The source of a file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Source {
    /// Its bytes, inline.
    Bytes(Bytes),
    /// Its address, which the provider fetches.
    Url(String),
}

impl Media {
    fn base64(&self) -> Option<String> {
        match &self.source {
            Source::Bytes(bytes) => Some(STANDARD.encode(bytes)),
            Source::Url(_) => None,
        }
    }

    /// The address of the file, or its bytes as a `data:` URL.
    fn url(&self) -> String {
        match &self.source {
            Source::Bytes(bytes) => format!("data:{};base64,{}", self.media_type, STANDARD.encode(bytes)),
            Source::Url(url) => url.clone(),
        }
    }
}

/// The form of the answer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum OutputForm {
    #[default]
    Text,
    /// Any JSON value.
    Json,
    /// JSON of this schema.
    Schema(Value),
}

/// A piece of an answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Piece {
    Text(String),
    Reasoning(String),
    /// The provider's signature of the reasoning so far.
    Signature(String),
    /// A piece of a call. Its parts are added to those of the same index; a new id begins a new call.
    Call {
        index: u64,
        call: ToolCall,
    },
    /// The words of a refusal.
    Refusal(String),
    Finish(Finish),
    /// The tokens so far: each figure replaces an earlier one.
    Usage(Usage),
    /// The provider reports an error in the middle of the stream.
    Error(String),
    /// The answer is complete.
    End,
}

/// The reason why the model stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    Stop,
    /// The limit of tokens is reached.
    Length,
    /// The model or a filter of the provider refused.
    Refused,
    /// The model waits for the results of its calls.
    Tools,
    /// A word that this dialect does not have.
    Other,
}

impl Finish {
    /// The word in metadata.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::Tools => "tools",
            Self::Other => "other",
        }
    }
}

/// Tokens of an answer; `None` for a figure that the provider did not report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) reasoning: Option<u64>,
}

impl Usage {
    /// The tokens of two answers.
    pub(crate) fn and(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        Self {
            input: sum(self.input, other.input),
            output: sum(self.output, other.output),
            cached: sum(self.cached, other.cached),
            reasoning: sum(self.reasoning, other.reasoning),
        }
    }

    /// The tokens of prompt and answer together.
    pub(crate) fn total(self) -> u64 {
        self.input.unwrap_or_default().saturating_add(self.output.unwrap_or_default())
    }

    /// Takes over the figures of a later report.
    pub(crate) fn update(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
        self.cached = later.cached.or(self.cached);
        self.reasoning = later.reasoning.or(self.reasoning);
    }
}

/// An event that is not of the dialect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Undecodable(pub(crate) String);

/// Decodes the data of an event into pieces.
///
/// # Errors
/// The event is not of the dialect.
pub(crate) fn decode(dialect: Dialect, data: &str) -> Result<Vec<Piece>, Undecodable> {
    match dialect {
        Dialect::OpenAi => openai::decode(data),
        Dialect::Anthropic => anthropic::decode(data),
    }
}

/// The path of the request below the provider's address.
pub(crate) fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi => "chat/completions",
        Dialect::Anthropic => "messages",
    }
}

/// Encodes the body of a request.
pub(crate) fn encode(dialect: Dialect, prompt: &Prompt, is_default_provider: bool) -> Value {
    match dialect {
        Dialect::OpenAi => openai::encode(prompt, is_default_provider),
        Dialect::Anthropic => anthropic::encode(prompt),
    }
}

/// True if the dialect can express a file of this type.
pub(crate) fn takes(dialect: Dialect, media: &Item) -> bool {
    match (dialect, media) {
        (_, Item::Text(_) | Item::Image(_) | Item::Reasoning { .. } | Item::Call(_) | Item::Result(_))
        | (Dialect::Anthropic, Item::Document(_)) => true,
        // By their bytes only.
        (Dialect::OpenAi, Item::Audio(media) | Item::Document(media)) => {
            matches!(media.source, Source::Bytes(_))
        }
        (Dialect::Anthropic, Item::Audio(_)) => false,
    }
}

/// The provider's message in the body of an error: `{"error":{"message":…}}`, `{"error":"…"}`, `{"message":…}` or
/// `{"detail":…}`.
pub(crate) fn error_message(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // Some servers answer with a list of one error.
    let body = body.get(0).unwrap_or(&body);
    let error = body.get("error");
    let text = [error.and_then(|error| error.get("message")), error, body.get("message"), body.get("detail")];
    let text = text.into_iter().flatten().find_map(Value::as_str)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The ids in a provider's list of models, which both dialects write alike.
///
/// # Errors
/// It is not such a list.
pub(crate) fn decode_models(body: &[u8]) -> Result<Vec<String>, Undecodable> {
    let body: Value = serde_json::from_slice(body).map_err(|error| Undecodable(error.to_string()))?;
    let list = body.get("data").or_else(|| body.get("models")).and_then(Value::as_array);
    let list = list.ok_or_else(|| Undecodable("expected a list of models".to_owned()))?;
    let id = |model: &Value| {
        let id = model.get("id").or_else(|| model.get("name")).and_then(Value::as_str)?;
        (!id.is_empty()).then(|| id.to_owned())
    };
    Ok(list.iter().filter_map(id).collect())
}

/// The instructions, with the demand for JSON if the answer has to be JSON.
fn instructions(prompt: &Prompt) -> Option<String> {
    let wants_json = prompt.output != OutputForm::Text;
    match (&prompt.instructions, wants_json) {
        (Some(own), true) => Some(format!("{own}\n\n{JSON_INSTRUCTION}")),
        (Some(own), false) => Some(own.clone()),
        (None, true) => Some(JSON_INSTRUCTION.to_owned()),
        (None, false) => None,
    }
}

/// The arguments of a call as an object. Models write nothing for a tool without arguments.
///
/// # Errors
/// Says why they are not one.
pub(crate) fn arguments(call: &ToolCall) -> Result<Map<String, Value>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the data of an event.
fn parse(data: &str) -> Result<Value, Undecodable> {
    serde_json::from_str(data).map_err(|error| Undecodable(error.to_string()))
}

/// The text of a member; empty if there is none.
fn text_of(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
