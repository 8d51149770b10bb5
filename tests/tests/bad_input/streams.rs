//! HTTP/2 streams that end where they should not. Whatever is reset, the task goes on (invariant 7), and so
//! does everybody else's stream.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use h2::Reason;
use nuncio_protocol::{
    Event, GetTaskRequest, Message, Part, SendMessageRequest, SubscribeToTaskRequest, TaskState, Version,
    op::{Call, Op, Reply},
    pb::Codec,
};
use nuncio_server::bind::BindOptions;
use nuncio_tests::{
    eventually,
    http2::{Http2, Incoming, encode, frame, rpc},
    within,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    VERSIONS, Victim, send,
    ways::{codec, prefix},
};

fn say(script: &str) -> SendMessageRequest {
    SendMessageRequest { message: Message::user("m", Part::text(script)), ..SendMessageRequest::default() }
}

/// Begins a stream and gives the id of its task.
async fn begin(connection: &mut Http2, codec: &Codec, script: &str) -> (Incoming, String) {
    let call = Call::SendStreamingMessage(say(script).into());
    let mut stream =
        connection.begin(&rpc(codec, Op::SendStreamingMessage), &[], frame(&encode(codec, &call))).await;
    let first = stream.message().await.unwrap();
    let Event::Task(task) = (codec.decode_event)(first).unwrap() else { panic!("the task comes first") };
    (stream, task.id.as_str().to_owned())
}

/// The state of a task.
async fn state(connection: &mut Http2, codec: &Codec, id: &str) -> TaskState {
    let get = GetTaskRequest { id: id.into(), ..GetTaskRequest::default() };
    let outcome = connection.call(codec, &[], &Call::GetTask(get.into())).await;
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    let Reply::Task(task) = (codec.decode_reply)(Op::GetTask, outcome.messages[0].clone()).unwrap() else {
        panic!("expected a task");
    };
    task.status.state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_reset_halfway_means_nothing() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        let body = frame(&encode(codec, &Call::SendMessage(say("completed").into())));
        let mut connection = victim.http2().await;
        for reason in [Reason::CANCEL, Reason::NO_ERROR, Reason::INTERNAL_ERROR, Reason::REFUSED_STREAM] {
            for sent in [0, 1, 5, body.len() - 1] {
                let (response, mut stream) = connection.open(&rpc(codec, Op::SendMessage), &[]).await;
                stream.send_data(Bytes::copy_from_slice(&body[..sent]), false).unwrap();
                stream.send_reset(reason);
                assert!(within("the end of the stream", response).await.is_err());
            }
        }
        // On the same connection.
        let outcome = connection.call(codec, &[], &Call::SendMessage(say("completed").into())).await;
        assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    }
    let list = victim.result(Version::V1_0, Op::ListTasks, "{}").await;
    assert_eq!(list["totalSize"], VERSIONS.len(), "no task was made by halves");
    victim.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_reset_stops_nothing() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        let (mut connection, mut other) = (victim.http2().await, victim.http2().await);
        let gate = format!("reset in {version}");
        let (stream, id) = begin(&mut connection, codec, &format!("working; wait {gate}; completed")).await;
        let follow = SubscribeToTaskRequest { id: id.as_str().into(), tenant: None };
        let follow = encode(codec, &Call::SubscribeToTask(follow.into()));
        let mut watch = other.begin(&rpc(codec, Op::SubscribeToTask), &[], frame(&follow)).await;
        assert!(watch.message().await.is_some());
        // Dropping it resets it.
        drop(stream);
        assert_eq!(state(&mut connection, codec, &id).await, TaskState::Working, "on the same connection");
        victim.gates.open(&gate);
        let outcome = watch.finish().await;
        assert_eq!(outcome.code(), Some(0), "{outcome:?}");
        let last = outcome.events(codec).pop().unwrap();
        let Event::StatusUpdate(update) = last else { panic!("expected a status, got {last:?}") };
        assert_eq!(update.status.state, TaskState::Completed, "nothing is lost to those who stay");
        assert_eq!(state(&mut connection, codec, &id).await, TaskState::Completed);
    }
    victim.still_works().await;
}

