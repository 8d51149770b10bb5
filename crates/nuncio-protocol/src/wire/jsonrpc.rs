//! The JSON-RPC 2.0 envelope, in both directions. It knows neither versions nor operations.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

use super::Pieces;
use crate::{Error, ErrorKind, Result};

/// A received request, with values as JSON text.
#[derive(Debug)]
pub struct Request<'a> {
    /// The id to echo; `None` for a notification, which gets no answer.
    pub id: Option<&'a RawValue>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The parameters; absent and `null` are the same.
    pub params: Option<&'a RawValue>,
}

/// A received body.
#[derive(Debug)]
pub enum IncomingBody<'a> {
    /// One request.
    Single(Request<'a>),
    /// Several requests; each has to be decoded by [`open`].
    Batch(Vec<&'a RawValue>),
}

/// A request that could not be decoded, with its id, if that is valid.
#[derive(Debug)]
pub struct RefusedRequest<'a> {
    /// The id to echo, or `null`.
    pub id: Option<&'a RawValue>,
    /// The error.
    pub error: Error,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Distinguishes `null` from absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Decodes a body: one request, or a batch.
///
/// # Errors
/// `ParseError` if it is not JSON (REQ-026), `InvalidRequest` if it is not a request (REQ-025).
pub fn decode_body(body: &[u8]) -> Result<IncomingBody<'_>, RefusedRequest<'_>> {
    let refused = |kind: ErrorKind, why: String| RefusedRequest { id: None, error: Error::new(kind, why) };
    let text = std::str::from_utf8(body).map_err(|_| {
        refused(ErrorKind::ParseError, "invalid JSON payload: the body is not UTF-8".to_owned())
    })?;
    match text.trim_start().as_bytes().first() {
        Some(b'{') => decode_request(text).map(IncomingBody::Single),
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(requests) if requests.is_empty() => {
                Err(refused(ErrorKind::InvalidRequest, "an empty batch is not a request".to_owned()))
            }
            Ok(requests) => Ok(IncomingBody::Batch(requests)),
            Err(error) => Err(refused(ErrorKind::ParseError, format!("invalid JSON payload: {error}"))),
        },
        _ => match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Err(refused(ErrorKind::InvalidRequest, "expected a JSON-RPC request object".to_owned())),
            Err(error) => Err(refused(ErrorKind::ParseError, format!("invalid JSON payload: {error}"))),
        },
    }
}

/// Decodes one request of a batch.
///
/// # Errors
/// As [`decode_body`].
pub fn open(json: &RawValue) -> Result<Request<'_>, RefusedRequest<'_>> {
    decode_request(json.get())
}

fn decode_request(text: &str) -> Result<Request<'_>, RefusedRequest<'_>> {
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        // JSON with, for example, a repeated member is not a request; any other failure means that it is
        // not JSON.
        Err(error) if error.is_data() => {
            return Err(RefusedRequest {
                id: None,
                error: invalid(&format!("not a JSON-RPC request: {error}")),
            });
        }
        Err(error) => {
            let error = Error::new(ErrorKind::ParseError, format!("invalid JSON payload: {error}"));
            return Err(RefusedRequest { id: None, error });
        }
    };
    let good_id = envelope.id.filter(|id| is_id(id.get()));
    let refused = |why: &str| RefusedRequest { id: good_id, error: invalid(why) };
    if envelope.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(refused("jsonrpc: expected \"2.0\""));
    }
    if envelope.id.is_some() && good_id.is_none() {
        return Err(refused("id: expected a string, a number or null"));
    }
    let method = envelope.method.and_then(|method| serde_json::from_str::<Method<'_>>(method.get()).ok());
    let Some(Method(method)) = method else {
        return Err(refused("method: expected a string"));
    };
    let params = envelope.params.filter(|params| params.get() != "null");
    match params.map(|params| params.get().as_bytes()[0]) {
        None | Some(b'{') => Ok(Request { id: good_id, method, params }),
        Some(b'[') => {
            let error = Error::invalid_field("params", "expected an object; positions have no meaning here");
            Err(RefusedRequest { id: good_id, error })
        }
        Some(_) => Err(refused("params: expected an object")),
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, why)
}

#[derive(Deserialize)]
struct Method<'a>(#[serde(borrow)] Cow<'a, str>);

/// True for a string, a number or null.
fn is_id(json: &str) -> bool {
    json == "null" || matches!(json.as_bytes()[0], b'"' | b'-' | b'0'..=b'9')
}

/// The member of [`ErrorData::Object`].
const DETAILS: &str = "details";

const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";

