//! Limits as people write them into the file, as callers see them on every wire.

use std::{fs, pin::pin, time::Instant};

use nuncio_hub::config::{Config, Source, Variables};
use nuncio_protocol::{
    CancelTaskRequest, Message, Part, SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
    op::{Call, Op},
};
use serde_json::Value;

use crate::{
    Running, TEST_TIMEOUT, file,
    refusals::{check, header},
    wire::{Answer, WIRES, Wire},
};

/// A hub by what this file says.
async fn serve(text: &str) -> Running {
    let path = file("nuncio.toml");
    fs::write(&path, format!("listen = \"127.0.0.1:0\"\ndemo = true\ndefault_agent = \"echo\"\n{text}"))
        .unwrap();
    let source = Source { file: Some(path), variables: Variables::of(&[]), ..Source::default() };
    let loaded = source.load().unwrap_or_else(|problems| panic!("{problems}")).config;
    Running::start(|config| {
        let (data, drain_grace) = (config.data.clone(), config.drain_grace);
        *config = Config { data, drain_grace, ..loaded };
    })
    .await
}

/// The limits of a file: for each caller, and for all callers of an agent, durable or proxied.
const PLACES: [(&str, &str); 3] = [
    ("echo", "[limits]\nLIMIT\n[agents.far]\nurl = \"URL\""),
    ("far", "[agents.far]\nurl = \"URL\"\nlimits = { LIMIT }"),
    ("far", "[agents.far]\nurl = \"URL\"\nmode = \"proxy\"\nlimits = { LIMIT }"),
];

async fn limited(far: &Running, place: &str, limit: &str) -> Running {
    serve(&place.replace("LIMIT", limit).replace("URL", &format!("{}/agents/echo", far.url))).await
}

/// Those by which this agent can be called: the older gRPC has no name for it.
fn wires(agent: &str) -> impl Iterator<Item = Wire> {
    let has_name = agent == "echo";
    WIRES.into_iter().filter(move |wire| has_name || *wire != Wire::Grpc(Version::V0_3))
}

fn send(op: Op, parts: Vec<Part>) -> Call {
    let request = Box::new(SendMessageRequest { message: Message::user("m", parts), ..Default::default() });
    match op {
        Op::SendMessage => Call::SendMessage(request),
        _ => Call::SendStreamingMessage(request),
    }
}

fn say(op: Op, text: &str) -> Call {
    send(op, vec![Part::text(text)])
}

/// Follows this task, where there is one.
fn follow(task: Option<&TaskId>) -> Call {
    let id = task.cloned().unwrap_or_else(|| "none".into());
    Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id, ..Default::default() }))
}

/// The tasks that an agent has begun for this caller: how many, and the last of them.
async fn tasks(hub: &Running, key: Option<&str>) -> (u64, Option<TaskId>) {
    let list = Call::ListTasks(Box::default());
    let answer = Wire::Rest(Version::V1_0).call(hub, "echo", key, list).await.unwrap();
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    let count = json["totalSize"].as_u64().unwrap_or_else(|| panic!("{}", answer.text()));
    (count, json["tasks"][0]["id"].as_str().map(Into::into))
}

fn exhausted(wire: Wire, answer: &Answer) {
    check(wire, answer, 429, -32052, "RESOURCE_EXHAUSTED", "8");
    assert_eq!(header(answer, "retry-after"), "1", "{wire:?}");
}

/// A call in progress, and a second one that is refused until the first has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_much_at_a_time_and_no_more() {
    let far = Running::start(|_| {}).await;
    for (agent, place) in PLACES {
        for (limit, first, then) in [
            ("tasks = 1", Op::SendMessage, Op::SendMessage),
            ("tasks = 1", Op::SendStreamingMessage, Op::SendMessage),
            ("streams = 1", Op::SendStreamingMessage, Op::SendStreamingMessage),
            ("streams = 1", Op::SendStreamingMessage, Op::SubscribeToTask),
        ] {
            let hub = limited(&far, place, limit).await;
            let other = hub.key("other", None).await;
            for (number, wire) in wires(agent).enumerate() {
                let case = format!("{place} {limit} {first:?} {then:?} {wire:?}");
                let key = hub.key(&format!("team-{number}"), None).await;
                let ask = async |key: &str, task: Option<&TaskId>| {
                    let call = if then == Op::SubscribeToTask { follow(task) } else { say(then, "hello") };
                    wire.call(&hub, agent, Some(key), call).await.unwrap()
                };
                // Whoever does the work knows of it.
                let worker = if agent == "echo" { (&hub, Some(&*key)) } else { (&far, None) };
                let (before, _) = tasks(worker.0, worker.1).await;
                let deadline = Instant::now() + TEST_TIMEOUT;
                let (mut held, task) = loop {
                    let mut held = Box::pin(wire.call(&hub, agent, Some(&key), say(first, "hold")));
                    let begun = async {
                        loop {
                            let (now, task) = tasks(worker.0, worker.1).await;
                            if now > before {
                                return task;
                            }
                            assert!(Instant::now() < deadline, "{case}: it does not begin");
                        }
                    };
                    let begun = tokio::select! {
                        answer = &mut held => Err(answer.unwrap().text().to_owned()),
                        task = pin!(begun) => Ok(task),
                    };
                    match begun {
                        Ok(task) => break (held, task),
                        // A stream gives its place back a moment after its caller has seen its end, and all callers of
                        // an agent share its places: the last stream of the wire before may still count.
                        Err(text) => {
                            assert!(text.contains("too many") && Instant::now() < deadline, "{case}: {text}");
                        }
                    }
                };
                let refused = async {
                    exhausted(wire, &ask(&key, task.as_ref()).await);
                    let answer = ask(&other, None).await;
                    // All callers of an agent are one to its limits; else each is on its own.
                    if agent == "echo" {
                        assert!(!answer.text().contains("too many"), "{case}: {}", answer.text());
                    } else {
                        exhausted(wire, &answer);
                    }
                };
                tokio::select! {
                    answer = &mut held => panic!("{case}: {}", answer.unwrap().text()),
                    () = pin!(refused) => {}
                }
                drop(held);
                // Its place is free when the hub has seen that it left: soon.
                let deadline = Instant::now() + TEST_TIMEOUT;
                while ask(&key, None).await.text().contains("too many") {
                    assert!(Instant::now() < deadline, "{case}: it still counts");
                }
            }
        }
    }
}

