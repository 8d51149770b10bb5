//! `nuncio serve`: what it announces and what it answers.

use nuncio_tests::{
    hub::{Hub, cli, start},
    raw::Raw,
};

use crate::text;

#[tokio::test(flavor = "multi_thread")]
async fn the_real_port_is_announced() {
    let hub = Hub::start(&[]).await;
    let port: u16 = hub.base.rsplit_once(':').unwrap().1.parse().unwrap();
    assert_ne!(port, 0);
    let names: Vec<_> =
        hub.announced["agents"].as_array().unwrap().iter().map(|agent| text(&agent["name"])).collect();
    assert_eq!(names, ["conformance", "echo", "slow"]);
    for agent in hub.announced["agents"].as_array().unwrap() {
        let card = Raw::new(text(&agent["card"])).get("", &[]).await;
        assert_eq!((card.status, &card.json()["name"]), (200, &agent["name"]));
        assert_eq!(card.json()["supportedInterfaces"][0]["url"], agent["url"]);
        // REQ-182
        assert!(card.header("cache-control").contains("max-age=") && !card.header("etag").is_empty());
        let again = Raw::new(text(&agent["card"])).get("", &[("if-none-match", card.header("etag"))]).await;
        assert_eq!((again.status, &*again.body), (304, ""), "REQ-183");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_a_line_to_paste() {
    let mut hub = start(&["serve", "--demo", "--listen", "127.0.0.1:0"]);
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains(" send ") && line.contains("/agents/slow")) {
        lines.push(hub.line().await.unwrap());
    }
    assert!(lines[0].contains("listens on http://127.0.0.1:"), "{lines:?}");
    hub.says("warning: tasks and API keys are in memory only").await;
    // As it stands there, but for the program's name.
    let line = lines.iter().find(|line| line.contains(" send ") && line.contains("/agents/echo")).unwrap();
    let (_, args) = line.split_once(" send ").unwrap();
    let (url, text) = args.split_once(' ').unwrap();
    let output = cli(&["send", url, text.trim_matches('"')]).await;
    assert_eq!((output.code, &*output.stdout), (Some(0), "hello\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_agent_answers_at_the_root() {
    let hub = Hub::start(&["--default", "echo"]).await;
    for url in [hub.base.clone(), format!("{}/", hub.base)] {
        let output = cli(&["send", &url, "hello"]).await;
        assert_eq!((output.code, &*output.stdout), (Some(0), "hello\n"), "{output:?}");
    }
    let raw = Raw::new(&*hub.base);
    assert_eq!(raw.get("/.well-known/agent-card.json", &[]).await.json()["name"], "echo");
    let legacy = raw.get("/.well-known/agent.json", &[]).await;
    assert_eq!((legacy.status, legacy.header("deprecation")), (200, "true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_default_agent_the_root_says_where_the_agents_are() {
    let hub = Hub::start(&[]).await;
    let raw = Raw::new(&*hub.base);
    let answer = raw.get("/.well-known/agent-card.json", &[]).await;
    assert_eq!(answer.status, 404);
    assert!(text(&answer.json()["error"]["message"]).contains("GET /agents"));
    let agents = raw.get("/agents", &[]).await.json();
    assert_eq!(agents["agents"].as_array().unwrap().len(), 3);
    assert_eq!(raw.get("/healthz", &[]).await.status, 200);
    assert_eq!(raw.get("/readyz", &[]).await.status, 200);
}

/// DNS rebinding: a page of another site that points its name at us reaches nothing.
#[tokio::test(flavor = "multi_thread")]
async fn another_sites_host_name_is_refused() {
    let hub = Hub::start(&["--public-url", "https://agents.example.com"]).await;
    let raw = Raw::new(&*hub.base);
    let port = hub.base.rsplit_once(':').unwrap().1;
    for path in ["/healthz", "/agents", "/agents/echo", "/nothing"] {
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"] {
            let answer = raw.get(path, &[("host", host)]).await;
            assert_eq!(answer.status, 421, "{path} {host}: {answer:?}");
            assert!(answer.body.contains("--public-url"), "{answer:?}");
        }
        for host in [&format!("localhost:{port}"), "LOCALHOST", "127.0.0.1", "agents.example.com"] {
            assert_ne!(raw.get(path, &[("host", host)]).await.status, 421, "{path} {host}");
        }
    }
    let post = Raw::new(hub.agent("echo")).post(&[("host", "evil.example")], "{}").await;
    assert_eq!(post.status, 421);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_address_stands_on_the_card() {
    let hub = Hub::start(&["--public-url", "https://agents.example.com/"]).await;
    let card = Raw::new(hub.agent("echo")).get("/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://agents.example.com/agents/echo");
    assert_eq!(card["url"], "https://agents.example.com/agents/echo", "as 0.3 reads it");
    assert_eq!(hub.announced["agents"][1]["url"], "https://agents.example.com/agents/echo");
}
