//! The log lines about programs and callers, and traces by the standard environment variables.

use std::fs;

use axum::{
    Json, Router,
    body::Bytes,
    http::HeaderMap,
    routing::{get, post},
};
use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    issuer::Issuer,
    raw::Raw,
    within,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

use crate::{administration::says, directory, json, path, text};

/// A word that callers say, and nobody else is to hear.
const SECRET: &str = "xyzzy-4711";

/// Stops the hub; what it has said, line by line.
async fn log(mut hub: Hub) -> Vec<Value> {
    hub.process.signal("TERM").await;
    hub.process.end().await;
    hub.process.says("stopped").await;
    let stderr = hub.process.stderr();
    assert!(!stderr.contains(SECRET), "{stderr}");
    stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn saying<'a>(log: &'a [Value], message: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["fields"]["message"] == message).collect()
}

/// docs/operating.md: 1,000 bytes of a line; of many lines 50 a second, and how many more there were.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_says_on_stderr_is_in_the_log_with_agent_and_task_within_bounds() {
    let file = directory("programs").join("nuncio.toml");
    let script = "cat; echo in so many words >&2; printf '%3000s\\n' x | tr ' ' x >&2; seq 1000 >&2";
    fs::write(&file, format!("[agents.program]\ncommand = [\"sh\", \"-c\", {}]\n", json!(script))).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file), "--log-format", "json"]).await;
    let task = json(&cli(&["send", &hub.agent("program"), SECRET, "-o", "json"]).await)["task"].clone();
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], SECRET, "{task}");
    let log = log(hub).await;
    let (said, more) = (saying(&log, "program stderr"), saying(&log, "program stderr: lines left out"));
    for line in said.iter().chain(&more) {
        assert_eq!((&line["fields"]["agent"], &line["fields"]["task"]), (&json!("program"), &task["id"]));
    }
    let words: Vec<_> = said.iter().map(|line| text(&line["fields"]["line"])).collect();
    assert_eq!(&words[..3], ["in so many words", &*"x".repeat(1000), "1"]);
    let left_out: u64 = more.iter().map(|line| line["fields"]["left_out"].as_u64().unwrap()).sum();
    assert_eq!(words.len() as u64 + left_out, 1002, "nothing is left out in silence");
    assert!(left_out > 0, "a thousand lines at once are too many");
}

/// By a key, by a token, and by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_a_request_say_who_has_called_where_there_is_somebody() {
    let folder = directory("principals");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    let issuer = Issuer::start().await;
    fs::write(&file, format!("[identity]\nanonymous = \"always\"\n{}", issuer.setting())).unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::start(&[&args[..], &["--log-format", "json", "--log-level", "debug"]].concat()).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let variables = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    let made = cli_with_env(&["key", "create", "team-a", "--yes"], &variables).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let key = format!("Bearer {}", made.stdout.trim_end());
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": SECRET}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
        .to_string();
    for (request, bearer) in
        [("by-key", Some(key.clone())), ("by-token", Some(issuer.bearer("ann"))), ("nobody", None)]
    {
        let mut headers = vec![("a2a-version", "1.0"), ("x-request-id", request)];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let answer = Raw::new(hub.agent("echo")).post(&headers, call.clone()).await;
        assert_eq!(answer.status, 200, "{request}: {answer:?}");
    }
    let stderr = hub.process.stderr();
    assert!(!stderr.contains(key.trim_start_matches("Bearer ")), "{stderr}");
    let log = log(hub).await;
    let answered = saying(&log, "answered");
    let who = |request: &str| {
        let line = answered.iter().find(|line| line["span"]["request"] == request);
        line.unwrap_or_else(|| panic!("{request}: {log:?}"))["span"]["principal"].clone()
    };
    assert_eq!(who("by-key"), "team-a");
    assert!(text(&who("by-token")).ends_with("#ann"), "{}", who("by-token"));
    assert_eq!(who("nobody"), Value::Null);
}

