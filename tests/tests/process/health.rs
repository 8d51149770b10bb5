//! Alive, ready, and why not: what a hub says of itself and of its agents, and the command that asks.

use std::fs;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, free_address},
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{documents, path, shutdown::waiting_send, text, wrong_input::check};

/// The detailed health at the admin address.
async fn all(admin: &Raw) -> Value {
    serde_json::from_str(&admin.get("/readyz?verbose", &[]).await.body).unwrap()
}

fn of<'a>(agents: &'a Value, name: &str) -> &'a Value {
    agents.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_a_word_or_all_there_is_and_a_command() {
    let token = crate::directory("health").join("admin.token");
    let hub = Hub::start(&["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)]).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    for base in [&hub.base, &admin] {
        let raw = Raw::new(&**base);
        let plain = raw.get("/readyz", &[]).await;
        assert_eq!((plain.status, &*plain.body), (200, "ready\n"));
        for (path, headers) in [("/readyz?verbose", &[][..]), ("/readyz", &[("accept", "application/json")])]
        {
            let all: Value = serde_json::from_str(&raw.get(path, headers).await.body).unwrap();
            assert_eq!((&all["ready"], &all["reasons"]), (&json!(true), &json!([])));
            // Not every caller may know of every agent.
            let agents = all["agents"].as_array().map_or(0, Vec::len);
            assert_eq!(agents, if *base == admin { 3 } else { 0 }, "{base}");
        }
        for flags in [&[][..], &["--ready"]] {
            assert_eq!(cli(&[&["healthcheck", base], flags].concat()).await.code, Some(0));
        }
    }
    let listen = text(&hub.announced["listen"]).to_owned();
    assert_eq!(cli_with_env(&["healthcheck"], &[("NUNCIO_LISTEN", &listen)]).await.code, Some(0));
    drop(hub);
    let gone = cli(&["healthcheck", &admin, "--timeout", "60"]).await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stderr.contains("cannot connect"), "{gone:?}");
}

/// It is told to whoever runs the hub, and the hub is as ready as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_agent_is_told_and_changes_nothing_about_the_hub() {
    let far = Hub::start(&[]).await;
    let folder = crate::directory("dead");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("admin.token"));
    let agent = |name: &str, url: &str, more: &str| format!("[agents.{name}]\nurl = \"{url}\"\n{more}\n");
    let away = format!("http://{}", free_address());
    let agents = [
        agent("away", &away, ""),
        agent("away-too", &away, "mode = \"proxy\""),
        agent("dies", &far.agent("echo"), ""),
    ];
    fs::write(&file, agents.concat()).unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::start(&args).await;
    let admin = Raw::new(format!("http://{}", text(&hub.announced["admin"]["listen"])));
    let token = format!("Bearer {}", fs::read_to_string(&token).unwrap().trim_end());
    let expect = async |down: &[&str]| {
        for raw in [&Raw::new(&*hub.base), &admin] {
            let plain = raw.get("/readyz", &[]).await;
            assert_eq!((plain.status, &*plain.body), (200, "ready\n"));
        }
        assert_eq!(cli(&["healthcheck", &hub.base, "--ready"]).await.code, Some(0));
        let (metrics, told) = (admin.get("/metrics", &[]).await.body, all(&admin).await);
        assert_eq!((&told["ready"], &told["reasons"]), (&json!(true), &json!([])));
        let api = admin.get("/api/v1/health", &[("authorization", &token)]).await.json();
        for name in ["away", "away-too", "dies"] {
            let (state, up) = if down.contains(&name) { ("down", 0) } else { ("up", 1) };
            let health = format!("/api/v1/agents/{name}/health");
            let own = admin.get(&health, &[("authorization", &token)]).await.json();
            for said in [of(&told["agents"], name), of(&api["agents"], name), &own] {
                assert_eq!(said["state"], state, "{name}: {said}");
                let reason = said["reason"].as_str().unwrap_or_default();
                assert_eq!(reason.contains("cannot connect"), state == "down", "{name}: {said}");
            }
            let line = format!("nuncio_agent_up{{agent=\"{name}\"}} {up}\n");
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
        // What the hub does by itself is as well as the hub.
        assert_eq!(of(&told["agents"], "echo")["state"], "up");
    };
    expect(&["away", "away-too"]).await;
    drop(far);
    eventually("the word of its end", async || {
        cli(&["send", &hub.agent("dies"), "hello"]).await;
        (of(&all(&admin).await["agents"], "dies")["state"] == "down").then_some(())
    })
    .await;
    expect(&["away", "away-too", "dies"]).await;
}

