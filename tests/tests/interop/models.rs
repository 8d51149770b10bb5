//! A real model server, llama.cpp with a model of random weights, behind the hub in both dialects.

use std::path::PathBuf;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, root},
    process::Process,
    raw::Raw,
};
use serde_json::{Value, json};
use tokio::process::Command;

/// The server, which lives as long as this does, and its address.
async fn server() -> (Process, String) {
    let peers = std::env::var_os("NUNCIO_PEERS").map_or_else(|| root().join(".cache/peers"), PathBuf::from);
    let folder = peers.join("model");
    assert!(folder.join("stamp").exists(), "the model server is not installed: run tests/peers/model/setup");
    let mut command = Command::new(folder.join("bin/python"));
    command.arg(root().join("tests/peers/model/serve.py")).arg(folder.join("tiny.gguf"));
    let mut process = Process::start(command);
    let address = process.line().await.unwrap_or_else(|| panic!("no address: {}", process.stderr()));
    (process, address)
}

fn document(output: &nuncio_tests::process::Output) -> Value {
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
        let file =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{dialect}-{}.toml", std::process::id()));
        let settings = format!("[agents.writer]\nmodel = \"{dialect}:{address}/v1#tiny\"\nmax_tokens = 8\n");
        std::fs::write(&file, settings).unwrap();
        let checked = cli(&["check", "--config", file.to_str().unwrap()]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let hub = Hub::of_agents("127.0.0.1:0", &["--config", file.to_str().unwrap()]).await;
        let agent = hub.agent("writer");
        let sent = document(&cli(&["send", &agent, "hello", "-o", "json"]).await);
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{dialect}: {task}");
        assert_eq!(task["artifacts"].as_array().unwrap().len(), 1, "{dialect}: {task}");
        assert_eq!(task["artifacts"][0]["parts"].as_array().unwrap().len(), 1, "{dialect}: {task}");
        assert_eq!(
            task["status"]["message"]["parts"],
            json!([{ "text": "the answer was cut at the limit of tokens" }])
        );
    }
}

/// An endless answer occupies the only slot until its task is canceled.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_frees_the_slot_of_the_server() {
    let (_server, address) = server().await;
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("slot-{}.toml", std::process::id()));
    let parameters = "{ ignore_eos = true, temperature = 0 }";
    let settings =
        format!("[agents.writer]\nmodel = \"openai:{address}/v1#tiny\"\nparameters = {parameters}\n");
    std::fs::write(&file, settings).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", file.to_str().unwrap()]).await;
    let agent = hub.agent("writer");
    let sent = document(&cli(&["send", &agent, "hello", "--no-wait", "-o", "json"]).await);
    let id = sent["task"]["id"].as_str().unwrap();
    eventually("a busy slot", async || (busy_slots(&address).await == 1).then_some(())).await;
    let canceled = document(&cli(&["task", "cancel", &agent, id, "-o", "json"]).await);
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    eventually("a free slot", async || (busy_slots(&address).await == 0).then_some(())).await;
}
