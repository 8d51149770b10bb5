//! Tools of models, with the real binary, a scripted provider and real servers of the Model Context Protocol: the official
//! Python SDK, which speaks the newest version of the protocol, and the reference server in JavaScript, which speaks an
//! older one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, free_address, root},
    process::Process,
    provider::{Answer, Provider},
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{directory, json as document, models::get, path, text};

fn peers() -> PathBuf {
    let peers = std::env::var_os("NUNCIO_PEERS").map_or_else(|| root().join(".cache/peers"), PathBuf::from);
    let folder = peers.join("tools");
    assert!(
        folder.join("stamp").exists(),
        "the servers of tools are not installed: run tests/peers/tools/setup"
    );
    folder
}

/// The folder of a test with a configuration: an agent with the tools of the Python server.
struct Place {
    folder: PathBuf,
    config: PathBuf,
    data: PathBuf,
}

impl Place {
    fn new(name: &str, provider: &Provider, more: &str) -> Self {
        let folder = directory(name);
        let (config, data) = (folder.join("nuncio.toml"), folder.join("nuncio.db"));
        let command =
            json!([peers().join("py/bin/python"), root().join("tests/peers/tools/serve.py"), folder]);
        let settings = format!(
            "[tools.files]\ncommand = {command}\n\n[agents.writer]\nmodel = \"{}\"\ntools = [\"files\"]\n{more}\n",
            provider.model()
        );
        fs::write(&config, settings).unwrap();
        Self { folder, config, data }
    }

    async fn hub(&self) -> Hub {
        Hub::of_agents("127.0.0.1:0", &["--data", path(&self.data), "--config", path(&self.config)]).await
    }

    /// The calls that the server has had.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.folder.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn hang(&self) -> PathBuf {
        self.folder.join("hang")
    }
}

async fn send(hub: &Hub, args: &[&str]) -> Value {
    let agent = hub.agent("writer");
    let sent = document(&cli(&[&["send", &agent][..], args, &["-o", "json"]].concat()).await);
    sent["task"].clone()
}

/// Waits until the task is in this state.
async fn until(hub: &Hub, id: &str, state: &str) -> Value {
    let agent = hub.agent("writer");
    eventually(state, async || {
        let task = get(&agent, id).await;
        (task["status"]["state"] == state).then_some(task)
    })
    .await
}

async fn kill(mut hub: Hub) {
    hub.process.signal("KILL").await;
    hub.process.end().await;
}

