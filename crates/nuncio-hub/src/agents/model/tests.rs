//! Models behind a real runtime and a scripted provider: a case for each row of `docs/models.md`.

mod provider;
mod rows;
mod tool_server;
mod tools;

use std::time::Duration;

use nuncio_protocol::{CallContext, Message, SendMessageRequest, Task, TaskState};
use nuncio_server::{
    store::MemoryStore,
    testing::{FailingStore, Harness, Say},
};
use serde_json::{Value, json};

use self::provider::{Reply, ScriptedProvider};
use super::*;
use crate::{
    config::{Agent, AgentKind, AgentOrigin, Credential, Reasoning, Secret},
    fleet::{Condition, ServedAgent},
    registry::{self, PrepareAgent as _},
};

/// A chunk of an answer in the dialect of OpenAI.
fn chunk(choice: &Value) -> Vec<u8> {
    format!("data: {}\n\n", json!({ "choices": [choice] })).into_bytes()
}

fn text(text: &str) -> Vec<u8> {
    chunk(&json!({ "index": 0, "delta": { "content": text } }))
}

fn finish(reason: &str) -> Vec<u8> {
    chunk(&json!({ "index": 0, "delta": {}, "finish_reason": reason }))
}

/// Usage in a chunk without choices, and the end.
fn end(input: u64, output: u64) -> Vec<u8> {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": input, "completion_tokens": output } });
    format!("data: {usage}\n\ndata: [DONE]\n\n").into_bytes()
}

/// A whole answer.
fn says(words: &[&str]) -> Reply {
    let mut events: Vec<_> = words.iter().map(|word| text(word)).collect();
    events.extend([finish("stop"), end(7, 2)]);
    Reply::Events(events)
}

fn status(status: u16, message: &str) -> Reply {
    Reply::Status(status, &[("retry-after", "0")], json!({ "error": { "message": message } }).to_string())
}

/// An agent of the hub with a model.
struct World {
    harness: Harness,
    agent: Arc<ServedAgent>,
    factory: Arc<AgentFactory>,
}

impl World {
    async fn of(settings: Model) -> Self {
        Self::with(settings, |_| {}).await
    }

    async fn with(settings: Model, change: impl FnOnce(&mut Agent)) -> Self {
        Self::over(Arc::new(MemoryStore::default().into()), settings, change).await
    }

    async fn over(store: Arc<FailingStore>, settings: Model, change: impl FnOnce(&mut Agent)) -> Self {
        let factory = Arc::new(registry::tests::factory(&(Arc::clone(&store) as _)).await);
        let kind = AgentKind::Model(Box::new(settings));
        let mut desired = Agent::new("writer".parse().unwrap(), kind, AgentOrigin::File);
        change(&mut desired);
        let agent = Arc::clone(&factory).prepare(desired, None).await.unwrap()().unwrap();
        let runtime = agent.runtime().unwrap().clone();
        Self { harness: Harness { runtime, store, cx: CallContext::default() }, agent, factory }
    }

    async fn scripted(provider: &ScriptedProvider) -> Self {
        Self::of(model(provider)).await
    }
}

fn model(provider: &ScriptedProvider) -> Model {
    Model::new(format!("openai:{}#tiny", provider.url()).parse().unwrap())
}

/// The state, the words of the status, and the artifacts.
fn told(task: &Task) -> (TaskState, String, Vec<(String, String)>) {
    let words = task.status.message.as_ref().map(|message| message.text().into_owned()).unwrap_or_default();
    let artifacts = task.artifacts.iter().map(|artifact| {
        let parts: Vec<String> = artifact
            .parts
            .iter()
            .map(|part| match part.as_data() {
                Some(data) => data.as_str().to_owned(),
                None => part.as_text().unwrap_or("?").to_owned(),
            })
            .collect();
        (artifact.name.clone(), parts.join("|"))
    });
    (task.status.state, words, artifacts.collect())
}

fn answer(text: &str) -> Vec<(String, String)> {
    vec![("answer".to_owned(), text.to_owned())]
}

fn in_context(text: &str) -> Say {
    Say::from(text).change(|request| request.message.context_id = Some("c-1".into()))
}

fn parts(parts: Vec<nuncio_protocol::Part>) -> Say {
    SendMessageRequest { message: Message::user("m-1", parts), ..SendMessageRequest::default() }.into()
}

