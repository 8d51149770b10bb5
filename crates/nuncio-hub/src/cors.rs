//! Which pages of other sites may call: those of configured origins. Cards are for all of them. Cookies and the
//! like mean nothing to us, so none are asked for.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::{body::Body, extract::Request, response::Response};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

use crate::config::WebOrigin;

/// What callers send besides what every page may.
const SENT: &str = "authorization, x-api-key, content-type, accept, a2a-version, a2a-extensions, \
                    x-a2a-extensions, last-event-id, idempotency-key, traceparent, tracestate";
/// What answers say besides what every page may read.
const TOLD: &str = "www-authenticate, retry-after, a2a-extensions, x-a2a-extensions, x-request-id, etag";
const METHODS: &str = "GET, POST, DELETE";
/// How long a browser need not ask again, in seconds.
const MAX_AGE: &str = "600";

/// The origins whose pages may call.
pub(crate) type Origins = Arc<ArcSwap<Vec<WebOrigin>>>;

/// Answers a browser that asks first, and tells it whether its page may read the answer.
pub(crate) async fn cross_origin<F: Future<Output = Response>>(
    origins: &Origins,
    request: Box<Request>,
    next: impl FnOnce(Box<Request>) -> F,
) -> Response {
    let Some(origin) = request.headers().get(ORIGIN).cloned() else { return next(request).await };
    let origins = origins.load_full();
    let allowed = if is_card(&request) {
        Some(HeaderValue::from_static("*"))
    } else {
        let admits = |origin: &str| origins.iter().any(|known| known.admits(origin));
        Some(origin).filter(|origin| origin.to_str().is_ok_and(admits))
    };
    let is_question =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &allowed {
        // A question has no credentials, and needs none.
        Some(_) if is_question => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
            response
        }
        _ => Box::pin(next(request)).await,
    };
    if let Some(allowed) = allowed {
        allow(response.headers_mut(), allowed);
    } else if !origins.is_empty() {
        response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    if origin != "*" {
        headers.append(VARY, HeaderValue::from_static("origin"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(TOLD));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
}

/// True for a card, or a question about one.
fn is_card(request: &Request) -> bool {
    let asked = request.headers().get(ACCESS_CONTROL_REQUEST_METHOD).map(HeaderValue::as_bytes);
    let is_read = match (request.method(), asked) {
        (&Method::GET | &Method::HEAD, _) => true,
        (&Method::OPTIONS, Some(asked)) => asked == b"GET" || asked == b"HEAD",
        _ => false,
    };
    let path = request.uri().path();
    let is_named = || {
        let name = path.strip_prefix("/agents/").map(|below| below.trim_end_matches('/'));
        name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
    };
    is_read
        && (path.ends_with("/.well-known/agent-card.json")
            || path.ends_with("/.well-known/agent.json")
            || is_named())
}

#[cfg(test)]
mod tests;
