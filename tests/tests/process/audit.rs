//! `nuncio audit`: the agents of a hub, whatever they are behind, and the exit codes.

use std::{fs, time::Duration};

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, start},
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{administration::administered, directory, path, text};

/// The checks of a report with this verdict.
fn with_verdict(report: &Value, verdict: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let chosen = findings.filter(|finding| finding["verdict"] == verdict);
    chosen.map(|finding| format!("{}: {}", text(&finding["check"]), finding["reason"])).collect()
}

/// The pause of a party that thinks before it answers: an audit cancels a task that runs.
const THOUGHT: Duration = Duration::from_millis(300);

/// Audits with messages and webhooks: nothing that is required fails on any interface, and all of them answer.
async fn has_no_failure(url: &str) -> Value {
    let output = cli(&["audit", url, "--send", "hello", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(with_verdict(&report, "fail"), Vec::<String>::new(), "{url}");
    assert_eq!((output.code, &report["leftRunning"]), (Some(0), &Value::Null), "{url}: {}", output.stderr);
    let interfaces = report["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().all(|interface| interface["reachability"] == "answers"), "{interfaces:?}");
    report
}

/// No requirement fails on any interface, behind durable and proxy.
#[tokio::test(flavor = "multi_thread")]
async fn agents_behind_a_hub_fail_no_requirement() {
    let behind = Hub::start(&[]).await;
    let folder = directory("audit");
    let file = folder.join("nuncio.toml");
    let remote = |name: &str, mode: &str| {
        format!("[agents.{name}]\nurl = \"{}\"\nmode = \"{mode}\"\n\n", behind.agent("echo"))
    };
    fs::write(&file, remote("durable", "durable") + &remote("proxy", "proxy")).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    for url in [behind.agent("echo"), hub.agent("durable"), hub.agent("proxy")] {
        has_no_failure(&url).await;
    }
}

/// The agent of a laptop, which works for a mailbox of the hub through the connector.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_behind_a_mailbox_fails_no_requirement() {
    let laptop = Hub::start(&[]).await;
    let folder = directory("audit-mailbox");
    let (hub, admin) = administered(&folder).await;
    let (token, key) = (folder.join("hub.token"), folder.join("coder.key"));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    let made = cli_with_env(&["mailbox", "create", "coder"], &variables).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::write(&key, &made.stdout).unwrap();
    let to = laptop.agent("echo");
    let connector = start(&[
        "connect",
        "coder",
        "--hub",
        &hub.base,
        "--key-file",
        path(&key),
        "--to",
        &to,
        "--concurrency",
        "8",
    ]);
    let raw = Raw::new(hub.base.clone());
    eventually("the card of the connected agent", async || {
        let card = raw.get("/agents/coder/.well-known/agent-card.json", &[]).await.json();
        (card["skills"][0]["id"] == "echo").then_some(())
    })
    .await;
    let report = has_no_failure(&hub.agent("coder")).await;
    drop(connector);
    assert!(report["interfaces"].as_array().unwrap().len() >= 6, "{}", report["interfaces"]);
}

/// A seat of a room, whose other side thinks for a moment and then says its last word.
#[tokio::test(flavor = "multi_thread")]
async fn a_seat_of_a_room_fails_no_requirement() {
    let file = directory("audit-room").join("nuncio.toml");
    fs::write(&file, "[rooms.talk]\n").unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let other = tokio::spawn(answer_for(hub.base.clone()));
    has_no_failure(&hub.agent("talk")).await;
    other.abort();
}

/// Answers what is asked at the second seat. Never returns.
async fn answer_for(base: String) {
    let hub = Raw::new(base);
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    loop {
        let path = "/agents/talk/b/tasks?status=TASK_STATE_INPUT_REQUIRED";
        let listed = hub.get(path, &headers).await.json();
        tokio::time::sleep(THOUGHT).await;
        for task in listed["tasks"].as_array().into_iter().flatten() {
            let message = json!({ "message": {
                "messageId": format!("reply-{}", text(&task["id"])), "role": "ROLE_USER", "taskId": task["id"],
                "parts": [{ "text": "so it is" }], "metadata": { "https://nuncio.dev/a2a/room/v1": { "next": "complete" } },
            } });
            // Refused if it was canceled meanwhile.
            let _ = hub.ask("POST", "/agents/talk/b/message:send", &headers, message.to_string()).await;
        }
    }
}

/// Reports are written by the extensions of their files, and compared with an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_written_and_compared() {
    let hub = Hub::start(&[]).await;
    let folder = directory("audit-reports");
    let files: Vec<_> =
        ["a.md", "a.html", "a.json", "a.xml", "a.sarif"].iter().map(|name| folder.join(name)).collect();
    let url = hub.agent("echo");
    let mut args = vec!["audit", &url];
    for file in &files {
        args.extend(["--report", path(file)]);
    }
    assert_eq!(cli(&args).await.code, Some(0));
    assert!(files.iter().all(|file| fs::metadata(file).is_ok_and(|file| file.len() > 500)));
    let output = cli(&["audit", &url, "--baseline", path(&files[2])]).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("0 messages sent"), "{}", output.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_failures_from_agents_that_are_not_there() {
    let hub = Hub::start(&[]).await;
    let url = hub.agent("echo");
    for (args, code) in [
        (vec!["audit", "http://127.0.0.1:9"], 3),
        (vec!["audit", "http://127.0.0.1:9", "--dry-run"], 3),
        (vec!["audit", &url, "--only", "nonsense"], 2),
        (vec!["audit", &url, "--report", "a.doc"], 2),
        (vec!["audit", &url, "--push"], 2),
        (vec!["audit", &url, "--send", "hello", "--as", "NUNCIO_KEY_OF_NOBODY"], 2),
        (vec!["audit", &url, "--dry-run"], 0),
    ] {
        let output = cli(&args).await;
        assert_eq!(output.code, Some(code), "{args:?}: {}", output.stderr);
    }
}

/// The keys of a hub keep callers apart.
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_hub_are_isolated() {
    let state = directory("audit-keys");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let mut keys = Vec::new();
    for name in ["alice", "bob"] {
        let variables = [("NUNCIO_ADMIN", admin.as_str()), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))];
        let made = cli_with_env(&["key", "create", name, "--yes"], &variables).await;
        keys.push(made.stdout.trim_end().to_owned());
    }
    let variables = [("NUNCIO_KEY", keys[0].as_str()), ("OTHER_KEY", keys[1].as_str())];
    let args = ["audit", &hub.agent("echo"), "--send", "hello", "--as", "OTHER_KEY", "-o", "json"];
    let output = cli_with_env(&args, &variables).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(with_verdict(&report, "fail"), Vec::<String>::new());
    let passed = with_verdict(&report, "pass");
    for check in ["isolation.get", "isolation.cancel", "isolation.list", "auth.missing", "auth.invalid"] {
        assert!(passed.iter().any(|line| line.starts_with(check)), "{check}: {passed:?}");
    }
}
