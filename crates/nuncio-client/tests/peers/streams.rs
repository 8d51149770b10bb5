//! Calls that answer with a stream.

use nuncio_client::{
    Egress, RESUME_EXTENSION,
    protocol::{ErrorKind, Seq},
};
use serde_json::json;

use crate::peer::{
    Asked, Peer, Then, answer, builder, error, events, frame, result, seen, status, task, update,
};

fn start() -> String {
    frame(0, &json!({ "task": task("TASK_STATE_SUBMITTED") }))
}

fn done() -> String {
    frame(0, &update("TASK_STATE_COMPLETED"))
}

#[tokio::test]
async fn a_stream_however_it_is_written() {
    let all = "task:SUBMITTED WORKING COMPLETED";
    let working = frame(0, &update("TASK_STATE_WORKING"));
    for (text, expected) in [
        (format!("{}{working}{}", start(), done()), all),
        // A BOM, comments, CRLF, names, lines of their own, no space after the colon.
        (format!("\u{feff}: hello\n\n{}event: x\n{working}: ping\n\n{}", start(), done()), all),
        (format!("{}{working}{}", start(), done()).replace('\n', "\r\n"), all),
        (format!("{}{working}{}", start(), done()).replace("data: {", "data:\ndata:{"), all),
        (frame(0, &json!({ "message": { "messageId": "m", "parts": [{ "text": "hi" }] } })), "hi"),
    ] {
        let peer = Peer::agent(&[], move |_| events(text.clone(), Then::End)).await;
        assert_eq!(seen(peer.client().await.stream("hello").await).await, expected);
        let asked = &peer.asked("/rpc")[0];
        assert_eq!(asked.body["method"], "SendStreamingMessage");
        assert_eq!(asked.header("accept"), Some("text/event-stream, application/json"));
    }
}

#[tokio::test]
async fn a_cut_stream_goes_on_after_the_last_event() {
    let script = |asked: &Asked| match asked.before {
        0 => {
            let text = frame(1, &json!({ "task": task("TASK_STATE_SUBMITTED") }))
                + &frame(2, &update("TASK_STATE_WORKING"))
                + "id: 3\ndata: {\"half";
            events(text, Then::Break)
        }
        1 => status(503, &[("retry-after", "0")]),
        _ => events(
            frame(3, &update("TASK_STATE_WORKING")) + &frame(4, &update("TASK_STATE_COMPLETED")),
            Then::End,
        ),
    };
    let peer = Peer::agent(&[RESUME_EXTENSION], script).await;
    let stream = peer.client().await.stream("hello").await;
    assert_eq!(seen(stream).await, "1=task:SUBMITTED 2=WORKING 3=WORKING 4=COMPLETED");
    assert_eq!(peer.methods(), ["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"]);
    let asked = &peer.asked("/rpc")[2];
    assert_eq!(asked.body["params"]["id"], "t-1");
    assert_eq!(asked.header("last-event-id"), Some("2"));
    assert_eq!(asked.header("idempotency-key"), None);
}

#[tokio::test]
async fn without_the_extension_a_snapshot_fills_the_gap() {
    let peer = Peer::agent(&[], |asked| match asked.before {
        0 => events(frame(1, &json!({ "task": task("TASK_STATE_SUBMITTED") })), Then::Break),
        _ => events(frame(0, &json!({ "task": task("TASK_STATE_WORKING") })) + &done(), Then::End),
    })
    .await;
    let stream = peer.client().await.stream("hello").await;
    assert_eq!(seen(stream).await, "1=task:SUBMITTED task:WORKING COMPLETED");
    assert_eq!(peer.asked("/rpc")[1].header("last-event-id"), None);
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_is_fetched() {
    let peer = Peer::agent(&[], |asked| match asked.body["method"].as_str().unwrap() {
        "SendStreamingMessage" => events(start(), Then::Break),
        "SubscribeToTask" => error(asked, -32004, "the task has ended"),
        _ => result(asked, &task("TASK_STATE_FAILED")),
    })
    .await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:SUBMITTED task:FAILED");
    assert_eq!(peer.methods(), ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn a_message_is_sent_again_only_under_its_key() {
    let script = |asked: &Asked| match asked.before {
        0 => events(": hello\n\n".to_owned(), Then::Break),
        _ => events(start() + &done(), Then::End),
    };
    let peer = Peer::agent(&[], script).await;
    let text = seen(peer.client().await.stream("hello").await).await;
    assert!(text.starts_with("Unavailable") && text.ends_with("it is not sent again"), "{text}");
    assert_eq!(peer.methods(), ["SendStreamingMessage"]);

    let peer = Peer::agent(&[RESUME_EXTENSION], script).await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:SUBMITTED COMPLETED");
    let keys: Vec<_> =
        peer.asked("/rpc").iter().map(|asked| asked.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
}

#[tokio::test]
async fn a_caller_may_resume_as_well() {
    let peer = Peer::agent(&[RESUME_EXTENSION], |_| events(done(), Then::End)).await;
    assert_eq!(seen(peer.client().await.subscribe_after("t-1", Seq(41)).await).await, "COMPLETED");
    let asked = &peer.asked("/rpc")[0];
    assert_eq!((asked.header("last-event-id"), &asked.body["params"]["id"]), (Some("41"), &json!("t-1")));
}

#[tokio::test]
async fn errors_before_and_within_a_stream() {
    let peer = Peer::agent(&[], |asked| error(asked, -32004, "no streams here")).await;
    let text = seen(peer.client().await.stream("hello").await).await;
    assert_eq!(text, "refused UnsupportedOperation: no streams here");

    let peer = Peer::agent(&[RESUME_EXTENSION], |_| {
        let error = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "sorry" } });
        events(format!("{}event: error\ndata: {error}\n\n{}", start(), done()), Then::End)
    })
    .await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:SUBMITTED Internal: sorry");
    assert_eq!(peer.methods(), ["SendStreamingMessage"]);
}

#[tokio::test]
async fn a_plain_answer_is_the_only_event() {
    let peer =
        Peer::agent(&[], |asked| result(asked, &json!({ "task": task("TASK_STATE_COMPLETED") }))).await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:COMPLETED");
}

#[tokio::test]
async fn what_is_no_stream_is_not_read() {
    let peer = Peer::agent(&[], |_| {
        let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("<p>"));
        answer(200, &[("content-type", "text/html")], axum::body::Body::from_stream(endless))
    })
    .await;
    let error = peer.client().await.stream("hello").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
    assert!(error.message().contains("got text/html"), "{error}");
}

#[tokio::test]
async fn hostile_streams_are_cut_off() {
    for (text, why) in [
        ("x".repeat(1000), "an endless line"),
        (format!("\u{feff}{}", "x".repeat(1000)), "an endless line after a BOM"),
        ("data: 0123456789\n".to_owned(), "an endless event"),
        ("data: \"\u{e4}\n\n".to_owned(), "no JSON"),
        (frame(0, &json!({ "neither": 1 })), "no event"),
    ] {
        let peer = Peer::agent(&[RESUME_EXTENSION], move |_| events(text.clone(), Then::Repeat)).await;
        let egress = Egress::operator().unwrap().with_max_event(10_000);
        let client = builder().egress(egress).connect(&peer.base).await.unwrap();
        let text = seen(client.stream("hello").await).await;
        assert!(text.starts_with("InvalidAgentResponse"), "{why}: {text}");
        assert_eq!(peer.methods().len(), 1, "{why}: there is no use in asking again");
    }
}