fn head(id: Option<&RawValue>, member: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(id.map_or("null", RawValue::get).as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Encodes a response around the output of `result`.
///
/// # Errors
/// The error of `result`; `out` stays unchanged.
pub fn encode_result(
    id: Option<&RawValue>,
    out: &mut Vec<u8>,
    result: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let start = out.len();
    head(id, "result", out);
    if let Err(error) = result(out) {
        out.truncate(start);
        return Err(error);
    }
    out.push(b'}');
    Ok(())
}

/// A response around a result in pieces.
pub fn result_pieces(id: Option<&RawValue>, result: Pieces) -> Pieces {
    let mut first = Vec::new();
    head(id, "result", &mut first);
    let last = std::iter::once(Bytes::from_static(b"}"));
    Box::new(std::iter::once(first.into()).chain(result).chain(last))
}

/// Shape of `error.data`. The codes and messages of both versions agree; the data does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorData {
    /// The list of details (spec 9.5).
    #[default]
    List,
    /// An object with the list as `details`, for SDKs that accept only an object.
    Object,
}

/// Encodes an error response.
pub fn encode_error(id: Option<&RawValue>, error: &Error, data: ErrorData, out: &mut Vec<u8>) {
    head(id, "error", out);
    let details = error.details().into();
    let body = ErrorObject {
        code: error.kind().row().code,
        message: error.message().into(),
        data: Some(match data {
            ErrorData::List => details,
            ErrorData::Object => json!({ DETAILS: details }),
        }),
    };
    // Strings and JSON values only: serializing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, &body);
    out.push(b'}');
}

/// Encodes a request.
///
/// # Errors
/// The error of `params`.
pub fn encode_request(
    id: u64,
    method: &str,
    out: &mut Vec<u8>,
    params: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    out.extend_from_slice(HEAD);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    params(out)?;
    out.push(b'}');
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct ErrorObject<'a> {
    code: i32,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

#[derive(Deserialize)]
struct Response<'a> {
    jsonrpc: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<ErrorObject<'a>>,
}

#[derive(Deserialize)]
struct Whole<T> {
    result: Option<T>,
    error: Option<IgnoredAny>,
}

/// Decodes a response: its result, or the error that the peer sent.
///
/// # Errors
/// The peer's error; `InvalidAgentResponse` if it is not a response.
pub fn decode_response(body: &[u8]) -> Result<&RawValue> {
    succeeded(body)?.result.ok_or_else(|| not_a_response("neither result nor error"))
}

/// Decodes a response and its result in one pass. `None` if it is not the expected response;
/// [`decode_response`] has the reason.
pub(crate) fn decode_whole<'a, T: Deserialize<'a>>(body: &'a str) -> Option<T> {
    // Serde would also decode a struct from an array.
    let body = Some(body).filter(|body| body.trim_start().starts_with('{'))?;
    let Whole { result, error } = serde_json::from_str(body).ok()?;
    result.filter(|_| error.is_none())
}

/// Decodes a response without content. Its result is null, which the Python SDK leaves out in v0.3.
///
/// # Errors
/// The peer's error; `InvalidAgentResponse` if it is not a response.
pub fn decode_done(body: &[u8]) -> Result<()> {
    let response = succeeded(body)?;
    if response.result.is_none() && response.jsonrpc.is_none() {
        return Err(not_a_response("neither result nor error"));
    }
    Ok(())
}

fn succeeded(body: &[u8]) -> Result<Response<'_>> {
    let mut response: Response<'_> = serde_json::from_slice(body).map_err(not_a_response)?;
    match response.error.take() {
        Some(error) => Err(peer_error(error)),
        None => Ok(response),
    }
}

fn not_a_response(why: impl fmt::Display) -> Error {
    let message = format!("the agent's answer is not a JSON-RPC response: {why}");
    Error::new(ErrorKind::InvalidAgentResponse, message)
}

