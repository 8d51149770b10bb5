//! Interceptors around the calls of a client: what they add goes out, and they are passed once per call.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use nuncio_client::{
    RESUME_EXTENSION,
    protocol::{
        CallContext, Error, ErrorKind, Event, GetTaskRequest, Interceptor, Next, Result,
        op::{Call, Op, Reply},
    },
};
use serde_json::json;

use crate::peer::{
    Asked, Peer, Then, builder, card, events, frame, json_answer, result, status, task, update,
};

/// Counts calls, and gives each its number in a header and on everything that comes back.
#[derive(Clone, Default)]
struct Numbering(Arc<AtomicUsize>);

#[async_trait]
impl Interceptor for Numbering {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        cx.headers.set("x-number", number.to_string());
        let reply = next.run(cx, call).await?;
        Ok(reply.map_metadata(move |metadata| metadata.insert("number", number)))
    }
}

/// Refuses to cancel, and says in a header that it let a call pass, and after whom.
struct NoCancel;

#[async_trait]
impl Interceptor for NoCancel {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        if call.op() == Op::CancelTask {
            return Err(Error::new(ErrorKind::PermissionDenied, "not from here"));
        }
        let passed = cx.headers.iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
        cx.headers.set("x-passed", passed);
        next.run(cx, call).await
    }
}

fn header<'a>(asked: &'a [Asked], name: &str) -> Vec<&'a str> {
    asked.iter().map(|asked| asked.header(name).unwrap_or("-")).collect()
}

#[tokio::test]
async fn an_interceptor_is_passed_once_however_often_a_call_is_tried() {
    // Twice too busy, then fine; the second call is fine at once.
    let peer = Peer::agent(&[], |asked| match asked.before {
        0 | 1 => status(503, &[("retry-after", "0")]),
        _ => result(asked, &task("TASK_STATE_WORKING")),
    })
    .await;
    let numbering = Numbering::default();
    let client = builder().interceptor(numbering.clone()).connect(&peer.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().metadata.get("number").unwrap(), json!(1));
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    let again = client.service().get_task(&client.context(), req).await.unwrap();
    assert_eq!(
        again.metadata.get("number").unwrap(),
        json!(2),
        "whoever takes the service takes the interceptors"
    );
    assert_eq!(numbering.0.load(Ordering::SeqCst), 2);
    assert_eq!(header(&peer.asked("/rpc"), "x-number"), ["1", "1", "1", "2"]);
    assert_eq!(header(&peer.asked("/.well-known/agent-card.json"), "x-number"), ["-"], "a card is no call");
}

#[tokio::test]
async fn a_stream_that_resumes_is_one_call() {
    let peer = Peer::agent(&[RESUME_EXTENSION], |asked| match asked.before {
        0 => events(frame(1, &json!({ "task": task("TASK_STATE_SUBMITTED") })), Then::Break),
        _ => events(frame(2, &update("TASK_STATE_COMPLETED")), Then::End),
    })
    .await;
    let numbering = Numbering::default();
    let client = builder().interceptor(numbering.clone()).connect(&peer.base).await.unwrap();
    let items: Vec<_> = client.stream("hello").await.unwrap().collect().await;
    let numbers: Vec<_> = items
        .into_iter()
        .map(|item| {
            let item = item.unwrap();
            (item.seq().unwrap().0, Event::clone(item.event()).metadata_mut().get("number").unwrap())
        })
        .collect();
    assert_eq!(numbers, [(1, 1.into()), (2, 1.into())]);
    assert_eq!(numbering.0.load(Ordering::SeqCst), 1);
    assert_eq!(header(&peer.asked("/rpc"), "x-number"), ["1", "1"]);
    assert_eq!(peer.methods(), ["SendStreamingMessage", "SubscribeToTask"]);
}

#[tokio::test]
async fn the_first_interceptor_is_the_outermost_and_a_refusal_never_goes_out() {
    let peer = Peer::agent(&[], |asked| result(asked, &task("TASK_STATE_WORKING"))).await;
    let numbering = Numbering::default();
    let client =
        builder().interceptor(numbering.clone()).interceptor(NoCancel).connect(&peer.base).await.unwrap();
    let error = client.cancel("t-1").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::PermissionDenied, "not from here"));
    client.get("t-1").await.unwrap();
    assert_eq!(peer.methods(), ["GetTask"]);
    assert_eq!(header(&peer.asked("/rpc"), "x-passed"), ["x-number"]);
    assert_eq!(numbering.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn headers_of_a_call_do_not_follow_a_card_to_another_origin() {
    let agent = Peer::start(|asked| result(asked, &task("TASK_STATE_WORKING"))).await;
    let elsewhere = agent.base.clone();
    let directory = Peer::start(move |_| json_answer(&card(&elsewhere, &[]))).await;
    let client = builder().interceptor(Numbering::default()).connect(&directory.base).await.unwrap();
    client.get("t-1").await.unwrap();
    let client = builder().interceptor(Numbering::default()).allow_origin(&agent.base);
    client.connect(&directory.base).await.unwrap().get("t-1").await.unwrap();
    assert_eq!(header(&agent.asked("/rpc"), "x-number"), ["-", "1"]);
}

#[tokio::test]
async fn a_header_that_is_none_is_told_before_anything_goes_out() {
    let peer = Peer::agent(&[], |asked| result(asked, &task("TASK_STATE_WORKING"))).await;
    let client = peer.client().await;
    let mut cx = client.context();
    cx.headers.set("no name", "v");
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    let error = client.service().get_task(&cx, req).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert!(error.message().contains("\"no name\" is not a valid header name"), "{error}");
    assert!(peer.asked("/rpc").is_empty());
}
