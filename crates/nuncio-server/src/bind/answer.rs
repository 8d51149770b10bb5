//! Responses: the parts that the HTTP bindings share.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nuncio_protocol::{Error, ErrorKind, Fault, op::Reply};

pub(super) const JSON: &str = "application/json";
pub(super) const A2A_JSON: &str = "application/a2a+json";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// True if the content type of the body is JSON (REQ-031).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    if value == JSON {
        return true;
    }
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(JSON) || essence.eq_ignore_ascii_case(A2A_JSON)
}

/// The user agent of Go's HTTP client, by which the official Go SDK is recognised. That SDK silently ignores
/// a plain response to a streaming call. Other callers read the kind of an error from a plain response only
/// (JavaScript), or count a stream as success (the official test kit).
const STREAM_READER: &str = "Go-http-client";

/// True for a caller that reads the refusal of its streaming call only from a stream.
pub(super) fn takes_stream_only(headers: &HeaderMap) -> bool {
    let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    if !user_agent.is_some_and(|user_agent| user_agent.starts_with(STREAM_READER)) {
        return false;
    }
    let mut accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(|range| range.split(';').next().unwrap_or_default().trim())
        .filter(|range| !range.is_empty())
        .peekable();
    accepted.peek().is_some() && accepted.all(|range| range.eq_ignore_ascii_case(EVENT_STREAM))
}

/// The error for a body of another media type, which is refused unread.
pub(super) fn not_json(expected: &str) -> Error {
    Error::new(ErrorKind::ContentTypeNotSupported, format!("expected Content-Type: {expected}"))
}

/// A response with a body of this media type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Adds the headers that belong to an error: the time to retry after, and the way to authenticate.
pub(super) fn explain(response: &mut Response, error: &Error) {
    let status = response.status();
    let headers = response.headers_mut();
    when_again(headers, error);
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}

/// The header that belongs to a reply: whether its `totalSize` is an estimate.
pub(super) fn header_of(reply: &Reply) -> Option<(HeaderName, HeaderValue)> {
    const TOTAL_SIZE: HeaderName = HeaderName::from_static("nuncio-total-size");
    let is_estimate = matches!(reply, Reply::Tasks(page) if page.total_is_estimate);
    is_estimate.then(|| (TOTAL_SIZE, HeaderValue::from_static("estimate")))
}

/// Sets `Retry-After`, rounded up to seconds.
pub(super) fn when_again(headers: &mut HeaderMap, error: &Error) {
    if let Some(after) = error.retry_after() {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
}

/// Logs the cause of our own faults, once, where the response is made. Faults of a remote agent are logged by
/// the code that knows the agent's name.
pub(super) fn log(error: &Error) {
    match error.fault() {
        Fault::Us => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(%error, cause, "a call failed");
        }
        // The message may quote the caller's request, so it is not logged.
        Fault::Caller | Fault::Upstream => tracing::debug!(kind = ?error.kind(), "a call was refused"),
    }
}
