//! Large answers: written piece by piece, out of a memory that all of them share until they are written.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{body::Body, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
#[cfg(feature = "grpc")]
use nuncio_server::protocol::{
    GetTaskRequest, SubscribeToTaskRequest,
    op::{Call, Op, Reply},
    pb,
};
use nuncio_server::{
    MemoryAccount, MemoryUse,
    bind::{Agent, BindOptions, Relay, SealedCall},
    protocol::{Artifact, CallContext, Part, Result, Task, TaskState},
    testing::{Harness, ScriptedExecutor},
};
use serde_json::{Value, json};

use crate::{Answer, V1, Wire, post, request, write};

const MIB: usize = 1024 * 1024;

/// An agent with a task of about 3 MiB in a hundred pieces, and another that is small.
async fn agent(memory: usize) -> (Wire, Task, Task) {
    let executor = ScriptedExecutor::new(|cx, out| async move {
        let pieces = if cx.text() == "small" { 1 } else { 100 };
        for _ in 0..pieces {
            let part = Part::text("x\"".repeat(15 * 1024)).with_filename("a \"parts\":[ b");
            out.chunk(Artifact::new("a", part).with_name("\"parts\":["), true, false).await?;
        }
        if cx.text() == "hang" {
            std::future::pending::<()>().await;
        }
        out.completed().await.map(drop)
    });
    let harness = Harness::new(executor);
    let (large, small) = (harness.task("large").await.unwrap(), harness.task("small").await.unwrap());
    let wire = Wire::of(harness, "", |options| options.memory = MemoryAccount::new(memory));
    (wire, large, small)
}

fn rpc(method: &str, params: &Value) -> Request<Body> {
    let body = json!({ "jsonrpc": "2.0", "id": "r \"1\"", "method": method, "params": params });
    post("/", V1, &body.to_string())
}

/// The ways to ask for the large task: what is asked, and where the task is in the answer.
fn ways(task: &Task) -> Vec<(Request<Body>, &'static str)> {
    let id = task.id.as_str();
    vec![
        (rpc("GetTask", &json!({ "id": id })), "/result"),
        (rpc("ListTasks", &json!({ "includeArtifacts": true })), "/result/tasks/1"),
        (request("GET", &format!("/tasks/{id}"), V1, ""), ""),
        (request("GET", "/tasks?includeArtifacts=true", V1, ""), "/tasks/1"),
    ]
}

async fn pieces(response: Response) -> usize {
    let (mut body, mut pieces) = (response.into_body(), 0);
    while body.frame().await.is_some() {
        pieces += 1;
    }
    pieces
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_is_what_it_would_be_and_comes_in_pieces() {
    let (wire, large, _) = agent(64 * MIB).await;
    for (ask, place) in ways(&large) {
        let answer = Answer::read(wire.request(ask).await).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.json().pointer(place), Some(&json!(large)), "{place}");
        if let Some(id) = answer.json().get("id").filter(|_| place.starts_with("/result")) {
            assert_eq!(id, "r \"1\"");
        }
    }
    for (ask, place) in ways(&large) {
        assert!(pieces(wire.request(ask).await).await > 10, "{place}: not all at once");
    }
}

