//! Metrics and log of a hub, which never contain the content of calls.

use std::fs;

use nuncio_tests::{
    hub::{Hub, cli, free_address},
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
        "nuncio_pending_deliveries 0",
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

/// Translations with a loss (docs/protocol-notes.md) are counted apart from those without.
#[tokio::test(flavor = "multi_thread")]
async fn translations_are_told_and_what_was_lost_in_them() {
    let far = Hub::start(&[]).await;
    let folder = crate::directory("translations");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("admin.token"));
    let agent = |name: &str, version: &str| {
        let url = far.agent("echo");
        format!(
            "[agents.{name}]\nurl = \"{url}\"\nmode = \"proxy\"\nversion = \"{version}\"\nbinding = \"rest\"\n"
        )
    };
    fs::write(&file, agent("old", "0.3") + &agent("new", "1.0")).unwrap();
    let args = ["--config", crate::path(&file), "--admin", "127.0.0.1:0"];
    let hub =
        Hub::of_agents("127.0.0.1:0", &[&args[..], &["--admin-token-file", crate::path(&token)]].concat())
            .await;
    let metadata = json!({"why": SECRET});
    for (agent, version, method, params) in [
        // Down: the request of a cancel has a name and nothing else there.
        ("old", "1.0", "CancelTask", json!({"id": "t"})),
        ("old", "1.0", "CancelTask", json!({"id": "t", "metadata": metadata})),
        // Up: a get has no metadata there.
        ("new", "0.3", "tasks/get", json!({"id": "t"})),
        ("new", "0.3", "tasks/get", json!({"id": "t", "metadata": metadata})),
        ("new", "0.3", "tasks/cancel", json!({"id": "t", "metadata": metadata})),
        // One version in two bindings says the same in both.
        ("new", "1.0", "CancelTask", json!({"id": "t", "metadata": metadata})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let answer = Raw::new(hub.agent(agent)).post(&[("a2a-version", version)], body).await;
        assert_eq!(answer.json()["error"]["code"], -32001, "{agent} {method}: {answer:?}");
    }
    // As it came: there is nothing to translate.
    let get = Raw::new(hub.agent("new")).get("/tasks/t", &[("a2a-version", "1.0")]).await;
    assert_eq!(get.status, 404, "{get:?}");
    let admin = Raw::new(format!("http://{}", text(&hub.announced["admin"]["listen"])));
    let metrics = admin.get("/metrics", &[]).await.body;
    let mut told: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("nuncio_translations_total")).collect();
    told.sort_unstable();
    let line = |agent, from, to, lossy, count| {
        let from = format!(r#"from_version="{from}",from_binding="JSONRPC""#);
        let to = format!(r#"to_version="{to}",to_binding="HTTP+JSON""#);
        format!(r#"{{agent="{agent}",{from},{to},lossy="{lossy}"}} {count}"#)
    };
    assert_eq!(
        told,
        [
            line("new", "0.3", "1.0", false, 2),
            line("new", "0.3", "1.0", true, 1),
            line("new", "1.0", "1.0", false, 1),
            line("old", "1.0", "0.3", false, 1),
            line("old", "1.0", "0.3", true, 1),
        ]
    );
}

/// Callers learn that their message did not arrive; whoever runs the hub, which agent it was and why.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_there_is_named_in_the_log_and_nothing_is_said_to_have_arrived() {
    let folder = crate::directory("away");
    let file = folder.join("nuncio.toml");
    let away = format!("http://{}", free_address());
    let agent = |mode: &str| format!("[agents.{mode}]\nurl = \"{away}\"\nmode = \"{mode}\"\n");
    fs::write(&file, agent("durable") + &agent("proxy")).unwrap();
    let mut hub =
        Hub::of_agents("127.0.0.1:0", &["--config", crate::path(&file), "--log-format", "json"]).await;
    for mode in ["durable", "proxy"] {
        let sent = cli(&["send", &hub.agent(mode), SECRET]).await;
        assert_eq!(sent.code, Some(3), "{sent:?}");
        assert!(sent.stderr.contains("the message did not arrive; send it again in 5 seconds\n"), "{sent:?}");
        assert!(!sent.stderr.contains("may have arrived"), "{sent:?}");
    }
    hub.process.signal("TERM").await;
    hub.process.end().await;
    hub.process.says("stopped").await;
    let stderr = hub.process.stderr();
    let log: Vec<Value> = stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!log.iter().any(|line| line["level"] == "ERROR"), "{stderr}");
    let with = |message: &str, agent: &str, member: &str| {
        let line = log.iter().find(|line| {
            line["fields"]["message"] == message
                && line["fields"]["agent"] == agent
                && line["level"] == "WARN"
        });
        let words = line.map(|line| text(&line["fields"][member]).to_owned());
        words.unwrap_or_else(|| panic!("{message}, {agent}: {stderr}"))
    };
    for mode in ["durable", "proxy"] {
        for (message, member) in
            [("the agent cannot be reached", "reason"), ("a call to the agent failed", "cause")]
        {
            assert!(with(message, mode, member).contains("cannot connect"), "{stderr}");
        }
    }
}
