//! A kind that nothing of the hub knows but the table is prepared, served, called, changed and refused.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use http::StatusCode;
use http_body_util::BodyExt as _;
use nuncio_server::{
    bind::BindOptions,
    push::RootKey,
    store::{MemoryStore, Store},
};
use serde_json::{Value, json};
use tower::Service as _;

use super::Toy;
use crate::{
    agents::AgentFactory,
    config::{Agent, AgentKind, AgentOrigin},
    fleet::Fleet,
    listen::Peer,
    pipeline::{Pipeline, Stations},
    registry::{self, AgentRecords, Registry, Vault},
    routes::RouteTable,
    telemetry::Requests,
};

struct Hub {
    fleet: Arc<Fleet>,
    registry: Registry,
    pipeline: Pipeline,
}

impl Hub {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let factory: AgentFactory = registry::tests::factory(&store).await;
        let fleet = Arc::new(Fleet::new(&factory.urls));
        let options = BindOptions::default();
        let (routes, _) = RouteTable::new(&fleet, &store, &factory.urls, &options).await.unwrap();
        let requests = Requests::new(Arc::clone(&factory.telemetry.metrics));
        let identity = Arc::clone(&factory.identity);
        let pipeline =
            Pipeline::new(Stations { requests, origins: Arc::default(), identity, routes: Arc::new(routes) });
        let vault = Vault::new(&RootKey::random(), "agents").unwrap();
        let records = AgentRecords { store: Arc::clone(&store), vault: Some(vault) };
        let registry = Registry::new(Arc::clone(&fleet), Arc::new(factory), records);
        Self { fleet, registry, pipeline }
    }

    /// Serves a toy of these settings; the error, if it cannot be.
    async fn configure(&self, word: &str, mark: u32) -> Option<String> {
        let kind = AgentKind::Toy(Toy { word: word.to_owned(), mark });
        let desired = Agent::new("bear".parse().unwrap(), kind, AgentOrigin::File);
        let failed = self.registry.configure(vec![desired], false).await.unwrap();
        failed.first().map(|(_, error)| error.to_string())
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path);
        let response = self.pipeline.clone().call(local(request, Body::empty())).await.unwrap();
        let (status, id) = (response.status(), response.headers().get("x-request-id").cloned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        // The id of the request differs from one to the next.
        (status, id.map_or_else(|| text.to_string(), |id| text.replace(id.to_str().unwrap(), "ID")))
    }

    /// The answer of the toy to a message over JSON-RPC.
    async fn send(&self) -> Value {
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "play" }] });
        let call =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
        let request = http::Request::post("/agents/bear")
            .header("content-type", "application/json")
            .header("a2a-version", "1.0");
        let request = local(request, Body::from(call.to_string()));
        let response: Response = self.pipeline.clone().call(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }
}

/// A request from this machine: the edge says where requests come from, and there is none here.
fn local(request: http::request::Builder, body: Body) -> Request {
    let local = std::net::Ipv4Addr::LOCALHOST.into();
    let mut request = request.body(body).unwrap();
    request.extensions_mut().insert(Peer::new(local, local));
    request
}

#[tokio::test]
async fn a_hub_serves_it_and_it_answers_calls() {
    let hub = Hub::new().await;
    assert_eq!(hub.configure("growl", 1).await, None);
    let agent = hub.fleet.get("bear").unwrap();
    assert_eq!((agent.kind(), agent.example()), ("toy", "play"));
    let answer = hub.send().await;
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "growl", "{answer}");
}

#[tokio::test]
async fn other_settings_go_on_with_its_runtime_if_it_says_so() {
    let hub = Hub::new().await;
    assert_eq!(hub.configure("growl", 1).await, None);
    let before = hub.fleet.get("bear").unwrap().runtime().unwrap().clone();
    for (word, mark, goes_on) in [("purr", 1, true), ("bark", 2, false)] {
        assert_eq!(hub.configure(word, mark).await, None);
        assert_eq!(hub.fleet.get("bear").unwrap().runtime().unwrap().is(&before), goes_on, "{word}");
        assert_eq!(hub.send().await["result"]["message"]["parts"][0]["text"], word);
    }
    assert_eq!(hub.configure("", 2).await.as_deref(), Some("a toy needs a word"));
    assert_eq!(hub.send().await["result"]["message"]["parts"][0]["text"], "bark", "what was served stays");
}

/// Only where there is an agent; of any other name nothing is told but that there is nothing.
#[tokio::test]
async fn its_route_is_below_the_path_of_its_agents() {
    let hub = Hub::new().await;
    // Otherwise the only agent answers there.
    hub.fleet.set_default(Some("nobody"));
    assert_eq!(hub.configure("growl", 1).await, None);
    assert_eq!(hub.get("/agents/bear/toy/ear").await, (StatusCode::OK, "a toy called bear".to_owned()));
    let (status, unknown) = hub.get("/agents/wolf/toy/ear").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, nothing) = hub.get("/nothing/wolf/toy/ear").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(unknown.replace("/agents/", "/nothing/"), nothing);
}
