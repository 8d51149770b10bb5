//! Cross-origin access: pages of configured origins may call, and cards are readable from all origins. The
//! hub uses no cookies, so credentials mode is not supported.
//!
//! Browsers send a preflight request before most calls, and get a refusal. They send none before a POST that
//! has neither a body nor custom headers, such as a cancel: where no credentials are needed, that would be
//! carried out. So requests with side effects are refused if a page of another site sends them. That is known
//! from headers which only the browser can set: `Sec-Fetch-Site`, or `Origin`.
//!
//! Hand-written although tower-http has a CORS layer: decision 0007 has the reasons.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::{body::Body, extract::Request, response::Response};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION,
        HOST, ORIGIN, VARY,
    },
};
use nuncio_protocol::{Error, ErrorKind};
use nuncio_server::bind::PublicBase;

use crate::{config::WebOrigin, identity::refuse_with, target::Target};

/// Request headers that pages may send, besides those that CORS always allows.
const ALLOWED_HEADERS: &str = "authorization, x-api-key, content-type, accept, a2a-version, a2a-extensions, \
                    x-a2a-extensions, last-event-id, idempotency-key, traceparent, tracestate";
/// Response headers that pages may read, besides those that CORS always exposes.
const EXPOSED_HEADERS: &str =
    "www-authenticate, retry-after, a2a-version, a2a-extensions, x-a2a-extensions, x-request-id, etag";
const METHODS: &str = "GET, POST, DELETE";
/// Seconds for which a browser may cache the answer to a preflight request.
const MAX_AGE: &str = "600";

/// The origins whose pages may call.
pub(crate) type Origins = Arc<ArcSwap<Vec<WebOrigin>>>;

/// Answers preflight requests, refuses calls of foreign pages, and adds the headers that let a page read the
/// response.
pub(crate) async fn cross_origin<F: Future<Output = Response>>(
    origins: &Origins,
    target: Target,
    request: Box<Request>,
    next: impl FnOnce(Box<Request>) -> F,
) -> Response {
    let Some(origin) = request.headers().get(ORIGIN).cloned() else {
        return match is_by_foreign_page(&request) {
            true => refuse_with(target, &request, foreign_page()),
            false => next(request).await,
        };
    };
    let origins = origins.load_full();
    let allowed = if target.is_card {
        Some(HeaderValue::from_static("*"))
    } else {
        let admits = |origin: &str| origins.iter().any(|known| known.admits(origin));
        Some(origin).filter(|origin| origin.to_str().is_ok_and(admits))
    };
    let is_question =
        request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &allowed {
        // A preflight request has no credentials and needs none.
        Some(_) if is_question => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
            response
        }
        None if is_by_foreign_page(&request) => refuse_with(target, &request, foreign_page()),
        _ => Box::pin(next(request)).await,
    };
    if let Some(allowed) = allowed {
        allow(response.headers_mut(), allowed);
    } else if !origins.is_empty() {
        response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// True if a page of another site sent this request and it has side effects. With credentials it passes: the
/// browser has sent a preflight request before.
fn is_by_foreign_page(request: &Request) -> bool {
    let headers = request.headers();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let has_credentials = headers.contains_key(AUTHORIZATION) || headers.contains_key("x-api-key");
    if is_read || has_credentials {
        return false;
    }
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(_) => true,
        // Browsers without `Sec-Fetch-Site` send `Origin` with every POST; a client without both is not a
        // browser.
        None => headers.get(ORIGIN).is_some_and(|origin| !is_own(request, origin)),
    }
}

/// True if the page itself came from this hub.
fn is_own(request: &Request, origin: &HeaderValue) -> bool {
    let Some((_, site)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let is_site = |host: &str| host.eq_ignore_ascii_case(site);
    let base = request.extensions().get::<PublicBase>().map(|base| base.to_string());
    let base = base.as_deref().and_then(|base| base.split("://").nth(1)?.split('/').next());
    let in_uri = request.uri().authority().map(http::uri::Authority::as_str);
    let host = in_uri.or_else(|| request.headers().get(HOST)?.to_str().ok());
    base.is_some_and(is_site) || host.is_some_and(is_site)
}

fn foreign_page() -> Error {
    let why = "a web page of another site may not call; allow its origin in cors.origins";
    Error::new(ErrorKind::PermissionDenied, why)
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    if origin != "*" {
        headers.append(VARY, HeaderValue::from_static("origin"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
}

#[cfg(test)]
mod tests;
