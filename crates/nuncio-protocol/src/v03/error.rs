//! Errors of v0.3 over HTTP+JSON. The specification only requires "appropriate status codes" and
//! "consistent JSON". We use the statuses of a2a-python 0.3 and a body that every SDK can read
//! (protocol-notes.md, Errors).

use serde_json::{Value, json};

use crate::{Error, ErrorKind, wire::rest};

/// The HTTP status and the body of an error: `code` (of JSON-RPC) and `message` at the top level and
/// details in `data`, for the JavaScript and Python SDKs; and an `error` as in v1.0. a2a-go 2.x reads only
/// `error`, and a2a-java 0.3 fails without a member of this name.
#[must_use]
pub fn rest_error(error: &Error) -> (u16, Value) {
    let status = status(error.kind());
    let mut body = members(error);
    body["error"] = json!({
        "code": status,
        "status": error.kind().row().grpc.name,
        "message": error.message(),
        "details": error.details(),
    });
    (status, body)
}

/// An error as the frame of a stream. All members are in an envelope, so that none is taken for an event.
#[must_use]
pub fn rest_error_frame(error: &Error) -> Value {
    let mut members = members(error);
    members["status"] = error.kind().row().grpc.name.into();
    members["details"] = error.details().into();
    json!({ "error": members })
}

fn members(error: &Error) -> Value {
    let mut members =
        json!({ "code": error.kind().row().code, "message": error.message(), "data": error.details() });
    // The only member by which a2a-python 1.x recognises an error of v0.3.
    if let Some(name) = class_name(error.kind()) {
        members["type"] = name.into();
    }
    members
}

/// The name of the error class in SDKs of v0.3.
pub(super) fn class_name(kind: ErrorKind) -> Option<&'static str> {
    CLASSES.iter().find(|(_, of)| *of == kind).map(|(name, _)| *name)
}

fn status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::TaskNotFound | ErrorKind::MethodNotFound | ErrorKind::ExtendedAgentCardNotConfigured => {
            404
        }
        ErrorKind::TaskNotCancelable => 409,
        ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation => 501,
        ErrorKind::ContentTypeNotSupported => 415,
        ErrorKind::InvalidAgentResponse => 502,
        ErrorKind::InvalidParams => 422,
        ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::ParseError
        | ErrorKind::InvalidRequest
        | ErrorKind::Internal
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::ResourceExhausted
        | ErrorKind::Unavailable
        | ErrorKind::PayloadTooLarge
        | ErrorKind::DeadlineExceeded => kind.row().http,
    }
}

/// The names of error classes, which peers send in `type` or at the beginning of the message.
const CLASSES: &[(&str, ErrorKind)] = &[
    ("TaskNotFoundError", ErrorKind::TaskNotFound),
    ("TaskNotCancelableError", ErrorKind::TaskNotCancelable),
    ("PushNotificationNotSupportedError", ErrorKind::PushNotificationNotSupported),
    ("UnsupportedOperationError", ErrorKind::UnsupportedOperation),
    ("ContentTypeNotSupportedError", ErrorKind::ContentTypeNotSupported),
    ("InvalidAgentResponseError", ErrorKind::InvalidAgentResponse),
    ("AuthenticatedExtendedCardNotConfiguredError", ErrorKind::ExtendedAgentCardNotConfigured),
    ("JSONParseError", ErrorKind::ParseError),
    ("InvalidRequestError", ErrorKind::InvalidRequest),
    ("MethodNotFoundError", ErrorKind::MethodNotFound),
    ("InvalidParamsError", ErrorKind::InvalidParams),
    ("InternalError", ErrorKind::Internal),
];

/// Decodes an error answer: by the reason in its details, by its `code`, by the name of an error class, and
/// last by the HTTP status.
#[must_use]
pub fn decode_rest_error(status: u16, body: &[u8]) -> Error {
    let plain = rest::decode_error(status, body);
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let has_code = |error: &Value| {
        let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok());
        code.is_some_and(|code| ErrorKind::from_code(code).is_some())
    };
    let is_enveloped = body["error"].is_object() && !has_code(&body) && body["type"].is_null();
    let error = if is_enveloped { &body["error"] } else { &body };
    let has_code = has_code(error);
    let by_class = if has_code { None } else { class(&error["type"]).or_else(|| class(&error["message"])) };
    let details = match &error["data"] {
        Value::Array(details) => details.clone(),
        Value::Null if by_class.is_none() => return plain,
        Value::Null => Vec::new(),
        // The specification does not define it; kept as a detail of unknown type.
        other => vec![other.clone()],
    };
    Error::from_details(by_class.unwrap_or(plain.kind()), plain.message(), details)
}

pub(super) fn class(text: &Value) -> Option<ErrorKind> {
    let text = text.as_str()?;
    CLASSES.iter().find(|(name, _)| text.starts_with(name)).map(|(_, kind)| *kind)
}
