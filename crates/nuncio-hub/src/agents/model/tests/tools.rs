//! Models with tools: a case for each row of the table of tools in `docs/models.md`.

use nuncio_protocol::{Caller, Part, Role};
use nuncio_server::store::RecordQuery;

use super::{tool_server::ToolServer, *};
use crate::config::Demo;

/// An answer that calls tools: pairs of name and arguments.
fn calls(calls: &[(&str, &str)]) -> Reply {
    let calls: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| {
            json!({ "index": at, "id": format!("c{at}"), "function": { "name": name, "arguments": arguments } })
        })
        .collect();
    Reply::Events(vec![chunk(&json!({ "delta": { "tool_calls": calls } })), finish("tool_calls"), end(7, 2)])
}

fn with_tools(provider: &ScriptedProvider, server: &ToolServer) -> Model {
    Model { tools: vec!["files".to_owned()], tool_servers: vec![server.named()], ..model(provider) }
}

/// The texts of the results that the last request contained.
fn results(provider: &ScriptedProvider) -> Vec<String> {
    let asked = provider.asked().pop().unwrap();
    let messages = asked.body["messages"].as_array().unwrap().clone();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn in_task(task: &Task, part: Part) -> Say {
    let message = Message { task_id: Some(task.id.clone()), ..Message::user("m-2", part) };
    SendMessageRequest { message, ..SendMessageRequest::default() }.into()
}

#[tokio::test]
async fn results_go_back_to_the_model_until_it_calls_nothing_more() {
    let provider = ScriptedProvider::start([
        Reply::Events(vec![
            text("Let me look."),
            chunk(&json!({ "delta": { "tool_calls": [
                { "index": 0, "id": "a", "function": { "name": "files_read", "arguments": "{\"pa" } },
            ] } })),
            chunk(&json!({ "delta": { "tool_calls": [{ "index": 0, "function": { "arguments": "th\":\"/a\"}" } }] } })),
            finish("tool_calls"),
            end(7, 2),
        ]),
        says(&["It is ", "empty."]),
        says(&["Bye"]),
    ])
    .await;
    let server = ToolServer::start().await;
    let world = World::of(with_tools(&provider, &server)).await;
    let declaring =
        world.harness.calling(|cx| cx.extensions = [MODEL_EXTENSION.into()].into_iter().collect());
    let task = declaring.task(in_context("Look")).await.unwrap();
    assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("Let me look.\n\nIt is empty.")));
    assert_eq!(server.calls(), [json!(["read", { "path": "/a" }])]);
    let usage = task.metadata.get(MODEL_EXTENSION).unwrap().get::<Value>().unwrap();
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"], &usage["toolRounds"]),
        (&json!(14), &json!(4), &json!(1)),
        "the tokens of both answers"
    );
    let news: Vec<_> = task.history.iter().filter(|message| message.role == Role::Agent).collect();
    assert_eq!(news[0].text(), "calling files.read");
    assert_eq!(
        news[0].metadata.get(MODEL_EXTENSION).unwrap().get::<Value>().unwrap(),
        json!({ "call": { "tool": "files.read", "arguments": { "path": "/a" } } })
    );
    let asked = provider.asked();
    assert_eq!(asked[0].body["tools"][0]["function"]["name"], "files_read");
    assert_eq!(
        asked[1].body["messages"],
        json!([
            { "role": "user", "content": "Look" },
            { "role": "assistant", "content": "Let me look.", "tool_calls": [
                { "id": "a", "type": "function", "function": { "name": "files_read", "arguments": "{\"path\":\"/a\"}" } },
            ] },
            { "role": "tool", "tool_call_id": "a", "content": "read /a: done" },
        ])
    );
    // The next task of the conversation knows the answer, and nothing about calls.
    declaring.task(in_context("Thanks")).await.unwrap();
    assert_eq!(
        provider.asked()[2].body["messages"],
        json!([
            { "role": "user", "content": "Look" },
            { "role": "assistant", "content": "Let me look.\n\nIt is empty." },
            { "role": "user", "content": "Thanks" },
        ])
    );
}

