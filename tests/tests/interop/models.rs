//! Models behind the hub: a real model server (llama.cpp with a model of random weights) and a scripted provider in both
//! dialects, and official clients in front of it.

use std::path::PathBuf;

use nuncio_protocol::{Binding, Version};
use nuncio_tests::{
    eventually,
    hub::{Hub, cli, root},
    peer,
    process::{Output, Process},
    provider::{Answer, Provider},
    raw::Raw,
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::sdk::{GO_1, GO_03, JAVASCRIPT_1, JAVASCRIPT_03, PYTHON_1, PYTHON_03, Sdk};

/// Official clients, with the version that they speak.
const CLIENTS: [(&Sdk, Version); 6] = [
    (&PYTHON_1, Version::V1_0),
    (&PYTHON_03, Version::V0_3),
    (&JAVASCRIPT_1, Version::V1_0),
    (&JAVASCRIPT_03, Version::V0_3),
    (&GO_1, Version::V1_0),
    (&GO_03, Version::V0_3),
];

/// The folder of something that a setup installs.
fn installed(name: &str) -> PathBuf {
    let peers = std::env::var_os("NUNCIO_PEERS").map_or_else(|| root().join(".cache/peers"), PathBuf::from);
    let folder = peers.join(name);
    assert!(folder.join("stamp").exists(), "{name} is not installed: run tests/peers/{name}/setup");
    folder
}

/// A program that prints its address, and lives as long as this does.
async fn started(command: Command) -> (Process, String) {
    let mut process = Process::start(command);
    let address = process.line().await.unwrap_or_else(|| panic!("no address: {}", process.stderr()));
    (process, address)
}

/// A configuration file of these settings.
fn configuration(name: &str, settings: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&file, settings).unwrap();
    file
}

async fn hub(config: &std::path::Path) -> Hub {
    Hub::of_agents("127.0.0.1:0", &["--config", config.to_str().unwrap()]).await
}

/// The model server.
async fn server() -> (Process, String) {
    let folder = installed("model");
    let mut command = Command::new(folder.join("bin/python"));
    command.arg(root().join("tests/peers/model/serve.py")).arg(folder.join("tiny.gguf"));
    started(command).await
}

/// The scripted provider.
async fn mock() -> (Process, String) {
    let mut command = Command::new("node");
    command.arg(root().join("tests/peers/mock/serve.mjs")).arg(installed("mock").join("js"));
    started(command).await
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The number of answers that the server is working on.
async fn busy_slots(address: &str) -> usize {
    let slots: Value = Raw::new(address.to_owned()).get("/slots", &[]).await.json();
    slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_model_server_answers_in_both_dialects() {
    let (_server, address) = server().await;
    for dialect in ["openai", "anthropic"] {
        let settings = format!("[agents.writer]\nmodel = \"{dialect}:{address}/v1#tiny\"\nmax_tokens = 8\n");
        let file = configuration(dialect, &settings);
        let checked = cli(&["check", "--config", file.to_str().unwrap()]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let hub = hub(&file).await;
        let agent = hub.agent("writer");
        let sent = document(&cli(&["send", &agent, "hello", "-o", "json"]).await);
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{dialect}: {task}");
        assert_eq!(task["artifacts"].as_array().unwrap().len(), 1, "{dialect}: {task}");
        assert_eq!(task["artifacts"][0]["parts"].as_array().unwrap().len(), 1, "{dialect}: {task}");
        // A model of random weights may end its answer before.
        let said = &task["status"]["message"]["parts"];
        let cut = json!([{ "text": "the answer was cut at the limit of tokens" }]);
        assert!(said.is_null() || *said == cut, "{dialect}: {task}");
    }
}

/// An endless answer occupies the only slot until its task is canceled.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_frees_the_slot_of_the_server() {
    let (_server, address) = server().await;
    let parameters = "{ ignore_eos = true, temperature = 0 }";
    let settings =
        format!("[agents.writer]\nmodel = \"openai:{address}/v1#tiny\"\nparameters = {parameters}\n");
    let hub = hub(&configuration("slot", &settings)).await;
    let agent = hub.agent("writer");
    let sent = document(&cli(&["send", &agent, "hello", "--no-wait", "-o", "json"]).await);
    let id = sent["task"]["id"].as_str().unwrap();
    eventually("a busy slot", async || (busy_slots(&address).await == 1).then_some(())).await;
    let canceled = document(&cli(&["task", "cancel", &agent, id, "-o", "json"]).await);
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    eventually("a free slot", async || (busy_slots(&address).await == 0).then_some(())).await;
}

/// The grammar of the schema leaves a model of random weights no other answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_kept_by_a_real_model_server() {
    let (_server, address) = server().await;
    let settings = format!("[agents.writer]\nmodel = \"openai:{address}/v1#tiny\"\nmax_tokens = 400\n");
    let hub = hub(&configuration("schema", &settings)).await;
    let uri = "https://nuncio.dev/a2a/model/v1";
    let schema = json!({ "schema": {
        "type": "object", "properties": { "ok": { "type": "boolean" }, "kind": { "enum": ["a", "b"] } },
        "required": ["ok", "kind"], "additionalProperties": false,
    } });
    let metadata = format!("{uri}={schema}");
    let args =
        ["send", &hub.agent("writer"), "hello", "--extension", uri, "--metadata", &metadata, "-o", "json"];
    let task = document(&cli(&args).await)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    let data = &task["artifacts"][0]["parts"][0]["data"];
    assert!(data["ok"].is_boolean() && (data["kind"] == "a" || data["kind"] == "b"), "{task}");
    let usage = &task["metadata"][uri];
    assert!(usage["inputTokens"].as_u64() > Some(0) && usage["outputTokens"].as_u64() > Some(0), "{task}");
}

/// The second and the third prompt, as the provider gets them, hold the turns before.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_of_three_turns_by_the_official_python_client() {
    let provider =
        Provider::start(&[("Hello Ann", true), ("Your name is Ann", true), ("Good bye", true)]).await;
    let hub = Hub::of_agents("127.0.0.1:0", &["--agent", &format!("writer={}", provider.model())]).await;
    let told = peer::chat(&hub.agent("writer"), &["I am Ann", "Who am I?", "Thanks"]).await;
    let answers: Vec<_> = told.iter().map(|turn| (&turn["state"], &turn["parts"])).collect();
    let completed = json!("TASK_STATE_COMPLETED");
    let parts = [json!(["Hello Ann"]), json!(["Your name is Ann"]), json!(["Good bye"])];
    assert_eq!(answers, parts.iter().map(|parts| (&completed, parts)).collect::<Vec<_>>());
    let turn = |role: &str, text: &str| json!({ "role": role, "content": text });
    let whole = [
        turn("user", "I am Ann"),
        turn("assistant", "Hello Ann"),
        turn("user", "Who am I?"),
        turn("assistant", "Your name is Ann"),
        turn("user", "Thanks"),
    ];
    assert_eq!(provider.prompts(), [json!(whole[..1]), json!(whole[..3]), json!(whole)]);
}

