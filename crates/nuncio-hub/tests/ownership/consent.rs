//! Consent on every wire: a blocked caller gets the bytes of a declined one, and nobody else learns of a request.

use nuncio_hub::config::{Agent, AgentAccess, AgentOrigin, Demo};
use nuncio_protocol::{
    GetTaskRequest, Message, Part, SendMessageRequest, TaskId, Version,
    op::{Call, Op, Reply},
    pb, v03,
};
use serde_json::{Value, json};

use crate::{
    Running, TEST_TIMEOUT,
    wire::{Answer, WIRES, Wire},
};

const AGENT: &str = "shy";

async fn start() -> Running {
    Running::start(|config| {
        let mut agent = Agent::new(AGENT.parse().unwrap(), Demo::Echo.into(), AgentOrigin::File);
        agent.access = AgentAccess::Ask;
        config.agents.push(agent);
        // gRPC 0.3 cannot name another one.
        config.default_agent = Some(AGENT.to_owned());
    })
    .await
}

fn send() -> Call {
    let message = Message::user("m", [Part::text("hello")]);
    Call::SendMessage(Box::new(SendMessageRequest { message, ..Default::default() }))
}

fn look(id: &TaskId) -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: id.clone(), ..Default::default() }))
}

async fn begin(hub: &Running, key: &str) -> TaskId {
    let sent = Wire::Rest(Version::V1_0).call(hub, AGENT, Some(key), send()).await.unwrap();
    let json: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(json["task"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{}", sent.text());
    json["task"]["id"].as_str().unwrap().into()
}

async fn decide(hub: &Running, decision: &str, principal: &str) -> u16 {
    let request = hub.http.post(format!("{}/api/v1/access:{decision}", hub.admin)).bearer_auth(&hub.token);
    let caller = json!({ "agent": AGENT, "principal": principal }).to_string();
    request.body(caller).send().await.unwrap().status().as_u16()
}

/// The answer without ids and times, which differ between any two tasks. A message of gRPC is compared as its task.
fn comparable(wire: Wire, answer: &Answer) -> String {
    let value: Value = match wire {
        Wire::JsonRpc(_) | Wire::Rest(_) => serde_json::from_slice(&answer.body).unwrap(),
        Wire::Grpc(version) => {
            let codec = if version == Version::V1_0 { &pb::CODEC } else { &v03::pb::CODEC };
            let length = u32::from_be_bytes(answer.body[1..5].try_into().unwrap());
            let message = answer.body[5..5 + usize::try_from(length).unwrap()].to_vec();
            let reply = (codec.decode_reply)(Op::GetTask, message.into()).unwrap();
            let Reply::Task(task) = reply else { panic!("{}", answer.text()) };
            serde_json::to_value(&task).unwrap()
        }
    };
    let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| *name != "content-length").collect();
    format!("{} {headers:?} {}", answer.status, without_ids(value))
}

fn without_ids(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_own = |name: &str| name.ends_with("Id") || name == "id" || name == "timestamp";
            let left = members.into_iter().filter(|(name, _)| !is_own(name));
            Value::Object(left.map(|(name, value)| (name, without_ids(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_ids).collect()),
        other => other,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_caller_gets_the_bytes_of_a_declined_one() {
    let hub = start().await;
    let (ann, bob) = (hub.key("ann", None).await, hub.key("bob", None).await);
    let (declined, blocked) = (begin(&hub, &ann).await, begin(&hub, &bob).await);
    assert_eq!((decide(&hub, "decline", "ann").await, decide(&hub, "block", "bob").await), (200, 200));
    for wire in WIRES {
        let one = wire.call(&hub, AGENT, Some(&ann), look(&declined)).await.unwrap();
        let other = wire.call(&hub, AGENT, Some(&bob), look(&blocked)).await.unwrap();
        assert!(one.is_ok() && one.text().contains("declined"), "{wire:?}: {}", one.text());
        assert_eq!(comparable(wire, &one), comparable(wire, &other), "{wire:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_learns_of_a_request_but_its_caller_and_operators() {
    let hub = start().await;
    let (ann, bob) = (hub.key("ann", None).await, hub.key("bob", None).await);
    let elsewhere = hub.key("carol", Some(&["echo"])).await;
    let task = begin(&hub, &ann).await;
    for wire in WIRES {
        // Of the same length as the agent, so that the answers are comparable.
        let foreign = wire.call(&hub, AGENT, Some(&elsewhere), send()).await.unwrap();
        let unknown = wire.call(&hub, "xyz", Some(&elsewhere), send()).await.unwrap().renamed("xyz", AGENT);
        assert!(!foreign.is_ok(), "{wire:?}: {}", foreign.text());
        assert_eq!(foreign.text(), unknown.text(), "{wire:?}");
        let other = wire.call(&hub, AGENT, Some(&bob), look(&task)).await.unwrap();
        assert!(!other.is_ok() && !other.text().contains("consent"), "{wire:?}: {}", other.text());
    }
    let listed: Value = serde_json::from_str(&hub.told("/api/v1/access").await).unwrap();
    assert_eq!(listed["callers"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["callers"][0]["tasks"], json!([task.as_str()]));
    let metrics = hub.told("/metrics").await;
    assert!(metrics.contains("\nnuncio_access_requests 1\n"), "{metrics}");
    assert_eq!(decide(&hub, "accept", "bob").await, 200);
    assert_eq!(decide(&hub, "decline", "bob").await, 404);
    let written = async {
        loop {
            let rows = hub.trail(1).await;
            let has = |what: &str, principal: &str| {
                rows.iter().any(|row| row["what"] == what && row["principal"] == principal)
            };
            if has("access-requested", "ann") && has("access-accepted", "bob") {
                break;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, written).await.unwrap();
}

/// A hub that needs no credentials lets anybody call other agents, and not one that has to know its callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anonymous_caller_is_asked_for_credentials() {
    let hub = start().await;
    for wire in WIRES {
        let refused = wire.call(&hub, AGENT, None, send()).await.unwrap();
        match wire {
            Wire::JsonRpc(_) | Wire::Rest(_) => {
                assert_eq!(refused.status, 401, "{wire:?}: {}", refused.text())
            }
            Wire::Grpc(_) => {
                let code = refused.headers.get("grpc-status").map(Vec::as_slice);
                assert_eq!(code, Some(&b"16"[..]), "{}", refused.text());
            }
        }
        if wire != Wire::Grpc(Version::V0_3) {
            assert!(wire.call(&hub, "echo", None, send()).await.unwrap().is_ok(), "{wire:?}");
        }
    }
}
