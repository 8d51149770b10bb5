//! Browsers, and what they are told.

use axum::response::IntoResponse as _;
use nuncio_server::{
    bind::BindOptions,
    store::{MemoryStore, Store},
};

use super::*;
use crate::{agent_urls::AgentUrls, fleet::Fleet, routes::RouteTable};

/// The target of a request to a hub without agents.
async fn target(request: &Request) -> Target {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let urls = AgentUrls::new(&"http://127.0.0.1:2602".parse().unwrap(), None);
    let fleet = Arc::new(Fleet::new(&urls));
    let (routes, _health) = RouteTable::new(&fleet, &store, &urls, &BindOptions::default()).await.unwrap();
    routes.find(request)
}

/// The answer to a browser: the status, the allowed origin, methods and headers.
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
    let request = Box::new(request.body(Body::empty()).unwrap());
    let target = target(&request).await;
    let refuse = |_| async { StatusCode::UNAUTHORIZED.into_response() };
    let response = cross_origin(&origins, target, request, refuse).await;
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
        ("POST", agent, &[evil], (403, "", false)),
        ("POST", agent, &[evil, ("authorization", "Bearer x")], (401, "", false)),
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
        ("POST", card, &[evil], (403, "", false)),
    ] {
        let (status, origin, sends) = ask(&["https://app.example.com"], method, path, headers).await;
        assert_eq!((status, &*origin, sends), expected, "{method} {path} {headers:?}");
    }
    assert_eq!(ask(&["*"], "POST", agent, &[evil]).await, (401, "https://evil.example".to_owned(), false));
    assert_eq!(
        ask(&[], "OPTIONS", agent, &[app, post]).await,
        (401, String::new(), false),
        "none configured"
    );
}

/// Requests that a browser sends without a preflight: a POST without a body, such as `POST /tasks/ID:cancel`.
#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let cancel = "/agents/echo/tasks/t:cancel";
    let (own, other) = (("origin", "http://localhost:2602"), ("origin", "http://localhost:3000"));
    let (host, site) = (("host", "localhost:2602"), "sec-fetch-site");
    for (method, headers, expected) in [
        // No browser.
        ("POST", &[host][..], 401),
        // A browser that says whose page it is; the page itself cannot.
        ("POST", &[host, own, (site, "same-origin")], 401),
        ("POST", &[host, (site, "none")], 401),
        ("POST", &[host, other, (site, "same-site")], 403),
        ("POST", &[host, ("origin", "https://evil.example"), (site, "cross-site")], 403),
        ("POST", &[host, ("origin", "null"), (site, "cross-site")], 403),
        ("POST", &[host, (site, "cross-site")], 403),
        ("DELETE", &[host, (site, "cross-site")], 403),
        // An older one.
        ("POST", &[host, own], 401),
        ("POST", &[host, other], 403),
        ("POST", &[host, ("origin", "null")], 403),
        ("POST", &[host, ("origin", "https://evil.example")], 403),
        // Behind a proxy that has another name for us.
        ("POST", &[host, ("origin", "https://a.example"), (site, "same-origin")], 401),
        // What changes nothing.
        ("GET", &[host, ("origin", "https://evil.example"), (site, "cross-site")], 401),
    ] {
        assert_eq!(ask(&[], method, cancel, headers).await.0, expected, "{method} {headers:?}");
    }
}
