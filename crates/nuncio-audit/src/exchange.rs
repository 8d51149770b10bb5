//! Single calls of an interface, judged frame by frame: for programs that show what an agent says, such as a
//! playground. Who makes the connection is their own affair.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use nuncio_protocol::{
    AgentCard, AgentInterface, Event, Message, Result, Task,
    op::{Call, Op},
    wire::{Dialect as _, V1},
};
use serde_json::Value;
use url::Url;

pub use crate::wire::{Frame, FrameData, FrameReader};
use crate::{
    answer::{Answer, Said, Success, Typed, read_frame},
    interface::{Interface, notification_dialect},
    outcome::InterfaceId,
    shape::{self, Class, Deviation},
    wire::{Exchange, Failure, Request, Response},
};

/// Maximum number of deviations of one frame that are told.
const MAX_NOTES: usize = 20;
/// Maximum length of the values in a note.
const MAX_NOTE_CHARS: usize = 120;

/// An interface of an agent, in a version and a binding.
#[derive(Clone, Debug)]
pub struct CallInterface(Interface);

/// A call as a request.
#[derive(Clone, Debug)]
pub struct CallRequest {
    request: Request,
    /// The message of gRPC as JSON.
    message: Option<String>,
}

/// The validity of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// It has the exact form of the version.
    Valid,
    /// Its meaning is clear, and its form is not that of the version.
    Deviates,
    /// It is an error of the agent, in the form of the binding.
    Error,
    /// It has no meaning in this version and binding.
    Invalid,
}

/// A frame with its meaning.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The validity of its form.
    pub validity: Validity,
    /// The deviations, or the error.
    pub notes: Vec<String>,
    /// Absent: it has none, or it is an error.
    pub meaning: Option<Meaning>,
    /// The frame as text; of gRPC as JSON of 1.0.
    pub text: String,
}

/// The meaning of a frame.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A task as a whole.
    Task(Task),
    /// A reply, without a task.
    Message(Arc<Message>),
    /// An event of a stream, or of a notification.
    Event(Event),
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub struct WholeAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The trailers, which gRPC has.
    pub trailers: HeaderMap,
}

/// True if an answer is a stream of events.
pub fn is_stream<B>(response: &http::Response<B>) -> bool {
    crate::wire::is_stream(response)
}

impl CallInterface {
    /// Reads an interface of a card that came from `home`. Its calls list the extensions that the card requires, and
    /// `extensions`.
    ///
    /// # Errors
    /// The reason why it cannot be called.
    pub fn read(
        listed: &AgentInterface,
        home: &Url,
        card: &AgentCard,
        extensions: &[String],
    ) -> Result<Self, String> {
        Interface::read(listed, home, card, extensions).map(Self)
    }

    /// The version, the binding and the address.
    #[must_use]
    pub fn id(&self) -> &InterfaceId {
        &self.0.id
    }

    /// A call as a request.
    ///
    /// # Errors
    /// The version does not have the operation, or cannot say what the call says.
    pub fn request(&self, call: Call) -> Result<CallRequest> {
        let message = match self.0.binding {
            nuncio_protocol::Binding::Grpc => {
                let mut message = Vec::new();
                V1.encode_call(&call, &mut message)?;
                String::from_utf8(message).ok()
            }
            _ => None,
        };
        Ok(CallRequest { request: self.0.request(call)?, message })
    }

    /// Judges a whole answer to an operation.
    #[must_use]
    pub fn judge(&self, op: Op, request: &CallRequest, answer: WholeAnswer) -> Judged {
        let WholeAnswer { status, headers, body, trailers } = answer;
        let text = String::from_utf8_lossy(&body).into_owned();
        let response = Ok(Response { status, headers, body, trailers });
        self.judge_response(op, request, response, text)
    }

    /// Judges the trailers at the end of a stream; `None` if they have no error.
    #[must_use]
    pub fn judge_end(&self, op: Op, request: &CallRequest, answer: WholeAnswer) -> Option<Judged> {
        let judged = self.judge(op, request, answer);
        (judged.validity == Validity::Error).then_some(judged)
    }

