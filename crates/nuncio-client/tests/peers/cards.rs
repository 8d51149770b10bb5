//! Finding an agent: where its card is, how long it is kept, and whom it may send us to.

use std::sync::Arc;

use aws_lc_rs::{rand::SystemRandom, signature::Ed25519KeyPair};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::StreamExt as _;
use nuncio_client::{
    CardCache, Credentials, Egress, Over, SigningKey, Trust, TrustedKeys, agent_url,
    protocol::{ErrorKind, TaskState, Version},
    sign_card,
};
use serde_json::{Value, json};

use crate::peer::{Peer, Then, answer, builder, card, events, frame, json_answer, result, status, task};

#[tokio::test]
async fn the_card_is_where_it_should_be_or_where_it_was_or_where_one_says() {
    for (place, address) in [
        ("/.well-known/agent-card.json", ""),
        ("/agents/a/.well-known/agent-card.json", "/agents/a/"),
        ("/.well-known/agent.json", ""),
        ("/cards/a.json", "/cards/a.json"),
    ] {
        let peer = Peer::start(move |asked| {
            if asked.path == place { json_answer(&card(&asked.base, &[])) } else { status(404, &[]) }
        })
        .await;
        let client = builder().connect(format!("{}{address}", peer.base)).await.unwrap();
        assert_eq!(client.card().name, "peer", "{place}");
        assert_eq!(client.version(), Version::V1_0);
    }
}

#[tokio::test]
async fn what_is_no_card_is_an_error_that_helps() {
    for (response, expected) in [
        ("<html>welcome</html>", "is not an agent card: expected value at line 1 column 1"),
        ("[]", "is not an agent card: expected a JSON object"),
        ("{\"name\":\"x\"}", "neither supportedInterfaces nor url"),
    ] {
        let peer = Peer::start(move |_| answer(200, &[], response.into())).await;
        let error = builder().connect(&peer.base).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
        assert!(error.message().contains(expected), "{error}");
    }
    let peer = Peer::start(|_| status(404, &[])).await;
    let error = builder().connect(&peer.base).await.unwrap_err();
    assert!(error.message().contains("/.well-known/agent-card.json or "), "{error}");
    let peer = Peer::start(|_| status(301, &[("location", "http://elsewhere.example/card")])).await;
    let error = builder().connect(&peer.base).await.unwrap_err();
    assert!(error.message().contains("redirects are not followed"), "{error}");
    assert!(error.message().ends_with("http://elsewhere.example/card"), "{error}");
}

#[tokio::test]
async fn a_card_larger_than_the_limit_is_not_read() {
    let peer = Peer::start(|_| answer(200, &[], " ".repeat(2000).into())).await;
    let egress = Egress::operator().unwrap().with_max_body(1000);
    let error = builder().egress(egress).connect(&peer.base).await.unwrap_err();
    assert!(error.message().ends_with("is larger than the limit of 1000 bytes"), "{error}");
}