#[tokio::test]
async fn mistakes_are_told_to_the_model() {
    for (call, expected) in [
        (("files_fail", "{}"), "disk full"),
        (("files_reed", "{}"), "there is no tool files_reed; the tools are: files_read, files_write"),
        (("files_read", "{"), "the arguments are wrong: EOF"),
        (("files_read", "[1]"), "the arguments are wrong: expected a JSON object"),
        (("files_read", ""), "path is missing"),
    ] {
        let provider = ScriptedProvider::start([calls(&[call]), says(&["ok"])]).await;
        let server = ToolServer::start().await;
        let task = World::of(with_tools(&provider, &server)).await.harness.task("hi").await.unwrap();
        assert_eq!(task.status.state, TaskState::Completed, "{call:?}");
        let result = results(&provider).remove(0);
        assert!(result.contains(expected), "{call:?}: {result}");
    }
}

#[tokio::test]
async fn a_long_result_is_cut_and_marked() {
    let provider = ScriptedProvider::start([calls(&[("files_long", "{}")]), says(&["ok"])]).await;
    let server = ToolServer::start().await;
    World::of(with_tools(&provider, &server)).await.harness.task("hi").await.unwrap();
    let result = results(&provider).remove(0);
    assert!(result.starts_with(&"x".repeat(65_536)) && result.len() < 65_700, "{}", result.len());
    assert!(result.ends_with("[cut: the last 4464 bytes of 70000 are left out]"));
}