/// The requests with spans: their paths and headers.
#[tokio::test(flavor = "multi_thread")]
async fn traces_go_where_the_usual_variables_say() {
    let (sender, mut received) = mpsc::unbounded_channel::<(HeaderMap, Bytes)>();
    let take = || {
        let sender = sender.clone();
        post(async move |headers: HeaderMap, body: Bytes| drop(sender.send((headers, body))))
    };
    let router = Router::new().route("/v1/traces", take()).route("/all/of/it", take());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", socket.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(socket, router).await });
    for endpoint in [
        format!("OTEL_EXPORTER_OTLP_ENDPOINT={base}"),
        format!("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={base}/all/of/it"),
    ] {
        let by = ["env", &endpoint, "OTEL_EXPORTER_OTLP_HEADERS=x-team=blue"];
        let mut hub = Hub::start_by(&by, "127.0.0.1:0", &[]).await;
        says_hello(&hub).await;
        hub.process.signal("TERM").await;
        hub.process.end().await;
        let (headers, body) = within(&endpoint, received.recv()).await.unwrap();
        assert_eq!(headers["x-team"], "blue", "{endpoint}");
        let told = String::from_utf8_lossy(&body);
        assert!(told.contains("SendMessage echo"), "{endpoint}: {told}");
        assert!(!told.contains(SECRET), "{endpoint}: {told}");
    }
}

async fn says_hello(hub: &Hub) {
    let sent = cli(&["send", &hub.agent("echo"), SECRET]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

/// docs/operating.md: `check` ends with 0 or 78.
#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_cannot_be_reached_is_found_by_a_check() {
    let file = directory("issuers").join("nuncio.toml");
    let there = Issuer::start().await;
    // Port 1 of loopback: nothing listens there.
    let away = "[[identity.jwt]]\nissuer = \"http://127.0.0.1:1\"\naudience = [\"nuncio\"]\n";
    let agent = "[agents.a]\ndemo = \"echo\"\n".to_owned();
    fs::write(&file, agent.clone() + &there.setting()).unwrap();
    says(&cli(&["check", path(&file)]).await, 0, &["no problems found"]);
    fs::write(&file, agent + &there.setting() + away).unwrap();
    let checked = cli(&["check", path(&file)]).await;
    assert_eq!(checked.code, Some(78), "{checked:?}");
    let words = "nuncio.toml:7:10: identity.jwt.1.issuer: cannot be reached (--offline skips this check): ";
    assert!(checked.stdout.contains(words), "{checked:?}");
    assert!(checked.stdout.contains("cannot connect"), "{checked:?}");
    assert!(checked.stderr.contains("1 problem found"), "{checked:?}");
    assert_eq!(cli(&["check", path(&file), "--offline"]).await.code, Some(0));
}

/// Output of a program and errors of an agent cannot break a line of the log: the rest would look like a line of the
/// hub.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_the_log_for_people_is_the_hubs_own() {
    let file = directory("forged").join("nuncio.toml");
    let forged = "INFO all is well";
    let program = format!("cat >/dev/null; printf 'it broke\\n{forged}\\033[2J\\n' >&2; exit 3");
    let text = format!(
        "[agents.program]\ncommand = [\"sh\", \"-c\", {}]\n[agents.far]\nurl = \"{}\"\n",
        json!(program),
        refuses_with(&format!("it broke\r\n{forged}")).await,
    );
    fs::write(&file, text).unwrap();
    let mut hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    for agent in ["program", "far"] {
        let sent = cli(&["send", &hub.agent(agent), "x"]).await;
        assert!(sent.stderr.contains("it broke"), "{agent}: {sent:?}");
        // Of what the command line tells, only the first line begins like one.
        assert!(sent.stderr.lines().all(|line| !line.starts_with(forged)), "{agent}: {sent:?}");
    }
    hub.process.signal("TERM").await;
    hub.process.end().await;
    hub.process.says("stopped").await;
    let stderr = hub.process.stderr();
    let logged: Vec<_> = stderr.split(['\n', '\r']).filter(|line| line.contains(forged)).collect();
    assert!(logged.len() >= 2, "{stderr}");
    for line in logged {
        assert!(line.contains("it broke") || line.contains("program stderr"), "{line:?} in {stderr}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
}

/// An agent that answers every call with this error.
async fn refuses_with(message: &str) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", socket.local_addr().unwrap());
    let interface = json!({"url": base, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let card = json!({
        "name": "far", "description": "refuses", "version": "1", "supportedInterfaces": [interface], "skills": [],
        "capabilities": {}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    });
    let refusal = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32004, "message": message}});
    let router = Router::new()
        .route("/.well-known/agent-card.json", get(async move || Json(card)))
        .fallback(async move || Json(refusal));
    tokio::spawn(async move { axum::serve(socket, router).await });
    base
}
