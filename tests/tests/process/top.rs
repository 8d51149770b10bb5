//! `nuncio top`, `nuncio admin-token` and the pauses of `nuncio delivery`: what an operator sees and does.

use std::fs;

use nuncio_client::Receiver;
use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    process::Output,
    webhook::Webhook,
};
use serde_json::json;

use crate::{
    administration::{administered, says},
    directory, documents, json, path, text,
};

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_figures_once_where_there_is_no_terminal() {
    let state = directory("top");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    assert_eq!(cli(&["send", &hub.agent("echo"), "hello"]).await.code, Some(0));
    let shown = ask(&["top"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(!shown.stdout.contains('\u{1b}'), "no terminal: {shown:?}");
    for words in
        ["ready  memory store", "1 completed", "echo ", "1.0 JSONRPC 1", "warning     tasks and keys"]
    {
        assert!(shown.stdout.contains(words), "expected {words:?} in {}", shown.stdout);
    }
    let stats = json(&ask(&["top", "--once", "-o", "json"]).await);
    assert_eq!((&stats["calls"]["calls"], &stats["store"]["kind"]), (&json!(1), &json!("memory")));
    assert!(shown.stdout.contains(" calls/10 min "), "{shown:?}");
    says(&ask(&["top", "--interval", "0s"]).await, 2, &["expected at least 1s"]);
    let words = "this hub was started without a configuration file; there is nothing to reload";
    says(&ask(&["config", "reload"]).await, 0, &[words]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_viewer_reads_and_changes_nothing() {
    let state = directory("viewer");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str], token: &str| -> Output {
        let token = ("NUNCIO_ADMIN_TOKEN", token);
        let file = ("NUNCIO_ADMIN_TOKEN_FILE", path(&file));
        let which = if token.1.is_empty() { file } else { token };
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), which]).await
    };
    let made = ask(&["admin-token", "create", "wall", "--role", "viewer"], "").await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("its next restart loses the token"), "{made:?}");
    let viewer = made.stdout.trim_end().to_owned();
    assert!(viewer.starts_with("nuncio_viewer_"), "alone on stdout: {made:?}");
    let listed = documents(&ask(&["admin-token", "list", "-o", "json"], "").await);
    assert_eq!((listed.len(), &listed[0]["role"]), (1, &json!("viewer")));
    assert!(!listed[0].to_string().contains(&viewer));

    assert_eq!(ask(&["top", "--once"], &viewer).await.code, Some(0));
    let task = cli(&["send", &hub.agent("echo"), "s3cret", "--no-wait"]).await.stdout;
    let task = task.trim_end();
    let shown = ask(&["task", "show", task, "--content"], &viewer).await;
    assert!(shown.code == Some(0) && !shown.stdout.contains("s3cret"), "{shown:?}");
    let shown = ask(&["task", "show", task, "--content"], "").await;
    assert!(shown.stdout.contains("s3cret"), "{shown:?}");
    says(&ask(&["key", "create", "k", "--yes"], &viewer).await, 6, &["this token is of a viewer"]);
    says(&ask(&["admin-token", "revoke", "wall"], "").await, 0, &["Admin token wall is revoked."]);
    says(&ask(&["admin-token", "list"], &viewer).await, 4, &["does not accept the token"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_host_gets_nothing_until_it_is_resumed_also_over_a_restart() {
    let state = directory("paused");
    let (data, file) = (state.join("nuncio.db"), state.join("hub.token"));
    let args = [
        "--data",
        path(&data),
        "--allow-private-push",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        path(&file),
    ];
    let mut webhook = Webhook::open(Receiver::builder().token("t0ken")).await;
    let url = webhook.url.clone();
    let host = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let ask = async |hub: &Hub, args: &[&str]| -> Output {
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    let hub = Hub::start(&args).await;
    says(&ask(&hub, &["delivery", "pause", &host]).await, 0, &["is paused; its deliveries wait until"]);
    says(&ask(&hub, &["delivery", "pause", &host]).await, 0, &["is paused already"]);
    let sent = cli(&["send", &hub.agent("echo"), "hello", "--push", &url, "--push-token", "t0ken"]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    drop(hub);

    let hub = Hub::start(&args).await;
    let hosts = json(&ask(&hub, &["delivery", "hosts", "-o", "json"]).await);
    let shown = &hosts["hosts"][0];
    assert_eq!((&shown["host"], &shown["pending"]), (&json!(host), &json!(4)), "{hosts}");
    assert!(shown["paused"].is_string(), "{hosts}");
    assert_eq!(shown["causes"][0]["cause"], "unknown", "there was no attempt: {hosts}");
    let listed = documents(&ask(&hub, &["delivery", "list", "--host", &host, "-o", "json"]).await);
    assert!(listed.len() == 4 && listed.iter().all(|delivery| delivery["attemptCount"] == 0), "{listed:?}");
    says(&ask(&hub, &["delivery", "resume", &host]).await, 0, &["gets its deliveries again"]);
    for _ in 0..4 {
        webhook.next().await;
    }
    says(&ask(&hub, &["delivery", "resume", &host]).await, 0, &["is not paused"]);
    says(&ask(&hub, &["delivery", "pause", "no host"]).await, 6, &["expected a host such as"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_shown_with_what_its_answers_have_shown() {
    let state = directory("observed-capabilities");
    let far = Hub::start(&[]).await;
    for mode in ["durable", "proxy"] {
        let (file, config) = (state.join(format!("{mode}.token")), state.join(format!("{mode}.toml")));
        let remote = format!("[agents.far]\nurl = \"{}\"\nmode = \"{mode}\"\n", far.agent("echo"));
        fs::write(&config, remote).unwrap();
        let args = ["--config", path(&config), "--admin", "127.0.0.1:0", "--admin-token-file", path(&file)];
        let hub = Hub::start(&args).await;
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        let show = async |more: &[&str]| {
            let args = [&["agent", "show", "far"][..], more].concat();
            cli_with_env(&args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
        };
        let observed = async |capability: &str| {
            let details = json(&show(&["-o", "json"]).await);
            let all = details["observed"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["capability"] == capability).unwrap()
        };
        let streaming = observed("streaming").await;
        assert_eq!((&streaming["declared"], &streaming["observed"]), (&json!(true), &json!("unknown")));
        let sent = cli(&["send", &hub.agent("far"), "hello", "--stream"]).await;
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert_eq!(observed("streaming").await["observed"], "works", "{mode}");
        assert_eq!(observed("cancel").await["observed"], "unknown", "{mode}");
        let shown = show(&[]).await.stdout;
        assert!(shown.contains("streaming          declared, observed: works (1 answered"), "{shown}");
    }
}