/// Alive until the end, and not ready from the first signal on.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_drains_is_alive_and_says_why_it_is_not_ready() {
    let folder = crate::directory("draining");
    let (token, file) = (folder.join("admin.token"), folder.join("nuncio.toml"));
    let far = Hub::start(&[]).await;
    let url = far.agent("echo");
    let agents =
        ["durable", "proxy"].map(|mode| format!("[agents.{mode}]\nurl = \"{url}\"\nmode = \"{mode}\"\n"));
    fs::write(&file, agents.concat()).unwrap();
    let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let args = ["--config", path(&file), "--drain-seconds", "3600"];
    let mut hub = Hub::start(&[admin, args].concat()).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let _send = waiting_send(&hub, "echo", "hold").await;
    hub.process.signal("TERM").await;
    hub.process.says("waiting for running tasks").await;
    for base in [&hub.base, &admin] {
        let raw = Raw::new(&**base);
        let plain = raw.get("/readyz", &[]).await;
        assert_eq!((plain.status, &*plain.body), (503, "draining\n"), "{base}");
        let all = raw.get("/readyz?verbose", &[]).await;
        assert_eq!((all.status, &all.json()["reasons"]), (503, &json!(["draining"])), "{base}");
        let asked = cli(&["healthcheck", base, "--ready"]).await;
        assert_eq!(asked.code, Some(1), "{asked:?}");
        assert!(asked.stderr.contains("/readyz answers 503: draining"), "{asked:?}");
        assert_eq!(cli(&["healthcheck", base]).await.code, Some(0), "{base}");
    }
    let metrics = Raw::new(&*admin).get("/metrics", &[]).await.body;
    assert!(metrics.contains("\nnuncio_ready 0\n"), "{metrics}");
    // What there is can be asked for, and nothing begins.
    let url = hub.agent("echo");
    let list = cli(&["task", "list", &url, "--state", "working", "-o", "json"]).await;
    assert_eq!(documents(&list).len(), 1, "{list:?}");
    // Whoever keeps the tasks.
    for agent in ["echo", "durable", "proxy"] {
        let sent = cli(&["send", &hub.agent(agent), "hello"]).await;
        assert_eq!(sent.code, Some(3), "{agent}: {sent:?}");
        assert!(sent.stderr.contains("the hub is shutting down"), "{agent}: {sent:?}");
    }
    hub.process.signal("TERM").await;
    hub.process.end().await;
}

/// Scrapers and probes of a cluster come from other machines, and have no token.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_have_a_listener_of_their_own() {
    let folder = crate::directory("metrics");
    let file = folder.join("nuncio.toml");
    fs::write(&file, "demo = true\nlisten = \"127.0.0.1:0\"\ntelemetry.metrics_listen = \"0.0.0.0:0\"\n")
        .unwrap();
    for args in [&["--metrics", "0.0.0.0:0"][..], &["--config", path(&file)]] {
        let mut hub = Hub::start(args).await;
        let (host, port) = text(&hub.announced["metrics"]).rsplit_once(':').unwrap();
        assert_eq!(host, "0.0.0.0", "any address will do");
        let raw = Raw::new(&*format!("http://127.0.0.1:{port}"));
        let metrics = raw.get("/metrics", &[("host", "hub.monitoring.svc")]).await;
        assert!(metrics.status == 200 && metrics.body.ends_with("# EOF\n"), "{metrics:?}");
        assert_eq!(raw.get("/healthz", &[]).await.body, "ok\n");
        let ready: Value = serde_json::from_str(&raw.get("/readyz?verbose", &[]).await.body).unwrap();
        assert_eq!(ready, json!({ "ready": true, "reasons": [] }), "agents are named to operators");
        for path in ["/", "/api/v1", "/agents", "/agents/echo", "/.well-known/jwks.json"] {
            assert_eq!(raw.get(path, &[]).await.status, 404, "{path}");
        }
        assert_eq!(Raw::new(&*hub.base).get("/metrics", &[]).await.status, 404, "not where callers are");
        hub.process.signal("TERM").await;
        assert!(hub.process.end().await.success());
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--demo", "--listen", "127.0.0.1:0", "--metrics"];
    check(&[&serve[..], &[&address]].concat(), 1, &["cannot listen on", "for metrics", "--metrics"]).await;
    check(&[&serve[..], &["9090"]].concat(), 2, &["--metrics"]).await;
}