fn write() -> Answer {
    Answer::Call("files_write", json!({ "path": "/a" }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_newest_protocol_is_a_server_of_tools() {
    let environment = Answer::Call("files_environment", json!({ "name": "NUNCIO_PRINCIPAL" }));
    let provider = Provider::scripted([write(), environment, Answer::Words("all done", true)]).await;
    let place = Place::new("tools-python", &provider, "");
    let checked = cli(&["check", "--config", path(&place.config)]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let hub = place.hub().await;
    let task = send(&hub, &["write"]).await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "all done", "{task}");
    assert_eq!(place.calls(), ["write /a"]);
    let results: Vec<_> = provider.prompts()[2].as_array().unwrap().clone();
    let results: Vec<_> = results.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(text(&results[0]["content"]), "written /a");
    assert_eq!(text(&results[1]["content"]), "(not set)", "nothing of the caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_matches_no_tool_is_found_by_the_check() {
    let provider = Provider::start(&[]).await;
    let place = Place::new("tools-pattern", &provider, "approve = [\"files.wirte\"]");
    let checked = cli(&["check", "--config", path(&place.config)]).await;
    assert_eq!(checked.code, Some(78), "{checked:?}");
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains("approve: files.wirte matches no tool") && said.contains("files.write"), "{said}");
}

/// The reference server over both of its transports. It asks for nothing that a client without capabilities lacks.
#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server_over_standard_io_and_over_http() {
    let server = peers().join("js/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let address = free_address();
    let mut command = Command::new("node");
    command.arg(&server).arg("streamableHttp").env("PORT", address.port().to_string());
    let _http = Process::start(command);
    eventually("the server", async || tokio::net::TcpStream::connect(&address).await.ok()).await;
    let stdio = format!("command = {}", json!(["node", server, "stdio"]));
    for (name, way) in [("stdio", stdio), ("http", format!("url = \"http://{address}/mcp\""))] {
        let call = Answer::Call("all_echo", json!({ "message": "hello" }));
        let wrong = Answer::Call("all_echo", json!({ "massage": "hello" }));
        let provider = Provider::scripted([call, wrong, Answer::Words("done", true)]).await;
        let config = directory(&format!("tools-{name}")).join("nuncio.toml");
        let settings = format!(
            "[tools.all]\n{way}\n\n[agents.writer]\nmodel = \"{}\"\ntools = [\"all\"]\n",
            provider.model()
        );
        fs::write(&config, settings).unwrap();
        let hub = Hub::of_agents("127.0.0.1:0", &["--config", path(&config)]).await;
        let task = send(&hub, &["go"]).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{name}: {task}");
        let prompt = provider.prompts().pop().unwrap();
        let results: Vec<_> = prompt.as_array().unwrap().iter().filter(|it| it["role"] == "tool").collect();
        assert_eq!(text(&results[0]["content"]), "Echo: hello", "{name}");
        assert!(text(&results[1]["content"]).contains("message"), "{name}: {}", results[1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_before_a_tool_runs_asks_the_model_again() {
    let provider =
        Provider::scripted([Answer::Words("half of an", false), write(), Answer::Words("done", true)]).await;
    let place = Place::new("tools-kill-before", &provider, "");
    let hub = place.hub().await;
    let id = text(&send(&hub, &["write", "--no-wait"]).await["id"]).to_owned();
    eventually("the first answer", async || (provider.prompts().len() == 1).then_some(())).await;
    kill(hub).await;
    let hub = place.hub().await;
    let task = until(&hub, &id, "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "done");
    assert_eq!(place.calls(), ["write /a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_tool_runs_is_the_end_unless_the_tool_only_reads() {
    let provider = Provider::scripted([write()]).await;
    let place = Place::new("tools-kill-in", &provider, "");
    fs::write(place.hang(), "").unwrap();
    let hub = place.hub().await;
    let id = text(&send(&hub, &["write", "--no-wait"]).await["id"]).to_owned();
    eventually("the call", async || (place.calls().len() == 1).then_some(())).await;
    kill(hub).await;
    fs::remove_file(place.hang()).unwrap();
    let hub = place.hub().await;
    let task = until(&hub, &id, "TASK_STATE_FAILED").await;
    let said = text(&task["status"]["message"]["parts"][0]["text"]);
    assert!(said.contains("files.write") && said.contains("may have been done"), "{said}");
    assert_eq!((place.calls().len(), provider.prompts().len()), (1, 1), "nothing runs twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_a_tool_goes_on_with_its_result() {
    let provider = Provider::scripted([
        write(),
        Answer::Words("half of an", false),
        Answer::Words("one clean answer", true),
    ])
    .await;
    let place = Place::new("tools-kill-after", &provider, "");
    let hub = place.hub().await;
    let id = text(&send(&hub, &["write", "--no-wait"]).await["id"]).to_owned();
    eventually("the second answer", async || (provider.prompts().len() == 2).then_some(())).await;
    kill(hub).await;
    let hub = place.hub().await;
    let task = until(&hub, &id, "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "one clean answer" }]));
    assert_eq!(place.calls(), ["write /a"], "the tool ran once");
    let prompts = provider.prompts();
    assert_eq!(prompts[1], prompts[2], "with the same result");
}

/// The server of a killed hub ends as well: its input is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_a_tool_survives_a_restart() {
    let provider = Provider::scripted([write(), Answer::Words("done", true)]).await;
    let place = Place::new("tools-question", &provider, "approve = [\"files.write\"]");
    let hub = place.hub().await;
    let asked = send(&hub, &["write"]).await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert_eq!(
        asked["status"]["message"]["parts"][1]["data"],
        json!({ "tool": "files.write", "arguments": { "path": "/a" } })
    );
    assert!(place.calls().is_empty());
    kill(hub).await;
    let hub = place.hub().await;
    let task = send(&hub, &["yes", "--task", text(&asked["id"])]).await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "done", "{task}");
    assert_eq!(place.calls(), ["write /a"]);
    eventually("the end of the killed hub's server", async || {
        (running_servers(&place.folder) <= 1).then_some(())
    })
    .await;
}

/// The number of servers that run in this folder.
fn running_servers(folder: &Path) -> usize {
    let running = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("serve.py") && line.contains(path(folder))).then_some(())
    });
    running.count()
}

/// A tool that its server calls read-only is called again after a kill; the task then goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_tool_reads_calls_it_again() {
    let read = Answer::Call("files_read", json!({ "path": "/a" }));
    let provider = Provider::scripted([read, Answer::Words("done", true)]).await;
    let place = Place::new("tools-kill-reading", &provider, "");
    fs::write(place.hang(), "").unwrap();
    let hub = place.hub().await;
    let id = text(&send(&hub, &["read", "--no-wait"]).await["id"]).to_owned();
    eventually("the call", async || (place.calls().len() == 1).then_some(())).await;
    kill(hub).await;
    fs::remove_file(place.hang()).unwrap();
    let hub = place.hub().await;
    let task = until(&hub, &id, "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "done" }]));
    assert_eq!(place.calls(), ["read /a", "read /a"]);
    assert_eq!(provider.prompts().len(), 2, "the model is not asked for the call again");
}

/// Of two calls the second is asked for when the hub is killed: the first has run, and does not run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_two_calls_repeats_neither() {
    let both = Answer::Calls(vec![
        ("files_write", json!({ "path": "/a" })),
        ("files_remove", json!({ "path": "/b" })),
    ]);
    let provider = Provider::scripted([both, Answer::Words("done", true)]).await;
    let place = Place::new("tools-kill-between", &provider, "approve = [\"files.remove\"]");
    let hub = place.hub().await;
    let asked = send(&hub, &["write"]).await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert_eq!(place.calls(), ["write /a"]);
    kill(hub).await;
    let hub = place.hub().await;
    let task = send(&hub, &["yes", "--task", text(&asked["id"])]).await;
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "done", "{task}");
    assert_eq!(place.calls(), ["write /a", "remove /b"]);
}

/// A model that the API adds has tools of the file by their names, before and after a restart, and a change of the table
/// is a change of the agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_the_api_has_the_tools_of_the_file() {
    let provider =
        Provider::scripted([write(), Answer::Words("first", true), write(), Answer::Words("second", true)])
            .await;
    let place = Place::new("tools-api", &provider, "");
    let token = place.folder.join("hub.token");
    let config = place.config.clone();
    let start = async || {
        let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
        let data = ["--data", path(&place.data), "--config", path(&config)];
        Hub::of_agents("127.0.0.1:0", &[&admin[..], &data[..]].concat()).await
    };
    let operate = async |hub: &Hub, args: &[&str]| {
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))]).await
    };
    let hub = start().await;
    let settings = place.folder.join("poet.json");
    fs::write(&settings, json!({ "model": provider.model(), "tools": ["files"] }).to_string()).unwrap();
    let add = async |hub: &Hub, name: &str| {
        operate(hub, &["agent", "add", name, "--model", &provider.model(), "--settings", path(&settings)])
            .await
    };
    let added = add(&hub, "poet").await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let ask = async |hub: &Hub| {
        document(&cli(&["send", &hub.agent("poet"), "go", "-o", "json"]).await)["task"].clone()
    };
    assert_eq!(ask(&hub).await["artifacts"][0]["parts"][0]["text"], "first");
    kill(hub).await;
    let hub = start().await;
    assert_eq!(ask(&hub).await["artifacts"][0]["parts"][0]["text"], "second");
    assert_eq!(place.calls(), ["write /a", "write /a"]);
    fs::write(&settings, json!({ "tools": ["other"] }).to_string()).unwrap();
    let refused = add(&hub, "other").await;
    assert!(
        refused.code != Some(0) && refused.stderr.contains("there are no tools of the name other"),
        "{refused:?}"
    );
}

