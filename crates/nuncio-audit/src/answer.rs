//! An answer, decoded: liberal on what it means, with the bytes beside it for checks of its form.

use std::sync::Arc;

use nuncio_protocol::{
    Binding, Error, ErrorKind, Event, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Message,
    SendMessageResponse, Task, TaskPushNotificationConfig,
    op::{Op, Reply},
    wire::{Dialect, V1, jsonrpc, rest},
};
use serde_json::{Value, value::RawValue};

use crate::{
    interface::Interface,
    shape,
    wire::{Exchange, Failure, Frame, FrameData, GrpcAnswer, Response, status_details},
};

/// A result in the types of the protocol.
#[derive(Clone, Debug)]
pub(crate) enum Typed {
    Task(Task),
    Message(Arc<Message>),
    Tasks(ListTasksResponse),
    PushConfig(TaskPushNotificationConfig),
    PushConfigs(ListTaskPushNotificationConfigsResponse),
    Card,
    Empty,
}

impl Typed {
    fn from_reply(reply: Reply) -> Option<Self> {
        Some(match reply {
            Reply::Sent(SendMessageResponse::Task(task)) | Reply::Task(task) => Self::Task(task),
            Reply::Sent(SendMessageResponse::Message(message)) => Self::Message(message),
            Reply::Tasks(tasks) => Self::Tasks(tasks),
            Reply::PushConfig(config) => Self::PushConfig(config),
            Reply::PushConfigs(configs) => Self::PushConfigs(configs),
            Reply::Card(_) => Self::Card,
            Reply::Empty => Self::Empty,
            Reply::Stream(_) => return None,
        })
    }
}

/// A result: its JSON as received (for gRPC as 1.0 writes it), and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Success {
    pub(crate) raw: Value,
    /// The meaning, or the reason why it has none.
    pub(crate) typed: Result<Typed, String>,
}

/// An error of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The kind, by every hint of the answer.
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// The HTTP status.
    pub(crate) http: u16,
    /// The code of JSON-RPC, or the status of gRPC; of HTTP+JSON the HTTP status.
    pub(crate) code: i64,
    /// The error as JSON; null if it has none.
    pub(crate) raw: Value,
    /// The typed details.
    pub(crate) details: Vec<Value>,
}

impl Refusal {
    /// The error in one line, for reports.
    pub(crate) fn shown(&self) -> String {
        format!("error {} ({})", self.code, self.kind.row().reason)
    }
}

/// The meaning of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Success(Success),
    Error(Refusal),
    /// Not an answer of this binding; the reason.
    Foreign(String),
    /// No answer.
    Silent(Failure),
}

/// An exchange with its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) exchange: Exchange,
    pub(crate) said: Said,
}

impl Answer {
    /// Decodes an exchange of this operation.
    pub(crate) fn read(interface: &Interface, op: Op, exchange: Exchange) -> Self {
        let said = match &exchange.response {
            Err(failure) => Said::Silent(failure.clone()),
            Ok(response) => match interface.binding {
                Binding::JsonRpc => read_rpc(interface.dialect(), op, response),
                Binding::HttpJson => read_rest(interface, op, response),
                Binding::Grpc => read_grpc(interface, op, response),
            },
        };
        Self { exchange, said }
    }

    pub(crate) fn error(&self) -> Option<&Refusal> {
        match &self.said {
            Said::Error(refusal) => Some(refusal),
            Said::Success(_) | Said::Foreign(_) | Said::Silent(_) => None,
        }
    }

    pub(crate) fn success(&self) -> Option<&Success> {
        match &self.said {
            Said::Success(success) => Some(success),
            Said::Error(_) | Said::Foreign(_) | Said::Silent(_) => None,
        }
    }

    pub(crate) fn task(&self) -> Option<&Task> {
        match self.success()?.typed.as_ref().ok()? {
            Typed::Task(task) => Some(task),
            _ => None,
        }
    }

    /// The answer in one line, for reports.
    pub(crate) fn shown(&self) -> String {
        match &self.said {
            Said::Success(Success { typed: Ok(Typed::Task(task)), .. }) => {
                format!("a task in {}", task.status.state.as_str())
            }
            Said::Success(_) => "a result".to_owned(),
            Said::Error(refusal) => refusal.shown(),
            Said::Foreign(why) => why.clone(),
            Said::Silent(failure) => failure.to_string(),
        }
    }
}

fn read_rpc(dialect: &dyn Dialect, op: Op, response: &Response) -> Said {
    let Ok(body) = serde_json::from_slice::<Value>(&response.body) else {
        return unauthenticated(response).unwrap_or_else(|| foreign(response, "a JSON-RPC response"));
    };
    if body["error"].is_object() {
        let error = &body["error"];
        let told = match jsonrpc::decode_response(&response.body) {
            Err(told) => told,
            Ok(_) => Error::new(ErrorKind::Internal, "an error"),
        };
        let code = error["code"].as_i64().unwrap_or_default();
        let by_http = (told.kind() == ErrorKind::Internal).then(|| by_status(response.status)).flatten();
        let kind = by_http.unwrap_or(told.kind());
        return Said::Error(refusal(kind, &told, code, error.clone(), response.status));
    }
    let is_response = body["jsonrpc"].is_string() || body.get("result").is_some();
    if !is_response {
        return unauthenticated(response).unwrap_or_else(|| foreign(response, "a JSON-RPC response"));
    }
    let raw = body.get("result").cloned().unwrap_or_default();
    Said::Success(Success { typed: typed(dialect, op, &raw), raw })
}

