//! Gives each request an id, and the log one line about it.
//!
//! The id is the caller's (`x-request-id`) if it is fit to be repeated, otherwise a new one; the answer has it in
//! any case. The span around a request has the names by which lines of the log belong together; it costs
//! something, so it is there only where it is shown: in JSON, and in text when the log is told to say all.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use http::{HeaderName, HeaderValue};
use nuncio_server::bind::RequestId;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::Metrics;

/// The header with the id of a request, either way.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ids are not repeated.
const MOST: usize = 128;

/// What stands around all requests of a listener.
#[derive(Clone)]
pub(crate) struct Requests {
    metrics: Arc<Metrics>,
}

impl Requests {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }

    /// Names a request, has it answered, and tells about it.
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
            // Never the path: it may have a secret in it, and the operation is named already.
            tracing::debug!(parent: &span, %method, status, took_ms, "answered");
            response
        };
        self.metrics.responded(response.status().as_u16());
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }
}

/// The names by which lines of the log belong together. Those that are empty are known later, or never.
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

/// True for what can stand in a log and in a header as it is.
fn is_sane(id: &HeaderValue) -> bool {
    let fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=MOST).contains(&id.len()) && id.as_bytes().iter().all(fit)
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
        let long = "x".repeat(MOST + 1);
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
