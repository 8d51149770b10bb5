//! Browsers, and what they are told.

use axum::response::IntoResponse as _;

use super::*;

/// What a browser is told: the status, the origin that may read, and what may be sent.
async fn ask(
    origins: &[&'static str],
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String, bool) {
    let origins: Vec<WebOrigin> = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    let origins: Origins = Arc::new(ArcSwap::from_pointee(origins));
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let refuse = |_| async { StatusCode::UNAUTHORIZED.into_response() };
    let response = cross_origin(&origins, Box::new(request.body(Body::empty()).unwrap()), refuse).await;
    let header =
        |name| response.headers().get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap());
    assert!(!response.headers().contains_key("access-control-allow-credentials"));
    (
        response.status().as_u16(),
        header(ACCESS_CONTROL_ALLOW_ORIGIN).to_owned(),
        header(ACCESS_CONTROL_ALLOW_HEADERS).contains("authorization"),
    )
}

#[tokio::test]
async fn which_pages_may_call() {
    let (app, evil) = (("origin", "https://app.example.com"), ("origin", "https://evil.example"));
    let (get, post) = (("access-control-request-method", "GET"), ("access-control-request-method", "POST"));
    let (agent, card) = ("/agents/echo", "/agents/echo/.well-known/agent-card.json");
    let allowed = "https://app.example.com";
    for (method, path, headers, expected) in [
        ("POST", agent, &[][..], (401, "", false)),
        ("POST", agent, &[app], (401, allowed, false)),
        ("POST", agent, &[evil], (401, "", false)),
        ("OPTIONS", agent, &[app, post], (204, allowed, true)),
        ("OPTIONS", agent, &[evil, post], (401, "", false)),
        ("OPTIONS", agent, &[app], (401, allowed, false)),
        ("OPTIONS", "/agents/echo/tasks", &[app, get], (204, allowed, true)),
        ("OPTIONS", "/agents/echo/tasks", &[evil, get], (401, "", false)),
        ("OPTIONS", card, &[evil, get], (204, "*", true)),
        ("OPTIONS", agent, &[evil, get], (204, "*", true)),
        ("OPTIONS", "/.well-known/agent-card.json", &[evil, get], (204, "*", true)),
        ("GET", card, &[evil], (401, "*", false)),
        ("GET", "/agents", &[evil], (401, "", false)),
        ("GET", "/agents", &[app], (401, allowed, false)),
        ("POST", card, &[evil], (401, "", false)),
    ] {
        let (status, origin, sends) = ask(&["https://app.example.com"], method, path, headers).await;
        assert_eq!((status, &*origin, sends), expected, "{method} {path} {headers:?}");
    }
    assert_eq!(
        ask(&[], "OPTIONS", agent, &[app, post]).await,
        (401, String::new(), false),
        "none configured"
    );
}