/// Tasks that go on in the background count until they have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_unfinished_tasks_and_no_more() {
    let hub = serve("[limits]\nunfinished_tasks = 2").await;
    let other = hub.key("other", None).await;
    for (number, wire) in WIRES.into_iter().enumerate() {
        let key = hub.key(&format!("team-{number}"), None).await;
        let hold = || match say(Op::SendMessage, "hold") {
            Call::SendMessage(mut request) => {
                request.configuration.get_or_insert_default().return_immediately = true;
                Call::SendMessage(request)
            }
            call => call,
        };
        for _ in 0..2 {
            let answer = wire.call(&hub, "echo", Some(&key), hold()).await.unwrap();
            assert!(answer.is_ok(), "{wire:?}: {}", answer.text());
        }
        for call in [hold(), say(Op::SendMessage, "hello"), say(Op::SendStreamingMessage, "hello")] {
            exhausted(wire, &wire.call(&hub, "echo", Some(&key), call).await.unwrap());
        }
        let answer = wire.call(&hub, "echo", Some(&other), say(Op::SendMessage, "hello")).await.unwrap();
        assert!(answer.is_ok(), "{wire:?}: others are not concerned: {}", answer.text());
        let (_, task) = tasks(&hub, Some(&key)).await;
        let cancel = CancelTaskRequest { id: task.unwrap(), ..Default::default() };
        let canceled = wire.call(&hub, "echo", Some(&key), Call::CancelTask(Box::new(cancel))).await.unwrap();
        assert!(canceled.is_ok(), "{wire:?}: {}", canceled.text());
        let answer = wire.call(&hub, "echo", Some(&key), say(Op::SendMessage, "hello")).await.unwrap();
        assert!(answer.is_ok(), "{wire:?}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_large_and_no_larger() {
    let far = Running::start(|_| {}).await;
    for (agent, place) in PLACES {
        let hub = limited(&far, place, "body_bytes = 2000").await;
        for wire in wires(agent) {
            let fits = wire.call(&hub, agent, None, say(Op::SendMessage, &"x".repeat(1000))).await.unwrap();
            assert!(fits.is_ok(), "{place} {wire:?}: {}", fits.text());
            for op in [Op::SendMessage, Op::SendStreamingMessage] {
                let answer = wire.call(&hub, agent, None, say(op, &"x".repeat(2001))).await.unwrap();
                check(wire, &answer, 413, -32054, "RESOURCE_EXHAUSTED", "8");
                assert!(answer.text().replace("%20", " ").contains("larger than 2000 bytes"), "{wire:?}");
            }
        }
    }
}

/// An agent that keeps its own tasks counts for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_parts_and_no_more() {
    let far = Running::start(|_| {}).await;
    for (agent, place) in &PLACES[..2] {
        let hub = limited(&far, place, "parts = 2").await;
        let parts = |count| vec![Part::text("x"); count];
        for wire in wires(agent) {
            let fits = wire.call(&hub, agent, None, send(Op::SendMessage, parts(2))).await.unwrap();
            assert!(fits.is_ok(), "{place} {wire:?}: {}", fits.text());
            for op in [Op::SendMessage, Op::SendStreamingMessage] {
                let answer = wire.call(&hub, agent, None, send(op, parts(3))).await.unwrap();
                let http = match wire {
                    Wire::JsonRpc(_) => 200,
                    Wire::Rest(Version::V0_3) => 422,
                    Wire::Rest(_) | Wire::Grpc(_) => 400,
                };
                check(wire, &answer, http, -32602, "INVALID_ARGUMENT", "3");
            }
        }
    }
}