#[tokio::test]
async fn an_old_card_leads_to_an_old_conversation() {
    let peer = Peer::start(|asked| match &*asked.path {
        "/.well-known/agent-card.json" => json_answer(&json!({
            "protocolVersion": "0.3.0", "name": "old", "description": "d", "version": "1",
            "url": format!("{}/rpc", asked.base), "preferredTransport": "JSONRPC",
            "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [],
        })),
        _ if asked.body["method"] == "message/stream" => {
            let task =
                json!({ "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "working" } });
            let done = json!({
                "kind": "status-update", "taskId": "t-1", "contextId": "c-1", "final": true,
                "status": { "state": "completed" },
            });
            events(frame(0, &task) + &frame(0, &done), Then::End)
        }
        _ => result(
            asked,
            &json!({
                "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "completed" },
            }),
        ),
    })
    .await;
    let client = peer.client().await;
    assert_eq!(client.version(), Version::V0_3);
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);
    let error = client.list(Default::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    assert!(error.message().contains("ListTasks does not exist in version 0.3"), "{error}");
    let items: Vec<_> = client.stream("hello").await.unwrap().collect().await;
    let states: Vec<_> =
        items.iter().map(|item| item.as_ref().unwrap().event().status().unwrap().state).collect();
    assert_eq!(states, [TaskState::Working, TaskState::Completed]);
    assert_eq!(peer.methods(), ["tasks/get", "message/stream"]);
    assert_eq!(peer.asked("/rpc")[0].header("a2a-version"), Some("0.3"));

    // REQ-076: who asks for 1.0 does not get 0.3.
    let error = builder().version(Version::V1_0).connect(&peer.base).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::VersionNotSupported);
    assert!(error.message().contains("offers JSONRPC 0.3"), "{error}");
}

#[tokio::test]
async fn a_kept_card_is_asked_about_and_not_fetched_again() {
    let peer = Peer::start(|asked| {
        let headers = &[("etag", "\"v1\""), ("cache-control", "no-cache")];
        match asked.header("if-none-match") {
            Some("\"v1\"") => status(304, headers),
            _ => answer(200, headers, card(&asked.base, &[]).to_string().into()),
        }
    })
    .await;
    let (cache, egress) = (CardCache::new(), Egress::operator().unwrap());
    let agent = agent_url(&peer.base).unwrap();
    let first = cache.discover(&egress, &agent, &Credentials::none()).await.unwrap();
    let second = cache.discover(&egress, &agent, &Credentials::none()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(peer.asked("/.well-known/agent-card.json").len(), 2);
}

#[tokio::test]
async fn a_fresh_card_is_not_asked_about() {
    let peer = Peer::start(|asked| {
        answer(200, &[("cache-control", "max-age=3600")], card(&asked.base, &[]).to_string().into())
    })
    .await;
    let cache = Arc::new(CardCache::new());
    for _ in 0..3 {
        builder().card_cache(Arc::clone(&cache)).connect(&peer.base).await.unwrap();
    }
    assert_eq!(peer.asked("/.well-known/agent-card.json").len(), 1);
}

/// An agent at `/rpc` that wants a token, and a card elsewhere that points to it.
async fn elsewhere() -> (Peer, Peer) {
    let agent = Peer::agent(&[], |asked| match asked.header("authorization") {
        Some("Bearer secret") => result(asked, &task("TASK_STATE_COMPLETED")),
        _ => status(401, &[("www-authenticate", "Bearer realm=\"peer\"")]),
    })
    .await;
    let base = agent.base.clone();
    let directory = Peer::start(move |_| json_answer(&card(&base, &[]))).await;
    (agent, directory)
}

#[tokio::test]
async fn credentials_do_not_follow_a_card_to_another_origin() {
    // Lesson 10
    let (agent, directory) = elsewhere().await;
    let client = builder().bearer("secret").header("x-team", "a").connect(&directory.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("bound to the origin of the card"), "{error}");
    assert_eq!(agent.asked("/rpc")[0].header("authorization"), None);
    assert_eq!(agent.asked("/rpc")[0].header("x-team"), None);
    let card = &directory.asked("/.well-known/agent-card.json")[0];
    assert_eq!(card.header("authorization"), Some("Bearer secret"), "the address is the caller's own");

    let client = builder().bearer("secret").allow_origin(&agent.base).connect(&directory.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn credentials_go_to_the_origin_of_the_card() {
    let (agent, _) = elsewhere().await;
    let client = builder().bearer("secret").connect(&agent.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);
    let error = agent.client().await.get("t-1").await.unwrap_err();
    assert!(error.message().ends_with("it asks for Bearer realm=\"peer\""), "{error}");
}

#[tokio::test]
async fn the_next_interface_is_used_when_the_first_cannot_be_reached() {
    // A port on which nothing listens any more.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let peer = Peer::start(move |asked| match &*asked.path {
        "/.well-known/agent-card.json" => {
            let mut card = card(&asked.base, &[]);
            let first = card["supportedInterfaces"][0].clone();
            card["supportedInterfaces"] = json!([first.clone(), first]);
            card["supportedInterfaces"][0]["url"] = json!(format!("http://{gone}/rpc"));
            json_answer(&card)
        }
        _ => result(asked, &task("TASK_STATE_WORKING")),
    })
    .await;
    let client = peer.client().await;
    assert_eq!(client.candidates().len(), 2);
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Working);
    assert!(client.send("hello").await.is_err(), "a bare task is no answer to a send");
    assert_eq!(peer.methods(), ["GetTask", "SendMessage"]);
}

fn signing_key() -> SigningKey {
    let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let body = STANDARD.encode(der.as_ref());
    SigningKey::from_pem(&format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"), "k")
        .unwrap()
}

#[tokio::test]
async fn signatures_are_required_on_request() {
    let key = signing_key();
    let keys = TrustedKeys::from_jwks(&key.jwk()).unwrap();
    let peer = Peer::start(move |asked| {
        let mut card = card(&asked.base, &[]);
        if asked.before == 0 {
            sign_card(&mut card, std::slice::from_ref(&key)).unwrap();
        }
        json_answer(&card)
    })
    .await;
    let require = || builder().trust(Trust::Require(keys.clone()));
    let client = require().connect(&peer.base).await.unwrap();
    assert_eq!(client.verified().unwrap().kid, "k");
    let error = require().connect(&peer.base).await.unwrap_err();
    assert!(error.message().ends_with("is refused: the card is not signed"), "{error}");
    let client = builder().trust(Trust::Warn(keys.clone())).connect(&peer.base).await.unwrap();
    assert_eq!(client.verified(), None);
}

/// The v0.3 members that name an address.
fn add_old_address(card: &mut Value, url: &str) {
    card["protocolVersion"] = json!("0.3.0");
    card["url"] = json!(url);
    card["preferredTransport"] = json!("JSONRPC");
}

#[tokio::test]
async fn of_a_signed_card_only_what_is_signed_is_used() {
    const OLD: &str = "https://old.example/";
    const EVIL: &str = "https://evil.example/";
    type Change = fn(&mut Value);
    let unchanged: Change = |_| {};
    let add_evil: Change = |card| {
        add_old_address(card, EVIL);
        card["security"] = json!([{ "evil": [] }]);
    };
    let replace_by_evil: Change = |card| card["url"] = json!(EVIL);
    let key = signing_key();
    let keys = TrustedKeys::from_jwks(&key.jwk()).unwrap();
    for (is_union, change, over, addresses) in [
        (false, unchanged, Over::V1Members, "/rpc"),
        (false, add_evil, Over::V1Members, "/rpc"),
        (true, unchanged, Over::WholeCard, "/rpc https://old.example/"),
        (true, replace_by_evil, Over::V1Members, "/rpc"),
    ] {
        let key = key.clone();
        let peer = Peer::start(move |asked| {
            // An empty list of extensions would be more than the v1.0 members.
            let mut card = card(&asked.base, &["https://e.example/ext"]);
            if is_union {
                add_old_address(&mut card, OLD);
            }
            sign_card(&mut card, std::slice::from_ref(&key)).unwrap();
            change(&mut card);
            json_answer(&card)
        })
        .await;
        for trust in [Trust::Require(keys.clone()), Trust::Warn(keys.clone())] {
            let client = builder().trust(trust).connect(&peer.base).await.unwrap();
            assert_eq!(client.verified().unwrap().over, over, "{addresses}");
            let urls: Vec<_> = client.candidates().iter().map(|c| c.interface.url.as_str()).collect();
            assert_eq!(urls.join(" ").replace(&peer.base, ""), addresses);
            assert!(client.card().security_requirements.is_empty());
        }
        // Nor is it used by one who wants that version and no other.
        let old = builder().version(Version::V0_3).trust(Trust::Require(keys.clone())).connect(&peer.base);
        let found = old.await.map(|client| client.candidates()[0].interface.url.clone());
        let expected = if over == Over::WholeCard { Ok(OLD) } else { Err(ErrorKind::VersionNotSupported) };
        assert_eq!(found.as_deref().map_err(|error| error.kind()), expected);
    }
}

#[tokio::test]
async fn a_wrong_setting_is_told_when_connecting() {
    let error = builder().bearer("line\nbreak").connect("http://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    let error = builder().connect("ftp://agent.example").await.unwrap_err();
    assert!(error.message().ends_with("expected http or https"), "{error}");
}