fn peer_error(error: ErrorObject<'_>) -> Error {
    let kind = ErrorKind::from_code(error.code).unwrap_or(ErrorKind::Internal);
    let details = match error.data {
        Some(Value::Array(details)) => details,
        Some(Value::Object(mut data))
            if data.len() == 1 && data.get(DETAILS).is_some_and(Value::is_array) =>
        {
            match data.remove(DETAILS) {
                Some(Value::Array(details)) => details,
                _ => Vec::new(),
            }
        }
        // v0.3 peers send any JSON; it is kept as a detail of unknown type.
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![other],
    };
    Error::from_details(kind, error.message, details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Event, v03,
        wire::{Dialect, V1},
    };

    fn code(body: &str) -> (i32, String) {
        match decode_body(body.as_bytes()) {
            Err(refused) => {
                (refused.error.kind().row().code, refused.id.map_or("null", RawValue::get).to_owned())
            }
            Ok(IncomingBody::Single(request)) => (0, request.id.map_or("none", RawValue::get).to_owned()),
            Ok(IncomingBody::Batch(requests)) => (1, requests.len().to_string()),
        }
    }

    #[test]
    fn details_are_read_from_a_list_and_from_an_object() {
        let error = Error::invalid_field("id", "required").with_metadata("taskId", "t");
        for (data, begins) in [(ErrorData::List, "["), (ErrorData::Object, r#"{"details":["#)] {
            let mut out = Vec::new();
            encode_error(None, &error, data, &mut out);
            let text = std::str::from_utf8(&out).unwrap();
            assert!(text.contains(&format!("\"data\":{begins}")), "{text}");
            let again = decode_response(&out).unwrap_err();
            assert_eq!((again.kind(), again.details()), (error.kind(), error.details()));
        }
        // More than our one member is a peer's own.
        let own =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":{"details":[],"x":1}}}"#;
        assert_eq!(decode_response(own.as_bytes()).unwrap_err().details().len(), 2);
    }

    #[test]
    fn envelopes() {
        // REQ-025 to REQ-029
        for (body, expected, id) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}"#, 0, "1"),
            (r#"{"jsonrpc":"2.0","id":"a\"b","method":"GetTask"}"#, 0, r#""a\"b""#),
            (r#"{"jsonrpc":"2.0","id":null,"method":"GetTask","params":null}"#, 0, "null"),
            (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, 0, "none"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask""#, -32700, "null"),
            ("", -32700, "null"),
            ("\u{feff}{}", -32700, "null"),
            ("hello", -32700, "null"),
            ("\"hello\"", -32600, "null"),
            ("{}", -32600, "null"),
            (r#"{"jsonrpc":"1.0","id":7,"method":"GetTask"}"#, -32600, "7"),
            (r#"{"jsonrpc":2.0,"id":7,"method":"GetTask"}"#, -32600, "7"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600, "null"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#, -32600, "null"),
            (r#"{"jsonrpc":"2.0","id":7}"#, -32600, "7"),
            (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, -32600, "7"),
            (r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":"x"}"#, -32600, "7"),
            (r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":[1]}"#, -32602, "7"),
            (r#"[{"jsonrpc":"2.0","id":7,"method":"GetTask"}]"#, 1, "1"),
            ("[]", -32600, "null"),
            ("[1,", -32700, "null"),
        ] {
            assert_eq!(code(body), (expected, id.to_owned()), "{body}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_a_parse_error() {
        let refused = decode_body(b"{\"jsonrpc\":\"\xff\"}").unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::ParseError);
    }

    #[test]
    fn what_was_done_needs_no_result() {
        for done in [r#"{"jsonrpc":"2.0","id":1,"result":null}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#] {
            decode_done(done.as_bytes()).unwrap();
        }
        decode_done(br#"{"jsonrpc":"2.0","id":1}"#).unwrap();
        let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no"}}"#;
        assert_eq!(decode_done(refused).unwrap_err().kind(), ErrorKind::TaskNotFound);
        for other in ["{}", r#"{"status":"ok"}"#, "null", "[]", ""] {
            let error = decode_done(other.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{other}");
        }
    }

    #[test]
    fn responses() {
        let result = decode_response(br#"{"jsonrpc":"2.0","id":1,"result":null}"#).unwrap();
        assert_eq!(result.get(), "null");
        let error = decode_response(
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found","data":{"a":1}}}"#,
        )
        .unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::TaskNotFound, "Task not found"));
        let error = decode_response(b"<html>").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
        let error = decode_response(br#"{"jsonrpc":"2.0","id":1}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
    }

    /// The one pass is for speed alone: whatever comes, it says what two passes say.
    #[test]
    fn an_event_is_read_in_one_pass_as_in_two() {
        let status =
            r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
        let old = r#"{"kind":"status-update","taskId":"t","contextId":"c","final":false,"status":{"state":"working"}}"#;
        let error = r#"{"code":-32001,"message":"no"}"#;
        let bodies = |event: &str| {
            [
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}}}"#),
                format!(r#"{{"result":{event},"extra":[{{}}],"id":"a","jsonrpc":"2.0"}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event},"error":null}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event},"error":{error}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":null,"error":{error}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event},"result":{event}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}}} x"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{event}"#),
                format!("[{event},null]"),
            ]
        };
        let dialects: [&dyn Dialect; 2] = [&V1, &v03::JsonRpc];
        let events = [status, old, "null", "{}", "7", r#"{"task":{"id":7}}"#, r#"{"kind":"task","id":"t"}"#];
        for (dialect, body) in dialects.iter().flat_map(|dialect| {
            events.iter().flat_map(|event| bodies(event)).map(move |body| (*dialect, body))
        }) {
            let two = decode_response(body.as_bytes()).and_then(|result| dialect.decode_event(result));
            let one = dialect.decode_event_response(&body);
            let told = |read: Result<Event>| read.map_err(|error| (error.kind(), error.message().to_owned()));
            assert_eq!(told(one), told(two), "{body}");
        }
        for (dialect, event) in dialects.into_iter().zip([status, old]) {
            let read = bodies(event).map(|body| dialect.event_of(&body).is_some());
            assert_eq!(read, [true, true, true, false, false, false, false, false, false], "{event}");
        }
    }
}
