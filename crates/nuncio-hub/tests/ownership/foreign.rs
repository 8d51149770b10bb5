//! Callers on this machine: a call with a trace of another machine is not one.

use nuncio_hub::config::Anonymous;

use crate::{
    Running,
    refusals::{check, get_task, header},
    wire::{WIRES, get_as},
};

/// Traces of another machine, each alone. The hub on loopback trusts no proxy, and answers to this name.
const TRACES: &[(&str, &str)] = &[
    ("x-forwarded-for", "203.0.113.7"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-proto", "https"),
    ("forwarded", "for=203.0.113.7"),
    ("x-real-ip", "203.0.113.7"),
    ("via", "1.1 proxy"),
    ("host", "agents.example.com"),
];

/// The documented set-up behind a reverse proxy served a stranger on every binding: "loopback only" looked at the
/// address that the hub listens on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_from_another_machine_needs_credentials_on_every_wire() {
    let hub = Running::start(|config| {
        config.allowed_hosts.push(url::Host::parse("agents.example.com").unwrap());
    })
    .await;
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", None, get_task()).await.unwrap();
        assert!(answer.text().replace("%20", " ").contains("not found"), "{wire:?}: {}", answer.text());
        for trace in TRACES {
            let answer = wire.call_as(&hub, "echo", None, &[*trace], get_task()).await.unwrap();
            check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
            assert_eq!(header(&answer, "www-authenticate"), "Bearer realm=\"nuncio\"", "{wire:?} {trace:?}");
        }
    }
    for path in ["/agents", "/agents/echo", "/agents/echo/.well-known/agent-card.json", "/"] {
        for trace in TRACES {
            let answer = get_as(&hub, path, None, &[*trace]).await;
            assert_eq!(answer.status, 401, "{path} {trace:?}: {}", answer.text());
        }
    }
    // Whoever watches the hub through a proxy asks nothing about agents.
    assert_eq!(get_as(&hub, "/readyz", None, &[TRACES[0]]).await.status, 200);
    let key = hub.key("team-a", None).await;
    for trace in TRACES {
        assert_eq!(get_as(&hub, "/agents", Some(&key), &[*trace]).await.status, 200, "{trace:?}");
    }
}

/// The operator has allowed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anybody_may_call_where_anybody_may() {
    let hub = Running::start(|config| {
        config.identity.anonymous = Anonymous::Always;
        config.trusted_proxies.push("127.0.0.1".parse().unwrap());
        config.allowed_hosts.push(url::Host::parse("agents.example.com").unwrap());
    })
    .await;
    for wire in WIRES {
        for trace in TRACES {
            let answer = wire.call_as(&hub, "echo", None, &[*trace], get_task()).await.unwrap();
            assert!(answer.text().replace("%20", " ").contains("not found"), "{wire:?} {}", answer.text());
        }
    }
}
