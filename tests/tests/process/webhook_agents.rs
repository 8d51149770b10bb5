//! Agents that have only a webhook, as an operator and their authors use them; and consent by the key of a mailbox.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse as _, routing::post};
use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, root},
    process::{Output, Process},
    raw::Raw,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{administration::administered_with, directory, documents, json as document, path, text};

/// A hub over a file, with its operator.
struct PostOffice {
    hub: Hub,
    admin: String,
    folder: PathBuf,
}

impl PostOffice {
    async fn open(name: &str, more: &[&str]) -> Self {
        let folder = directory(&format!("webhook-agents-{name}"));
        let data = folder.join("post.db");
        let (hub, admin) = administered_with(&folder, &[&["--data", path(&data)], more].concat()).await;
        Self { hub, admin, folder }
    }

    async fn administer(&self, args: &[&str]) -> Output {
        let token = self.folder.join("hub.token");
        let variables = [("NUNCIO_ADMIN", &*self.admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
        cli_with_env(args, &variables).await
    }

    async fn done(&self, args: &[&str]) -> String {
        let output = self.administer(args).await;
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output.stdout
    }

    async fn send(&self, agent: &str, words: &str) -> Value {
        let sent = cli(&["send", &self.hub.agent(agent), words, "-o", "json"]).await;
        assert!(sent.code == Some(0) || sent.stdout.contains("FAILED"), "{sent:?}");
        document(&sent)["task"].clone()
    }
}

/// A webhook that answers with this status; 200 with a message.
struct Webhook {
    url: String,
    status: Arc<AtomicU16>,
}

impl Webhook {
    async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(status));
        let answer = |State(status): State<Arc<AtomicU16>>, Json(body): Json<Value>| async move {
            let status = StatusCode::from_u16(status.load(Ordering::Relaxed)).unwrap();
            let asked = body["task"]["history"][0]["parts"][0]["text"].clone();
            let said = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": format!("heard {asked}")}]});
            (status, Json(json!({ "message": said }))).into_response()
        };
        let router = Router::new().route("/hook", post(answer)).with_state(Arc::clone(&status));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, status }
    }
}

fn said(task: &Value) -> String {
    format!("{} {}", text(&task["status"]["state"]), task["status"]["message"]["parts"][0]["text"])
}

