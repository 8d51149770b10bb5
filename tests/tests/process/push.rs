//! `nuncio push …` and `nuncio send --push`: what goes over the wire, and that secrets are not told again.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, http::Method, response::IntoResponse as _};
use nuncio_tests::{
    hub::{Hub, binary, cli, cli_with_env},
    process::Output,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{directory, documents, path, text, wrong_input::check};

/// An agent that pushes: it keeps what it is asked, and has two pages of webhooks with all that is secret.
async fn pushing() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let card = json!({
        "name": "pushes", "description": "", "version": "1", "skills": [],
        "capabilities": {"pushNotifications": true}, "defaultInputModes": [], "defaultOutputModes": [],
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let answer = move |method: Method, body: Bytes| async move {
        if method == Method::GET {
            return card.to_string().into_response();
        }
        let call: Value = serde_json::from_slice(&body).unwrap();
        let config = |id: &str| {
            json!({"id": id, "taskId": "t-1", "url": "https://u:s3cret@receiver.example/hook?key=s3cret",
                "token": "s3cret", "authentication": {"scheme": "Basic", "credentials": "s3cret"}})
        };
        let result = match text(&call["method"]) {
            "ListTaskPushNotificationConfigs" if call["params"]["pageToken"] == "more" => {
                json!({"configs": [config("w-3")]})
            }
            "ListTaskPushNotificationConfigs" => {
                json!({"configs": [config("w-1"), config("w-2")], "nextPageToken": "more"})
            }
            "DeleteTaskPushNotificationConfig" => json!({}),
            "SendMessage" => json!({"message": {"messageId": "m-2", "role": "ROLE_AGENT", "parts": []}}),
            _ => config("w-1"),
        };
        let id = call["id"].clone();
        kept.lock().unwrap().push(call);
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        ([("content-type", "application/json")], answer.to_string()).into_response()
    };
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(answer)).await.unwrap();
    });
    (url, asked)
}

/// The last request to the agent.
fn last(asked: &Mutex<Vec<Value>>) -> Value {
    asked.lock().unwrap().last().unwrap().clone()
}

