//! Parties of rooms: agents of the hub and elsewhere, workers of a mailbox, and people who join.

use std::fs;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_stdin, start},
    process::Output,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{directory, json as document, path, text};

const VERSION: (&str, &str) = ("a2a-version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");
/// A program that asks back whatever it is told.
const ASKS: &str = r#"["sh", "-c", "cat >/dev/null; echo '{\"inputRequired\":\"and then?\"}'"]"#;

/// A hub with these settings, and its administration.
struct Served {
    hub: Hub,
    raw: Raw,
    admin: String,
    token: String,
}

impl Served {
    async fn new(name: &str, settings: &str) -> Self {
        let folder = directory(name);
        let (file, token) = (folder.join("nuncio.toml"), folder.join("hub.token"));
        fs::write(&file, settings).unwrap();
        let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
        let hub = Hub::of_agents("127.0.0.1:0", &args).await;
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        Self { raw: Raw::new(hub.base.clone()), hub, admin, token: path(&token).to_owned() }
    }

    async fn admin(&self, args: &[&str], stdin: &str) -> Output {
        let more = ["--admin", &self.admin, "--admin-token-file", &self.token];
        cli_with_stdin(&[args, &more].concat(), stdin).await
    }

    /// Says something at seat a; returns the id of the task.
    async fn say(&self, message: &str, more: &[&str]) -> String {
        let url = self.hub.agent("talk");
        let said = cli(&[&["send", &url, message, "--no-wait"], more].concat()).await;
        // Failed and input required are no failures of the call.
        assert!(matches!(said.code, Some(0 | 7 | 8)), "{said:?}");
        said.stdout.trim().to_owned()
    }

    /// The last round of the room, once it is as wanted.
    async fn round(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || {
            let show = self.admin(&["room", "show", "talk", "--content", "-o", "json"], "").await;
            let mut shown = document(&show);
            let rounds = shown["rounds"].as_array_mut().unwrap();
            rounds.pop().filter(|round| is_wanted(round))
        })
        .await
    }
}

/// The state of a seat in a round.
fn state(round: &Value, seat: usize) -> &str {
    text(&round["seats"][seat]["state"])
}

