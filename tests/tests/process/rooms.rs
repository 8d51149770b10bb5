//! Rooms: two callers at the seats of one, over every pair of bindings and versions, and the commands of an operator.

use std::fs;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env},
    process::Output,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{directory, json as document, path, text};

const VERSION: (&str, &str) = ("a2a-version", "1.0");

/// The ways to reach a seat by its own address, or by its tenant.
const WAYS: [(&str, &str); 5] =
    [("1.0", "jsonrpc"), ("1.0", "rest"), ("1.0", "grpc"), ("0.3", "jsonrpc"), ("0.3", "rest")];

/// Says something without waiting; returns the id of the task.
async fn say(url: &str, (version, binding): (&str, &str), id: &str, more: &[&str]) -> String {
    let args =
        ["send", url, id, "--no-wait", "--message-id", id, "--a2a-version", version, "--binding", binding];
    let said = cli(&[&args[..], more].concat()).await;
    // The task may still be as before, or have failed: that is no failure of the call.
    assert!(matches!(said.code, Some(0 | 7 | 8)), "{url} {version} {binding}: {said:?}");
    said.stdout.trim().to_owned()
}

/// The task of a seat, in brief: its state, and who has said what.
async fn seen(hub: &Raw, seat: &str, task: &str) -> (String, Vec<String>) {
    let found = hub.get(&format!("/agents/{seat}/tasks/{task}"), &[VERSION]).await;
    assert_eq!(found.status, 200, "{seat} {task}: {found:?}");
    let task = found.json();
    let last = Some(&task["status"]["message"]).filter(|message| message.is_object());
    let messages = task["history"].as_array().into_iter().flatten().chain(last);
    let said = messages.map(|message| format!("{} {}", text(&message["role"]), text(&message["messageId"])));
    (text(&task["status"]["state"]).to_owned(), said.collect())
}

/// Waits until the task of a seat is in this state, and returns who has said what.
async fn until(hub: &Raw, seat: &str, task: &str, state: &str) -> Vec<String> {
    let state = format!("TASK_STATE_{state}");
    eventually(&format!("{state} at {seat}"), async || {
        let (now, said) = seen(hub, seat, task).await;
        (now == state).then_some(said)
    })
    .await
}