/// Sixty answers that nobody read took eleven gigabytes.
#[tokio::test(start_paused = true)]
async fn answers_that_are_not_read_leave_no_memory_for_others_and_small_ones_go_out() {
    let (wire, large, small) = agent(4 * MIB).await;
    let unread = ways(&large).into_iter().map(|(ask, _)| ask).next().unwrap();
    let unread = wire.request(unread).await;
    for (ask, place) in ways(&large) {
        let refused = Answer::read(wire.request(ask).await).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{place}");
        assert!(refused.header("retry-after").is_some(), "{place}");
        assert!(refused.text.contains("short of memory"), "{place}: {}", refused.text);
    }
    let answer = wire.ask("GET", &format!("/tasks/{}", small.id), V1, "").await;
    assert_eq!(answer.json(), json!(small), "whatever others do");
    // Whoever waits has its turn when one is read to its end, or given up.
    let ask = ways(&large).swap_remove(2).0;
    let (waits, read) = tokio::join!(wire.request(ask), async {
        tokio::task::yield_now().await;
        drop(unread);
    });
    let () = read;
    assert_eq!(Answer::read(waits).await.json(), json!(large));
    for (ask, _) in ways(&large) {
        assert_eq!(
            Answer::read(wire.request(ask).await).await.status,
            StatusCode::OK,
            "given back each time"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_event_of_a_stream_waits_for_memory_as_well() {
    let (wire, large, _) = agent(4 * MIB).await;
    let task = wire.harness.begin("hang").await.unwrap();
    wire.harness.until(&task.id, TaskState::Submitted).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let subscribe = || request("GET", &format!("/tasks/{}:subscribe", task.id), V1, "");
    let unread = wire.request(request("GET", &format!("/tasks/{}", large.id), V1, "")).await;
    let frames = Answer::read(wire.request(subscribe()).await).await.frames();
    assert_eq!(frames.len(), 1, "it ends, and may be resumed");
    assert_eq!(frames[0].1["error"]["status"], "RESOURCE_EXHAUSTED", "{}", frames[0].1);
    drop(unread);
    for _ in 0..2 {
        let mut body = wire.request(subscribe()).await.into_body();
        let first = write(&mut body).await.unwrap();
        assert!(first.len() > 3 * MIB && first.contains(task.id.as_str()), "{} bytes", first.len());
    }
}

#[cfg(feature = "grpc")]
#[tokio::test(start_paused = true)]
async fn over_grpc_an_answer_is_one_message_and_counts_like_the_others() {
    let (wire, large, _) = agent(8 * MIB).await;
    let get = GetTaskRequest { id: large.id.clone(), ..GetTaskRequest::default() };
    let call = Call::GetTask(Box::new(get));
    let body = || crate::grpc::frame(&crate::grpc::encode(&pb::CODEC, &call));
    let path = crate::grpc::path(&pb::CODEC, Op::GetTask);
    let unread = wire.request(crate::grpc::request(&path, &[], body())).await;
    let refused = wire.call_grpc(&pb::CODEC, &[], &call).await;
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    drop(unread);
    for _ in 0..3 {
        let Reply::Task(task) = wire.call_grpc(&pb::CODEC, &[], &call).await.reply(&pb::CODEC, Op::GetTask)
        else {
            panic!("no task");
        };
        assert_eq!(task, large);
    }
}

#[cfg(feature = "grpc")]
#[tokio::test(start_paused = true)]
async fn over_grpc_a_large_event_of_a_stream_waits_for_memory_as_well() {
    let (wire, large, _) = agent(12 * MIB).await;
    let task = wire.harness.begin("hang").await.unwrap();
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let get = Call::GetTask(Box::new(GetTaskRequest { id: large.id.clone(), ..GetTaskRequest::default() }));
    let subscribe = SubscribeToTaskRequest { id: task.id.clone(), ..SubscribeToTaskRequest::default() };
    let subscribe = Call::SubscribeToTask(Box::new(subscribe));
    let ask = |call: &Call| {
        let body = crate::grpc::frame(&crate::grpc::encode(&pb::CODEC, call));
        crate::grpc::request(&crate::grpc::path(&pb::CODEC, call.op()), &[], body)
    };
    let unread = wire.request(ask(&get)).await;
    let mut body = wire.request(ask(&subscribe)).await.into_body();
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "8", "it ends, and may be resumed");
    drop(unread);
    let mut body = wire.request(ask(&subscribe)).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.len() > 2 * MIB, "{} bytes", first.len());
    let refused = wire.call_grpc(&pb::CODEC, &[], &get).await;
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "the event is not written yet");
    drop(body);
    assert_eq!(wire.call_grpc(&pb::CODEC, &[], &get).await.code(), tonic::Code::Ok);
}

/// An agent that answers every call with so many bytes.
struct Answers(usize);

#[async_trait]
impl Relay for Answers {
    async fn relay(&self, _: &CallContext, _: SealedCall<'_>) -> Option<Result<Response>> {
        Some(Ok(Response::new(Body::from(vec![b' '; self.0]))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_relayed_answer_counts_until_it_is_written() {
    let memory = MemoryAccount::new(4 * MIB);
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let options = BindOptions { memory: memory.clone(), ..BindOptions::default() };
    let agent = |bytes| {
        let service = Arc::new(harness.runtime.clone());
        Agent::relayed(service, Arc::new(Answers(bytes)), &harness.runtime.card(), options.clone()).unwrap()
    };
    let (large, small) = (agent(2 * MIB), agent(1024));
    let ask = || rpc("GetTask", &json!({ "id": "a" }));
    let unread = large.serve("", ask()).await;
    assert_eq!(memory.usage(MemoryUse::Responses).used, 2 * MIB);
    assert_eq!(large.serve("", ask()).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(small.serve("", ask()).await.status(), StatusCode::OK);
    drop(unread);
    assert_eq!(memory.usage(MemoryUse::Responses).used, 0);
    assert_eq!(large.serve("", ask()).await.status(), StatusCode::OK);
}
