//! The lists of agents, for people and for machines.

use std::collections::BTreeMap;

use nuncio_client::{TrustedKeys, verify_card};
use nuncio_hub::{
    Hub, NewApiKey,
    config::{Agent, AgentKind, AgentOrigin, CardKey, Config, Upstream},
};
use serde_json::{Value, json};

use crate::{
    Running,
    cards::{get, key},
    config,
};

#[tokio::test]
async fn agents_are_found_by_what_they_do() {
    let hub = Running::start(config()).await;
    for (query, expected) in [
        ("", json!(["conformance", "echo", "slow"])),
        ("?q=ECHO", json!(["echo"])),
        ("?tag=demo&q=repeats", json!(["echo"])),
        ("?pageSize=1&pageToken=1", json!(["echo"])),
        ("?q=unheard", json!([])),
    ] {
        let list = get(&hub, &format!("/agents{query}"), &[]).await;
        let names: Vec<_> =
            list.json["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
        assert_eq!((list.status, json!(names)), (200, expected), "{query}");
    }
    let echo = &get(&hub, "/agents?q=echo", &[]).await.json["agents"][0];
    assert_eq!(echo["url"], format!("{}/agents/echo", hub.url));
    assert_eq!(echo["card"], format!("{}/agents/echo/.well-known/agent-card.json", hub.url));
    assert_eq!(echo["skills"], json!([{ "id": "echo", "name": "Echo" }]));
    let wrong = get(&hub, "/agents?colour=red", &[]).await;
    assert_eq!((wrong.status, &wrong.json["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
}

/// Ours is signed by our key, and theirs is where its own signature holds; where that is found is in the list.
#[tokio::test]
async fn the_card_of_an_agent_elsewhere_is_signed_anew_and_shown_as_it_came_to_those_who_may_see_the_agent() {
    let signed = |name: &str| {
        let file = key("elsewhere", name, &rcgen::PKCS_ED25519);
        Config { card_keys: vec![CardKey { file, kid: Some(name.to_owned()) }], ..config() }
    };
    let far = Running::start(signed("far.pem")).await;
    let original = get(&far, "/agents/echo/.well-known/agent-card.json", &[]).await.json;
    let url: url::Url = format!("{}/agents/echo", far.url).parse().unwrap();
    let remote = |name: &str, show_upstream| {
        let kind = AgentKind::Upstream(Box::new(Upstream { show_upstream, ..Upstream::new(url.clone()) }));
        Agent::new(name.parse().unwrap(), kind, AgentOrigin::Flag)
    };
    let agents = vec![remote("far", true), remote("hidden", false)];
    let hub = Hub::bind(Config { agents, ..signed("near.pem") }).await.unwrap();
    let keyring = hub.keyring();
    let hub = Running::run(hub);
    let shown = get(&hub, "/agents/far/upstream-card", &[]).await;
    assert_eq!((shown.status, &shown.json), (200, &original));
    let ours = get(&hub, "/agents/far/.well-known/agent-card.json", &[]).await.json;
    assert_eq!(ours["supportedInterfaces"][0]["url"], format!("{}/agents/far", hub.url));
    for (signer, kid, is_ours) in [(&hub, "near.pem", true), (&far, "far.pem", false)] {
        let jwks = get(signer, "/.well-known/jwks.json", &[]).await.json;
        let trusted = TrustedKeys::from_jwks(&jwks).unwrap();
        for (card, holds) in [(&ours, is_ours), (&shown.json, !is_ours)] {
            let verified = verify_card(card, &trusted).ok();
            assert_eq!(verified.map(|verified| verified.kid), holds.then(|| kid.to_owned()), "{card}");
        }
    }
    let list = get(&hub, "/agents", &[]).await.json;
    let originals: BTreeMap<_, _> = list["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| (agent["name"].as_str().unwrap(), agent["upstreamCard"].clone()))
        .collect();
    // Of those that are here there is no other card.
    let expected = [
        ("conformance", Value::Null),
        ("echo", Value::Null),
        ("far", format!("{}/agents/far/upstream-card", hub.url).into()),
        ("hidden", Value::Null),
        ("slow", Value::Null),
    ];
    assert_eq!(originals, BTreeMap::from(expected));
    for path in ["echo/upstream-card", "none/upstream-card", "hidden/upstream-card", "far/upstream-card/x"] {
        assert_eq!(get(&hub, &format!("/agents/{path}"), &[]).await.status, 404, "{path}");
    }
    let made = NewApiKey { agents: Some(vec!["echo".to_owned()]), ..NewApiKey::named("a") };
    let (_, key) = keyring.create(made).await.unwrap();
    let bearer = format!("Bearer {}", key.reveal());
    assert_eq!(get(&hub, "/agents/far/upstream-card", &[("authorization", &bearer)]).await.status, 404);
    assert_eq!(get(&hub, "/agents/far/upstream-card", &[]).await.status, 401);
}

#[tokio::test]
async fn the_catalogs_of_others_lead_to_the_cards() {
    let hub = Running::start(config()).await;
    let catalog = get(&hub, "/.well-known/ai-catalog.json", &[]).await;
    assert_eq!((catalog.status, catalog.header("content-type")), (200, "application/ai-catalog+json"));
    assert_eq!(catalog.json["specVersion"], "1.0");
    assert_eq!(catalog.json["entries"].as_array().unwrap().len(), 3);
    for entry in catalog.json["entries"].as_array().unwrap() {
        assert_eq!(entry["mediaType"], "application/a2a-agent-card+json");
        let card = get(&hub, entry["url"].as_str().unwrap().strip_prefix(&hub.url).unwrap(), &[]).await;
        assert_eq!((card.status, &card.json["name"]), (200, &entry["displayName"]));
    }
    let catalog = get(&hub, "/.well-known/api-catalog", &[]).await;
    assert_eq!(catalog.status, 200);
    assert!(catalog.header("content-type").starts_with("application/linkset+json"), "RFC 9727, section 2");
    assert!(catalog.header("link").contains("rel=\"api-catalog\""));
    let links = catalog.json["linkset"].as_array().unwrap();
    assert_eq!(links[0]["item"].as_array().unwrap().len(), 3);
    assert_eq!(links.len(), 4);
    for link in &links[1..] {
        let card = link["service-desc"][0]["href"].as_str().unwrap().strip_prefix(&hub.url).unwrap();
        assert_eq!(get(&hub, card, &[]).await.status, 200);
    }
}