#[tokio::test]
async fn an_answer_is_one_text_and_the_conversation_is_remembered() {
    let provider = ScriptedProvider::start([says(&["Hel", "lo"]), says(&["Ann"]), says(&["Bye"])]).await;
    let settings = Model {
        instructions: Some("Be brief.".to_owned()),
        max_tokens: Some(50),
        parameters: [("temperature".to_owned(), json!(0.2))].into_iter().collect(),
        ..model(&provider)
    };
    let world = World::of(settings).await;
    for (said, expected) in [("I am Ann", "Hello"), ("Who am I?", "Ann"), ("Bye", "Bye")] {
        let task = world.harness.task(in_context(said)).await.unwrap();
        assert_eq!(told(&task), (TaskState::Completed, String::new(), answer(expected)));
    }
    let asked = provider.asked();
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(
        asked[2].body,
        json!({
            "model": "tiny", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": 50,
            "temperature": 0.2,
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "I am Ann" }, { "role": "assistant", "content": "Hello" },
                { "role": "user", "content": "Who am I?" }, { "role": "assistant", "content": "Ann" },
                { "role": "user", "content": "Bye" },
            ],
        })
    );
    let other = world.harness.as_caller("bob").task(in_context("Who am I?")).await.unwrap();
    assert_eq!(other.status.state, TaskState::Failed, "the script is over");
    assert_eq!(
        provider.asked()[3].body["messages"].as_array().unwrap().len(),
        2,
        "nothing of another caller"
    );
}

/// A case: its name, the script, the state, the words of the status, the text of the answer, and the number of requests.
type Case = (&'static str, Vec<Reply>, TaskState, String, &'static str, usize);

/// Each end of an answer, in the order of the table: what the provider does, the state, its words, the artifacts, and
/// the number of requests.
#[tokio::test]
async fn every_end_of_an_answer() {
    let long = "x".repeat(600);
    let cases: Vec<Case> = vec![
        (
            "cut at the limit",
            vec![Reply::Events(vec![text("ab"), finish("length"), end(1, 1)])],
            TaskState::Completed,
            "the answer was cut at the limit of tokens".into(),
            "ab",
            1,
        ),
        (
            "refused by the model",
            vec![Reply::Events(vec![
                chunk(&json!({ "delta": { "refusal": "I will not." } })),
                finish("stop"),
            ])],
            TaskState::Rejected,
            "I will not.".into(),
            "",
            1,
        ),
        (
            "refused by a filter",
            vec![Reply::Events(vec![text("a"), finish("content_filter")])],
            TaskState::Rejected,
            "the model or its provider refused to answer".into(),
            "a",
            1,
        ),
        (
            "a wrong request",
            vec![status(400, "prompt is too long")],
            TaskState::Failed,
            "the provider of the model refused the request: prompt is too long".into(),
            "",
            1,
        ),
        (
            "a long message",
            vec![status(422, &long)],
            TaskState::Failed,
            format!("the provider of the model refused the request: {}", &long[..500]),
            "",
            1,
        ),
        (
            "no such model",
            vec![status(404, "no model")],
            TaskState::Failed,
            "the provider of the model refused the request: no model".into(),
            "",
            1,
        ),
        (
            "an image that the model cannot take",
            vec![status(500, "no image")],
            TaskState::Failed,
            "the provider of the model refused the request: no image".into(),
            "",
            1,
        ),
        (
            "a busy provider",
            vec![status(429, "slow down"), status(529, "overloaded"), says(&["ok"])],
            TaskState::Completed,
            String::new(),
            "ok",
            3,
        ),
        (
            "a provider that closes at once",
            vec![Reply::Close, says(&["ok"])],
            TaskState::Completed,
            String::new(),
            "ok",
            2,
        ),
        (
            "a stream that ends before its first token",
            vec![Reply::Events(vec![b": hello\n\n".to_vec()]), says(&["ok"])],
            TaskState::Completed,
            String::new(),
            "ok",
            2,
        ),
        (
            "a stream that ends after it",
            vec![Reply::Events(vec![text("half")])],
            TaskState::Failed,
            "the connection to the provider of the model broke".into(),
            "half",
            1,
        ),
        (
            "an error in the stream",
            vec![Reply::Events(vec![text("half"), b"data: {\"error\":{\"message\":\"gone\"}}\n\n".to_vec()])],
            TaskState::Failed,
            "the provider of the model is unavailable: gone".into(),
            "half",
            1,
        ),
        (
            "nonsense in the stream",
            vec![Reply::Events(vec![text("half"), b"data: <html>\n\n".to_vec()])],
            TaskState::Failed,
            "the answer of the provider could not be understood".into(),
            "half",
            1,
        ),
        (
            "an end without the last event",
            vec![Reply::Events(vec![text("all"), finish("stop")])],
            TaskState::Completed,
            String::new(),
            "all",
            1,
        ),
        (
            "a server that does not stream",
            vec![Reply::Status(
                200,
                &[("content-type", "application/json")],
                json!({ "choices": [{ "message": { "content": "whole" }, "finish_reason": "stop" }] })
                    .to_string(),
            )],
            TaskState::Completed,
            String::new(),
            "whole",
            1,
        ),
        (
            "line ends, a byte order mark, text in pieces",
            vec![Reply::Events(odd_bytes("Grüße"))],
            TaskState::Completed,
            String::new(),
            "Grüße",
            1,
        ),
    ];
    for (case, script, state, words, expected, requests) in cases {
        let provider = ScriptedProvider::start(script).await;
        let task = World::scripted(&provider).await.harness.task("hi").await.unwrap();
        let artifacts = if expected.is_empty() { Vec::new() } else { answer(expected) };
        assert_eq!(told(&task), (state, words, artifacts), "{case}");
        assert_eq!(provider.asked().len(), requests, "{case}");
    }
}

