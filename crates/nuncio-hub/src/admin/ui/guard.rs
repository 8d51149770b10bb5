//! The guard of every page: who asks, from which page, with which form.
//!
//! | request | refused with |
//! |---|---|
//! | another host name | 421, by the listener before it comes here |
//! | writes, from a page of another origin, or from a browser that does not say which | 403 |
//! | reads without a session | a redirect to the login page; 401 if the script asks |
//! | writes without a session | 401 |
//! | writes without the token of the session's forms | 403 |

use axum::{
    body::to_bytes,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::sync::Arc;

use super::{
    Ui,
    form::Form,
    login, multipart,
    visit::{Refused, Visit},
};
use crate::admin::problem::AdminProblem;

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 1 << 20;

/// The header by which the script says that it refreshes parts of a page.
pub(super) const LIVE_HEADER: &str = "x-nuncio-live";

/// The policy of every page: nothing inline, nothing from elsewhere, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for \
                      'script'; trusted-types nuncio";

/// Sets the headers of every answer below `/ui`.
pub(super) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets a request with a session pass, with its [`Visit`] and its [`Form`].
pub(super) async fn with_session(State(ui): State<Arc<Ui>>, mut request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut visit = Visit::new(Arc::clone(&ui), &request);
    if !is_read && !is_same_origin(request.headers()) {
        return visit.refuse(&AdminProblem::forbidden(
            "the form was not sent by a page of this dashboard: open the page here and send it again",
        ));
    }
    let Some(session) = ui.session(request.headers()) else {
        return no_session(&visit, is_read, request.headers(), &path);
    };
    visit.sign_in(Arc::clone(&session));
    if !is_read {
        let form = match read_form(&mut request).await {
            Ok(form) => form,
            Err(problem) => return visit.refuse(&problem),
        };
        if !session.is_form_token(form.get("token").unwrap_or_default()) {
            return visit.refuse(&AdminProblem::forbidden(
                "the form is from another session: go back, reload the page and send it again",
            ));
        }
        request.extensions_mut().insert(form);
    }
    request.extensions_mut().insert(visit.clone());
    finish(&visit, next.run(request).await)
}

/// Lets a request for the login page pass.
pub(super) async fn without_session(State(ui): State<Arc<Ui>>, mut request: Request, next: Next) -> Response {
    let visit = Visit::new(ui, &request);
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        if !is_same_origin(request.headers()) {
            return visit.refuse(&AdminProblem::forbidden(
                "the form was not sent by the login page of this dashboard: open it here and send it again",
            ));
        }
        match read_form(&mut request).await {
            Ok(form) => _ = request.extensions_mut().insert(form),
            Err(problem) => return visit.refuse(&problem),
        }
    }
    request.extensions_mut().insert(visit.clone());
    finish(&visit, next.run(request).await)
}

/// Makes a page of a refusal by a handler.
fn finish(visit: &Visit, mut response: Response) -> Response {
    match response.extensions_mut().remove::<Refused>() {
        Some(refused) => visit.refuse(&refused.0),
        None => response,
    }
}

fn no_session(visit: &Visit, is_read: bool, headers: &HeaderMap, path: &str) -> Response {
    if !is_read {
        return visit.refuse(&AdminProblem::signed_out());
    }
    if headers.contains_key(LIVE_HEADER) || !path.starts_with(super::BASE) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    Redirect::to(&login::address(path)).into_response()
}

async fn read_form(request: &mut Request) -> Result<Form, AdminProblem> {
    let body = std::mem::take(request.body_mut());
    let bytes = to_bytes(body, MAX_FORM_BYTES).await.map_err(|_| {
        AdminProblem::too_large(format!("the form has more than {MAX_FORM_BYTES} bytes, or was cut off"))
    })?;
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    multipart::read(content_type.unwrap_or_default(), &bytes).unwrap_or_else(|| Ok(Form::parse(&bytes)))
}

/// True if the browser says that a page of this very origin makes the request. `Sec-Fetch-Site` cannot be set by a
/// page; a browser without it sends `Origin`.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else { return false };
    origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_comes_from_a_page_of_the_same_origin() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:2603");
        for (headers, expected) in [
            (&[HOST][..], false),
            (&[HOST, ("sec-fetch-site", "same-origin")], true),
            (&[HOST, ("sec-fetch-site", "same-site")], false),
            (&[HOST, ("sec-fetch-site", "cross-site")], false),
            (&[HOST, ("sec-fetch-site", "none")], false),
            (&[HOST, ("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:2603")], false),
            (&[HOST, ("origin", "http://127.0.0.1:2603")], true),
            (&[HOST, ("origin", "http://127.0.0.1:8080")], false),
            (&[HOST, ("origin", "http://evil.example")], false),
            (&[HOST, ("origin", "null")], false),
            (&[("origin", "http://127.0.0.1:2603")], false),
        ] {
            let headers = headers.iter().map(|&(name, value)| {
                (header::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let headers: HeaderMap = headers.collect();
            assert_eq!(is_same_origin(&headers), expected, "{headers:?}");
        }
    }
}