fn tells_no_secret(output: &Output) {
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.stdout.contains("s3cret") && !output.stderr.contains("s3cret"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_created_with_what_was_typed_and_its_secrets_are_not_told_again() {
    let (agent, asked) = pushing().await;
    let file = directory("push").join("credentials");
    std::fs::write(&file, "user-and-password\n").unwrap();
    let hook = ["push", "create", &agent, "t-1", "--url", "https://receiver.example/hook?key=1"];

    let output = cli(&hook).await;
    tells_no_secret(&output);
    assert_eq!(output.stdout, "w-1  https://receiver.example/hook  with Basic credentials  with a token\n");
    let expected = json!({"taskId": "t-1", "url": "https://receiver.example/hook?key=1"});
    assert_eq!(last(&asked)["params"], expected);

    let all = ["--id", "w-1", "--token", "typed", "--auth-scheme", "Basic"];
    let output =
        cli(&[&hook[..], &all, &["--auth-credentials-file", path(&file), "-o", "json"]].concat()).await;
    let [shown] = &documents(&output)[..] else { panic!("{output:?}") };
    assert_eq!((&shown["id"], &shown["authentication"]), (&json!("w-1"), &json!({"scheme": "Basic"})));
    let expected = json!({
        "id": "w-1", "taskId": "t-1", "url": "https://receiver.example/hook?key=1", "token": "typed",
        "authentication": {"scheme": "Basic", "credentials": "user-and-password"},
    });
    assert_eq!(last(&asked)["params"], expected);

    let variables = [("NUNCIO_PUSH_TOKEN", "kept"), ("NUNCIO_PUSH_CREDENTIALS", "also kept")];
    tells_no_secret(&cli_with_env(&hook, &variables).await);
    let params = &last(&asked)["params"];
    assert_eq!(params["token"], "kept");
    assert_eq!(params["authentication"], json!({"scheme": "Bearer", "credentials": "also kept"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_shown_listed_to_the_last_page_and_removed() {
    let (agent, asked) = pushing().await;
    let output = cli(&["push", "get", &agent, "t-1", "w-1"]).await;
    tells_no_secret(&output);
    assert_eq!(last(&asked)["params"], json!({"taskId": "t-1", "id": "w-1"}));

    let output = cli(&["push", "list", &agent, "t-1"]).await;
    tells_no_secret(&output);
    let ids: Vec<_> = output.stdout.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!((ids, &*output.stderr), (vec!["w-1", "w-2", "w-3"], "3 webhooks of task t-1\n"));
    assert_eq!(documents(&cli(&["push", "list", &agent, "t-1", "-o", "json"]).await).len(), 3);

    let output = cli(&["push", "delete", &agent, "t-1", "w-1"]).await;
    tells_no_secret(&output);
    assert_eq!((&*output.stdout, &last(&asked)["method"]), ("", &json!("DeleteTaskPushNotificationConfig")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_goes_along_with_a_message() {
    let (agent, asked) = pushing().await;
    let hook = ["send", &agent, "hello", "--push", "https://receiver.example/hook"];
    let configured = || last(&asked)["params"]["configuration"]["taskPushNotificationConfig"].clone();
    assert_eq!(cli(&hook).await.code, Some(0));
    assert_eq!(configured(), json!({"url": "https://receiver.example/hook"}));
    assert_eq!(cli(&[&hook[..], &["--push-token", "typed"]].concat()).await.code, Some(0));
    assert_eq!(configured(), json!({"url": "https://receiver.example/hook", "token": "typed"}));
    assert_eq!(cli_with_env(&hook, &[("NUNCIO_PUSH_TOKEN", "kept")]).await.code, Some(0));
    assert_eq!(configured()["token"], "kept");
    assert_eq!(cli_with_env(&hook[..3], &[("NUNCIO_PUSH_TOKEN", "kept")]).await.code, Some(0));
    assert_eq!(configured(), Value::Null, "nobody asked for a webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_wrong_is_told_before_anybody_is_called_and_without_secrets() {
    let nowhere = "http://127.0.0.1:1";
    let empty = directory("push").join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let create = |more: &[&'static str]| [&["push", "create", nowhere, "t-1"], more].concat();
    check(&create(&[]), 2, &["--url"]).await;
    for url in ["s3cret", "ftp://receiver.example/?s3cret", "https://"] {
        check(&create(&["--url", url]), 2, &["--url: expected a URL such as https://"]).await;
        let output = cli(&["send", nowhere, "x", "--push", url]).await;
        assert!(output.stderr.starts_with("error: --push: expected a URL"), "{output:?}");
        assert!(!output.stderr.contains("s3cret"), "{output:?}");
    }
    let hook = |more: &[&'static str]| create(&[&["--url", "https://receiver.example"], more].concat());
    check(&hook(&["--auth-scheme", "Basic"]), 2, &["--auth-credentials-file", "NUNCIO_PUSH_CREDENTIALS"])
        .await;
    check(&hook(&["--auth-credentials-file", "no/file"]), 2, &["no/file: cannot be read"]).await;
    check(&[&hook(&["--auth-credentials-file"])[..], &[path(&empty)]].concat(), 2, &["expected one line"])
        .await;
    check(&["send", nowhere, "x", "--push-token", "s3cret"], 2, &["--push <URL>"]).await;
}

/// REQ-153: an agent that does not push says so (-32003), and we say what to do instead.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_push_can_be_followed_instead() {
    let hub = Hub::start(&["--profile", "minimal"]).await;
    let agent = hub.agent("conformance");
    let program = binary().display();
    let watch = format!("watch the task instead: {program} task watch {agent} t-1\n");
    for command in [
        &["push", "create", &agent, "t-1", "--url", "https://receiver.example"][..],
        &["push", "get", &agent, "t-1", "w-1"],
        &["push", "list", &agent, "t-1"],
        &["push", "delete", &agent, "t-1", "w-1"],
    ] {
        check(command, 6, &[&watch]).await;
    }
    let stream = format!("watch the updates instead: {program} send {agent} \"…\" --stream\n");
    check(&["send", &agent, "x", "--push", "https://receiver.example"], 6, &[&stream]).await;
}