    fn judge_response(
        &self,
        op: Op,
        request: &CallRequest,
        response: Result<Response, Failure>,
        text: String,
    ) -> Judged {
        let exchange = Exchange { request: request.request.clone(), response };
        let is_grpc = self.0.binding == nuncio_protocol::Binding::Grpc;
        match Answer::read(&self.0, op, exchange).said {
            Said::Success(Success { raw, typed }) => {
                let deviations =
                    if is_grpc { Vec::new() } else { shape::of_result(self.0.dialect(), op, &raw) };
                let text = if is_grpc { raw.to_string() } else { text };
                match typed {
                    Ok(typed) => judged(&deviations, meaning(typed), text),
                    Err(why) => Judged::invalid(why, text),
                }
            }
            Said::Error(refusal) => Judged {
                validity: Validity::Error,
                notes: vec![format!("{}: {}", refusal.shown(), refusal.message)],
                meaning: None,
                text,
            },
            Said::Foreign(why) => Judged::invalid(why, text),
            Said::Silent(failure) => Judged::invalid(failure.to_string(), text),
        }
    }

    /// Judges an event of a stream.
    #[must_use]
    pub fn judge_event(&self, frame: &Frame) -> Judged {
        let seen = read_frame(&self.0, frame);
        let text = match &frame.data {
            FrameData::Text(text) => text.clone(),
            FrameData::Message(_) => seen.raw.to_string(),
        };
        match seen.event {
            Ok(event) => {
                let deviations = match &frame.data {
                    FrameData::Text(_) => shape::of_event(self.0.dialect(), &seen.raw),
                    FrameData::Message(_) => Vec::new(),
                };
                judged(&deviations, Some(Meaning::Event(event)), text)
            }
            Err(refusal) => Judged {
                validity: if refusal.raw.is_object() { Validity::Error } else { Validity::Invalid },
                notes: vec![format!("{}: {}", refusal.shown(), refusal.message)],
                meaning: None,
                text,
            },
        }
    }
}

/// Judges the body of a notification, which is an event of 1.0 or a task of 0.3.
#[must_use]
pub fn judge_notification(body: &[u8]) -> Judged {
    let text = String::from_utf8_lossy(body).into_owned();
    let Ok(raw) = serde_json::from_slice::<Value>(body) else {
        return Judged::invalid("the body is not JSON".to_owned(), text);
    };
    let dialect = notification_dialect(&raw);
    let event = serde_json::value::RawValue::from_string(raw.to_string())
        .map_err(|error| error.to_string())
        .and_then(|raw| dialect.decode_event(&raw).map_err(|error| error.message().to_owned()));
    match event {
        Ok(event) => judged(&shape::of_event(dialect, &raw), Some(Meaning::Event(event)), text),
        Err(why) => Judged::invalid(why, text),
    }
}

impl Judged {
    fn invalid(why: String, text: String) -> Self {
        Self { validity: Validity::Invalid, notes: vec![why], meaning: None, text }
    }
}

fn judged(deviations: &[Deviation], meaning: Option<Meaning>, text: String) -> Judged {
    let validity = if deviations.is_empty() { Validity::Valid } else { Validity::Deviates };
    Judged { validity, notes: deviations.iter().take(MAX_NOTES).map(note).collect(), meaning, text }
}

