//! Answers: errors as `google.rpc.Status` JSON (spec 11.6), bodies, and the frames of a stream.

use serde_json::{Value, json, value::RawValue};

use crate::{Error, ErrorKind, Event, Result, wire::Dialect};

/// Encodes an error. `status` is its HTTP status: that of its kind, or of a [`Refused`](super::RestRefusal).
pub fn encode_error(status: u16, error: &Error, out: &mut Vec<u8>) {
    let body = json!({ "error": {
        "code": status,
        "status": error.kind().row().grpc.name,
        "message": error.message(),
        "details": error.details(),
    }});
    // A JSON value: serializing to memory cannot fail.
    let _ = serde_json::to_writer(out, &body);
}

/// Decodes an error answer. The reason of an `ErrorInfo` decides, then a JSON-RPC code if the body has one,
/// then the name of the status, and last the HTTP status (protocol-notes.md, Errors).
///
/// Other shapes are decoded as far as possible: an object with `code` and `message` without the envelope,
/// `application/problem+json` (trap T-04), and text of any kind.
#[must_use]
pub fn decode_error(status: u16, body: &[u8]) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = if body["error"].is_object() { &body["error"] } else { &body };
    // An A2A server explains a 404 in a message; a web server without such a route does not.
    let is_a2a = error["message"].is_string();
    let kind = by_code(error)
        .or_else(|| error["status"].as_str().and_then(by_status_name))
        .unwrap_or_else(|| by_http_status(status, is_a2a));
    let message = ["message", "detail", "title", "error"].iter().find_map(|name| error[*name].as_str());
    let message =
        message.map_or_else(|| format!("the agent answered with HTTP status {status}"), str::to_owned);
    let details = match (&error["details"], &error["data"]) {
        (Value::Array(details), _) | (_, Value::Array(details)) => details.clone(),
        (_, Value::Null) => Vec::new(),
        // Kept as a detail of unknown type.
        (_, data) => vec![data.clone()],
    };
    Error::from_details(kind, message, details)
}

fn by_code(error: &Value) -> Option<ErrorKind> {
    error["code"].as_i64().and_then(|code| i32::try_from(code).ok()).and_then(ErrorKind::from_code)
}

/// The kind by the name of a gRPC code; `None` for a name that is no more specific than the HTTP status.
fn by_status_name(name: &str) -> Option<ErrorKind> {
    Some(match name {
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => ErrorKind::InvalidParams,
        "NOT_FOUND" => ErrorKind::TaskNotFound,
        // 1.0.0 used UNIMPLEMENTED for the same (trap T-18).
        "FAILED_PRECONDITION" | "UNIMPLEMENTED" => ErrorKind::UnsupportedOperation,
        "UNAUTHENTICATED" => ErrorKind::Unauthenticated,
        "PERMISSION_DENIED" => ErrorKind::PermissionDenied,
        "RESOURCE_EXHAUSTED" => ErrorKind::ResourceExhausted,
        "UNAVAILABLE" => ErrorKind::Unavailable,
        "DEADLINE_EXCEEDED" => ErrorKind::DeadlineExceeded,
        "INTERNAL" => ErrorKind::Internal,
        _ => return None,
    })
}

fn by_http_status(status: u16, is_a2a: bool) -> ErrorKind {
    match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        404 if is_a2a => ErrorKind::TaskNotFound,
        404 | 405 => ErrorKind::MethodNotFound,
        // 409, 415 and 502 are from 1.0.0 and before (trap T-18).
        409 => ErrorKind::TaskNotCancelable,
        413 => ErrorKind::PayloadTooLarge,
        415 => ErrorKind::ContentTypeNotSupported,
        429 => ErrorKind::ResourceExhausted,
        501 => ErrorKind::UnsupportedOperation,
        502 => ErrorKind::InvalidAgentResponse,
        503 => ErrorKind::Unavailable,
        504 => ErrorKind::DeadlineExceeded,
        400..=499 => ErrorKind::InvalidParams,
        _ => ErrorKind::Internal,
    }
}

/// Decodes the body of a success; an empty one, as of a delete with 204, is `null` (trap T-29).
///
/// # Errors
/// `InvalidAgentResponse` if it is not JSON.
pub fn decode_body(body: &[u8]) -> Result<&RawValue> {
    if body.trim_ascii().is_empty() {
        return Ok(RawValue::NULL);
    }
    serde_json::from_slice(body).map_err(|error| {
        Error::new(ErrorKind::InvalidAgentResponse, format!("the agent's answer is not JSON: {error}"))
    })
}

/// Decodes the data of a frame: an event, or the error that ended the stream.
///
/// # Errors
/// The peer's error; `InvalidAgentResponse` if it is neither.
pub fn decode_event(dialect: &dyn Dialect, data: &str) -> Result<Event> {
    dialect.decode_event(decode_body(data.as_bytes())?).map_err(|error| {
        let is_error = serde_json::from_str::<Value>(data).is_ok_and(|value| value["error"].is_object());
        // The HTTP status was sent before, so only the body has the error.
        if is_error { decode_error(500, data.as_bytes()) } else { error }
    })
}
