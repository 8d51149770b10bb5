//! The page for a browser at the root: says what a hub is and where to go. It shows no agent, because nobody has been
//! authenticated; `GET /agents` lists those of a caller.

use axum::{
    extract::Request,
    response::{Html, IntoResponse as _},
    routing::{MethodRouter, get},
};
use http::{Method, header};

const PAGE: &str = include_str!("welcome.html");

/// The page loads nothing and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

/// True for a browser that opens the root. Programs name the type that they want, or accept any.
pub(crate) fn is_wanted(request: &Request) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let accepts_html = |value: &http::HeaderValue| {
        let types = value.to_str().unwrap_or_default().split(',');
        let mut types = types.map(|range| range.split(';').next().unwrap_or_default().trim());
        types.any(|range| range.eq_ignore_ascii_case("text/html"))
    };
    reads && request.uri().path() == "/" && request.headers().get_all(header::ACCEPT).iter().any(accepts_html)
}

/// Serves the page.
pub(crate) fn handler() -> MethodRouter {
    get(|| async {
        let headers = [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::VARY, "Accept"),
        ];
        (headers, Html(PAGE)).into_response()
    })
}
