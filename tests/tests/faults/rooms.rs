//! A room whose hub is killed in mid-round: both sides have the same transcript, with no message lost and none twice.

use std::{collections::HashSet, fs, time::Duration};

use nuncio_tests::{
    chance::Chance,
    data::Folder,
    hub::{Hub, cli, free_address},
    raw::Raw,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{check_store, kill, kills::kills, path, stop};

const HEADERS: [(&str, &str); 2] = [("a2a-version", "1.0"), ("content-type", "application/json")];
/// Pause of a party before it tries again.
const RETRY: Duration = Duration::from_millis(20);

/// A request by a client that never gives up: without an answer, or with one that says to come again, it repeats it.
async fn insist(base: &str, method: &str, at: &str, body: &str) -> Value {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    loop {
        let mut request = client.request(method.parse().unwrap(), format!("{base}{at}"));
        for (name, value) in HEADERS {
            request = request.header(name, value);
        }
        if let Ok(answer) = request.body(body.to_owned()).send().await {
            let status = answer.status().as_u16();
            if let Ok(bytes) = answer.bytes().await
                && let Ok(answer) = serde_json::from_slice::<Value>(&bytes)
                && status != 503
            {
                assert_eq!(status, 200, "{at}: {answer}");
                return answer;
            }
        }
        sleep(RETRY).await;
    }
}

/// A party that answers each time when it is its turn, until the round has so many messages.
async fn talk(base: String, seat: &'static str, turns: usize, rounds: usize) {
    for turn in 0.. {
        let task = loop {
            let listed = insist(&base, "GET", &format!("/agents/{seat}/tasks?pageSize=100"), "").await;
            let begun = listed["tasks"].as_array().map_or(0, Vec::len);
            let task = if begun < rounds { Value::Null } else { listed["tasks"][0].clone() };
            let state = task["status"]["state"].as_str().unwrap_or_default().to_owned();
            match &*state {
                "TASK_STATE_INPUT_REQUIRED" => break task,
                "TASK_STATE_COMPLETED" => return,
                _ => sleep(RETRY).await,
            }
        };
        let id = task["id"].as_str().unwrap();
        let whole = insist(&base, "GET", &format!("/agents/{seat}/tasks/{id}"), "").await;
        let said = whole["history"].as_array().map_or(0, Vec::len) + 1;
        let next = if said + 1 >= turns { "complete" } else { "yield" };
        let body = json!({
            "message": {
                "messageId": format!("{seat}-{turn}"), "taskId": id, "role": "ROLE_USER",
                "parts": [{ "text": format!("{turn}") }], "metadata": { "nextState": next },
            },
            "configuration": { "returnImmediately": true },
        });
        insist(&base, "POST", &format!("/agents/{seat}/message:send"), &body.to_string()).await;
        // Its own turn must have been applied before it looks again.
        loop {
            let task = insist(&base, "GET", &format!("/agents/{seat}/tasks/{id}"), "").await;
            let own = format!("{seat}-{turn}");
            let has_ended = task["status"]["state"] == "TASK_STATE_COMPLETED";
            let arrived = messages(&task).contains(&own);
            if has_ended || (arrived && task["status"]["message"]["messageId"] != json!(own)) {
                break;
            }
            sleep(RETRY).await;
        }
    }
}

/// The ids of the messages of a task, in order.
fn messages(task: &Value) -> Vec<String> {
    let last = Some(&task["status"]["message"]).filter(|message| message.is_object());
    let all = task["history"].as_array().into_iter().flatten().chain(last);
    all.map(|message| message["messageId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_have_the_same_transcript_when_the_hub_is_killed_in_mid_round() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed} NUNCIO_KILLS={}", kills());
    let mut chance = Chance::new(seed);
    let folder = Folder::new();
    let (file, data) = (folder.path().join("nuncio.toml"), folder.path().join("nuncio.db"));
    fs::write(&file, "[rooms.talk]\nstrict_turns = true\n").unwrap();
    let args = ["--config", path(&file), "--data", path(&data), "--log-level", "warn"];
    let listen = free_address().to_string();
    let mut hub = Hub::of_agents(&listen, &args).await;
    let base = hub.base.clone();
    let mut left = kills();
    let mut rounds = 0;
    while left > 0 {
        rounds += 1;
        let opening = json!({
            "message": {
                "messageId": format!("opening-{rounds}"), "role": "ROLE_USER", "parts": [{ "text": "hi" }],
            },
            "configuration": { "returnImmediately": true },
        });
        let opened = insist(&base, "POST", "/agents/talk/message:send", &opening.to_string()).await;
        let turns = 24;
        let talks = ["talk", "talk/b"].map(|seat| tokio::spawn(talk(base.clone(), seat, turns, rounds)));
        for _ in 0..left.min(4) {
            sleep(chance.millis(20..=400)).await;
            kill(&mut hub).await;
            hub = Hub::of_agents(&listen, &args).await;
            left -= 1;
        }
        for talk in talks {
            talk.await.unwrap();
        }
        let a = opened["task"]["id"].as_str().unwrap().to_owned();
        let listed = insist(&base, "GET", "/agents/talk/b/tasks", "").await;
        let b = listed["tasks"][0]["id"].as_str().unwrap().to_owned();
        let mut sides = Vec::new();
        for (seat, id) in [("talk", a), ("talk/b", b)] {
            let task = insist(&base, "GET", &format!("/agents/{seat}/tasks/{id}"), "").await;
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{seat}: {task}");
            sides.push(messages(&task));
        }
        assert_eq!(sides[0], sides[1], "round {rounds}");
        let unique: HashSet<&String> = sides[0].iter().collect();
        assert_eq!(unique.len(), sides[0].len(), "none is there twice: {:?}", sides[0]);
        assert!(sides[0].len() >= turns, "none is lost: {:?}", sides[0]);
        let both = Raw::new(base.clone()).get("/agents/talk/tasks?pageSize=100", &[HEADERS[0]]).await.json();
        assert_eq!(both["tasks"].as_array().unwrap().len(), rounds, "no round was begun twice");
    }
    stop(hub).await;
    check_store(path(&data)).await;
}

/// Two agents that ask each other: the hub drives both, and is killed in mid-turn.
#[tokio::test(flavor = "multi_thread")]
async fn two_agents_go_on_with_their_round_when_the_hub_is_killed() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed} NUNCIO_KILLS={}", kills());
    let mut chance = Chance::new(seed);
    let folder = Folder::new();
    let (file, data) = (folder.path().join("nuncio.toml"), folder.path().join("nuncio.db"));
    let turns = 30;
    // The agents themselves live on: they are of another hub.
    let agent = |name: &str| {
        format!("{name}=cmd+json:sh -c 'cat >/dev/null; echo \"{{\\\"inputRequired\\\":\\\"{name}\\\"}}\"'")
    };
    let there = Hub::of_agents("127.0.0.1:0", &["--agent", &agent("x"), "--agent", &agent("y")]).await;
    let settings = format!(
        "[rooms.talk]\nagent_a = \"{}\"\nagent_b = \"{}\"\nopening = \"begin\"\nmax_turns = {turns}\n",
        there.agent("x"),
        there.agent("y")
    );
    fs::write(&file, settings).unwrap();
    let token = folder.path().join("token");
    let args = [
        "--config",
        path(&file),
        "--data",
        path(&data),
        "--log-level",
        "warn",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        path(&token),
    ];
    let listen = free_address().to_string();
    let mut hub = Hub::of_agents(&listen, &args).await;
    let mut left = kills();
    let mut rounds = 0;
    while left > 0 {
        rounds += 1;
        for _ in 0..left.min(4) {
            sleep(chance.millis(20..=400)).await;
            kill(&mut hub).await;
            hub = Hub::of_agents(&listen, &args).await;
            left -= 1;
        }
        let admin = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
        let ask = async |more: &[&str]| {
            let at = ["--admin", &admin, "--admin-token-file", path(&token), "-o", "json"];
            let output = cli(&[more, &at].concat()).await;
            assert_eq!(output.code, Some(0), "{output:?}");
            serde_json::from_str::<Value>(&output.stdout).unwrap()
        };
        let round = loop {
            let shown = ask(&["room", "show", "talk", "--content"]).await;
            let last = shown["rounds"].as_array().unwrap().last().cloned().unwrap_or_default();
            // Each seat catches up by itself.
            let has_failed = |seat: usize| last["seats"][seat]["state"] == "TASK_STATE_FAILED";
            if last["number"] == json!(rounds) && has_failed(0) && has_failed(1) {
                break last;
            }
            sleep(RETRY).await;
        };
        let sides = [0, 1].map(|seat| {
            let messages = round["seats"][seat]["messages"].as_array().unwrap();
            messages.iter().map(|message| message["from"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(round["seats"][0]["messages"], round["seats"][1]["messages"], "round {rounds}");
        assert_eq!(round["seats"][1]["ended"], "max-turns", "{round}");
        let expected: Vec<_> = ["a", "b"].into_iter().cycle().take(turns).map(str::to_owned).collect();
        assert_eq!(sides[0], expected, "no message is lost, and none is there twice");
        ask(&["room", "reset", "talk", "--hard"]).await;
    }
    stop(hub).await;
    check_store(path(&data)).await;
}