/// The example, as its own documentation starts it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_python_answers_by_its_webhook() {
    let office = PostOffice::open("python", &[]).await;
    let key = office.folder.join("greeter.key");
    let mut command = tokio::process::Command::new(root().join("examples/python/webhook_agent.py"));
    command.args(["--key-file", path(&key), "--hub", &office.hub.base, "--port", "0"]);
    let mut agent = Process::start(command);
    let hook = agent.line().await.unwrap();
    let made = office.done(&["mailbox", "create", "greeter", "--deliver-to", &hook]).await;
    fs::write(&key, &made).unwrap();
    let greeted = office.send("greeter", "ann").await;
    assert_eq!(said(&greeted), "TASK_STATE_COMPLETED \"hello ann\"");
    let slowly = office.send("greeter", "slowly bob").await;
    assert_eq!(said(&slowly), "TASK_STATE_COMPLETED \"greeted slowly\"");
    let words = slowly["artifacts"][0]["parts"][0]["text"].clone();
    assert_eq!(words, "hello bob", "{slowly}");

    let origin = hook.trim_end_matches("/hook");
    let headers = [("content-type", "application/json"), ("webhook-id", "x")];
    let forged = Raw::new(origin).ask("POST", "/hook", &headers, "{}").await;
    assert_eq!(forged.status, 401, "only the hub can give it work");
    let listed = office.done(&["mailbox", "list"]).await;
    assert!(listed.contains(&format!("to {origin}")) && !listed.contains("/hook"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_gone_is_shown_and_enabled_again() {
    let webhook = Webhook::start(410).await;
    let spec = format!("coder=mailbox:{}", webhook.url);
    let office = PostOffice::open("gone", &["--agent", &spec]).await;
    let sent = cli(&["send", &office.hub.agent("coder"), "hi", "--no-wait"]).await;
    let task = sent.stdout.trim().to_owned();
    let disabled = eventually("the webhook is disabled", async || {
        let listed = documents(&office.administer(&["mailbox", "list", "-o", "json"]).await);
        listed.into_iter().find(|mailbox| mailbox["disabled"].is_string())
    })
    .await;
    assert_eq!((&disabled["waiting"], &disabled["leased"]), (&json!(1), &json!(0)), "{disabled}");
    let listed = office.done(&["mailbox", "list"]).await;
    assert!(listed.contains("disabled since") && listed.contains("(410)"), "{listed}");
    eventually("its row", async || office.done(&["trail"]).await.contains("mailbox-disabled").then_some(()))
        .await;

    webhook.status.store(200, Ordering::Relaxed);
    office.done(&["mailbox", "enable", "coder"]).await;
    eventually("the answer", async || {
        let got = document(&cli(&["task", "get", &office.hub.agent("coder"), &task, "-o", "json"]).await);
        (said(&got) == "TASK_STATE_COMPLETED \"heard \\\"hi\\\"\"").then_some(())
    })
    .await;
    let again = office.administer(&["mailbox", "enable", "coder"]).await;
    assert!(again.stderr.contains("the webhook of coder is not disabled"), "{again:?}");
    eventually("its row", async || office.done(&["trail"]).await.contains("mailbox-enabled").then_some(()))
        .await;
    let metrics = Raw::new(&*office.admin).get("/metrics", &[]).await.body;
    for line in [
        "nuncio_mailbox_deliveries_total{agent=\"coder\",outcome=\"gone\"} 1",
        "nuncio_mailbox_disabled{agent=\"coder\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_webhook_refuses_fails() {
    let webhook = Webhook::start(422).await;
    let office = PostOffice::open("refuses", &["--agent", &format!("coder=mailbox:{}", webhook.url)]).await;
    let task = office.send("coder", "hi").await;
    assert_eq!(
        said(&task),
        "TASK_STATE_FAILED \"the webhook refused the message: 422 Unprocessable Entity\""
    );
}

/// The address of one who was invited is no address of the operator's: it is guarded like that of a caller.
#[tokio::test(flavor = "multi_thread")]
async fn an_invited_agent_registers_its_webhook() {
    let webhook = Webhook::start(200).await;
    for is_allowed in [false, true] {
        let more: &[&str] = if is_allowed { &["--allow-private-push"] } else { &[] };
        let office = PostOffice::open(&format!("invited-{is_allowed}"), more).await;
        let code = office.done(&["invite", "create", "--mailbox", "guest"]).await;
        let register = ["register", &office.hub.base, "--invite", code.trim()];
        let registered = cli(&[&register[..], &["--webhook", &webhook.url]].concat()).await;
        if is_allowed {
            assert_eq!(registered.code, Some(0), "{registered:?}");
            assert!(registered.stderr.contains("posted to the webhook"), "{registered:?}");
            assert_eq!(said(&office.send("guest", "hi").await), "TASK_STATE_COMPLETED \"heard \\\"hi\\\"\"");
            continue;
        }
        assert!(
            registered.stderr.contains("webhooks on loopback addresses are not allowed"),
            "{registered:?}"
        );
        let again = cli(&register).await;
        assert_eq!(again.code, Some(0), "the code was not spent: {again:?}");
    }
}

/// The agent decides with the key of its mailbox, as an operator does.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_decides_on_its_callers_by_the_key_of_its_mailbox() {
    let webhook = Webhook::start(200).await;
    let folder = directory("webhook-agents-consent-config");
    let config = folder.join("nuncio.toml");
    let agents = format!(
        "[agents.coder]\nmailbox = {{ deliver_to = \"{}\" }}\naccess = \"ask\"\n[agents.other]\nmailbox = {{}}\n",
        webhook.url
    );
    fs::write(&config, agents).unwrap();
    let office = PostOffice::open("consent", &["--config", path(&config)]).await;
    let card = document(&cli(&["card", "get", &office.hub.agent("coder"), "-o", "json"]).await);
    assert!(card["securityRequirements"][0].is_object(), "one that asks has to know its callers: {card}");
    let card = document(&cli(&["card", "get", &office.hub.agent("other"), "-o", "json"]).await);
    assert!(card.get("securityRequirements").is_none(), "{card}");

    let key = office.done(&["mailbox", "create", "coder"]).await;
    let other = office.done(&["mailbox", "create", "other"]).await;
    let ann = office.done(&["key", "create", "ann"]).await;
    let send = async || {
        let sent = cli_with_env(
            &["send", &office.hub.agent("coder"), "hi", "-o", "json"],
            &[("NUNCIO_KEY", ann.trim())],
        )
        .await;
        document(&sent)["task"].clone()
    };
    let own = async |args: &[&str], key: &str| {
        let args = [args, &["--hub", &office.hub.base]].concat();
        cli_with_env(&args, &[("NUNCIO_KEY", key.trim())]).await
    };
    let held = send().await;
    assert_eq!(held["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{held}");
    let listed = own(&["access", "list", "--agent", "coder", "-o", "json"], &key).await;
    let [caller] = &documents(&listed)[..] else { panic!("{listed:?}") };
    assert_eq!(
        (&caller["principal"], &caller["state"], &caller["tasks"][0]),
        (&json!("ann"), &json!("waiting"), &held["id"])
    );
    let by_operator = office.done(&["access", "list", "-o", "json"]).await;
    let by_operator: Value = serde_json::from_str(by_operator.trim()).unwrap();
    assert_eq!(by_operator, *caller, "both see the same");

    // Neither the key of another mailbox nor that of a caller decides.
    for wrong in [&other, &ann] {
        let refused = own(&["access", "accept", "coder", "ann"], wrong).await;
        assert_eq!(refused.code, Some(4), "{refused:?}");
    }
    let accepted = own(&["access", "accept", "coder", "ann"], &key).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let ended = eventually("the answer", async || {
        let id = text(&held["id"]);
        let got = cli_with_env(
            &["task", "get", &office.hub.agent("coder"), id, "-o", "json"],
            &[("NUNCIO_KEY", ann.trim())],
        )
        .await;
        let got = document(&got);
        (got["status"]["state"] == "TASK_STATE_COMPLETED").then_some(got)
    })
    .await;
    assert_eq!(said(&ended), "TASK_STATE_COMPLETED \"heard \\\"hi\\\"\"");
    assert_eq!(own(&["access", "revoke", "coder", "ann"], &key).await.code, Some(0));
    let twice = own(&["access", "revoke", "coder", "ann"], &key).await;
    assert!(
        twice.code != Some(0) && twice.stderr.contains("there is nothing to revoke for ann"),
        "{twice:?}"
    );
    let declined = send().await;
    assert_eq!(declined["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(own(&["access", "decline", "coder", "ann"], &key).await.code, Some(0));
    send().await;
    assert_eq!(own(&["access", "block", "coder", "ann"], &key).await.code, Some(0));
    let blocked = send().await;
    assert_eq!(said(&blocked), "TASK_STATE_REJECTED \"declined\"");
    let open = own(&["access", "accept", "other", "ann"], &other).await;
    assert!(open.stderr.contains("does not ask for consent"), "{open:?}");
    eventually("the rows", async || {
        let trail = office.done(&["trail", "-o", "json"]).await;
        let has = |what: &str| {
            trail.lines().any(|row| row.contains(what) && row.contains("by the key of the mailbox"))
        };
        ["access-accepted", "access-declined", "access-blocked", "access-revoked"]
            .iter()
            .all(|what| has(what))
            .then_some(())
    })
    .await;
}
