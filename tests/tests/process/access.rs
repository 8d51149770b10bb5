//! `access = "ask"` and `nuncio access …`, as an operator uses them, also when the hub is killed in between.

use std::{fs, path::Path};

use nuncio_tests::{
    eventually,
    hub::{Hub, cli_with_env},
    process::Output,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{administration::says, directory, documents, json as document, path, text};

const VERSION: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A hub over a file, whose countdown and program ask for consent.
async fn start(state: &Path) -> (Hub, String) {
    let config = state.join("nuncio.toml");
    let program = state.join("program.sh");
    fs::write(&program, "cat\necho ran >> \"$1\"\n").unwrap();
    let notes = state.join("notes");
    let agents = format!(
        "[agents.count]\ndemo = \"slow\"\naccess = \"ask\"\n\
         [agents.notes]\ncommand = [\"sh\", \"{}\", \"{}\"]\naccess = \"ask\"\n",
        path(&program),
        path(&notes)
    );
    fs::write(&config, agents).unwrap();
    let (data, token) = (state.join("hub.db"), state.join("hub.token"));
    let args = [
        "--config",
        path(&config),
        "--data",
        path(&data),
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        path(&token),
    ];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    (hub, admin)
}

async fn operator(state: &Path, admin: &str, args: &[&str]) -> Output {
    let token = state.join("hub.token");
    cli_with_env(args, &[("NUNCIO_ADMIN", admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
}

async fn send(hub: &Hub, agent: &str, key: &str, said: &str) -> Value {
    let bearer = format!("Bearer {key}");
    let body = json!({ "message": { "messageId": said, "role": "ROLE_USER", "parts": [{ "text": said }] } });
    let headers = [VERSION, JSON, ("authorization", &*bearer)];
    let raw = Raw::new(&*hub.base);
    let at = format!("/agents/{agent}/message:send");
    raw.ask("POST", &at, &headers, body.to_string()).await.json()["task"].clone()
}

async fn ended(hub: &Hub, agent: &str, key: &str, task: &Value) -> Value {
    let bearer = format!("Bearer {key}");
    let at = format!("/agents/{agent}/tasks/{}", text(&task["id"]));
    let raw = Raw::new(&*hub.base);
    eventually("the end of the task", async || {
        let task = raw.get(&at, &[VERSION, ("authorization", &*bearer)]).await.json();
        let ends = ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"];
        ends.contains(&text(&task["status"]["state"])).then_some(task)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_decides_on_the_callers_of_an_agent_that_asks() {
    let state = directory("access");
    let (hub, admin) = start(&state).await;
    let made = operator(&state, &admin, &["key", "create", "ann"]).await;
    let ann = made.stdout.trim_end();
    let task = send(&hub, "notes", ann, "hello").await;
    assert_eq!(task["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    let why = &task["status"]["message"]["parts"][0]["text"];
    assert_eq!(why, "waits for the consent of notes's owner");

    let listed = operator(&state, &admin, &["access", "list", "--agent", "notes", "-o", "json"]).await;
    let [caller] = &documents(&listed)[..] else { panic!("{listed:?}") };
    assert_eq!((&caller["principal"], &caller["state"]), (&json!("ann"), &json!("waiting")));
    assert_eq!((&caller["messages"], &caller["tasks"]), (&json!(1), &json!([task["id"]])));
    let listed = operator(&state, &admin, &["access", "list", "--state", "waiting"]).await;
    assert!(listed.stdout.starts_with("notes  ann  waiting  since 20"), "{listed:?}");

    let decide = async |decision: &str| operator(&state, &admin, &["access", decision, "notes", "ann"]).await;
    says(&decide("accept").await, 0, &["ann at notes is accepted; 1 held message runs now"]);
    let done = ended(&hub, "notes", ann, &task).await;
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    says(&decide("revoke").await, 0, &["ann at notes has to ask again"]);
    says(&decide("revoke").await, 5, &["there is nothing to revoke for ann at notes"]);
    let task = send(&hub, "notes", ann, "again").await;
    says(&decide("decline").await, 0, &["ann at notes is declined"]);
    let declined = ended(&hub, "notes", ann, &task).await;
    assert_eq!(declined["status"]["message"]["parts"][0]["text"], "declined", "{declined}");
    let block = operator(&state, &admin, &["access", "block", "notes", "ann", "-o", "json"]).await;
    assert_eq!(document(&block)["state"], "blocked");
    let rejected = send(&hub, "notes", ann, "more").await;
    assert_eq!(rejected["status"]["state"], "TASK_STATE_REJECTED");
    assert_eq!(fs::read_to_string(state.join("notes")).unwrap(), "ran\n", "only what was accepted has run");
}

/// Killed when the operator has the answer: the countdown has begun, or is about to. It goes on after the restart, and
/// ends once.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_let_go_outlives_the_hub() {
    let state = directory("access-killed");
    let (mut hub, admin) = start(&state).await;
    let made = operator(&state, &admin, &["key", "create", "ann"]).await;
    let ann = made.stdout.trim_end();
    let tasks = [send(&hub, "count", ann, "40 20ms").await, send(&hub, "count", ann, "2 20ms").await];
    let accepted = operator(&state, &admin, &["access", "accept", "count", "ann"]).await;
    says(&accepted, 0, &["ann at count is accepted; 2 held messages run now"]);
    hub.process.signal("KILL").await;
    hub.process.end().await;
    let (hub, _) = start(&state).await;
    for task in &tasks {
        let done = ended(&hub, "count", ann, task).await;
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
        assert_eq!(done["artifacts"].as_array().map(Vec::len), Some(1), "{done}");
    }
    // The grant is kept.
    let next = send(&hub, "count", ann, "1 0ms").await;
    assert_eq!(next["status"]["state"], "TASK_STATE_COMPLETED");
}
