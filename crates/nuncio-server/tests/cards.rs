//! Cards on the wire, as callers behind a proxy see them; called without a socket.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use axum::{Router, body::Body, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use nuncio_server::{
    bind::{Agent, BindOptions, CardSigner, PublicBase},
    protocol::{AgentCard, Binding},
    store::MemoryStore,
    testing::{Harness, ScriptedExecutor},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const OWN: &str = "http://127.0.0.1:2602";

fn router(change: impl FnOnce(&mut BindOptions)) -> Router {
    let mut card = AgentCard::new("a", "b").reached_at(Binding::JsonRpc, &format!("{OWN}/agents/a"));
    card.capabilities.extended_agent_card = Some(true);
    let extended = AgentCard { description: "more".to_owned(), ..card.clone() };
    let harness = Harness::of(card, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| {
        builder.extended_card(extended).open_extended_card()
    });
    let mut options = BindOptions { card_base: PublicBase::parse(OWN), ..BindOptions::default() };
    change(&mut options);
    let runtime = harness.runtime;
    Agent::new(Arc::new(runtime.clone()), &runtime.card(), options).unwrap().router("")
}

/// Writes into the card what it was to sign.
fn signer() -> CardSigner {
    CardSigner::new(|card, base| {
        let seen = format!("{} at {}", card["supportedInterfaces"][0]["url"], base.unwrap());
        card["signatures"] = json!([{ "protected": seen, "signature": "" }]);
        Ok(())
    })
}

async fn ask(router: &Router, mut request: Request<Body>, base: Option<&str>) -> Response {
    if let Some(base) = base {
        request.extensions_mut().insert(PublicBase::parse(base).unwrap());
    }
    router.clone().oneshot(request).await.unwrap()
}

async fn get(router: &Router, base: Option<&str>) -> (Response<()>, Value) {
    let request = Request::get("/.well-known/agent-card.json").body(Body::empty()).unwrap();
    read(ask(router, request, base).await).await
}

async fn extended(router: &Router, version: &str, method: &str, base: Option<&str>) -> (Response<()>, Value) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
    let request =
        Request::post("/").header("content-type", "application/json").header("a2a-version", version);
    let (response, json) =
        read(ask(router, request.body(body.to_string().into()).unwrap(), base).await).await;
    (response, json["result"].clone())
}

async fn read(response: Response) -> (Response<()>, Value) {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn each_caller_sees_the_address_it_can_call() {
    let router = router(|options| options.card_signer = Some(signer()));
    let mut tags = Vec::new();
    for (base, url, sees) in [
        (None, OWN, OWN),
        (Some(OWN), OWN, OWN),
        (Some("https://a.example"), "https://a.example", "https://a.example"),
        (Some("https://b.example/x/"), "https://b.example/x", "https://b.example/x"),
    ] {
        let (response, card) = get(&router, base).await;
        assert_eq!(response.status(), StatusCode::OK);
        let url = format!("{url}/agents/a");
        assert_eq!((&card["supportedInterfaces"][0]["url"], &card["url"]), (&json!(url), &json!(url)));
        assert_eq!(card["signatures"][0]["protected"], format!("\"{url}\" at {sees}"));
        tags.push(response.headers()["etag"].clone());
        let (_, again) = get(&router, base).await;
        assert_eq!(again, card);

        let (response, card) = extended(&router, "1.0", "GetExtendedAgentCard", base).await;
        assert_eq!(card["supportedInterfaces"][0]["url"], url);
        assert_eq!(card["signatures"][0]["protected"], format!("\"{url}\" at {sees}"));
        assert_eq!(card["description"], "more");
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert!(header("cache-control").starts_with("private"), "spec 13.3");
        assert_eq!(header("vary"), "authorization");
        let (_, old) = extended(&router, "0.3", "agent/getAuthenticatedExtendedCard", base).await;
        assert_eq!((&old["url"], old.get("signatures")), (&json!(url), None), "REQ-208");
    }
    assert_eq!(tags[0], tags[1]);
    assert!(tags[0] != tags[2] && tags[2] != tags[3], "what differs has another tag");
}

#[tokio::test]
async fn caches_learn_what_the_card_depends_on() {
    let (response, _) = get(&router(|_| {}), None).await;
    assert_eq!(response.headers().get("vary"), None);
    let follows = router(|options| options.card_follows_proxies = true);
    for base in [None, Some("https://a.example")] {
        let (response, _) = get(&follows, base).await;
        let vary = response.headers()["vary"].to_str().unwrap();
        for header in ["forwarded", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix"] {
            assert!(vary.split(", ").any(|name| name == header), "{vary}");
        }
    }
}

#[tokio::test]
async fn without_a_base_of_its_own_a_card_stays_as_it_is() {
    let router = router(|options| options.card_base = None);
    let (_, card) = get(&router, Some("https://a.example")).await;
    assert_eq!(card["url"], format!("{OWN}/agents/a"));
}

#[tokio::test]
async fn a_card_that_cannot_be_signed_is_not_served() {
    let failing = || {
        CardSigner::new(|_, base| match base {
            Some(base) if base.as_str() == OWN => Ok(()),
            _ => Err(nuncio_server::protocol::Error::internal("no key")),
        })
    };
    let router = router(|options| options.card_signer = Some(failing()));
    assert_eq!(get(&router, None).await.0.status(), StatusCode::OK);
    let (response, body) = get(&router, Some("https://a.example")).await;
    assert_eq!((response.status(), body), (StatusCode::INTERNAL_SERVER_ERROR, Value::Null));
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let options = BindOptions { card_signer: Some(failing()), ..BindOptions::default() };
    let runtime = harness.runtime;
    assert!(Agent::new(Arc::new(runtime.clone()), &runtime.card(), options).is_err());
}