/// The answer of a model is one text for every official client, however many pieces it came in.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_one_text_for_the_official_clients() {
    let pieces = || {
        let quarter = |from: usize| (from..from + 100).map(|number| format!("token {number} ")).collect();
        Answer::Pieces([0, 100, 200, 300].into_iter().map(quarter).collect())
    };
    let provider = Provider::scripted(CLIENTS.iter().map(|_| pieces())).await;
    let settings = format!("[agents.writer]\nmodel = \"{}\"\npace_ms = 20\n", provider.model());
    let hub = hub(&configuration("pieces", &settings)).await;
    for (sdk, version) in CLIENTS {
        let args = [sdk.args(version), &["--text"]].concat();
        let report = peer::check(&sdk.client(), &hub.agent("writer"), Binding::JsonRpc, &args).await;
        assert_eq!(report.passed, ["card", "text"], "{}", sdk.title());
    }
}

/// A case: the message, the state, words of the status, and the texts of the artifacts in the order of their names.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// The endings that a real provider does not show on demand, in both dialects, by a provider of another author. It lists
/// other models and takes any name.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_another_author_is_understood_in_both_dialects() {
    let cases: [Case; 8] = [
        ("busy twice", "COMPLETED", "", &["at last"]),
        (
            "cut",
            "FAILED",
            "the connection to the provider of the model broke",
            &["this is cut in its middle"],
        ),
        ("long", "COMPLETED", "the answer was cut at the limit of tokens", &["a beginning"]),
        ("think", "COMPLETED", "", &["yes", "hmm, let me see"]),
        ("wrong", "FAILED", "the provider of the model refused the request: prompt is too long", &[]),
        ("call", "COMPLETED", "", &["Let me ask.\n\nIt is there."]),
        ("overloaded", "", "the provider of the model is unavailable: the model is too busy", &[]),
        ("busy for an hour", "", "the provider of the model is unavailable: slow down", &[]),
    ];
    for dialect in ["openai", "anthropic"] {
        let (_mock, address) = mock().await;
        let settings = format!(
            "[agents.writer]\nmodel = \"{dialect}:{address}/v1#of-any-name\"\nreasoning = \"artifact\"\nagents = [\"echo\"]\n\
             \n[agents.echo]\ndemo = \"echo\"\n"
        );
        let hub = hub(&configuration(&format!("mock-{dialect}"), &settings)).await;
        let agent = hub.agent("writer");
        // The word for a refusal is the dialect's own.
        let refused = if dialect == "openai" { "refuse" } else { "decline" };
        let words = "the model or its provider refused to answer";
        let refusal: Case = (refused, "REJECTED", words, &["I will not."]);
        for (message, state, words, texts) in cases.into_iter().chain([refusal]) {
            let said = cli(&["send", &agent, message, "-o", "json"]).await;
            if state.is_empty() {
                // On a slow machine the task exists before the provider has refused.
                let told = format!("{}{}", said.stdout, said.stderr);
                assert!(said.code != Some(0) && told.contains(words), "{dialect} {message}: {said:?}");
                continue;
            }
            let task = document(&said)["task"].clone();
            assert_eq!(task["status"]["state"], format!("TASK_STATE_{state}"), "{dialect} {message}: {task}");
            let status = task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
            assert_eq!(status, words, "{dialect} {message}");
            let mut artifacts: Vec<_> = task["artifacts"].as_array().cloned().unwrap_or_default();
            artifacts.sort_by_key(|artifact| artifact["name"].to_string());
            let found: Vec<&str> =
                artifacts.iter().filter_map(|it| it["parts"][0]["text"].as_str()).collect();
            let is_one_text =
                artifacts.iter().all(|it| it["parts"].as_array().is_some_and(|it| it.len() == 1));
            // The beginning that arrived before the cut.
            let is_expected = match (message, &found[..]) {
                ("cut", [beginning]) => !beginning.is_empty() && texts[0].starts_with(beginning),
                _ => found == texts,
            };
            assert!(is_one_text && is_expected, "{dialect} {message}: {task}");
        }
    }
}
