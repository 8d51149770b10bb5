//! `nuncio agent …` and `nuncio task …` as whoever runs the hub types them.

use nuncio_tests::{
    hub::{Hub, cli, cli_with_env},
    process::Output,
    provider::Provider,
};

use crate::{
    administration::{administered, says},
    directory, documents, json, path, text,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_added_called_looked_at_and_removed() {
    let state = directory("agent");
    let (hub, admin) = administered(&state).await;
    let far = Hub::start(&[]).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    let url = far.agent("echo");
    let added = ask(&["agent", "add", "far", &url, "--title", "Far"]).await;
    assert_eq!(
        (added.code, added.stdout.trim_end()),
        (Some(0), &*format!("{}/.well-known/agent-card.json", hub.agent("far"))),
        "{added:?}"
    );
    assert_eq!(cli(&["send", &hub.agent("far"), "hello"]).await.code, Some(0));

    let listed = ask(&["agent", "list"]).await;
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{listed:?}");
    assert!(listed.stdout.contains("api") && listed.stdout.contains(&url), "{listed:?}");
    let all = documents(&ask(&["agent", "list", "-o", "json"]).await);
    assert_eq!(
        all.iter().map(|agent| text(&agent["name"])).collect::<Vec<_>>(),
        ["conformance", "echo", "far", "slow"]
    );
    let shown = ask(&["agent", "show", "far"]).await;
    assert!(shown.stdout.contains("remote") && shown.stdout.contains("called by"), "{shown:?}");
    says(&ask(&["agent", "refresh", "far"]).await, 0, &["far: the card is up to date"]);

    let tasks = documents(&ask(&["task", "list", "--agent", "far", "-o", "json"]).await);
    assert_eq!(tasks.len(), 1);
    let id = text(&tasks[0]["id"]);
    let timeline = ask(&["task", "show", id]).await;
    assert!(
        timeline.stdout.contains("TASK_STATE_COMPLETED") && !timeline.stdout.contains("hello"),
        "{timeline:?}"
    );
    assert!(ask(&["task", "show", id, "--content"]).await.stdout.contains("hello"));
    says(&ask(&["task", "show", "none"]).await, 5, &["there is no task none"]);

    says(&ask(&["agent", "set", "far", "title=Farther", "limits.tasks=3"]).await, 0, &["far is changed"]);
    let changed = json(&ask(&["agent", "show", "far", "-o", "json"]).await);
    assert_eq!(changed["card"]["name"], "Farther");
    says(&ask(&["agent", "set", "far", "titel=x"]).await, 6, &["title"]);
    says(&ask(&["agent", "set", "echo", "title=x"]).await, 6, &["on the command line"]);
    says(&ask(&["agent", "set", "far"]).await, 2, &["KEY=VALUE"]);
    let running = json(&cli(&["send", &hub.agent("slow"), "600", "--no-wait", "-o", "json"]).await);
    let canceled = ask(&["task", "cancel", text(&running["task"]["id"])]).await;
    assert!(canceled.code == Some(0) && canceled.stdout.contains("canceled"), "{canceled:?}");
    says(&ask(&["task", "cancel", "none"]).await, 5, &["there is no task none"]);
    says(&ask(&["erase"]).await, 2, &["PRINCIPAL"]);
    says(&ask(&["erase", "--anonymous"]).await, 2, &["--yes"]);
    says(&ask(&["erase", "ann", "--yes"]).await, 0, &["0 tasks and replies of ann"]);
    says(&ask(&["erase", "--anonymous", "--agent", "slow", "--yes"]).await, 0, &["1 task or reply"]);
    says(&ask(&["task", "show", text(&running["task"]["id"])]).await, 5, &["there is no task"]);
    says(&ask(&["agent", "add", "far", &url]).await, 6, &["already"]);
    says(&ask(&["agent", "add", "x", "cmd:./agent"]).await, 6, &["only in the file"]);
    says(&ask(&["agent", "remove", "echo"]).await, 6, &["on the command line"]);
    says(&ask(&["agent", "remove", "far"]).await, 0, &["far is removed"]);
    says(&ask(&["agent", "show", "far"]).await, 5, &["there is no agent far"]);
    let trail = documents(&ask(&["trail", "--agent", "far", "-o", "json"]).await);
    assert_eq!(text(&trail[0]["what"]), "agent-removed");
    assert!(json(&ask(&["agent", "show", "echo", "-o", "json"]).await)["card"].is_object());
}

/// An agent that is added to a hub in memory is lost at its end, and the command says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_hub_in_memory_is_said_to_go_with_it() {
    let far = Hub::start(&[]).await;
    let url = far.agent("echo");
    let folder = directory("agent-kept");
    let data = folder.join("tasks.db");
    for (data, words) in [
        (&["--data", path(&data)][..], "stays so after a restart"),
        (&[][..], "until the hub stops: it keeps its data in memory; start it with --data FILE"),
    ] {
        let token = folder.join("hub.token");
        let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
        let hub = Hub::start(&[&admin[..], data].concat()).await;
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        let ask = async |args: &[&str]| -> Output {
            cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
        };
        let added = ask(&["agent", "add", "far", &url]).await;
        assert!(added.code == Some(0) && added.stderr.contains(words), "{added:?}");
        says(&ask(&["agent", "set", "far", "title=Far"]).await, 0, &["far is changed", words]);
        let shown = json(&ask(&["agent", "show", "far", "-o", "json"]).await);
        assert_eq!(shown["volatile"], data.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_added_and_answers() {
    let provider = Provider::start(&[("hello Ann", true)]).await;
    let state = directory("agent-model");
    let (hub, admin) = administered(&state).await;
    let file = state.join("hub.token");
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&file))]).await
    };
    let model = provider.model();
    let add = ["agent", "add", "poet", "--model", &model, "--tag", "verse"];
    let with_key = [
        ("NUNCIO_ADMIN", &*admin),
        ("NUNCIO_ADMIN_TOKEN_FILE", path(&file)),
        ("NUNCIO_AGENT_BEARER", "sk-s3cret"),
    ];
    let added = cli_with_env(&add, &with_key).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let sent = json(&cli(&["send", &hub.agent("poet"), "hello", "-o", "json"]).await);
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "hello Ann", "{sent}");
    let head = provider.heads().remove(0).to_ascii_lowercase();
    assert!(head.contains("authorization: bearer sk-s3cret"), "{head}");
    let card = cli(&["card", "get", &hub.agent("poet"), "-o", "json"]).await;
    let shown = [ask(&["agent", "show", "poet", "-o", "json"]).await, card, ask(&["config", "show"]).await];
    for said in shown.iter().map(|output| format!("{}{}", output.stdout, output.stderr)) {
        assert!(!said.contains("sk-s3cret"), "{said}");
    }
    assert!(!hub.process.stderr().contains("sk-s3cret"), "the log has no key");
    says(&ask(&["agent", "set", "poet", "max_tokens=7"]).await, 0, &["poet is changed"]);
    let refused = ask(&["agent", "add", "other", "--model", "openai:"]).await;
    assert!(
        refused.code != Some(0) && refused.stderr.contains("the name of the model is missing"),
        "{refused:?}"
    );
}