/// An answer with a byte order mark and CRLF, a byte at a time.
fn odd_bytes(words: &str) -> Vec<Vec<u8>> {
    let event = |value: Value| format!("data: {value}\r\n\r\n");
    let stream = format!(
        "\u{feff}: comment\r\n\r\n{}{}data: [DONE]\r\n\r\n",
        event(json!({ "choices": [{ "delta": { "content": words } }] })),
        event(json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] })),
    );
    stream.into_bytes().into_iter().map(|byte| vec![byte]).collect()
}

/// Nothing listens there: the provider has not got the message, and no connection broke.
#[tokio::test]
async fn a_provider_without_a_connection_is_told_apart_from_a_broken_one() {
    let model = Model::new("openai:http://127.0.0.1:1/v1#tiny".parse().unwrap());
    let world = World::of(Model { retry_window: Duration::ZERO, ..model }).await;
    let error = world.harness.send("hi").await.unwrap_err();
    assert_eq!(error.kind(), nuncio_protocol::ErrorKind::Unavailable);
    assert!(error.is_undelivered(), "{error}");
    assert!(error.message().starts_with("the model of this agent cannot be reached at present; "), "{error}");
}

#[tokio::test]
async fn a_model_that_is_unavailable_is_an_error_of_the_call() {
    let busy = || Reply::Status(503, &[("retry-after", "3600")], String::new());
    let provider = ScriptedProvider::start([busy(), busy()]).await;
    let world = World::scripted(&provider).await;
    let error = world.harness.send("hi").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (nuncio_protocol::ErrorKind::Unavailable, Some(Duration::from_secs(3600)))
    );
    assert_eq!(provider.asked().len(), 1, "an hour is longer than the window");
    let fallback = ScriptedProvider::start([says(&["from the other"])]).await;
    let target = format!("openai:{}#other", fallback.url()).parse().unwrap();
    let world = World::of(Model { fallback: vec![target], ..model(&provider) }).await;
    let task = world.harness.task("hi").await.unwrap();
    assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("from the other")));
    assert_eq!(fallback.asked()[0].body["model"], "other");
}

#[tokio::test]
async fn credentials_that_the_provider_refuses_are_not_shown_and_degrade_the_agent() {
    let provider = ScriptedProvider::start([status(401, "wrong key sk-1234")]).await;
    let mut settings = model(&provider);
    settings.auth.credential = Some(Credential::Bearer(Secret::new("sk-1234")));
    let world = World::of(settings.clone()).await;
    let task = world.harness.task("hi").await.unwrap();
    let (state, words, _) = told(&task);
    assert!(
        state == TaskState::Failed && words.contains("not configured") && !words.contains("sk-1234"),
        "{words}"
    );
    assert!(provider.asked()[0].head.to_ascii_lowercase().contains("authorization: bearer sk-1234"));
    let health = world.agent.upstream().unwrap().health();
    assert!(matches!(health.condition, Condition::Degraded(_)), "{health:?}");
    let shown =
        format!("{:?} {}", settings, serde_json::to_string(&*world.agent.runtime().unwrap().card()).unwrap());
    assert!(!shown.contains("sk-1234"), "{shown}");
}

#[tokio::test]
async fn a_silent_provider_ends_the_answer() {
    let provider = ScriptedProvider::start([Reply::Hang(vec![text("half")]), Reply::Hang(Vec::new())]).await;
    let world = World::of(Model { silence: Duration::from_millis(200), ..model(&provider) }).await;
    let task = world.harness.task("hi").await.unwrap();
    assert_eq!(
        told(&task),
        (TaskState::Failed, "the provider of the model was silent for 0 s".to_owned(), answer("half"))
    );
    let task = world.harness.task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed, "no token at all");
    provider.until_closed(2).await;
}

