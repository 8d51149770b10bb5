//! The id of each request, and one log line about it.
//!
//! The id is the caller's `x-request-id` if it is safe to repeat, otherwise a new one; every response has it.
//! The span around a request has the fields that relate lines of the log. It costs time, so it exists only
//! where it is shown: in JSON logs, and in text logs at full verbosity.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use http::{HeaderName, HeaderValue};
use nuncio_server::bind::RequestId;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::Metrics;

/// The header with the id, in requests and responses.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a caller's id.
const MAX_ID_BYTES: usize = 128;

/// Middleware around all requests of a listener.
#[derive(Clone)]
pub(crate) struct Requests {
    metrics: Arc<Metrics>,
}

impl Requests {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }

    /// Gives a request its id, passes it on, and logs the response.
    pub(crate) async fn answer<F: Future<Output = Response>>(
        &self,
        mut request: Box<Request>,
        next: impl FnOnce(Box<Request>) -> F,
    ) -> Response {
        let id = request.headers().get(REQUEST_ID).filter(|id| is_sane(id)).cloned().unwrap_or_else(new_id);
        // For the errors of bindings.
        request.extensions_mut().insert(RequestId::new(id.to_str().unwrap_or_default()));
        let span = span(&id);
        let method = request.method().clone();
        let mut response = if span.is_disabled() {
            next(request).await
        } else {
            let begun = Instant::now();
            let response = Box::pin(next(request)).instrument(span.clone()).await;
            let (status, took_ms) = (response.status().as_u16(), begun.elapsed().as_secs_f64() * 1000.0);
            // Never the path: it may contain a secret, and the operation is in the span.
            tracing::debug!(parent: &span, %method, status, took_ms, "answered");
            response
        };
        self.metrics.responded(response.status().as_u16());
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }
}

/// The fields that relate lines of the log. Empty ones are filled in later, or never.
fn span(id: &HeaderValue) -> Span {
    tracing::debug_span!(
        target: "nuncio::request",
        "request",
        request = id.to_str().unwrap_or_default(),
        agent = Empty,
        operation = Empty,
        task = Empty,
        context = Empty,
        principal = Empty,
    )
}

/// True if the id is safe in a log and in a header.
fn is_sane(id: &HeaderValue) -> bool {
    let fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(fit)
}

fn new_id() -> HeaderValue {
    let mut text = [0; uuid::fmt::Simple::LENGTH];
    let text = Uuid::now_v7().simple().encode_lower(&mut text);
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_ids_are_repeated() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for (id, sane) in [
            ("01a1e3fc7f9c709c8e712351ef038b6b", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("a.b:c/d+e@f_g", true),
            ("", false),
            ("two words", false),
            ("a\"b", false),
            ("a,b", false),
            (&long, false),
        ] {
            assert_eq!(is_sane(&HeaderValue::from_str(id).unwrap()), sane, "{id}");
        }
        assert!(!is_sane(&HeaderValue::from_bytes("é".as_bytes()).unwrap()));
        assert!(is_sane(&new_id()) && new_id() != new_id());
    }
}