fn note(deviation: &Deviation) -> String {
    let Deviation { path, class, before, after } = deviation;
    let (before, after) = (bounded(before), bounded(after));
    match class {
        Class::Missing => format!("{path}: is missing; expected {after}"),
        Class::Unknown => format!("{path}: is no member of this version"),
        Class::Enum | Class::Name | Class::Value => format!("{path}: {before}; expected {after}"),
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_NOTE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn meaning(typed: Typed) -> Option<Meaning> {
    match typed {
        Typed::Task(task) => Some(Meaning::Task(task)),
        Typed::Message(message) => Some(Meaning::Message(message)),
        Typed::Tasks(_) | Typed::PushConfig(_) | Typed::PushConfigs(_) | Typed::Card | Typed::Empty => None,
    }
}

impl CallRequest {
    /// Names a header with a credential that is added when the request is sent. Texts show it as a variable.
    #[must_use]
    pub fn with_secret(mut self, name: &HeaderName) -> Self {
        self.request.secrets.push(name.as_str().to_owned());
        self
    }

    /// The request without its credentials.
    ///
    /// # Errors
    /// Its address is none of HTTP.
    pub fn http(&self) -> Result<http::Request<Bytes>, String> {
        let mut request = http::Request::new(self.request.body.clone());
        *request.method_mut() = self.request.method.clone();
        *request.uri_mut() =
            self.request.url.as_str().parse().map_err(|_| "the address is invalid".to_owned())?;
        *request.headers_mut() = self.request.headers.clone();
        Ok(request)
    }

    /// The address of the request.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.request.url
    }

    /// True if the request needs HTTP/2.
    #[must_use]
    pub fn needs_http2(&self) -> bool {
        self.request.http2
    }

    /// A shell command that repeats the request. Credentials are variables.
    #[must_use]
    pub fn curl(&self) -> String {
        self.request.curl()
    }

    /// The request as text: its line, its headers and its body; the message of gRPC as JSON of 1.0.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} {}\n", self.request.method, self.request.shown_url());
        for (name, value) in &self.request.headers {
            text.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or("?")));
        }
        for name in &self.request.secrets {
            text.push_str(&format!("{name}: (not shown)\n"));
        }
        let body = match &self.message {
            Some(message) => message.clone(),
            None => String::from_utf8_lossy(&self.request.body).into_owned(),
        };
        if body.is_empty() { text } else { format!("{text}\n{body}") }
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{Part, SendMessageRequest};
    use serde_json::json;

    use super::*;

    fn interface(version: &str, binding: &str) -> CallInterface {
        // A gRPC service is at the root of its host.
        let path = if binding == "GRPC" { "" } else { "/a" };
        let listed = AgentInterface {
            url: format!("http://agent.example{path}"),
            protocol_binding: binding.to_owned(),
            protocol_version: version.to_owned(),
            ..AgentInterface::default()
        };
        let home = Url::parse("http://agent.example/").unwrap();
        CallInterface::read(&listed, &home, &AgentCard::default(), &["https://x.example/e".to_owned()])
            .unwrap()
    }

    fn call() -> Call {
        let message = Message::user("m", Part::text("hello"));
        Call::SendMessage(Box::new(SendMessageRequest { message, ..SendMessageRequest::default() }))
    }

    #[test]
    fn an_answer_is_judged_by_the_form_of_its_version() {
        let task =
            json!({ "task": { "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } } });
        let loose = json!({ "task": { "id": "t", "contextId": "c", "status": { "state": "working" } } });
        let rpc = |result: &Value| json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
        let refused = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32001, "message": "no" } });
        for (binding, status, body, expected) in [
            ("JSONRPC", 200, rpc(&task), Validity::Valid),
            ("HTTP+JSON", 200, task.to_string(), Validity::Valid),
            ("JSONRPC", 200, rpc(&loose), Validity::Deviates),
            ("JSONRPC", 200, rpc(&json!("nothing")), Validity::Invalid),
            ("JSONRPC", 200, "<html>".to_owned(), Validity::Invalid),
            ("JSONRPC", 200, refused.to_string(), Validity::Error),
            ("HTTP+JSON", 404, json!({ "error": { "code": 404 } }).to_string(), Validity::Error),
        ] {
            let interface = interface("1.0", binding);
            let request = interface.request(call()).unwrap();
            let answer = WholeAnswer { status, body: body.clone().into(), ..WholeAnswer::default() };
            let judged = interface.judge(Op::SendMessage, &request, answer);
            assert_eq!(judged.validity, expected, "{binding} {body} {:?}", judged.notes);
            assert_eq!(judged.text, body);
        }
    }

    #[test]
    fn a_notification_is_of_either_version() {
        for (body, expected) in [
            (
                json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } } }),
                Validity::Valid,
            ),
            (
                json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": "working" } }),
                Validity::Valid,
            ),
            (json!([]), Validity::Invalid),
        ] {
            let judged = judge_notification(body.to_string().as_bytes());
            assert_eq!(judged.validity, expected, "{body} {:?}", judged.notes);
        }
    }

    #[test]
    fn a_request_is_text_and_a_command_without_its_credentials() {
        let (rpc, grpc) = (interface("0.3", "JSONRPC"), interface("1.0", "GRPC"));
        let request = rpc.request(call()).unwrap().with_secret(&http::header::AUTHORIZATION);
        assert!(request.text().starts_with("POST http://agent.example/a\n"), "{}", request.text());
        assert!(request.text().contains("x-a2a-extensions: https://x.example/e\n"));
        assert!(request.text().contains("authorization: (not shown)"));
        assert!(request.curl().contains("\"authorization: $AUTHORIZATION\""), "{}", request.curl());
        let request = grpc.request(call()).unwrap();
        assert!(request.needs_http2() && request.text().contains(r#""text":"hello""#), "{}", request.text());
    }
}