/// CVE-2023-44487: more streams than anybody means, each reset at once.
#[tokio::test(flavor = "multi_thread")]
async fn many_resets_at_once_hurt_nobody_else() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let codec = codec(version);
        let mut honest = victim.http2().await;
        let gate = format!("flood in {version}");
        let (stream, id) = begin(&mut honest, codec, &format!("working; wait {gate}; completed")).await;
        for _ in 0..4 {
            let connection = victim.http2().await;
            let uri = format!("http://{}{}", victim.server.address, rpc(codec, Op::SendStreamingMessage));
            for _ in 0..2000 {
                // The server may have had enough before we have.
                let ready = within("room for a stream", connection.sender.clone().ready()).await;
                let Ok(mut sender) = ready else { break };
                let request = http::Request::post(&uri).header("content-type", "application/grpc");
                let Ok((_, mut stream)) = sender.send_request(request.body(()).unwrap(), false) else {
                    break;
                };
                stream.send_reset(Reason::CANCEL);
            }
        }
        assert_eq!(state(&mut honest, codec, &id).await, TaskState::Working);
        victim.gates.open(&gate);
        assert_eq!(stream.finish().await.code(), Some(0));
        assert_eq!(state(&mut honest, codec, &id).await, TaskState::Completed);
    }
    victim.still_works().await;
}

/// Connections that are cut in mid-request and in mid-answer, in either version of HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_stops_nothing() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let path = format!("/{}message:send", prefix(version));
        let body = send(version, "completed");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: {version}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let whole = format!("{head}{body}");
        for length in [1, 20, head.len(), head.len() + 1, whole.len() - 1] {
            let mut stream = TcpStream::connect(victim.server.address).await.unwrap();
            stream.write_all(&whole.as_bytes()[..length]).await.unwrap();
            drop(stream);
        }
        // The answer is a stream, and the caller goes before its end.
        let codec = codec(version);
        let gate = format!("cut in {version}");
        let mut connection = victim.http2().await;
        let (stream, id) = begin(&mut connection, codec, &format!("working; wait {gate}; completed")).await;
        connection.driver.abort();
        drop((stream, connection));
        let mut other = victim.http2().await;
        assert_eq!(state(&mut other, codec, &id).await, TaskState::Working);
        victim.gates.open(&gate);
        eventually("the end of the task", async || {
            (state(&mut other, codec, &id).await == TaskState::Completed).then_some(())
        })
        .await;
    }
    victim.still_works().await;
}

/// A body that does not come is not waited for, in any binding.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_arrives_is_told_so() {
    let options = BindOptions { body_timeout: Duration::from_millis(50), ..BindOptions::default() };
    let victim = Victim::with(options).await;
    for version in VERSIONS {
        for (path, status, reason) in [
            (format!("/{}message:send", prefix(version)), 504, "DEADLINE_EXCEEDED"),
            (format!("/{}tasks/t:cancel", prefix(version)), 504, "DEADLINE_EXCEEDED"),
            ("/".to_owned(), 200, "DEADLINE_EXCEEDED"),
        ] {
            let mut stream = TcpStream::connect(victim.server.address).await.unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: {version}\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // It may be cut after the answer: there is still a body to come.
            let _ = within("the answer", stream.read_to_end(&mut answer)).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
            assert!(answer.contains(reason), "{path}: {answer}");
        }
        let codec = codec(version);
        let mut connection = victim.http2().await;
        let (response, mut stream) = connection.open(&rpc(codec, Op::SendMessage), &[]).await;
        stream.send_data(Bytes::from_static(&[0, 0, 0]), false).unwrap();
        let response = within("the answer", response).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    }
    victim.still_works().await;
}

/// Callers who open streams and do not read them keep only what is theirs waiting.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_keeps_nobody_waiting() {
    let victim = Victim::new().await;
    let codec = codec(Version::V1_0);
    let text = "x".repeat(100_000);
    let (mut deaf, mut unread) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut connection = victim.http2().await;
        // More than the windows of HTTP/2 let through unread.
        let script = format!("text a {text}; text b {text}; completed");
        unread.push(begin(&mut connection, codec, &script).await);
        deaf.push(connection);
    }
    let mut other = victim.http2().await;
    for (_, id) in &unread {
        eventually("the end of the task", async || {
            (state(&mut other, codec, id).await == TaskState::Completed).then_some(())
        })
        .await;
    }
    let outcomes = futures_util::stream::iter(unread).then(|(stream, _)| stream.finish());
    let outcomes: Vec<_> = outcomes.collect().await;
    assert!(outcomes.iter().all(|outcome| outcome.code() == Some(0)), "and nothing was lost");
    victim.still_works().await;
}