/// The id of the newest task at a seat that had so many before.
async fn newest(hub: &Raw, seat: &str, before: usize) -> String {
    eventually("a further task", async || {
        let listed = hub.get(&format!("/agents/{seat}/tasks?pageSize=100"), &[VERSION]).await.json();
        let tasks = listed["tasks"].as_array().filter(|tasks| tasks.len() > before)?;
        // The task of the round before has ended at about the same time.
        let open = tasks.iter().find(|task| task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")?;
        Some(text(&open["id"]).to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_talk_over_every_pair_of_bindings_and_versions() {
    let folder = directory("rooms");
    let file = folder.join("nuncio.toml");
    fs::write(&file, "[rooms.talk]\ntitle = \"Talk\"\n").unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let (raw, a, b) = (Raw::new(hub.base.clone()), hub.agent("talk"), hub.agent("talk/b"));
    let mut number = 0;
    for (at, first) in WAYS.into_iter().enumerate() {
        for (also, second) in WAYS.into_iter().enumerate() {
            let (m1, m2) = (format!("m1-{at}-{also}"), format!("m2-{at}-{also}"));
            let task_a = say(&a, first, &m1, &[]).await;
            assert_eq!(until(&raw, "talk", &task_a, "WORKING").await, [format!("ROLE_USER {m1}")]);
            let task_b = newest(&raw, "talk/b", number).await;
            number += 1;
            assert_eq!(until(&raw, "talk/b", &task_b, "INPUT_REQUIRED").await, [format!("ROLE_AGENT {m1}")]);
            let next = "https://nuncio.dev/a2a/room/v1={\"next\":\"complete\"}";
            say(&b, second, &m2, &["--task", &task_b, "--metadata", next]).await;
            for (seat, task, roles) in
                [("talk", &task_a, ["USER", "AGENT"]), ("talk/b", &task_b, ["AGENT", "USER"])]
            {
                let said = [format!("ROLE_{} {m1}", roles[0]), format!("ROLE_{} {m2}", roles[1])];
                let ended = until(&raw, seat, task, "COMPLETED").await;
                assert_eq!(ended, said, "{seat} {first:?} {second:?}");
            }
            // To the other side the task of a seat is unknown.
            let foreign = raw.get(&format!("/agents/talk/b/tasks/{task_a}"), &[VERSION]).await;
            assert_eq!(foreign.status, 404, "{foreign:?}");
        }
    }
    let card = raw.get("/agents/talk/b/.well-known/agent-card.json", &[]).await.json();
    assert_eq!(card["supportedInterfaces"][0]["url"], json!(b), "{card}");
    let none = raw.get("/agents/talk/c/.well-known/agent-card.json", &[]).await;
    assert_eq!(none.status, 404);
}

/// The core rows of the table of semantics: the word of seat b, its task afterwards, and that of seat a.
const CORE: [(&str, &str, &str); 7] = [
    ("yield", "WORKING", "INPUT_REQUIRED"),
    ("hold", "INPUT_REQUIRED", "WORKING"),
    ("authorize", "WORKING", "AUTH_REQUIRED"),
    ("complete", "COMPLETED", "COMPLETED"),
    ("fail", "FAILED", "FAILED"),
    ("reject", "REJECTED", "REJECTED"),
    ("cancel", "CANCELED", "CANCELED"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_core_rows_hold_over_all_nine_pairs_of_bindings() {
    let folder = directory("rooms-core");
    let file = folder.join("nuncio.toml");
    fs::write(&file, "[rooms.talk]\n").unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let (raw, a, b) = (Raw::new(hub.base.clone()), hub.agent("talk"), hub.agent("talk/b"));
    let mut number = 0;
    for first in ["jsonrpc", "rest", "grpc"] {
        for second in ["jsonrpc", "rest", "grpc"] {
            for (word, state_b, state_a) in CORE {
                // Either version at either seat; a seat has no gRPC of 0.3.
                let way = |binding: &'static str, is_old: bool| {
                    (if is_old && binding != "grpc" { "0.3" } else { "1.0" }, binding)
                };
                let (first, second) = (way(first, number % 2 == 0), way(second, number % 3 == 0));
                let (m1, m2) = (format!("m1-{number}"), format!("m2-{number}"));
                let task_a = say(&a, first, &m1, &[]).await;
                let task_b = newest(&raw, "talk/b", number).await;
                number += 1;
                if word == "cancel" {
                    let (version, binding) = second;
                    let args =
                        ["task", "cancel", &b, &task_b, "--a2a-version", version, "--binding", binding];
                    let canceled = cli(&args).await;
                    assert_eq!(canceled.code, Some(0), "{canceled:?}");
                } else {
                    let next = format!("https://nuncio.dev/a2a/room/v1={{\"next\":\"{word}\"}}");
                    say(&b, second, &m2, &["--task", &task_b, "--metadata", &next]).await;
                }
                for (seat, task, state) in [("talk", &task_a, state_a), ("talk/b", &task_b, state_b)] {
                    let said = until(&raw, seat, task, state).await;
                    assert_eq!(
                        said.len(),
                        if word == "cancel" { 1 } else { 2 },
                        "{word} at {seat}: {said:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_shows_and_resets_a_room() {
    let folder = directory("rooms-admin");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    fs::write(&file, "[rooms.talk]\n").unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let ask = async |args: &[&str]| -> Output {
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
    };
    say(&hub.agent("talk"), WAYS[0], "m1", &[]).await;
    let list = ask(&["room", "list"]).await;
    assert!(list.stdout.contains("1 open round") && list.stdout.contains("seat b speaks next"), "{list:?}");
    let show = document(&ask(&["room", "show", "talk", "--content", "-o", "json"]).await);
    let round = &show["rounds"][0];
    let words = |seat: usize| -> Value { round["seats"][seat]["messages"].clone() };
    assert_eq!(words(0), json!([{ "id": "m1", "from": "a", "text": "m1" }]));
    assert_eq!(words(0), words(1), "both sides have the same transcript");
    assert!(
        document(&ask(&["room", "show", "talk", "-o", "json"]).await)["rounds"][0]["seats"][0]["messages"]
            .is_null()
    );
    let reset = ask(&["room", "reset", "talk"]).await;
    assert_eq!((reset.code, &*reset.stderr), (Some(0), "talk: canceled 1 round\n"));
    let trail = ask(&["trail", "--what", "room-reset"]).await;
    assert!(trail.stdout.contains("talk"), "{trail:?}");
    let show = ask(&["room", "show", "talk"]).await;
    assert_eq!(show.stdout.matches("canceled").count(), 2, "{show:?}");
    let metrics = Raw::new(admin.clone()).get("/metrics", &[]).await.body;
    for line in ["nuncio_room_rounds_total{room=\"talk\"} 1", "nuncio_room_turns_total{room=\"talk\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let missing = ask(&["room", "show", "nothing"]).await;
    assert!(missing.stderr.contains("there is no room nothing"), "{missing:?}");
}

/// Keys of two parties, each for its own seat.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_holds_one_seat_and_finds_no_other() {
    let folder = directory("rooms-keys");
    let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
    fs::write(&file, "[rooms.talk]\n").unwrap();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let mut keys = Vec::new();
    for (name, agents) in [("acme", "talk"), ("globex", "talk/b"), ("eve", "echo")] {
        let create = ["key", "create", name, "--allow", agents, "--yes"];
        let made =
            cli_with_env(&create, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))])
                .await;
        assert_eq!(made.code, Some(0), "{made:?}");
        keys.push(format!("Bearer {}", made.stdout.trim()));
    }
    let raw = Raw::new(hub.base.clone());
    let message = json!({
        "message": { "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "hi" }] },
        "configuration": { "returnImmediately": true },
    });
    let mut found = Vec::new();
    for seat in ["talk", "talk/b"] {
        for key in &keys {
            let headers = [VERSION, ("authorization", key.as_str()), ("content-type", "application/json")];
            if seat == "talk" && key == &keys[0] {
                let sent = raw.ask("POST", "/agents/talk/message:send", &headers, message.to_string()).await;
                assert_eq!(sent.status, 200, "{sent:?}");
            }
            let listed = raw.get(&format!("/agents/{seat}/tasks"), &headers).await;
            found.push((listed.status, listed.json()["tasks"].as_array().map_or(0, Vec::len)));
        }
    }
    let unknown = (404, 0);
    assert_eq!(found, [(200, 1), unknown, unknown, unknown, (200, 1), unknown]);
}
