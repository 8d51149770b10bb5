//! Models as agents, with the real binary: a scripted provider, and a hub that is killed in the middle of an answer.

use nuncio_tests::{
    eventually,
    hub::{Hub, cli},
    provider::Provider,
    raw::Raw,
};
use serde_json::{Value, json};

use crate::{directory, json, path, text};

/// The agent `writer`, as the command line names it.
fn agent_of(provider: &Provider) -> String {
    format!("writer={}", provider.model())
}

pub(crate) async fn get(agent: &str, id: &str) -> Value {
    json(&cli(&["task", "get", agent, id, "-o", "json"]).await)
}

/// Starts a task and waits until it has the beginning of its answer.
async fn begin(hub: &Hub) -> String {
    let agent = hub.agent("writer");
    let sent = json(&cli(&["send", &agent, "write", "--no-wait", "-o", "json"]).await);
    let id = text(&sent["task"]["id"]).to_owned();
    eventually("the beginning of the answer", async || {
        get(&agent, &id).await["artifacts"].is_array().then_some(())
    })
    .await;
    id
}

/// An exception to the rule that nothing is sent twice: an answer has no effect but its text.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_kill_interrupts_is_asked_for_again_and_is_whole() {
    let provider = Provider::start(&[("half of an", false), ("one clean answer", true)]).await;
    let file = directory("model-kill").join("nuncio.db");
    let args = ["--data", path(&file), "--agent", &agent_of(&provider)];
    let mut hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let id = begin(&hub).await;
    hub.process.signal("KILL").await;
    hub.process.end().await;

    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let agent = hub.agent("writer");
    let done = eventually("the end of the task", async || {
        let task = get(&agent, &id).await;
        (task["status"]["state"] == "TASK_STATE_COMPLETED").then_some(task)
    })
    .await;
    let artifacts =
        json!([{ "artifactId": "answer", "name": "answer", "parts": [{ "text": "one clean answer" }] }]);
    assert_eq!(done["artifacts"], artifacts);
    let prompts = provider.prompts();
    assert_eq!((prompts.len(), &prompts[0]), (2, &prompts[1]), "the same prompt again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_must_not_be_asked_for_again_fails_with_its_text() {
    let provider = Provider::start(&[("half of an", false), ("never", true)]).await;
    let folder = directory("model-no-rerun");
    let (data, file) = (folder.join("nuncio.db"), folder.join("nuncio.toml"));
    let model = format!("openai:{}#tiny", provider.url());
    std::fs::write(&file, format!("[agents.writer]\nmodel = \"{model}\"\nrerun = false\n")).unwrap();
    let args = ["--data", path(&data), "--config", path(&file)];
    let mut hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let id = begin(&hub).await;
    hub.process.signal("KILL").await;
    hub.process.end().await;

    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let agent = hub.agent("writer");
    let failed = eventually("the end of the task", async || {
        let task = get(&agent, &id).await;
        (task["status"]["state"] == "TASK_STATE_FAILED").then_some(task)
    })
    .await;
    assert!(text(&failed["artifacts"][0]["parts"][0]["text"]).starts_with("half"), "{failed}");
    assert_eq!(provider.prompts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_provider_and_the_next_turn_does_not_see_the_canceled_one() {
    let provider = Provider::start(&[("half of an", false), ("fine", true)]).await;
    let hub = Hub::of_agents("127.0.0.1:0", &["--agent", &agent_of(&provider)]).await;
    let agent = hub.agent("writer");
    let id = begin(&hub).await;
    let canceled = json(&cli(&["task", "cancel", &agent, &id, "-o", "json"]).await);
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    eventually("the end of the connection", async || (provider.closed() == 1).then_some(())).await;
    let context = text(&canceled["contextId"]);
    let next = json(&cli(&["send", &agent, "again", "--context", context, "-o", "json"]).await);
    assert_eq!(next["task"]["artifacts"][0]["parts"][0]["text"], "fine", "{next}");
    assert_eq!(provider.prompts()[1], json!([{ "role": "user", "content": "again" }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_checked_against_the_models_of_the_provider() {
    let provider = Provider::start(&[]).await;
    let file = directory("model-check").join("nuncio.toml");
    for (name, code, says) in [("tiny", 0, ""), ("missing", 78, "lists no model missing")] {
        let model = format!("openai:{}#{name}", provider.url());
        std::fs::write(&file, format!("[agents.writer]\nmodel = \"{model}\"\n")).unwrap();
        let output = cli(&["check", "--config", path(&file)]).await;
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(format!("{}{}", output.stdout, output.stderr).contains(says), "{output:?}");
    }
}

/// A provider lists two models: `tiny` and `llama3`.
#[tokio::test(flavor = "multi_thread")]
async fn each_model_that_a_provider_lists_is_an_agent() {
    let provider = Provider::start(&[("hello", true)]).await;
    let file = directory("models-listed").join("nuncio.toml");
    let settings = format!("[agents.local]\nmodels = \"openai:{}\"\ntags = [\"here\"]\n", provider.url());
    std::fs::write(&file, settings).unwrap();
    let checked = cli(&["check", "--config", path(&file)]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let card = json(&cli(&["card", "get", &hub.agent("local-llama3"), "-o", "json"]).await);
    assert_eq!((text(&card["name"]), card["skills"].as_array().unwrap().len()), ("llama3", 1), "{card}");
    let sent = json(&cli(&["send", &hub.agent("local-tiny"), "hi", "-o", "json"]).await);
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "hello", "{sent}");
    assert_ne!(cli(&["send", &hub.agent("local"), "hi"]).await.code, Some(0), "the provider is no agent");
}

/// The list is read again while the hub runs: agents come and go with the models.
#[tokio::test(flavor = "multi_thread")]
async fn the_models_of_a_provider_are_followed() {
    let provider = Provider::start(&[("hello", true)]).await;
    let file = directory("models-followed").join("nuncio.toml");
    let settings = format!("[agents.local]\nmodels = \"openai:{}\"\ncheck_seconds = 1\n", provider.url());
    std::fs::write(&file, settings).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let is_served = async |name: &str| cli(&["card", "get", &hub.agent(name)]).await.code == Some(0);
    assert!(is_served("local-tiny").await && !is_served("local-qwen3").await);
    provider.set_models(&["llama3", "qwen3"]);
    eventually("the new model", async || is_served("local-qwen3").await.then_some(())).await;
    eventually("the end of the old one", async || (!is_served("local-tiny").await).then_some(())).await;
    let sent = json(&cli(&["send", &hub.agent("local-qwen3"), "hi", "-o", "json"]).await);
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "hello", "{sent}");
}

/// Over HTTP a used budget is 429 until midnight UTC.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_used_up_is_429_until_midnight() {
    let provider = Provider::start(&[("hello", true)]).await;
    let file = directory("model-budget").join("nuncio.toml");
    let model = provider.model();
    let settings = format!("[agents.writer]\nmodel = \"{model}\"\nlimits = {{ tokens_per_day = 1 }}\n");
    std::fs::write(&file, settings).unwrap();
    let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&file)]).await;
    let raw = Raw::new(hub.base.clone());
    let message =
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let send = async || raw.ask("POST", "/agents/writer/message:send", &headers, message.to_string()).await;
    assert_eq!(send().await.status, 200);
    let refused = send().await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&seconds), "{seconds}");
    assert_eq!(provider.prompts().len(), 1);
}
