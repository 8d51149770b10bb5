//! What a hub tells about itself: its health, its numbers, its log, and never what its callers say.

use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{documents, json, text};

/// A word that must not be found anywhere but in answers.
const SECRET: &str = "xyzzy-4711";

/// A line of the log that says this, of a call of this operation.
fn line<'a>(log: &'a [Value], message: &str, operation: &str) -> Option<&'a Value> {
    log.iter().find(|line| line["fields"]["message"] == message && line["span"]["operation"] == operation)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_the_names_of_a_call_and_nothing_of_what_was_said() {
    let mut hub = Hub::start(&["--log-format", "json", "--log-level", "debug"]).await;
    let url = hub.agent("conformance");
    for binding in ["jsonrpc", "rest", "grpc"] {
        let versions: &[&str] = if binding == "grpc" { &["1.0"] } else { &["1.0", "0.3"] };
        for version in versions {
            for stream in [&[][..], &["--stream"]] {
                let args =
                    ["send", &url, SECRET, "--binding", binding, "--a2a-version", version, "-o", "json"];
                let sent = cli(&[&args[..], stream].concat()).await;
                assert_eq!(sent.code, Some(0), "{sent:?}");
            }
        }
    }
    // What is refused may be quoted to whoever said it, and to nobody else.
    let raw = Raw::new(&*url);
    for body in [format!("{{\"{SECRET}\""), json!({"jsonrpc": "2.0", "id": 1, "method": SECRET}).to_string()]
    {
        raw.posting(&[("a2a-version", "1.0")], body).send().await.unwrap();
    }
    raw.get(&format!("/{SECRET}?{SECRET}={SECRET}"), &[]).await;
    hub.process.signal("TERM").await;
    hub.process.end().await;
    hub.process.says("stopped").await;

    let stderr = hub.process.stderr();
    assert!(!stderr.contains(SECRET), "{stderr}");
    let log: Vec<Value> = stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for operation in ["SendMessage", "SendStreamingMessage"] {
        let line = line(&log, "answered", operation).unwrap_or_else(|| panic!("{operation}: {stderr}"));
        assert_eq!((&line["span"]["agent"], &line["fields"]["status"]), (&json!("conformance"), &json!(200)));
        assert_eq!(text(&line["span"]["request"]).len(), 32, "{line}");
    }
    let line = line(&log, "answered", "SendMessage").unwrap();
    for name in ["task", "context"] {
        assert!(!text(&line["span"][name]).is_empty(), "{line}");
    }
}

/// The caller's own id if it is fit for a log, otherwise one of ours; on every answer.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_id_of_its_request() {
    let hub = Hub::start(&[]).await;
    let raw = Raw::new(&*hub.base);
    for path in ["/healthz", "/agents", "/nothing", "/agents/echo/tasks/t-1"] {
        assert_eq!(
            raw.get(path, &[("x-request-id", "req-1")]).await.header("x-request-id"),
            "req-1",
            "{path}"
        );
        for headers in [&[][..], &[("x-request-id", "two words")]] {
            assert_eq!(raw.get(path, headers).await.header("x-request-id").len(), 32, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_a_word_or_all_there_is_and_a_command() {
    let token = crate::directory("observed").join("admin.token");
    let hub = Hub::start(&["--admin", "127.0.0.1:0", "--admin-token-file", crate::path(&token)]).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_told_to_whoever_is_on_this_machine() {
    let token = crate::directory("numbers").join("admin.token");
    let hub = Hub::start(&["--admin", "127.0.0.1:0", "--admin-token-file", crate::path(&token)]).await;
    let url = hub.agent("echo");
    let sent = json(&cli(&["send", &url, SECRET, "-o", "json"]).await);
    let list = cli(&["task", "list", &url, "--binding", "rest", "--a2a-version", "1.0", "-o", "json"]).await;
    assert_eq!(documents(&list).len(), 1);
    let admin = Raw::new(format!("http://{}", text(&hub.announced["admin"]["listen"])));
    let answer = admin.get("/metrics", &[]).await;
    assert_eq!(answer.status, 200);
    for expected in [
        r#"operation="SendMessage",version="1.0",binding="JSONRPC",outcome="ok"} 1"#,
        r#"operation="ListTasks",version="1.0",binding="HTTP+JSON",outcome="ok"} 1"#,
        r#"nuncio_tasks{agent="echo",state="completed"} 1"#,
        "nuncio_owed_deliveries 0",
        "nuncio_ready 1",
        "nuncio_build_info{version=",
        "# EOF",
    ] {
        assert!(answer.body.contains(expected), "{expected}: {}", answer.body);
    }
    for secret in [SECRET, text(&sent["task"]["id"]), text(&sent["task"]["contextId"])] {
        assert!(!answer.body.contains(secret), "{secret}");
    }
    assert_eq!(Raw::new(&*hub.base).get("/metrics", &[]).await.status, 404, "not for callers");
}