#[tokio::test]
async fn at_a_limit_there_is_one_last_answer_without_tools() {
    let again = || calls(&[("files_read", r#"{"path":"/a"}"#)]);
    for (change, words, bound, requests, runs) in [
        (
            (|settings: &mut Model| settings.max_rounds = 2) as fn(&mut Model),
            "the limit of 2 rounds of tools is reached",
            "rounds",
            3,
            2,
        ),
        (|settings| settings.max_total_tokens = Some(5), "the limit of 5 tokens is reached", "tokens", 2, 0),
    ] {
        let provider = ScriptedProvider::start((0..9).map(|_| again())).await;
        let server = ToolServer::start().await;
        let mut settings = with_tools(&provider, &server);
        change(&mut settings);
        let world = World::of(settings).await;
        let declaring =
            world.harness.calling(|cx| cx.extensions = [MODEL_EXTENSION.into()].into_iter().collect());
        let task = declaring.task("hi").await.unwrap();
        assert_eq!((task.status.state, &*told(&task).1), (TaskState::Completed, words));
        let usage = task.metadata.get(MODEL_EXTENSION).unwrap().get::<Value>().unwrap();
        assert_eq!(usage["boundedBy"], bound);
        let asked = provider.asked();
        assert_eq!((asked.len(), server.calls().len()), (requests, runs), "{words}");
        let last = &asked.last().unwrap().body;
        assert!(last.get("tools").is_none() && last.to_string().contains("No more tools can be called"));
    }
}

#[tokio::test]
async fn the_time_for_tools_ends_a_call_that_hangs() {
    let provider = ScriptedProvider::start([calls(&[("files_hang", "{}")]), says(&["ok"])]).await;
    let server = ToolServer::start().await;
    let time_limit = Some(Duration::from_millis(300));
    let world = World::of(Model { time_limit, ..with_tools(&provider, &server) }).await;
    let task = world.harness.task("hi").await.unwrap();
    assert_eq!(told(&task).1, "the limit of 0 s for tools is reached");
    assert_eq!(results(&provider), ["the time for tools is over; the call may have been done"]);
}

#[tokio::test]
async fn the_caller_decides_about_a_call() {
    let data = |word: &str| Part::data(json!({ "decision": word }));
    for (replies, runs, expected) in [
        (vec![data("allow")], 1, "write /a: done"),
        (vec![Part::text("Yes.")], 1, "write /a: done"),
        (vec![data("deny")], 0, "the user did not allow this call of the tool"),
        (
            vec![Part::text("which file?"), Part::text("no")],
            0,
            "the user did not allow this call of the tool",
        ),
    ] {
        let call = || calls(&[("files_read", r#"{"path":"/b"}"#), ("files_write", r#"{"path":"/a"}"#)]);
        let provider = ScriptedProvider::start([call(), says(&["ok"])]).await;
        let server = ToolServer::start().await;
        let settings = Model { approve: vec!["files.w*".to_owned()], ..with_tools(&provider, &server) };
        let world = World::of(settings).await;
        let mut task = world.harness.task("hi").await.unwrap();
        for reply in replies {
            assert_eq!(task.status.state, TaskState::InputRequired);
            let asked = task.status.message.as_ref().unwrap();
            assert!(asked.text().starts_with("May files.write be called"), "{}", asked.text());
            assert_eq!(
                asked.parts[1].as_data().unwrap().get::<Value>().unwrap(),
                json!({ "tool": "files.write", "arguments": { "path": "/a" } })
            );
            assert_eq!(server.calls().len(), 1, "the call that needs no decision");
            task = world.harness.task(in_task(&task, reply)).await.unwrap();
        }
        assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("ok")));
        assert_eq!(server.calls().len(), 1 + runs);
        assert_eq!(results(&provider), ["read /b: done", expected]);
        assert_eq!(provider.asked().len(), 2);
    }
}

#[tokio::test]
async fn a_cancel_ends_a_call() {
    let provider = ScriptedProvider::start([calls(&[("files_hang", "{}")])]).await;
    let server = ToolServer::start().await;
    let world = World::of(with_tools(&provider, &server)).await;
    let task = world.harness.begin("hi").await.unwrap();
    server.until_hanging().await;
    let canceled = world.harness.cancel(&task.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
}

#[tokio::test]
async fn nothing_of_the_caller_reaches_a_server_of_tools() {
    let provider = ScriptedProvider::start([calls(&[("files_write", "{}")]), says(&["ok"])]).await;
    let server = ToolServer::start().await;
    let world = World::of(with_tools(&provider, &server)).await;
    world.harness.as_caller("ann-principal").task(in_context("hi")).await.unwrap();
    let sent = format!("{:?} {:?}", server.headers(), server.calls());
    assert!(!sent.contains("ann-principal") && !sent.contains("c-1"), "{sent}");
}

#[tokio::test]
async fn other_agents_of_the_hub_are_tools() {
    let provider = ScriptedProvider::start([
        calls(&[("agents_billing", r#"{"message":"hello"}"#)]),
        says(&["It said hello."]),
    ])
    .await;
    let settings = Model { agents: vec!["billing".to_owned(), "gone".to_owned()], ..model(&provider) };
    let world = World::of(settings).await;
    let desired = Agent::new("billing".parse().unwrap(), Demo::Echo.into(), AgentOrigin::File);
    let billing = Arc::clone(&world.factory).prepare(desired, None).await.unwrap()().unwrap();
    world.factory.fleet.put([billing, Arc::clone(&world.agent)]);
    let task = world.harness.as_caller("ann").task("hi").await.unwrap();
    assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("It said hello.")));
    assert_eq!(results(&provider), ["hello"]);
    assert_eq!(provider.asked()[0].body["tools"].as_array().unwrap().len(), 1, "an agent that is not served");
}

/// Two agents that have each other as tools.
#[tokio::test]
async fn agents_do_not_call_each_other_in_circles() {
    let to = |name: &str| calls(&[(&*format!("agents_{name}"), r#"{"message":"go on"}"#)]);
    let provider = ScriptedProvider::start([
        to("b"),
        to("a"),
        to("b"),
        says(&["stop"]),
        says(&["b stops"]),
        says(&["a stops"]),
    ])
    .await;
    let world = World::of(model(&provider)).await;
    let mut agents = Vec::new();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let settings = Model { agents: vec![other.to_owned()], ..model(&provider) };
        let kind = AgentKind::Model(Box::new(settings));
        let desired = Agent::new(name.parse().unwrap(), kind, AgentOrigin::File);
        agents.push(Arc::clone(&world.factory).prepare(desired, None).await.unwrap()().unwrap());
    }
    let runtime = agents[0].runtime().unwrap().clone();
    world.factory.fleet.put(agents);
    let harness = Harness { runtime, ..world.harness };
    let task = harness.task("go").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let asked = provider.asked();
    let told: Vec<_> = asked.iter().map(|asked| asked.body.to_string()).collect();
    assert!(told.iter().any(|body| body.contains("goes round in a circle")), "{told:#?}");
}

#[tokio::test]
async fn tools_that_cannot_be_reached_are_an_error_of_the_call() {
    let provider = ScriptedProvider::start([]).await;
    let server = ToolServer::start().await;
    let mut settings = with_tools(&provider, &server);
    let url = "http://127.0.0.1:9/mcp".parse().unwrap();
    settings.tool_servers[0].target = config::ToolTarget::Remote(url, Box::default());
    let world = World::of(settings).await;
    let error = world.harness.send("hi").await.unwrap_err();
    assert_eq!(error.kind(), nuncio_protocol::ErrorKind::Unavailable);
    assert!(error.message().contains("the tools files") && error.retry_after().is_some(), "{error}");
    assert!(provider.asked().is_empty());
}

#[tokio::test]
async fn tools_in_the_messages_dialect() {
    let event =
        |value: Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()).into_bytes();
    let delta = |index: u64, delta: Value| {
        event(json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    };
    let block = |index: u64, block: Value| {
        event(json!({ "type": "content_block_start", "index": index, "content_block": block }))
    };
    let stop = |reason: &str| {
        [
            event(
                json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 4 } }),
            ),
            event(json!({ "type": "message_stop" })),
        ]
    };
    let mut first = vec![
        block(0, json!({ "type": "thinking", "thinking": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "hmm" })),
        delta(0, json!({ "type": "signature_delta", "signature": "sig" })),
        block(1, json!({ "type": "tool_use", "id": "t1", "name": "files_read", "input": {} })),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "{\"path\":" })),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "\"/a\"}" })),
    ];
    first.extend(stop("tool_use"));
    let mut second = vec![delta(0, json!({ "type": "text_delta", "text": "Empty." }))];
    second.extend(stop("end_turn"));
    let provider = ScriptedProvider::start([Reply::Events(first), Reply::Events(second)]).await;
    let server = ToolServer::start().await;
    let target = format!("anthropic:{}#claude", provider.url()).parse().unwrap();
    let settings = Model { max_rounds: 1, target, ..with_tools(&provider, &server) };
    let task = World::of(settings).await.harness.task("hi").await.unwrap();
    assert_eq!(told(&task).2, answer("Empty."));
    let asked = &provider.asked()[1].body;
    assert_eq!(asked["tool_choice"], json!({ "type": "none" }));
    assert_eq!(asked["tools"][0]["name"], "files_read");
    assert_eq!(
        asked["messages"],
        json!([
            { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hmm", "signature": "sig" },
                { "type": "tool_use", "id": "t1", "name": "files_read", "input": { "path": "/a" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "content": "read /a: done", "is_error": false },
                { "type": "text", "text": "No more tools can be called: the limit of 1 rounds of tools is reached. Answer with what is known." },
            ] },
        ])
    );
}

