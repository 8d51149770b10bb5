//! The playground over the admin API: every version and binding, frames with their marks, notifications, refusals.

use std::fs;

use nuncio_hub::config::{Admin, Push};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::*;

/// A hub, and its operator.
struct Api {
    hub: Running,
    base: String,
    token: String,
    client: Client,
}

impl Api {
    async fn start(test: &str, config: Config) -> Self {
        let file = directory("playground").join(format!("{test}.token"));
        let admin = Admin { listen: Some(([127, 0, 0, 1], 0).into()), token_file: Some(file.clone()) };
        let hub = Hub::bind(Config { admin, ..config }).await.unwrap();
        let base = format!("http://{}/api/v1", hub.administered().unwrap().address);
        let token = fs::read_to_string(&file).unwrap().trim_end().to_owned();
        let client = Client::builder().no_proxy().build().unwrap();
        Self { hub: Running::run(hub), base, token, client }
    }

    async fn send(&self, token: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method, format!("{}{path}", self.base)).bearer_auth(token);
        let request = match body {
            Value::Null => request,
            body => request.header("content-type", "application/json").body(body.to_string()),
        };
        let answer = within("the answer", request.send()).await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.send(&self.token, method, path, body).await
    }

    /// Sends a trial, and reads it until `is_done`.
    async fn tried(&self, trial: Value, is_done: impl Fn(&Value) -> bool) -> Value {
        let (status, sent) = self.ask(Method::POST, "/playground:send", &trial).await;
        assert_eq!(status, 201, "{sent}");
        let path = format!("/playground/{}", sent["id"].as_str().unwrap());
        let poll = async {
            loop {
                let (status, shown) = self.ask(Method::GET, &path, &Value::Null).await;
                assert_eq!(status, 200, "{shown}");
                if is_done(&shown) {
                    return shown;
                }
            }
        };
        within("the end of the trial", poll).await
    }
}

fn has_ended(trial: &Value) -> bool {
    trial["ended"].is_string()
}

fn validities(trial: &Value) -> Vec<&str> {
    let frames = trial["frames"].as_array().unwrap().iter();
    frames.filter_map(|frame| frame["validity"].as_str()).collect()
}

#[tokio::test]
async fn an_agent_is_tried_in_every_version_binding_and_mode() {
    let api = Api::start("bindings", Config { default_agent: Some("echo".into()), ..config() }).await;
    for (version, binding) in [
        ("1.0", "JSONRPC"),
        ("1.0", "HTTP+JSON"),
        ("1.0", "GRPC"),
        ("0.3", "JSONRPC"),
        ("0.3", "HTTP+JSON"),
        ("0.3", "GRPC"),
    ] {
        for mode in ["stream", "wait"] {
            let trial = json!({ "agent": "echo", "version": version, "binding": binding, "mode": mode,
                "parts": [{ "text": "hello" }], "metadata": { "a": 1 } });
            let shown = api.tried(trial, has_ended).await;
            let what = format!("{version} {binding} {mode}: {shown:#}");
            assert_eq!((&shown["version"], &shown["binding"]), (&json!(version), &json!(binding)), "{what}");
            assert_eq!(shown["state"], "TASK_STATE_COMPLETED", "{what}");
            assert_eq!(shown["task"]["artifacts"][0]["parts"][0]["text"], "hello", "{what}");
            let marks = validities(&shown);
            assert!(!marks.is_empty() && marks.iter().all(|mark| *mark == "valid"), "{what}");
            assert_eq!(shown["frames"][0]["direction"], "sent", "{what}");
            assert!(shown["frames"][0]["text"].as_str().unwrap().contains("hello"), "{what}");
            assert!(shown["curl"].as_str().unwrap().starts_with("curl") || binding == "GRPC", "{what}");
        }
    }
    // Each of them is a task of the operator, and has left a row.
    let (_, tasks) = api.ask(Method::GET, "/tasks?principal=operator", &Value::Null).await;
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 12);
}

#[tokio::test]
async fn a_trial_leaves_a_row_with_its_agent_and_the_principal() {
    let api = Api::start("trail", config()).await;
    api.tried(json!({ "agent": "echo", "parts": [{ "text": "x" }] }), has_ended).await;
    let poll = async {
        loop {
            let (_, trail) = api.ask(Method::GET, "/audit?what=trial-sent", &Value::Null).await;
            if let Some(row) = trail["rows"].get(0) {
                return row.clone();
            }
        }
    };
    let row = within("the row", poll).await;
    assert_eq!((&row["agent"], &row["principal"]), (&json!("echo"), &json!("operator")));
}

