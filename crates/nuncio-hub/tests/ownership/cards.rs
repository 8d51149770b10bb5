//! Cards that anybody may read: a client has to learn what to show before it can show it.

use nuncio_hub::config::{Agent, Anonymous, Cards};
use nuncio_protocol::Version;
use serde_json::Value;

use crate::{
    Running,
    refusals::{check, get_task, header},
    wire::{WIRES, Wire, get},
};

/// Paths of a card below an agent.
const CARDS: [&str; 4] = ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"];

/// What is no card, and stays for those who may call.
const OTHERS: [&str; 5] = ["/extendedAgentCard", "/upstream-card", "/tasks", "/v1/card", "/x"];

/// A hub with the demo agents and `far`, changed by a test.
async fn hub(change: impl FnOnce(&mut nuncio_hub::config::Config, &mut Agent)) -> (Running, Running) {
    let far = Running::start(|_| {}).await;
    let hub = Running::before(&far, change).await;
    (far, hub)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_public_card_is_for_anybody_and_nothing_else_is() {
    // The schemes are on the cards from the start.
    let (_far, hub) = hub(|config, _| config.identity.anonymous = Anonymous::Never).await;
    let key = hub.key("team-a", Some(&["slow"])).await;
    for agent in ["echo", "far"] {
        for below in CARDS {
            let path = format!("/agents/{agent}{below}");
            for key in [None, Some(&*key)] {
                let card = get(&hub, &path, key).await;
                assert_eq!(card.status, 200, "{path} {}", card.text());
                let card: Value = serde_json::from_slice(&card.body).unwrap();
                assert!(card["securitySchemes"]["bearer"].is_object(), "{path} {card}");
            }
            let wrong = get(&hub, &path, Some("nuncio_wrong")).await;
            assert_eq!(wrong.status, 401, "{path} {}", wrong.text());
            assert!(header(&wrong, "www-authenticate").contains("invalid_token"), "{path}");
        }
        assert_eq!(hub.denials("agent_denied").await, 0, "reading a public card is no denial");
    }
    for agent in ["echo", "far"] {
        for below in OTHERS {
            let path = format!("/agents/{agent}{below}");
            for (key, expected) in [(None, 401), (Some(&*key), 404)] {
                let answer = get(&hub, &path, key).await;
                assert_eq!(answer.status, expected, "{path} {}", answer.text());
            }
        }
    }
    // The default agent answers at the root, too.
    for path in ["/", "/.well-known/agent-card.json"] {
        assert_eq!(get(&hub, path, None).await.status, 200, "{path}");
        assert_eq!(get(&hub, path, Some(&key)).await.status, 200, "{path}");
    }
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", None, get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
        if wire != Wire::Grpc(Version::V0_3) {
            let mine = wire.call(&hub, "echo", Some(&key), get_task()).await.unwrap();
            let nobody =
                wire.call(&hub, "none", Some(&key), get_task()).await.unwrap().renamed("none", "echo");
            assert_eq!(mine.text(), nobody.text(), "{wire:?}");
        }
    }
    for path in ["/agents", "/.well-known/ai-catalog.json", "/.well-known/api-catalog"] {
        assert_eq!(get(&hub, path, None).await.status, 401, "{path}");
        let listed = get(&hub, path, Some(&key)).await.text();
        assert!(listed.contains("/agents/slow") && !listed.contains("/agents/echo"), "{path} {listed}");
    }
}

/// By the setting for all, that of the agent, and whether it is listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_agent_is_as_one_that_nobody_has() {
    let (public, protected) = (Some(Cards::Public), Some(Cards::Protected));
    for (all, own, visible, is_public) in [
        (Cards::Public, None, true, true),
        (Cards::Public, None, false, false),
        (Cards::Public, protected, true, false),
        (Cards::Public, public, false, true),
        (Cards::Protected, None, true, false),
        (Cards::Protected, public, true, true),
        (Cards::Protected, protected, true, false),
    ] {
        let (_far, hub) = hub(|config, agent| {
            config.identity.anonymous = Anonymous::Never;
            config.identity.cards = all;
            (agent.cards, agent.visible) = (own, visible);
        })
        .await;
        let key = hub.key("team-a", Some(&["slow"])).await;
        let case = format!("{all:?} {own:?} {visible}");
        for below in CARDS {
            for (key, hidden) in [(None, 401), (Some(&*key), 404)] {
                let card = get(&hub, &format!("/agents/far{below}"), key).await;
                assert_eq!(card.status, if is_public { 200 } else { hidden }, "{case} {below:?}");
                if !is_public {
                    let nobody = get(&hub, &format!("/agents/nob{below}"), key).await.renamed("nob", "far");
                    assert_eq!(card.text(), nobody.text(), "{case} {below:?}");
                }
            }
        }
        let owner = hub.key("team-b", Some(&["far"])).await;
        assert_eq!(get(&hub, "/agents/far", Some(&owner)).await.status, 200, "{case}");
    }
}