/// The calls of tools of a task that asks are erased with its caller.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_reaches_the_calls_of_a_task_that_asks() {
    let provider = Provider::scripted([Answer::Call("files_write", json!({ "path": "/of-ann" }))]).await;
    let place = Place::new("tools-erase", &provider, "approve = [\"files.write\"]");
    let token = place.folder.join("hub.token");
    let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let data = ["--data", path(&place.data), "--config", path(&place.config)];
    let mut hub = Hub::of_agents("127.0.0.1:0", &[&admin[..], &data[..]].concat()).await;
    let asked = send(&hub, &["write"]).await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let address = format!("http://{}", text(&hub.announced["admin"]["listen"]));
    let env = [("NUNCIO_ADMIN", &*address), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
    assert_eq!(rounds(&place.data).await, "1", "the call that it asks about");
    let erased = cli_with_env(&["erase", "--anonymous", "--yes"], &env).await;
    assert_eq!(erased.code, Some(0), "{erased:?}");
    hub.process.signal("TERM").await;
    hub.process.end().await;
    assert_eq!(rounds(&place.data).await, "0", "no record of the calls is left");
}

/// The number of records of calls in a store.
async fn rounds(data: &Path) -> String {
    let count = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); \
                 print(store.execute(\"SELECT count(*) FROM records WHERE kind = 'model-rounds'\").fetchone()[0])";
    let mut command = Command::new(peers().join("py/bin/python"));
    command.args(["-c", count, path(data)]);
    let output = nuncio_tests::process::run(command, "").await;
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout.trim().to_owned()
}
