//! The targets of requests.

use nuncio_server::store::MemoryStore;

use super::*;

async fn table() -> RouteTable {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let urls = AgentUrls::new(&"http://127.0.0.1:2602".parse().unwrap(), None);
    let fleet = Arc::new(Fleet::new(&urls));
    RouteTable::new(&fleet, &store, &urls, &BindOptions::default()).await.unwrap().0
}

/// The access of a path, the agent that it names, whether the agent answers it, and whether it is a card.
#[tokio::test]
async fn each_path_has_one_target() {
    let table = table().await;
    let (anyone, protocol) = (RouteAccess::Anyone, RouteAccess::Protocol);
    let (capability, caller) = (RouteAccess::Capability, RouteAccess::Caller);
    for (method, path, expected) in [
        ("GET", "/healthz", (anyone, None, false, false)),
        ("POST", "/readyz", (anyone, None, false, false)),
        ("POST", "/grpc.health.v1.Health/Check", (protocol, None, false, false)),
        ("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", (protocol, None, false, false)),
        ("POST", "/lf.a2a.v1.A2AService/SendMessage", (caller, None, false, false)),
        ("GET", "/agents", (caller, None, false, false)),
        // An agent by its name.
        ("POST", "/agents/up", (caller, Some("up"), true, false)),
        ("GET", "/agents/up", (caller, Some("up"), true, true)),
        ("HEAD", "/agents/up/", (caller, Some("up"), true, true)),
        ("GET", "/agents/up/.well-known/agent-card.json", (caller, Some("up"), true, true)),
        ("GET", "/agents/up/.well-known/agent.json", (caller, Some("up"), true, true)),
        ("POST", "/agents/up/.well-known/agent.json", (caller, Some("up"), true, false)),
        ("GET", "/agents/%75p/tasks/a%2Fb", (caller, Some("%75p"), true, false)),
        ("GET", "/agents/up/x/.well-known/agent-card.json", (caller, Some("up"), true, false)),
        // Routes of kinds take their own method and their own path only.
        ("GET", "/agents/up/upstream-card", (caller, Some("up"), false, false)),
        ("HEAD", "/agents/up/upstream-card", (caller, Some("up"), false, false)),
        ("POST", "/agents/up/upstream-card", (caller, Some("up"), true, false)),
        ("GET", "/agents/up/upstream-card/", (caller, Some("up"), true, false)),
        ("POST", "/agents/up/push/a.b", (capability, Some("up"), false, false)),
        ("GET", "/agents/up/push/tasks", (caller, Some("up"), true, false)),
        ("POST", "/agents/up/push/", (caller, Some("up"), true, false)),
        ("POST", "/agents/up/push/a/b", (caller, Some("up"), true, false)),
        // The default agent has the rest.
        ("GET", "/", (caller, None, true, true)),
        ("POST", "/", (caller, None, true, false)),
        ("GET", "/.well-known/agent-card.json", (caller, None, true, true)),
        ("GET", "/tasks/t", (caller, None, true, false)),
        ("GET", "/agents/", (caller, None, true, false)),
        ("GET", "/agents//upstream-card", (caller, None, true, false)),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let target = table.find(&request);
        let is_agents = matches!(table.routes[target.route].to, To::Agent);
        let found = (target.access, target.agent(path), is_agents, target.is_card);
        assert_eq!(found, expected, "{method} {path}");
    }
}

/// A browser at the root reads a page, with or without credentials; programs reach the default agent there.
#[tokio::test]
async fn a_browser_at_the_root_gets_a_page() {
    let table = table().await;
    let firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for (method, path, accept, is_page) in [
        ("GET", "/", firefox, true),
        ("HEAD", "/", "application/json, Text/HTML;q=0.1", true),
        ("POST", "/", firefox, false),
        ("GET", "/", "*/*", false),
        ("GET", "/", "application/json", false),
        ("GET", "/", "text/html-like", false),
        ("GET", "/agents/up", firefox, false),
        ("GET", "/.well-known/agent-card.json", firefox, false),
    ] {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        let request = Box::new(request.body(Body::empty()).unwrap());
        let target = table.find(&request);
        assert_eq!(target.access == RouteAccess::Anyone, is_page, "{method} {path} {accept}");
        let response = table.serve(target, None, request).await;
        let is_html = response.headers().get(header::CONTENT_TYPE).is_some_and(|media_type| {
            media_type.to_str().unwrap().starts_with("text/html")
                && response.headers().contains_key(header::CONTENT_SECURITY_POLICY)
        });
        assert_eq!(is_html, is_page, "{method} {path} {accept}");
    }
}
