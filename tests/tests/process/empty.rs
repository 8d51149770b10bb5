//! A hub that serves nobody yet: it is well, says so, and waits for `nuncio agent add`.

use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    raw::Raw,
};
use serde_json::json;

use crate::{directory, json, path, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_without_agents_is_well_and_serves_the_first_one_at_once() {
    let token = directory("empty").join("hub.token");
    let args = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    assert_eq!(hub.announced["agents"], json!([]));
    let raw = Raw::new(&*hub.base);
    for (at, words) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = raw.get(at, &[]).await;
        assert_eq!((answer.status, &*answer.body), (200, words), "{at}");
    }
    let agents = raw.get("/agents", &[]).await;
    assert_eq!((agents.status, &agents.json()["agents"]), (200, &json!([])), "{agents:?}");

    // Nobody answers without a name, and nobody by a name.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}).to_string();
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let (nothing, no_tenant) = ("GET /agents lists the agents", "there is no default agent");
    for (verb, at, status, words) in [
        ("GET", "/.well-known/agent-card.json", 404, nothing),
        ("GET", "/tasks/t", 400, no_tenant),
        ("POST", "/message:send", 400, no_tenant),
        ("POST", "/", 200, no_tenant),
        ("GET", "/agents/far/.well-known/agent-card.json", 404, nothing),
        ("POST", "/agents/far", 404, nothing),
    ] {
        let answer = raw.ask(verb, at, &headers, &*call).await;
        let error = &answer.json()["error"];
        assert_eq!(answer.status, status, "{verb} {at}: {answer:?}");
        assert!(text(&error["message"]).contains(words), "{verb} {at}: {answer:?}");
    }
    let nobody = cli(&["send", &hub.base, "hello"]).await;
    assert_eq!(nobody.code, Some(3), "{nobody:?}");
    let listed = cli(&["task", "list", &hub.agent("far"), "--binding", "grpc"]).await;
    assert_ne!(listed.code, Some(0), "{listed:?}");

    let far = Hub::start(&[]).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    let added = cli_with_env(&["agent", "add", "far", &far.agent("echo")], &variables).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    for binding in ["jsonrpc", "rest", "grpc"] {
        let sent = cli(&["send", &hub.agent("far"), "hello", "--binding", binding, "-o", "json"]).await;
        assert_eq!(sent.code, Some(0), "{binding}: {sent:?}");
        assert_eq!(json(&sent)["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{binding}");
    }
    let agents = raw.get("/agents", &[]).await.json();
    assert_eq!(agents["agents"].as_array().map(Vec::len), Some(1), "{agents}");
}