/// The speakers and their words, as a seat has them.
fn said(round: &Value, seat: usize) -> Vec<String> {
    let messages = round["seats"][seat]["messages"].as_array().unwrap();
    messages.iter().map(|message| format!("{}: {}", text(&message["from"]), text(&message["text"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_hub_answers_a_caller_and_its_artifact_is_at_both_sides() {
    let settings = "[agents.echo]\ndemo = \"echo\"\n[rooms.talk]\nagent_b = \"echo\"\n";
    let served = Served::new("room-agent", settings).await;
    let task = served.say("hello", &[]).await;
    let round = served.round("the end", |round| state(round, 0) == "TASK_STATE_COMPLETED").await;
    assert_eq!(state(&round, 1), "TASK_STATE_COMPLETED");
    assert_eq!(said(&round, 0), ["a: hello", "b: hello"]);
    assert_eq!(said(&round, 0), said(&round, 1));
    let found = served.raw.get(&format!("/agents/talk/tasks/{task}"), &[VERSION]).await.json();
    let artifact = &found["artifacts"][0];
    assert_eq!(artifact["parts"][0]["text"], "hello", "{found}");
    assert_eq!(artifact["metadata"]["https://nuncio.dev/a2a/room/v1"], json!({ "maker": "b" }));
    // Nobody but the agent holds its seat.
    let message =
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let foreign =
        served.raw.ask("POST", "/agents/talk/b/message:send", &[VERSION, JSON], message.to_string()).await;
    assert_eq!(foreign.status, 403, "{foreign:?}");
    let listed = served.raw.get("/agents/talk/b/tasks", &[VERSION]).await.json();
    assert_eq!(listed["tasks"], json!([]), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_goes_on_with_its_task_until_the_caller_ends_it() {
    let settings =
        format!("[agents.asks]\ncommand = {ASKS}\nformat = \"json\"\n[rooms.talk]\nagent_b = \"asks\"\n");
    let served = Served::new("room-asks", &settings).await;
    let task = served.say("one", &[]).await;
    served.round("the question", |round| state(round, 0) == "TASK_STATE_INPUT_REQUIRED").await;
    served.say("two", &["--task", &task]).await;
    served.round("the second question", |round| said(round, 0).len() == 4).await;
    let next = "https://nuncio.dev/a2a/room/v1={\"next\":\"complete\"}";
    served.say("that is all", &["--task", &task, "--metadata", next]).await;
    let round = served.round("the end", |round| state(round, 1) == "TASK_STATE_COMPLETED").await;
    assert_eq!(said(&round, 1), ["a: one", "b: and then?", "a: two", "b: and then?", "a: that is all"]);
    // One task of the agent for the whole round, and it is canceled with the end of the round.
    let tasks = eventually("the cancel", async || {
        let listed = served.admin(&["task", "list", "--agent", "asks", "-o", "json"], "").await;
        listed.stdout.contains("CANCELED").then_some(listed.stdout)
    })
    .await;
    assert_eq!(tasks.lines().filter(|line| line.contains("\"id\"")).count(), 1, "{tasks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_talk_from_the_opening_to_the_last_turn() {
    let settings = format!(
        "[agents.x]\ncommand = {ASKS}\nformat = \"json\"\n[agents.echo]\ndemo = \"echo\"\n\
         [rooms.talk]\nagent_a = \"x\"\nagent_b = \"echo\"\nopening = \"begin\"\nmax_turns = 7\n"
    );
    let served = Served::new("room-agents", &settings).await;
    let round = served.round("the last turn", |round| state(round, 0) == "TASK_STATE_FAILED").await;
    assert_eq!(round["seats"][1]["ended"], "max-turns", "{round}");
    let transcript = said(&round, 0);
    assert_eq!(transcript.len(), 7, "{transcript:?}");
    assert_eq!(transcript[..3], ["a: begin", "b: begin", "a: and then?"]);
    assert_eq!(transcript, said(&round, 1));
    // The next round begins when an operator says so.
    let reset = served.admin(&["room", "reset", "talk", "--hard"], "").await;
    assert_eq!(reset.code, Some(0), "{reset:?}");
    let again = served
        .round("the second round", |round| round["number"] == 2 && state(round, 0) == "TASK_STATE_FAILED")
        .await;
    assert_eq!(said(&again, 1), transcript);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_elsewhere_has_a_seat_by_its_address() {
    let there = Hub::start(&[]).await;
    let settings = format!("[rooms.talk]\nagent_b = \"{}\"\n", there.agent("echo"));
    let served = Served::new("room-remote", &settings).await;
    served.say("over there", &[]).await;
    let round = served.round("the answer", |round| state(round, 0) == "TASK_STATE_COMPLETED").await;
    assert_eq!(said(&round, 0), ["a: over there", "b: over there"]);
    assert_eq!(said(&round, 1), said(&round, 0));
}

/// An agent that is reached through the room itself would call itself for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_calls_its_own_room_is_refused() {
    let address = nuncio_tests::hub::free_address().to_string();
    let folder = directory("room-circle");
    let file = folder.join("nuncio.toml");
    let settings = format!("[rooms.talk]\nagent_b = \"http://{address}/agents/talk\"\n");
    fs::write(&file, settings).unwrap();
    let hub = Hub::of_agents(&address, &["--config", path(&file)]).await;
    let said = cli(&["send", &hub.agent("talk"), "hello"]).await;
    assert!(said.stdout.contains("circle") || said.stderr.contains("circle"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_an_agent_that_is_not_there_waits_or_fails() {
    let waits = Served::new("room-waits", "[rooms.talk]\nagent_b = \"later\"\n").await;
    waits.say("are you there?", &[]).await;
    waits.round("the wait", |round| state(round, 0) == "TASK_STATE_SUBMITTED").await;
    let there = Hub::start(&[]).await;
    let added = waits.admin(&["agent", "add", "later", &there.agent("echo")], "").await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let round = waits.round("the answer", |round| state(round, 0) == "TASK_STATE_COMPLETED").await;
    assert_eq!(said(&round, 1), ["a: are you there?", "b: are you there?"]);
    let fails = Served::new("room-fails", "[rooms.talk]\nagent_b = \"never\"\nabsent = \"fail\"\n").await;
    fails.say("are you there?", &[]).await;
    let round = fails.round("the end", |round| state(round, 0) == "TASK_STATE_FAILED").await;
    assert_eq!((state(&round, 1), &round["seats"][0]["ended"]), ("TASK_STATE_FAILED", &json!("absent")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_a_mailbox_has_a_seat() {
    let settings = "[agents.desk]\nmailbox = {}\n[rooms.talk]\nagent_b = \"desk\"\n";
    let served = Served::new("room-worker", settings).await;
    let task = served.say("build it", &[]).await;
    let headers = [("prefer", "wait=20"), JSON];
    let mut lines = ["{\"inputRequired\":\"which one?\"}", "{\"completed\":\"it builds\"}"].into_iter();
    for (at, answer) in ["build it", "the big one"].iter().enumerate() {
        let claim = served.raw.ask("POST", "/mailboxes/desk:claim", &headers, String::new()).await;
        assert_eq!(claim.status, 200, "{claim:?}");
        let claim = claim.json();
        assert_eq!(claim["message"]["parts"][0]["text"], json!(answer), "{claim}");
        let update = format!("/mailboxes/desk/leases/{}:update", text(&claim["lease"]));
        let body = lines.next().unwrap().to_owned();
        let updated = served.raw.ask("POST", &update, &[("nuncio-first", "1")], body).await;
        assert_eq!(updated.status, 200, "{updated:?}");
        if at == 0 {
            served.round("the question", |round| state(round, 0) == "TASK_STATE_INPUT_REQUIRED").await;
            served.say("the big one", &["--task", &task]).await;
        }
    }
    let round = served.round("the end", |round| state(round, 0) == "TASK_STATE_COMPLETED").await;
    assert_eq!(said(&round, 0), ["a: build it", "b: which one?", "a: the big one", "b: it builds"]);
    assert_eq!(said(&round, 1), said(&round, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_joins_speaks_and_leaves() {
    let served = Served::new("room-person", "[rooms.talk]\nperson_b = true\n").await;
    served.say("anybody?", &["--message-id", "m1"]).await;
    let show = served.admin(&["room", "list", "-o", "json"], "").await;
    assert_eq!(document(&show)["parties"], json!(["caller", "person"]));
    let input = "/hold one moment\n//slash\n/complete\n";
    let joined = served.admin(&["room", "join", "talk", "--as", "ann"], input).await;
    assert_eq!(joined.code, Some(0), "{joined:?}");
    assert!(joined.stdout.contains("a: anybody?"), "{joined:?}");
    let round = served.round("the end", |round| state(round, 0) == "TASK_STATE_COMPLETED").await;
    assert_eq!(said(&round, 0), ["a: anybody?", "b: one moment", "b: /slash", "b: complete"]);
    assert_eq!(said(&round, 1), said(&round, 0));
    let trail = served.admin(&["trail"], "").await.stdout;
    for what in ["room-joined", "room-said", "room-left"] {
        assert!(trail.contains(what), "{what}: {trail}");
    }
}

/// Every deviation and every size of a call, and its payload only while it is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn the_wire_log_tells_of_calls_and_of_payloads_only_while_they_are_recorded() {
    let served = Served::new("room-wire", "[rooms.talk]\n").await;
    let args = ["room", "watch", "talk", "--wire", "-o", "json", "--admin", &served.admin];
    let mut watch = start(&[&args[..], &["--admin-token-file", &served.token]].concat());
    // The first event tells of the seats: the watch has begun.
    watch.line().await.unwrap();
    served.say("secret-1", &["--a2a-version", "0.3"]).await;
    let record = served.admin(&["room", "record", "talk", "--minutes", "1"], "").await;
    assert_eq!(record.code, Some(0), "{record:?}");
    served.say("secret-2", &["--binding", "grpc"]).await;
    let stop = served.admin(&["room", "record", "talk", "--minutes", "0"], "").await;
    assert!(stop.stderr.contains("nothing is recorded"), "{stop:?}");
    served.say("secret-3", &["--binding", "rest"]).await;
    let mut calls = Vec::new();
    while calls.len() < 3 {
        let event: Value = serde_json::from_str(&watch.line().await.unwrap()).unwrap();
        let wire = &event["wire"];
        if wire["direction"] == "in" && wire["operation"] == "SendMessage" {
            assert_eq!((text(&event["seat"]), wire["faults"].as_array().unwrap().len()), ("a", 0), "{event}");
            assert!(wire["bytes"].as_u64().unwrap() > 50, "{event}");
            let payload = wire["payload"].as_str().map(|payload| payload.contains("secret"));
            calls.push((text(&wire["version"]).to_owned(), text(&wire["binding"]).to_owned(), payload));
        }
    }
    let expected = [("0.3", "JSONRPC", None), ("1.0", "GRPC", Some(true)), ("1.0", "HTTP+JSON", None)];
    let expected =
        expected.map(|(version, binding, payload)| (version.to_owned(), binding.to_owned(), payload));
    assert_eq!(calls, expected);
    let trail = served.admin(&["trail", "--what", "room-recorded"], "").await;
    assert_eq!(trail.stdout.lines().count(), 2, "{trail:?}");
}
