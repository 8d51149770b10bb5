//! A guarded client: whatever it fetches or calls passes the guard.

use std::sync::Arc;

use nuncio_client::{
    Client, ClientCredentials, Egress, FetchedCard, Policy, agent_url,
    protocol::{ErrorKind, TaskState},
};
use serde_json::json;

use crate::peer::{Peer, builder, card, json_answer, result, status, task};

const CARD: &str = "/.well-known/agent-card.json";

/// An agent that speaks everything badly, but would hear every call.
async fn agent() -> Peer {
    Peer::start(|asked| match &*asked.path {
        CARD => json_answer(&card(&asked.base, &[])),
        "/token" => json_answer(&json!({ "access_token": "t", "token_type": "Bearer" })),
        "/rpc" => result(asked, &task("TASK_STATE_WORKING")),
        "/rest/tasks/t-1" => json_answer(&task("TASK_STATE_WORKING")),
        _ => status(404, &[]),
    })
    .await
}

fn port(peer: &Peer) -> u16 {
    agent_url(&peer.base).unwrap().port().unwrap()
}

/// Guarded, but for this machine, on the ports of these peers.
fn open_to(peers: &[&Peer]) -> Egress {
    let ports = peers.iter().map(|peer| port(peer)..=port(peer)).collect();
    Egress::guarded(Policy { allow_private: true, ports, ..Policy::default() }).unwrap()
}

/// A card at `home` with one interface, at another peer.
fn card_at(home: &Peer, binding: &str, url: &str) -> Arc<FetchedCard> {
    let mut json = card(&home.base, &[]);
    json["supportedInterfaces"] =
        json!([{ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" }]);
    let card = serde_json::from_value(json.clone()).unwrap();
    Arc::new(FetchedCard { card, json, url: agent_url(&home.base).unwrap() })
}

async fn check_refused(client: &Client, why: &str) {
    let error = client.get("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.message().contains(why), "{error}");
}

#[tokio::test]
async fn an_agent_on_this_machine_is_refused_unless_it_is_allowed() {
    let peer = agent().await;
    let guarded = Egress::guarded(Policy::default()).unwrap();
    for url in [peer.base.clone(), peer.base.replace("127.0.0.1", "localhost")] {
        let error = builder().egress(guarded.clone()).connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.message().ends_with("is a loopback address"), "{error}");
    }
    assert!(peer.asked(CARD).is_empty());

    let token = ClientCredentials::new(&format!("{}/token", peer.base), "me", "s3cret").unwrap();
    let builder = builder().egress(open_to(&[&peer])).client_credentials(token);
    let client = builder.connect(&peer.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Working);
    assert_eq!(peer.asked("/token").len(), 1);
}

#[tokio::test]
async fn every_interface_of_a_card_passes_the_guard() {
    let (home, elsewhere) = (agent().await, agent().await);
    let bindings: &[(&str, &str)] = &[
        ("JSONRPC", "/rpc"),
        ("HTTP+JSON", "/rest"),
        #[cfg(feature = "grpc")]
        ("GRPC", ""),
    ];
    for (binding, path) in bindings {
        let card = card_at(&home, binding, &format!("{}{path}", elsewhere.base));
        let client = builder().egress(open_to(&[&home])).with_card(Arc::clone(&card)).unwrap();
        check_refused(&client, &format!("port {} is not allowed", port(&elsewhere))).await;
        assert!(elsewhere.calls().is_empty(), "{binding}");
    }
    // The same without the rule: somebody would have heard it.
    for (binding, path) in bindings {
        let card = card_at(&home, binding, &format!("{}{path}", elsewhere.base));
        let client = builder().egress(open_to(&[&home, &elsewhere])).with_card(card).unwrap();
        let _ = client.get("t-1").await;
        assert!(!elsewhere.calls().is_empty(), "{binding}");
    }
}

#[tokio::test]
async fn the_token_endpoint_passes_the_guard() {
    let (home, issuer) = (agent().await, agent().await);
    let token = ClientCredentials::new(&format!("{}/token", issuer.base), "me", "s3cret").unwrap();
    let card = card_at(&home, "JSONRPC", &format!("{}/rpc", home.base));
    let client = builder().egress(open_to(&[&home])).client_credentials(token).with_card(card).unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert!(error.message().contains(&format!("port {} is not allowed", port(&issuer))), "{error}");
    assert!(issuer.calls().is_empty() && home.calls().is_empty());
}

#[tokio::test]
async fn a_stream_passes_the_guard() {
    let (home, elsewhere) = (agent().await, agent().await);
    let card = card_at(&home, "JSONRPC", &format!("{}/rpc", elsewhere.base));
    let client = builder().egress(open_to(&[&home])).with_card(card).unwrap();
    let Err(error) = client.stream("hello").await else { panic!("the stream was opened") };
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(elsewhere.calls().is_empty());
}