#[tokio::test]
async fn a_cancel_closes_the_connection_and_keeps_the_text() {
    let provider = ScriptedProvider::start([Reply::Hang(vec![text("half")])]).await;
    let world = World::scripted(&provider).await;
    let task = world.harness.begin("hi").await.unwrap();
    loop {
        let now = world.harness.get(&task.id).await.unwrap();
        if !now.artifacts.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let canceled = world.harness.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    provider.until_closed(1).await;
    assert_eq!(told(&world.harness.get(&task.id).await.unwrap()).2, answer("half"));
}

#[tokio::test]
async fn json_if_the_caller_accepts_no_text() {
    let words = r#"```json
{"name": "Ann"}
```"#;
    let provider = ScriptedProvider::start([
        says(&[r#"{"name":"#, r#""Ann"}"#]),
        says(&[words]),
        says(&["Ann"]),
        says(&["[1]"]),
    ])
    .await;
    let world = World::scripted(&provider).await;
    let json_only = || {
        Say::from("hi").change(|request| {
            request.configuration.get_or_insert_default().accepted_output_modes =
                vec!["application/json".to_owned()];
        })
    };
    for _ in 0..2 {
        let task = world.harness.task(json_only()).await.unwrap();
        let data = task.artifacts[0].parts[0].as_data().unwrap();
        assert_eq!(
            (task.status.state, data.get::<Value>().unwrap()),
            (TaskState::Completed, json!({ "name": "Ann" }))
        );
    }
    let task = world.harness.task(json_only()).await.unwrap();
    assert_eq!(
        told(&task),
        (
            TaskState::Failed,
            "the answer of the model is not JSON; its text is kept".to_owned(),
            answer("Ann")
        )
    );
    assert_eq!(provider.asked()[0].body["response_format"], json!({ "type": "json_object" }));
    let declaring =
        world.harness.calling(|cx| cx.extensions = [MODEL_EXTENSION.into()].into_iter().collect());
    let schema = json!({ "type": "array" });
    let with_schema = Say::from("hi")
        .change(|request| request.message.metadata.insert(MODEL_EXTENSION, json!({ "schema": schema })));
    let task = declaring.task(with_schema).await.unwrap();
    assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("[1]")));
    assert_eq!(provider.asked()[3].body["response_format"]["json_schema"]["schema"], schema);
    let usage = task.metadata.get(MODEL_EXTENSION).unwrap().get::<Value>().unwrap();
    assert_eq!(
        usage,
        json!({ "model": "tiny", "inputTokens": 7, "outputTokens": 2, "finishReason": "stop", "omittedTurns": 0, "isEstimate": false })
    );
}

#[tokio::test]
async fn parts_as_the_provider_takes_them() {
    use nuncio_protocol::Part;
    let provider = ScriptedProvider::start([says(&["ok"])]).await;
    let world = World::scripted(&provider).await;
    let sent = vec![
        Part::text("look"),
        Part::data(json!({ "n": 1 })),
        Part::raw(&b"\x89PNG"[..]).with_media_type("image/png"),
        Part::url("https://e.example/a.jpg").with_media_type("image/jpeg"),
        Part::raw(&b"%PDF"[..]).with_media_type("application/pdf").with_filename("a.pdf"),
        Part::raw(&b"note"[..]).with_media_type("text/markdown").with_filename("a.md"),
    ];
    assert_eq!(world.harness.task(parts(sent)).await.unwrap().status.state, TaskState::Completed);
    assert_eq!(
        provider.asked()[0].body["messages"][0]["content"],
        json!([
            { "type": "text", "text": "look" },
            { "type": "text", "text": "{\"n\":1}" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
            { "type": "image_url", "image_url": { "url": "https://e.example/a.jpg" } },
            { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg==" } },
            { "type": "text", "text": "a.md:\nnote" },
        ])
    );
    let sent = vec![Part::text("look"), Part::raw(&b"x"[..]).with_media_type("application/zip")];
    let error = world.harness.send(parts(sent)).await.unwrap_err();
    assert_eq!(error.kind(), nuncio_protocol::ErrorKind::ContentTypeNotSupported);
    assert!(error.message().contains("part 1") && error.message().contains("application/zip"), "{error}");
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn reasoning_is_hidden_or_an_artifact_of_its_own() {
    let script = || {
        let think = chunk(&json!({ "delta": { "reasoning_content": "hmm" } }));
        Reply::Events(vec![think, text("yes"), finish("stop"), end(1, 1)])
    };
    let provider = ScriptedProvider::start([script(), script()]).await;
    let task = World::scripted(&provider).await.harness.task("hi").await.unwrap();
    assert_eq!(told(&task).2, answer("yes"));
    let world = World::of(Model { reasoning: Reasoning::Artifact, ..model(&provider) }).await;
    let mut artifacts = told(&world.harness.task("hi").await.unwrap()).2;
    artifacts.sort();
    assert_eq!(
        artifacts,
        [("answer".to_owned(), "yes".to_owned()), ("reasoning".to_owned(), "hmm".to_owned())]
    );
}

#[tokio::test]
async fn a_budget_ends_at_midnight_and_is_counted_for_each_caller_and_each_agent() {
    let provider = ScriptedProvider::start((0..9).map(|_| says(&["ok"]))).await;
    // An answer has nine tokens.
    let world = World::with(model(&provider), |agent| agent.limits.tokens_per_day = Some(20)).await;
    let limits = config::Limits { tokens_per_day: Some(10), ..config::Limits::default() };
    world.factory.limits.store(Arc::new(limits));
    let (ann, bob) = (world.harness.as_caller("ann"), world.harness.as_caller("bob"));
    for (caller, whose) in
        [(&ann, None), (&ann, None), (&ann, Some("yours")), (&bob, None), (&bob, Some("this agent"))]
    {
        let sent = caller.send("hi").await;
        let error = sent.err();
        assert_eq!(error.is_some(), whose.is_some(), "{error:?}");
        if let (Some(error), Some(whose)) = (error, whose) {
            assert_eq!(error.kind(), nuncio_protocol::ErrorKind::ResourceExhausted);
            assert!(error.message().contains(whose) && error.retry_after().is_some(), "{error}");
        }
    }
    let metrics = world.factory.telemetry.metrics.text();
    assert!(metrics.contains(r#"nuncio_model_tokens_total{agent="writer",kind="input"} 21"#), "{metrics}");
}

#[tokio::test]
async fn the_messages_dialect() {
    let event =
        |value: Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()).into_bytes();
    let script = Reply::Events(vec![
        event(
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1 } } }),
        ),
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "" } }),
        ),
        event(
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "hmm" } }),
        ),
        event(json!({ "type": "ping" })),
        event(
            json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "Hello" } }),
        ),
        event(
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 4 } }),
        ),
        event(json!({ "type": "message_stop" })),
    ]);
    let provider = ScriptedProvider::start([script]).await;
    let target = format!("anthropic:{}#claude", provider.url()).parse().unwrap();
    let mut settings = Model { instructions: Some("Be brief.".to_owned()), ..Model::new(target) };
    settings.auth.credential = Some(Credential::Bearer(Secret::new("sk-ant")));
    let world = World::of(settings).await;
    let declaring =
        world.harness.calling(|cx| cx.extensions = [MODEL_EXTENSION.into()].into_iter().collect());
    let task = declaring.task("hi").await.unwrap();
    assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("Hello")));
    let usage = task.metadata.get(MODEL_EXTENSION).unwrap().get::<Value>().unwrap();
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"], &usage["cachedTokens"]),
        (&json!(8), &json!(4), &json!(3))
    );
    let asked = &provider.asked()[0];
    assert_eq!(asked.path, "/v1/messages");
    let head = asked.head.to_ascii_lowercase();
    assert!(
        head.contains("x-api-key: sk-ant")
            && head.contains("anthropic-version: ")
            && !head.contains("authorization"),
        "{head}"
    );
    assert_eq!(
        asked.body,
        json!({
            "model": "claude", "max_tokens": 4096, "stream": true, "system": "Be brief.",
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }],
        })
    );
}

#[tokio::test]
async fn health_by_the_list_of_models_and_preflight() {
    let provider = ScriptedProvider::start([]).await;
    let world = World::scripted(&provider).await;
    let status = world.agent.upstream().unwrap();
    assert_eq!(status.refresh(&world.agent).await, Ok(()));
    let settings = Model::new(format!("openai:{}#missing", provider.url()).parse().unwrap());
    let world = World::of(settings.clone()).await;
    let error = world.agent.upstream().unwrap().refresh(&world.agent).await.unwrap_err();
    assert!(error.contains("lists no model missing"), "{error}");
    let error = settings.check_reachable("writer").await.unwrap_err().to_string();
    assert!(error.contains("lists no model missing"), "{error}");
    model(&provider).check_reachable("writer").await.unwrap();
}
