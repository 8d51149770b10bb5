//! Refused calls are stored in the trail and counted, on every route.

use nuncio_hub::{NewApiKey, config::Cards};
use nuncio_protocol::{GetTaskRequest, Message, Part, SendMessageRequest, Version, op::Call};
use serde_json::{Value, json};

use crate::{
    Running,
    wire::{WIRES, Wire, get},
};

fn look() -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: "t".into(), ..Default::default() }))
}

fn send() -> Call {
    let message = Message::user("m", [Part::text("hello")]);
    Call::SendMessage(Box::new(SendMessageRequest { message, ..Default::default() }))
}

/// A key that may look at tasks of these agents, and nothing else; its id and its text.
async fn reader(hub: &Running, name: &str, agents: &[&str]) -> (String, String) {
    let agents = agents.iter().map(|&agent| agent.to_owned()).collect();
    let operations = Some(vec!["GetTask".to_owned()]);
    let new = NewApiKey { agents: Some(agents), operations, ..NewApiKey::named(name) };
    let (key, text) = hub.keyring.create(new).await.unwrap();
    (key.id, text.reveal().to_owned())
}

/// A row without its times.
fn said(row: &Value) -> Value {
    let fields = ["what", "count", "principal", "key", "agent", "operation"];
    fields.into_iter().map(|field| (field.to_owned(), row[field].clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_refused_an_agent_or_an_operation_is_written_down() {
    let far = Running::start(|_| {}).await;
    let hub = Running::before(&far, |_, _| {}).await;
    let mut expected = Vec::new();
    for (number, wire) in WIRES.into_iter().enumerate() {
        // The agent, what is asked of it, and what is written down: the last one is, so that all are by then.
        let mut cases = vec![
            ("none", look(), None),
            ("slow", look(), Some("agent-denied")),
            ("slow", send(), Some("agent-denied")),
            ("echo", look(), None),
            ("far", look(), None),
            ("far", send(), Some("operation-denied")),
            ("echo", send(), Some("operation-denied")),
        ];
        // It knows the default agent only.
        if wire == Wire::Grpc(Version::V0_3) {
            cases.retain(|(agent, ..)| *agent == "echo");
        }
        for (case, (agent, call, what)) in cases.into_iter().enumerate() {
            let name = format!("{number}-{case}");
            let (id, key) = reader(&hub, &name, &["echo", "far"]).await;
            let op = call.op();
            let answer = wire.call(&hub, agent, Some(&key), call).await.unwrap();
            assert!(!answer.is_ok(), "{wire:?} {agent} {op:?}: {}", answer.text());
            let is_agent = what == Some("agent-denied");
            expected.extend(what.map(|what| {
                json!({
                    "what": what, "count": 1, "principal": name, "agent": agent,
                    "key": is_agent.then_some(id), "operation": (!is_agent).then(|| op.name()),
                })
            }));
        }
    }
    let rows: Vec<_> = hub.trail(expected.len()).await.iter().map(said).collect();
    assert_eq!(rows, expected);
    for (reason, what) in [("agent_denied", "agent-denied"), ("operation_denied", "operation-denied")] {
        let count = expected.iter().filter(|row| row["what"] == what).count();
        assert_eq!(hub.denials(reason).await, count as u64, "{reason}");
    }
    assert_eq!(hub.denials("credentials_refused").await, 0);
}

/// Requests that are no calls are refused, too: cards, and requests to the default agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_for_an_agent_that_is_not_theirs_is_written_down() {
    let hub = Running::start(|config| config.identity.cards = Cards::Protected).await;
    let mut expected = Vec::new();
    for (number, (path, agent)) in [
        ("/agents", None),
        ("/agents?q=echo", None),
        ("/.well-known/ai-catalog.json", None),
        ("/agents/none/.well-known/agent-card.json", None),
        ("/agents/slow/.well-known/agent-card.json", None),
        ("/agents/echo/.well-known/agent-card.json", Some("echo")),
        ("/agents/echo/upstream-card", Some("echo")),
        ("/agents/echo/tasks", Some("echo")),
        ("/.well-known/agent-card.json", Some("echo")),
        ("/tasks", Some("echo")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("key-{number}");
        let (id, key) = reader(&hub, &name, &["slow"]).await;
        get(&hub, path, Some(&key)).await;
        expected.extend(agent.map(|agent| {
            json!({
                "what": "agent-denied", "count": 1, "principal": name, "key": id, "agent": agent,
                "operation": null,
            })
        }));
    }
    let rows: Vec<_> = hub.trail(expected.len()).await.iter().map(said).collect();
    assert_eq!(rows, expected);
    assert_eq!(hub.denials("agent_denied").await, expected.len() as u64);
}