fn read_rest(interface: &Interface, op: Op, response: &Response) -> Said {
    let body = serde_json::from_slice::<Value>(&response.body);
    if (200..300).contains(&response.status) {
        let raw = match body {
            Ok(raw) => raw,
            Err(_) if response.body.trim_ascii().is_empty() => Value::Null,
            Err(_) => return foreign(response, "a JSON body"),
        };
        return Said::Success(Success { typed: typed(interface.dialect(), op, &raw), raw });
    }
    let Ok(raw) = body else {
        return unauthenticated(response).unwrap_or_else(|| foreign(response, "an error as JSON"));
    };
    let told = interface.decode_error(response.status, &response.body);
    Said::Error(refusal(told.kind(), &told, i64::from(response.status), raw, response.status))
}

fn read_grpc(interface: &Interface, op: Op, response: &Response) -> Said {
    let Some(answer) = GrpcAnswer::read(response) else {
        return unauthenticated(response).unwrap_or_else(|| foreign(response, "a gRPC status"));
    };
    if answer.code != 0 {
        let told = (interface.codec().decode_status)(answer.code, &answer.message, &answer.details);
        let plain = refusal(told.kind(), &told, answer.code.into(), Value::Null, response.status);
        return Said::Error(Refusal { details: status_details(&answer.details), ..plain });
    }
    let Some(message) = answer.messages.into_iter().next() else {
        return Said::Foreign("the rpc succeeded without a message".to_owned());
    };
    match (interface.codec().decode_reply)(op, message) {
        Ok(reply) => {
            let mut raw = Vec::new();
            let written = V1.encode_reply(op, &reply, &mut raw);
            let raw = written.ok().and_then(|()| serde_json::from_slice(&raw).ok()).unwrap_or_default();
            let typed = Typed::from_reply(reply).ok_or_else(|| "a stream".to_owned());
            Said::Success(Success { raw, typed })
        }
        Err(error) => Said::Success(Success { raw: Value::Null, typed: Err(error.message().to_owned()) }),
    }
}

fn typed(dialect: &dyn Dialect, op: Op, raw: &Value) -> Result<Typed, String> {
    let (raw, _) = shape::repair(dialect.version(), raw);
    let text = RawValue::from_string(raw.to_string()).map_err(|error| error.to_string())?;
    let reply = dialect.decode_reply(op, &text).map_err(|error| error.message().to_owned())?;
    Typed::from_reply(reply).ok_or_else(|| "a stream".to_owned())
}

fn refusal(kind: ErrorKind, told: &Error, code: i64, raw: Value, http: u16) -> Refusal {
    let list = |value: &Value| value.as_array().cloned();
    let details = list(&raw["data"]).or_else(|| list(&raw["error"]["details"])).unwrap_or_default();
    Refusal { kind, message: told.message().to_owned(), http, code, raw, details }
}

/// The kind of an error that HTTP alone tells.
fn by_status(status: u16) -> Option<ErrorKind> {
    match status {
        401 => Some(ErrorKind::Unauthenticated),
        403 => Some(ErrorKind::PermissionDenied),
        429 => Some(ErrorKind::ResourceExhausted),
        503 => Some(ErrorKind::Unavailable),
        _ => None,
    }
}

/// An answer without a body of the binding that is clear by its status.
fn unauthenticated(response: &Response) -> Option<Said> {
    let kind = by_status(response.status)?;
    let told = Error::new(kind, format!("HTTP status {}", response.status));
    Some(Said::Error(refusal(kind, &told, i64::from(response.status), Value::Null, response.status)))
}

fn foreign(response: &Response, expected: &str) -> Said {
    let media_type = response.media_type();
    let media_type = if media_type.is_empty() { "no content type" } else { &media_type };
    let location = response.header("location").map(|to| format!(", a redirect to {to}")).unwrap_or_default();
    Said::Foreign(format!("expected {expected}, got HTTP {} with {media_type}{location}", response.status))
}

/// An event of a stream, decoded.
#[derive(Clone, Debug)]
pub(crate) struct SeenEvent {
    /// The JSON of the event itself, as received; for gRPC as 1.0 writes it.
    pub(crate) raw: Value,
    /// The whole data of the frame; equal to `raw` where there is no envelope.
    pub(crate) envelope: Value,
    pub(crate) event: Result<Event, Refusal>,
}

/// Decodes a frame of a stream.
pub(crate) fn read_frame(interface: &Interface, frame: &Frame) -> SeenEvent {
    let failed = |told: &Error, raw: &Value| {
        refusal(told.kind(), told, told.kind().row().code.into(), raw.clone(), 200)
    };
    match &frame.data {
        FrameData::Message(message) => {
            let event = (interface.codec().decode_event)(message.clone());
            let raw =
                event.as_ref().ok().and_then(|event| serde_json::to_value(event).ok()).unwrap_or_default();
            SeenEvent { envelope: raw.clone(), event: event.map_err(|told| failed(&told, &raw)), raw }
        }
        FrameData::Text(text) => {
            let envelope: Value = serde_json::from_str(text).unwrap_or_default();
            let dialect = interface.dialect();
            let (raw, event) = match interface.binding {
                Binding::JsonRpc => (envelope["result"].clone(), dialect.decode_event_response(text)),
                _ => (envelope.clone(), rest::decode_event(dialect, text)),
            };
            let event = event.map_err(|told| failed(&told, &envelope["error"]));
            SeenEvent { raw, envelope, event }
        }
    }
}
