//! What the HTTP bindings have in common: reading a body within bounds, and answers.

use std::pin::pin;

use axum::{BoxError, body::Body, response::Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use nuncio_protocol::{Error, ErrorKind, Fault, Result};

use super::BindOptions;

pub(super) const JSON: &str = "application/json";
pub(super) const A2A_JSON: &str = "application/a2a+json";

/// True for a body that calls itself JSON (REQ-031).
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

/// The error of a body that is of another type: it is not looked at.
pub(super) fn not_json(expected: &str) -> Error {
    Error::new(ErrorKind::ContentTypeNotSupported, format!("expected Content-Type: {expected}"))
}

/// The whole body, if it is not too large and comes in time.
pub(super) async fn read(body: Body, options: &BindOptions) -> Result<Bytes> {
    let mut body = pin!(collect(body, options.body_bytes));
    // It is nearly always there already, and then needs no timer.
    let collected = match (&mut body).now_or_never() {
        Some(collected) => collected,
        None => tokio::time::timeout(options.body_timeout, body)
            .await
            .map_err(|_| Error::new(ErrorKind::DeadlineExceeded, "the body did not arrive in time"))?,
    };
    match collected {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::new(
            ErrorKind::PayloadTooLarge,
            format!("the body is larger than {} bytes", options.body_bytes),
        )),
        Err(error) => {
            Err(Error::new(ErrorKind::InvalidRequest, "the body could not be read").with_source(error))
        }
    }
}

async fn collect(mut body: Body, most: usize) -> Result<Bytes, BoxError> {
    let collected = Limited::new(&mut body, most).collect().await;
    if collected.as_ref().is_err_and(|error| error.is::<LengthLimitError>()) {
        // Who is still writing would find the connection broken instead of reading why. As much again is
        // taken and thrown away; whoever sends more than that has to do without.
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await
            && left > 0
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    }
    Ok(collected?.to_bytes())
}

/// A body of this media type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The headers that go with an error: when to come again, how to authenticate.
pub(super) fn explain(response: &mut Response, error: &Error) {
    let status = response.status();
    let headers = response.headers_mut();
    if let Some(after) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}

/// The cause of our own faults goes to the log, once, here where the answer is made.
pub(super) fn log(error: &Error) {
    if error.kind().fault() == Fault::Us {
        tracing::error!(%error, cause = ?std::error::Error::source(error), "a call failed");
    } else {
        tracing::debug!(kind = ?error.kind(), %error, "a call was refused");
    }
}
