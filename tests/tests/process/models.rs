//! Models as agents, with the real binary: a scripted provider, and a hub that is killed in the middle of an answer.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use nuncio_tests::{
    eventually,
    hub::{Hub, cli},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{directory, json, path, text};

/// An answer of the provider.
pub(crate) enum Answer {
    /// Words, and whether the answer comes to its end.
    Words(&'static str, bool),
    /// A call of a tool with these arguments.
    Call(&'static str, Value),
}

/// A provider that answers by a script.
#[derive(Clone)]
pub(crate) struct Provider(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    url: String,
    script: Mutex<VecDeque<Answer>>,
    prompts: Mutex<Vec<Value>>,
    /// Answers that the other side has broken off.
    closed: Mutex<usize>,
}

impl Provider {
    /// Answers in words; each has an end, or none.
    pub(crate) async fn start(script: &[(&'static str, bool)]) -> Self {
        Self::scripted(script.iter().map(|(words, ends)| Answer::Words(words, *ends))).await
    }

    pub(crate) async fn scripted(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            address,
            url: format!("http://{address}/v1"),
            script: Mutex::new(script.into_iter().collect()),
            prompts: Mutex::default(),
            closed: Mutex::default(),
        });
        let provider = Self(inner);
        let own = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve(stream).await });
            }
        });
        provider
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    fn agent(&self) -> String {
        format!("writer={}", self.model())
    }

    /// The model, as the configuration names it.
    pub(crate) fn model(&self) -> String {
        format!("openai:{}#tiny", self.0.url)
    }

    /// The messages of each prompt.
    pub(crate) fn prompts(&self) -> Vec<Value> {
        self.0.prompts.lock().unwrap().clone()
    }

    fn closed(&self) -> usize {
        *self.0.closed.lock().unwrap()
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        if head.starts_with("GET ") {
            let list = json!({ "data": [{ "id": "tiny" }, { "id": "llama3" }] }).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", list.len());
            let _ = stream.write_all(format!("{head}{list}").as_bytes()).await;
            return;
        }
        self.0.prompts.lock().unwrap().push(body["messages"].clone());
        let Some(next) = self.0.script.lock().unwrap().pop_front() else { return };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let mut answer = head.to_owned();
        let mut say =
            |choice: Value| answer.push_str(&format!("data: {}\n\n", json!({ "choices": [choice] })));
        let ends = match next {
            Answer::Words(words, ends) => {
                words.split_inclusive(' ').for_each(|word| say(json!({ "delta": { "content": word } })));
                if ends {
                    say(json!({ "delta": {}, "finish_reason": "stop" }));
                }
                ends
            }
            Answer::Call(name, arguments) => {
                let function = json!({ "name": name, "arguments": arguments.to_string() });
                let call = json!({ "index": 0, "id": "call-1", "function": function });
                say(json!({ "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }));
                true
            }
        };
        if ends {
            answer.push_str("data: [DONE]\n\n");
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        if !ends {
            let mut rest = [0; 64];
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            *self.0.closed.lock().unwrap() += 1;
        }
    }
}

/// The head and the body of a request.
async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    while bytes.len() < end + length.unwrap_or(0) {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body = serde_json::from_slice(&bytes[end..]).unwrap_or(Value::Null);
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), body))
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
    let args = ["--data", path(&file), "--agent", &provider.agent()];
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
    let model = format!("openai:{}#tiny", provider.0.url);
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
    let hub = Hub::of_agents("127.0.0.1:0", &["--agent", &provider.agent()]).await;
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
        let model = format!("openai:{}#{name}", provider.0.url);
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
    let settings = format!("[agents.local]\nmodels = \"openai:{}\"\ntags = [\"here\"]\n", provider.0.url);
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
