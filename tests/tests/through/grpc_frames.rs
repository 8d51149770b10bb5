//! Answers of gRPC frame by frame, through a hub that hands them on. Clients differ in what they forgive: a status in a
//! head that does not end the stream is an error to one, a broken stream to most.

use nuncio_hub::config::Mode;
use nuncio_protocol::{
    Binding, ErrorKind, GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest, Version,
    op::Call,
    pb::{self, Codec},
    v03,
};
use nuncio_tests::{
    between::{Between, Relation, upstream},
    http2::Http2,
    world::say,
};
use url::Url;

fn codec(version: Version) -> &'static Codec {
    match version {
        Version::V1_0 => &pb::CODEC,
        Version::V0_3 => &v03::pb::CODEC,
    }
}

fn get(id: &str) -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: id.into(), ..GetTaskRequest::default() }))
}

fn subscribe(id: &str) -> Call {
    Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { id: id.into(), ..<_>::default() }))
}

/// A message without parts.
fn wrong() -> Box<SendMessageRequest> {
    let mut req = say("m", "");
    req.message.parts.clear();
    Box::new(req)
}

#[tokio::test]
async fn the_status_is_in_trailers_or_in_a_head_that_ends_the_stream() {
    let agent = Between::echo().await;
    for mode in [Mode::Proxy, Mode::Durable] {
        for version in [Version::V1_0, Version::V0_3] {
            let relation = Relation { mode, binding: Binding::Grpc, version };
            let hub = Between::before(upstream(&agent.url, relation), false).await;
            let url = Url::parse(&hub.url).unwrap();
            let address = url.socket_addrs(|| None).unwrap()[0];
            let mut http2 = Http2::connect(address).await;
            for (call, expected) in [
                (get("unknown"), ErrorKind::TaskNotFound),
                (subscribe("unknown"), ErrorKind::TaskNotFound),
                (Call::SendMessage(wrong()), ErrorKind::InvalidParams),
                (Call::SendStreamingMessage(wrong()), ErrorKind::InvalidParams),
            ] {
                let what = format!("{mode:?} {version:?} {:?}", call.op());
                let outcome = http2.call(codec(version), &[], &call).await;
                assert_eq!(outcome.messages.len(), 0, "{what}");
                assert_eq!(outcome.error(codec(version)).kind(), expected, "{what}: {outcome:?}");
            }
            for call in [
                Call::SendMessage(Box::new(say("m", "hello"))),
                Call::SendStreamingMessage(Box::new(say("m", "hello"))),
            ] {
                let what = format!("{mode:?} {version:?} {:?}", call.op());
                let outcome = http2.call(codec(version), &[], &call).await;
                assert!(!outcome.is_head_only && !outcome.messages.is_empty(), "{what}: {outcome:?}");
                assert_eq!(outcome.code(), Some(0), "{what}: {outcome:?}");
            }
        }
    }
}