#[tokio::test]
async fn notifications_come_to_the_hubs_own_receiver_although_it_is_on_loopback() {
    let push = Push { enabled: true, ..Push::default() };
    let api = Api::start("push", Config { push, ..config() }).await;
    let trial = json!({ "agent": "echo", "mode": "wait", "push": true, "parts": [{ "text": "hello" }] });
    let notified = |trial: &Value| {
        let frames = trial["frames"].as_array().unwrap().iter();
        let notified = frames.filter(|frame| frame["direction"] == "notified");
        notified
            .filter(|frame| frame["text"].as_str().is_some_and(|text| text.contains("TASK_STATE_COMPLETED")))
            .count()
            > 0
    };
    let shown = api.tried(trial, |trial| has_ended(trial) && notified(trial)).await;
    assert!(validities(&shown).iter().all(|mark| *mark == "valid"), "{shown:#}");
    // Over the network, as an agent elsewhere does.
    let request = shown["frames"][0]["text"].as_str().unwrap();
    let (_, rest) = request.split_once(r#""url":""#).unwrap();
    let address = rest.split('"').next().unwrap();
    let answer = within("the answer", api.client.post(address).body("{}").send()).await.unwrap();
    assert_eq!(answer.status(), 204);
    // The address is that of the trial alone.
    let guessed = format!("{}/playground/notifications/guessed", api.hub.url);
    let answer = within("the answer", api.client.post(guessed).body("{}").send()).await.unwrap();
    assert_eq!(answer.status(), 404);
}

#[tokio::test]
async fn a_task_is_canceled_at_its_agent() {
    let api = Api::start("cancel", config()).await;
    let begun = |trial: &Value| trial["state"] == "TASK_STATE_WORKING";
    let shown = api.tried(json!({ "agent": "echo", "parts": [{ "text": "hold" }] }), begun).await;
    let path = format!("/playground/{}:cancel", shown["id"].as_str().unwrap());
    let (status, canceled) = api.ask(Method::POST, &path, &Value::Null).await;
    assert_eq!((status, &canceled["state"]), (200, &json!("TASK_STATE_CANCELED")), "{canceled:#}");
    assert_eq!(api.ask(Method::POST, "/playground/none:cancel", &Value::Null).await.0, 404);
}

#[tokio::test]
async fn another_agent_is_called_by_its_card_over_the_guarded_way_out() {
    let (closed, open) = (Push::default(), Push { allow_private: true, ..Push::default() });
    let far = Api::start("far", config()).await;
    for (push, status) in [(closed, 503), (open, 201)] {
        let api = Api::start(&format!("card-{status}"), Config { push, ..config() }).await;
        let card = format!("{}/agents/echo", far.hub.url);
        let trial = json!({ "card": card, "parts": [{ "text": "hi" }], "version": "0.3", "key": null });
        let (got, sent) = api.ask(Method::POST, "/playground:send", &trial).await;
        assert_eq!(got, status, "{sent}");
        if status == 201 {
            let shown = api.tried(trial, has_ended).await;
            assert_eq!(shown["state"], "TASK_STATE_COMPLETED", "{shown:#}");
            assert!(validities(&shown).iter().all(|mark| *mark == "valid"), "{shown:#}");
        }
    }
}

#[tokio::test]
async fn wrong_trials_are_refused_and_nothing_is_sent() {
    let api = Api::start("refusals", config()).await;
    let parts = json!([{ "text": "x" }]);
    for (trial, status, words) in [
        (json!({ "parts": parts }), 400, "expected one of agent"),
        (
            json!({ "agent": "echo", "card": "https://a.example", "parts": parts }),
            400,
            "expected one of agent",
        ),
        (json!({ "agent": "none", "parts": parts }), 404, "no agent none"),
        (json!({ "agent": "echo", "parts": [] }), 400, "parts: expected 1 to 100"),
        (json!({ "agent": "echo", "parts": [{ "words": "x" }] }), 400, "parts[0]"),
        (json!({ "agent": "echo", "version": "0.2", "parts": parts }), 400, "expected one of 1.0, 0.3"),
        (json!({ "agent": "echo", "binding": "SOAP", "parts": parts }), 400, "expected one of JSONRPC"),
        (json!({ "agent": "echo", "version": "0.3", "binding": "GRPC", "parts": parts }), 400, "it lists"),
        (json!({ "agent": "echo", "key": "secret", "parts": parts }), 400, "leave the key out"),
        (json!({ "agent": "echo", "words": "x", "parts": parts }), 400, "words"),
        (json!({ "card": "ftp://a.example", "parts": parts }), 400, "card"),
        (json!({ "card": "http://169.254.169.254/", "parts": parts }), 503, "metadata"),
    ] {
        let (got, refused) = api.ask(Method::POST, "/playground:send", &trial).await;
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(got == status && message.contains(words), "{trial}: {got} {message}");
    }
    let (_, all) = api.ask(Method::GET, "/playground", &Value::Null).await;
    assert_eq!(all["trials"], json!([]));
}

#[tokio::test]
async fn a_viewer_sees_that_there_was_a_trial_and_not_what_was_said() {
    let api = Api::start("viewer", config()).await;
    let shown = api.tried(json!({ "agent": "echo", "parts": [{ "text": "between us" }] }), has_ended).await;
    let (_, viewer) = api.ask(Method::POST, "/admin-tokens", &json!({ "name": "v", "role": "viewer" })).await;
    let viewer = viewer["text"].as_str().unwrap();
    let path = format!("/playground/{}", shown["id"].as_str().unwrap());
    let (status, seen) = api.send(viewer, Method::GET, &path, &Value::Null).await;
    assert_eq!(status, 200);
    assert_eq!(seen["frameCount"], shown["frameCount"]);
    assert!(!seen.to_string().contains("between us"), "{seen:#}");
    let (status, _) = api
        .send(
            viewer,
            Method::POST,
            "/playground:send",
            &json!({ "agent": "echo", "parts": [{ "text": "x" }] }),
        )
        .await;
    assert_eq!(status, 403);
}
