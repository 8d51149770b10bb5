//! The commands that are clients: data on stdout, the rest on stderr, JSON on demand, stable exit codes.

use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri},
};
use nuncio_tests::{
    hub::{Hub, cli, cli_with_env, cli_with_stdin, start},
    process::Output,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{documents, json, text};

const STATE: &str = "TASK_STATE_";

/// A task that stays working until it is canceled.
async fn hold(hub: &Hub) -> String {
    let output = cli(&["send", &hub.agent("echo"), "hold", "--no-wait", "-o", "json"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let task = json(&output)["task"].clone();
    assert!(
        ["SUBMITTED", "WORKING"]
            .map(|s| format!("{STATE}{s}"))
            .contains(&text(&task["status"]["state"]).into())
    );
    text(&task["id"]).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn send_prints_the_artifact_and_tells_the_rest_beside_it() {
    let hub = Hub::start(&[]).await;
    for version in ["1.0", "0.3"] {
        let output = cli(&["send", &hub.agent("echo"), "hello", "--a2a-version", version]).await;
        assert_eq!((output.code, &*output.stdout), (Some(0), "hello\n"), "{output:?}");
        assert!(output.stderr.contains("completed\n") && output.stderr.contains("task "), "{output:?}");
    }
    let output = cli(&["send", &hub.agent("conformance"), "message"]).await;
    assert_eq!((output.code, &*output.stdout), (Some(0), "A direct reply, without a task\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn send_prints_the_answer_as_json_and_nothing_else() {
    let hub = Hub::start(&[]).await;
    for version in ["1.0", "0.3"] {
        let output =
            cli(&["send", &hub.agent("echo"), "hello", "-o", "json", "--a2a-version", version]).await;
        let answer = json(&output);
        assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(answer["task"]["artifacts"][0]["parts"], json!([{"text": "hello"}]));
        assert_eq!(output.stderr, "");
    }
    let output = cli(&["send", &hub.agent("conformance"), "message", "-o", "json"]).await;
    assert_eq!(json(&output)["message"]["role"], "ROLE_AGENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_comes_from_stdin_when_it_is_not_given() {
    let hub = Hub::start(&[]).await;
    for args in [&["send", &*hub.agent("echo")][..], &["send", &*hub.agent("echo"), "-"]] {
        let output = cli_with_stdin(args, "two\nlines\n").await;
        assert_eq!((output.code, &*output.stdout), (Some(0), "two\nlines\n"), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_shown_as_it_comes() {
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("conformance");
    let output = cli(&["send", &agent, "chunks 3", "--stream"]).await;
    assert_eq!(output.code, Some(0));
    assert_eq!(output.stdout.trim_end(), "chunk 1\nchunk 2\nchunk 3");
    assert!(output.stderr.contains("working\n") && output.stderr.contains("completed"), "{output:?}");

    let output = cli(&["send", &agent, "chunks 3", "--stream", "-o", "json"]).await;
    let events = documents(&output);
    let kind = |event: &Value| {
        let mut names = event.as_object().unwrap().keys();
        names.find(|name| *name != "eventId").unwrap().clone()
    };
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(
        kinds,
        ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    );
    assert_eq!(events[5]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!((output.code, &*output.stderr), (Some(0), ""));

    // What a stream says is enough to see the rest of it again.
    let (id, after) = (text(&events[0]["task"]["id"]), events[2]["eventId"].to_string());
    let rest = cli(&["task", "watch", &agent, id, "--after", &after, "-o", "json"]).await;
    assert_eq!(documents(&rest), events[3..], "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_data_and_metadata_are_sent_along() {
    let hub = Hub::start(&[]).await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/README.md");
    let output = cli(&[
        "send",
        &hub.agent("echo"),
        "look",
        "--file",
        file,
        "--data",
        r#"{"n":1}"#,
        "--data",
        "null",
        "--metadata",
        "plain=text",
        "--metadata",
        r#"json={"deep":[1]}"#,
        "--message-id",
        "my-id",
        "--context",
        "my-context",
        "-o",
        "json",
    ])
    .await;
    let task = json(&output)["task"].clone();
    assert_eq!(task["contextId"], "my-context");
    let message = &task["history"][0];
    assert_eq!(message["messageId"], "my-id");
    assert_eq!(message["metadata"], json!({"plain": "text", "json": {"deep": [1]}}));
    let parts = message["parts"].as_array().unwrap();
    assert_eq!(parts[0], json!({"text": "look"}));
    assert_eq!(
        (&parts[1]["filename"], &parts[1]["mediaType"]),
        (&json!("README.md"), &json!("text/markdown"))
    );
    assert!(text(&parts[1]["raw"]).len() > 100);
    assert_eq!(parts[2..], [json!({"data": {"n": 1}}), json!({"data": null})]);

    // Without a text, what else there is will do; stdin is not read.
    let output = cli(&["send", &hub.agent("echo"), "--data", "1", "-o", "json"]).await;
    assert_eq!(json(&output)["task"]["history"][0]["parts"], json!([{"data": 1}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_with_the_id_of_the_task() {
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("conformance");
    let asked = cli(&["send", &agent, "ask", "-o", "json"]).await;
    assert_eq!(asked.code, Some(8), "the task waits");
    let id = json(&asked)["task"]["id"].clone();
    let answered = cli(&["send", &agent, "tea", "--task", text(&id), "-o", "json", "--history", "2"]).await;
    assert_eq!(answered.code, Some(0));
    let task = json(&answered)["task"].clone();
    assert_eq!((&task["id"], &task["status"]["state"]), (&id, &json!("TASK_STATE_COMPLETED")));
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "Thank you");
    assert_eq!(task["history"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_shown_listed_watched_and_canceled() {
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("echo");
    let id = hold(&hub).await;

    // Watched from the first event on, so that what follows does not depend on who is quicker.
    let mut watch = start(&["task", "watch", &agent, &id, "--after", "1", "-o", "json"]);
    let first: Value = serde_json::from_str(&watch.line().await.unwrap()).unwrap();
    assert_eq!(first["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");

    let got = cli(&["task", "get", &agent, &id, "-o", "json"]).await;
    assert_eq!((got.code, &json(&got)["id"]), (Some(0), &json!(id)));
    cli(&["send", &agent, "done"]).await;
    let listed = cli(&["task", "list", &agent, "--state", "working", "-o", "json"]).await;
    let ids: Vec<_> = documents(&listed).iter().map(|task| task["id"].clone()).collect();
    assert_eq!(ids, [json!(id)], "{listed:?}");
    let listed = cli(&["task", "list", &agent]).await;
    assert_eq!(listed.stdout.lines().count(), 2);
    assert!(listed.stderr.contains("2 of 2 tasks"), "{listed:?}");
    let listed = cli(&["task", "list", &agent, "--limit", "1"]).await;
    assert_eq!(listed.stdout.lines().count(), 1);

    let mut snapshot = start(&["task", "watch", &agent, &id, "-o", "json"]);
    let first: Value = serde_json::from_str(&snapshot.line().await.unwrap()).unwrap();
    assert_eq!(first["task"]["id"], json!(id));

    let canceled = cli(&["task", "cancel", &agent, &id, "-o", "json"]).await;
    assert_eq!(canceled.code, Some(0));
    assert_eq!(json(&canceled)["status"]["state"], "TASK_STATE_CANCELED");
    for mut watch in [watch, snapshot] {
        let last: Value = serde_json::from_str(watch.lines().await.last().unwrap()).unwrap();
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(watch.end().await.code(), Some(7), "{}", watch.stderr());
    }
    assert_eq!(cli(&["task", "get", &agent, &id]).await.code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_is_shown_as_it_came() {
    let hub = Hub::start(&[]).await;
    let card = json(&cli(&["card", "get", &hub.agent("echo"), "-o", "json"]).await);
    assert_eq!(card["name"], "echo");
    assert_eq!(card["supportedInterfaces"][0]["url"], hub.agent("echo"));
    let by_card_url = format!("{}/.well-known/agent-card.json", hub.agent("echo"));
    let pretty = cli(&["card", "get", &by_card_url]).await;
    assert_eq!(json(&pretty), card);
    assert!(pretty.stdout.lines().count() > 10, "for people it is laid out");
}

/// The table in `nuncio --help`.
#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_say_what_happened() {
    let hub = Hub::start(&[]).await;
    let (conformance, echo) = (hub.agent("conformance"), hub.agent("echo"));
    let done = json(&cli(&["send", &echo, "x", "-o", "json"]).await)["task"]["id"].clone();
    for (code, args) in [
        (0, &["send", &conformance, "anything"][..]),
        (7, &["send", &conformance, "fail"]),
        (7, &["send", &conformance, "reject"]),
        (7, &["send", &conformance, "fail", "--stream"]),
        (8, &["send", &conformance, "ask"]),
        (8, &["send", &conformance, "ask", "--stream"]),
        (8, &["send", &conformance, "auth"]),
        (5, &["task", "get", &echo, "unknown"]),
        (5, &["task", "cancel", &echo, "unknown"]),
        (5, &["task", "watch", &echo, "unknown"]),
        (5, &["send", &echo, "x", "--task", "unknown"]),
        (6, &["task", "cancel", &echo, text(&done)]),
        (6, &["task", "watch", &echo, text(&done)]),
        (6, &["send", &echo, "x", "--task", text(&done)]),
        (6, &["task", "list", &echo, "--a2a-version", "0.3"]),
        (2, &["send"]),
        (2, &["nonsense"]),
        (0, &["--help"]),
        (0, &["--version"]),
    ] {
        let output = cli(args).await;
        assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
        let refused = matches!(code, 2 | 5 | 6);
        assert_eq!(refused, output.stderr.starts_with("error: "), "{args:?}: {output:?}");
        assert!(!refused || output.stdout.is_empty(), "{args:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_door_has_an_exit_code_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let closed = || async { (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], "") };
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(closed)).await });
    let Output { code, stderr, .. } = cli(&["send", &url, "hello"]).await;
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("Bearer"), "what is asked for: {stderr}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn access_tokens_are_fetched_with_the_secret_of_the_environment() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = |headers: HeaderMap, uri: Uri| async move {
        let proof = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        match (uri.path(), proof) {
            ("/token", "Basic bWU6czNjcmV0") => Ok(r#"{"access_token":"t","token_type":"Bearer"}"#),
            ("/token", _) => Err((StatusCode::UNAUTHORIZED, r#"{"error":"invalid_client"}"#)),
            (_, "Bearer t") => Ok("{}"),
            _ => Err((StatusCode::UNAUTHORIZED, "")),
        }
    };
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let token_url = format!("{url}/token");
    let args = ["card", "get", &url, "--oauth-token-url", &token_url, "--oauth-client-id", "me"];
    let wrong = cli_with_env(&args, &[("NUNCIO_OAUTH_SECRET", "wr0ng")]).await;
    assert_eq!(wrong.code, Some(4), "{wrong:?}");
    assert!(wrong.stderr.contains("invalid_client") && !wrong.stderr.contains("wr0ng"), "{wrong:?}");
    // Both are set: what is typed counts more.
    let right = cli_with_env(&args, &[("NUNCIO_OAUTH_SECRET", "s3cret"), ("NUNCIO_KEY", "other")]).await;
    assert!(right.stderr.contains("is not an agent card"), "the door is open: {right:?}");
    serving.abort();
}

/// The card of the demo agents declares an extension of ours; what the user declares stays beside it.
#[tokio::test(flavor = "multi_thread")]
async fn extensions_are_declared_by_option_and_by_header() {
    let hub = Hub::start(&["--profile", "extension"]).await;
    let agent = hub.agent("conformance");
    let card = json(&cli(&["card", "get", &agent, "-o", "json"]).await);
    let declared = card["capabilities"]["extensions"].as_array().unwrap();
    let required = declared.iter().find(|extension| extension["required"] == true).unwrap();
    let uri = text(&required["uri"]);
    assert_eq!(cli(&["send", &agent, "x"]).await.code, Some(6));
    let header = format!("A2A-Extensions: {uri}");
    for args in [["--extension", uri], ["-H", &*header]] {
        let output = cli(&[&["send", &agent, "x"][..], &args].concat()).await;
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
    }
}

/// House rule 48: whoever reads us has had enough, and that is fine.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_pipe_is_not_an_error() {
    let hub = Hub::start(&[]).await;
    let mut stream = start(&["send", &hub.agent("conformance"), "chunks 10000", "--stream", "-o", "json"]);
    stream.line().await.unwrap();
    stream.hang_up();
    assert_eq!(stream.end().await.code(), Some(0), "{}", stream.stderr());
    assert_eq!(stream.stderr(), "");
}

/// For `ID=$(nuncio send --no-wait …)`.
#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_does_not_wait_prints_the_id_of_its_task() {
    let hub = Hub::start(&[]).await;
    let agent = hub.agent("echo");
    for version in ["1.0", "0.3"] {
        let sent = cli(&["send", &agent, "hold", "--no-wait", "--a2a-version", version]).await;
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let id = sent.stdout.strip_suffix('\n').unwrap();
        assert!(sent.stderr.contains(&format!(" task watch {agent} {id}")), "{sent:?}");
        assert_eq!(cli(&["task", "cancel", &agent, id, "--a2a-version", version]).await.code, Some(0));
    }
    // There is no task to name.
    let replied = cli(&["send", &hub.agent("conformance"), "message", "--no-wait"]).await;
    assert_eq!((replied.code, &*replied.stdout), (Some(0), "A direct reply, without a task\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_shows_the_build_and_what_is_spoken() {
    let shown = json(&cli(&["version", "-o", "json"]).await);
    let version = cli(&["--version"]).await.stdout;
    assert_eq!(version.trim_end(), format!("nuncio {}", text(&shown["version"])));
    assert_eq!(shown["protocolVersions"], json!(["1.0", "0.3"]));
    assert_eq!(shown["bindings"], json!(["JSONRPC", "HTTP+JSON", "GRPC"]));
    assert!(shown["features"].is_array(), "{shown}");
    for member in ["profile", "os", "arch"] {
        assert!(!text(&shown["build"][member]).is_empty(), "{shown}");
    }
    let human = cli(&["version"]).await;
    assert_eq!(human.code, Some(0));
    for words in ["nuncio", text(&shown["version"]), "A2A", "1.0, 0.3"] {
        assert!(human.stdout.contains(words), "{human:?}");
    }
}