/// The calls of tools of a task that asks its caller go with the task, and so do those of a task whose time is over.
#[tokio::test]
async fn an_erased_task_leaves_no_calls_of_tools() {
    let asks = || calls(&[("files_write", r#"{"path":"/a"}"#)]);
    let provider = ScriptedProvider::start([asks(), asks(), says(&["ok"])]).await;
    let server = ToolServer::start().await;
    let settings = Model { approve: vec!["files.*".to_owned()], ..with_tools(&provider, &server) };
    let world = World::of(settings).await;
    let (ann, bob) = (world.harness.as_caller("ann"), world.harness.as_caller("bob"));
    let mut asked = Vec::new();
    for caller in [&ann, &bob] {
        let task = caller.task("hi").await.unwrap();
        assert_eq!(task.status.state, TaskState::InputRequired);
        asked.push(task);
    }
    let store = &world.factory.store;
    let kept = async || {
        let query = RecordQuery { kind: rounds::KIND.into(), limit: 9, ..RecordQuery::default() };
        let records = store.records(&query).await.unwrap();
        records.iter().map(|record| record.key.split('/').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    rounds::forget_orphans(&**store).await.unwrap();
    assert_eq!(kept().await.len(), 2, "both tasks still ask");
    world.harness.runtime.erase(None, &Caller::authenticated("ann")).await.unwrap();
    rounds::forget_orphans(&**store).await.unwrap();
    assert_eq!(kept().await, [asked[1].id.as_str()], "of ann nothing is left");
    let done = bob.task(in_task(&asked[1], Part::text("yes"))).await.unwrap();
    assert_eq!(told(&done).2, answer("ok"));
}
