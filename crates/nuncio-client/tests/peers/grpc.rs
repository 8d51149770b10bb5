//! gRPC, in both versions: messages in their frames over HTTP/2 without TLS, on the port of the card.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use nuncio_client::{
    Client, Egress, FetchedCard, RESUME_EXTENSION, agent_url,
    protocol::{
        AgentCard, AgentInterface, Binding, CallContext, DeleteTaskPushNotificationConfigRequest, Error,
        ErrorKind, Event, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message, Part,
        SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskPushNotificationConfig,
        TaskState, TaskStatus, TaskStatusUpdateEvent, TraceContext,
        op::{Call, Op, Reply},
        pb::{self, Codec},
        v03,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::peer::{Asked, Peer, answer, builder, card, json_answer, seen, status};

const NEW: (&str, &str, &str) = ("GRPC", "1.0", "");
const OLD: (&str, &str, &str) = ("GRPC", "0.3", "");
const GET_TASK: &str = "/lf.a2a.v1.A2AService/GetTask";
const STREAM: &str = "/lf.a2a.v1.A2AService/SendStreamingMessage";
const SUBSCRIBE: &str = "/lf.a2a.v1.A2AService/SubscribeToTask";

fn codec(version: &str) -> &'static Codec {
    if version == "1.0" { &pb::CODEC } else { &v03::pb::CODEC }
}

fn a_task(state: TaskState) -> Task {
    let status = TaskStatus { state, ..TaskStatus::default() };
    Task { id: "t-1".into(), context_id: "c-1".into(), status, ..Task::default() }
}

fn update(state: TaskState) -> Event {
    Event::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    })
}

/// A message in its frame.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

fn event(codec: &Codec, event: &Event) -> Bytes {
    let mut message = Vec::new();
    (codec.encode_event)(event, &mut message).unwrap();
    framed(&message)
}

/// The end of an answer.
#[derive(Clone, Copy)]
enum End {
    /// With a status of success.
    Ok,
    /// With these trailers.
    Trailers(&'static [(&'static str, &'static str)]),
    /// As if all had been said, but without a status.
    Silent,
    /// The stream is reset.
    Reset,
}

fn grpc_answer(data: Vec<Bytes>, end: End) -> Response {
    let trailers = |pairs: &[(&'static str, &'static str)]| {
        let pairs =
            pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value)));
        Some(Ok(Frame::trailers(pairs.collect::<HeaderMap>())))
    };
    let last = match end {
        End::Ok => trailers(&[("grpc-status", "0")]),
        End::Trailers(pairs) => trailers(pairs),
        End::Silent => None,
        End::Reset => Some(Err(io::Error::other("cut"))),
    };
    let frames = data.into_iter().map(|data| Ok(Frame::data(data)));
    // The pause before the last one lets the others reach the other end.
    let last = stream::unfold(last, |last| async move {
        let last = last?;
        tokio::task::yield_now().await;
        Some((last, None))
    });
    let frames = futures_util::StreamExt::chain(stream::iter(frames), last);
    answer(200, &[("content-type", "application/grpc")], Body::new(StreamBody::new(frames)))
}

fn reply(codec: &Codec, op: Op, reply: &Reply) -> Response {
    let mut message = Vec::new();
    (codec.encode_reply)(op, reply, &mut message).unwrap();
    grpc_answer(vec![framed(&message)], End::Ok)
}

/// An error in the head, as servers send it that had nothing else to say.
fn refusal(error: &Error) -> Response {
    let details = STANDARD_NO_PAD.encode(pb::encode_status(error));
    let code = error.kind().row().grpc.number.to_string();
    let message = error.message().replace(' ', "%20");
    answer(
        200,
        &[
            ("content-type", "application/grpc"),
            ("grpc-status", &code),
            ("grpc-message", &message),
            ("grpc-status-details-bin", &details),
        ],
        Body::empty(),
    )
}

/// The requests so far.
fn call(codec: &Codec, asked: &Asked) -> Call {
    let rpc = asked.path.strip_prefix(&format!("/{}/", codec.service)).unwrap();
    let op = (codec.op_from_rpc)(rpc).unwrap();
    assert_eq!((&asked.bytes[..5], asked.verb.as_str()), (&framed(&asked.bytes[5..])[..5], "POST"));
    (codec.decode_call)(op, asked.bytes.slice(5..)).unwrap()
}

/// The answer of a peer of either version to any request.
fn fine(version: &'static str) -> impl Fn(&Asked) -> Response {
    move |asked| {
        let codec = codec(version);
        let call = call(codec, asked);
        let config = TaskPushNotificationConfig {
            id: Some("c-1".into()),
            task_id: Some("t-1".into()),
            url: "https://hook.example/".to_owned(),
            ..Default::default()
        };
        let answer = match call.op() {
            Op::SendMessage => Reply::Sent(SendMessageResponse::Task(a_task(TaskState::Completed))),
            Op::GetTask | Op::CancelTask => Reply::Task(a_task(TaskState::Working)),
            Op::ListTasks => Reply::Tasks(ListTasksResponse {
                tasks: vec![a_task(TaskState::Working)],
                ..ListTasksResponse::default()
            }),
            Op::CreateTaskPushNotificationConfig | Op::GetTaskPushNotificationConfig => {
                Reply::PushConfig(config)
            }
            Op::DeleteTaskPushNotificationConfig => Reply::Empty,
            other => panic!("{other:?} is not asked here"),
        };
        reply(codec, call.op(), &answer)
    }
}

#[tokio::test]
async fn calls_and_their_answers() {
    for (binding, prefix) in [(NEW, "/lf.a2a.v1.A2AService"), (OLD, "/a2a.v1.A2AService")] {
        let peer = Peer::of(binding, &[], fine(binding.1)).await;
        let client = peer.client().await;
        let SendMessageResponse::Task(task) = client.send("hello").await.unwrap() else {
            panic!("a message")
        };
        assert_eq!((task.id.as_str(), task.status.state), ("t-1", TaskState::Completed));
        assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Working);
        assert_eq!(client.cancel("t-1").await.unwrap().context_id.as_str(), "c-1");
        let (service, cx) = (client.service(), client.context());
        let config = || TaskPushNotificationConfig { task_id: Some("t-1".into()), ..Default::default() };
        let made = service.create_task_push_notification_config(&cx, config()).await.unwrap();
        assert_eq!(made.id, Some("c-1".into()));
        let delete =
            DeleteTaskPushNotificationConfigRequest { task_id: "t-1".into(), id: "c-1".into(), tenant: None };
        service.delete_task_push_notification_config(&cx, delete).await.unwrap();
        let listed = client.list(ListTasksRequest::default()).await.map(|page| page.tasks.len());
        let mut asked = vec![
            "SendMessage",
            "GetTask",
            "CancelTask",
            "CreateTaskPushNotificationConfig",
            "DeleteTaskPushNotificationConfig",
        ];
        if binding == NEW {
            assert_eq!(listed.unwrap(), 1);
            asked.push("ListTasks");
        } else {
            // REQ-206; and it is not even asked.
            assert_eq!(listed.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
        }
        let asked: Vec<_> = asked.into_iter().map(|rpc| format!("POST {prefix}/{rpc}")).collect();
        assert_eq!(peer.calls(), asked);
    }
}

#[tokio::test]
async fn what_the_context_says_goes_along_as_metadata() {
    let peer = Peer::start(|asked| match &*asked.path {
        "/.well-known/agent-card.json" => {
            let mut card = card(&asked.base, &[RESUME_EXTENSION]);
            card["supportedInterfaces"][0] = json!({
                "url": asked.base, "protocolBinding": "gRPC", "protocolVersion": "1.0", "tenant": "acme",
            });
            json_answer(&card)
        }
        _ => reply(
            &pb::CODEC,
            Op::SendMessage,
            &Reply::Sent(SendMessageResponse::Task(a_task(TaskState::Working))),
        ),
    })
    .await;
    let client = builder().bearer("secret").header("x-team", "a").connect(&peer.base).await.unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let cx = CallContext {
        extensions: vec!["https://e.example/1".to_owned()],
        idempotency_key: Some("k".to_owned()),
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        trace: Some(TraceContext { parent: parent.to_owned(), state: None }),
        ..client.context()
    };
    let req = SendMessageRequest { message: Message::user("m", Part::text("hi")), ..Default::default() };
    client.service().send_message(&cx, req).await.unwrap();
    let asked = &peer.asked("/lf.a2a.v1.A2AService/SendMessage")[0];
    let extensions = format!("https://e.example/1,{RESUME_EXTENSION}");
    for (name, value) in [
        ("content-type", Some("application/grpc")),
        ("te", Some("trailers")),
        ("accept", Some("*/*")),
        ("a2a-version", Some("1.0")),
        ("a2a-extensions", Some(extensions.as_str())),
        ("idempotency-key", Some("k")),
        ("traceparent", Some(parent)),
        ("authorization", Some("Bearer secret")),
        ("x-team", Some("a")),
    ] {
        assert_eq!(asked.header(name), value, "{name}");
    }
    // In a unit, with at most eight digits.
    let timeout = asked.header("grpc-timeout").unwrap();
    assert!(timeout.len() <= 9 && timeout.ends_with(['u', 'm', 'n', 'S']), "{timeout}");
    let Call::SendMessage(req) = call(&pb::CODEC, asked) else { panic!("no send") };
    assert_eq!((req.tenant.as_deref(), &*req.message.text()), (Some("acme"), "hi"));
}

#[tokio::test]
async fn errors_keep_their_kind_and_details() {
    let peer = Peer::of(NEW, &[], |_| {
        let error = Error::new(ErrorKind::TaskNotCancelable, "it has ended").with_metadata("taskId", "t-1");
        refusal(&error)
    })
    .await;
    let error = peer.client().await.cancel("t-1").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::TaskNotCancelable, "it has ended"));
    assert_eq!(error.metadata()["taskId"], "t-1");

    // By status alone; details that are none do no harm.
    const BAD_DETAILS: End = End::Trailers(&[
        ("grpc-status", "5"),
        ("grpc-message", "no%20such%20task"),
        ("grpc-status-details-bin", "!!! not base64 !!!"),
    ]);
    const NONSENSE: End = End::Trailers(&[("grpc-status", "5"), ("grpc-status-details-bin", "bm9uc2Vuc2U")]);
    const OK_WITH_NONSENSE: End = End::Trailers(&[("grpc-status", "0"), ("grpc-status-details-bin", "%%%")]);
    const CLASS: End = End::Trailers(&[("grpc-status", "12"), ("grpc-message", "TaskNotFoundError: gone")]);
    const UNKNOWN: End = End::Trailers(&[("grpc-status", "12"), ("grpc-message", "no such method")]);
    const TOO_LATE: End = End::Trailers(&[("grpc-status", "9"), ("grpc-message", "too late")]);
    const STRANGE: End = End::Trailers(&[("grpc-status", "banana")]);
    for (binding, end, kind, message) in [
        (NEW, BAD_DETAILS, ErrorKind::TaskNotFound, "no such task"),
        (NEW, NONSENSE, ErrorKind::TaskNotFound, ""),
        (NEW, UNKNOWN, ErrorKind::MethodNotFound, "no such method"),
        (OLD, UNKNOWN, ErrorKind::UnsupportedOperation, "no such method"),
        (OLD, TOO_LATE, ErrorKind::TaskNotCancelable, "too late"),
        (OLD, CLASS, ErrorKind::TaskNotFound, "TaskNotFoundError: gone"),
        (NEW, STRANGE, ErrorKind::Internal, ""),
    ] {
        // After the message has come, and in its place.
        for data in [vec![], vec![framed(b"")]] {
            let peer = Peer::of(binding, &[], move |_| grpc_answer(data.clone(), end)).await;
            let error = peer.client().await.get("t-1").await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (kind, message));
        }
    }
    let peer = Peer::of(NEW, &[], |_| grpc_answer(vec![framed(b"")], OK_WITH_NONSENSE)).await;
    assert_eq!(peer.client().await.get("t-1").await.unwrap(), Task::default());
}

#[tokio::test]
async fn the_agent_says_when_to_try_again() {
    let peer = Peer::of(NEW, &[], |asked| match asked.before {
        0 => refusal(&Error::from(ErrorKind::Unavailable).with_retry_after(Duration::ZERO)),
        _ => fine("1.0")(asked),
    })
    .await;
    peer.client().await.get("t-1").await.unwrap();
    assert_eq!(peer.calls().len(), 2);
}

#[tokio::test]
async fn answers_that_are_no_answers() {
    type Script = fn(&Asked) -> Response;
    let cases: [(Script, ErrorKind, &str); 11] = [
        (
            |_| answer(200, &[("content-type", "text/html")], "<html>Sign in".into()),
            ErrorKind::InvalidAgentResponse,
            "expected gRPC from ",
        ),
        (|_| json_answer(&json!({})), ErrorKind::InvalidAgentResponse, "got application/json"),
        (|_| status(200, &[]), ErrorKind::InvalidAgentResponse, "got an answer without a content type"),
        (|_| status(404, &[]), ErrorKind::InvalidAgentResponse, "there is no agent at this address"),
        (
            |_| status(401, &[("www-authenticate", "Bearer")]),
            ErrorKind::Unauthenticated,
            "it asks for Bearer",
        ),
        (|_| status(503, &[]), ErrorKind::Unavailable, "answered 503"),
        (|_| grpc_answer(vec![], End::Ok), ErrorKind::InvalidAgentResponse, "is not gRPC: "),
        (
            |_| grpc_answer(vec![framed(b"a whole message").slice(..9)], End::Ok),
            ErrorKind::InvalidAgentResponse,
            "is not gRPC: ",
        ),
        (
            |_| grpc_answer(vec![Bytes::from_static(b"\x01\0\0\0\0")], End::Ok),
            ErrorKind::InvalidAgentResponse,
            "is not gRPC: ",
        ),
        (
            |_| grpc_answer(vec![framed(b"\xff\xff\xff")], End::Ok),
            ErrorKind::InvalidAgentResponse,
            "invalid protobuf payload",
        ),
        (
            |_| grpc_answer(vec![Bytes::from_static(b"\0\xff\xff\xff\xff")], End::Ok),
            ErrorKind::InvalidAgentResponse,
            "is larger than the limit of 16777216 bytes",
        ),
    ];
    for (script, kind, expected) in cases {
        let peer = Peer::of(NEW, &[], script).await;
        let error = peer.client().await.get("t-1").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(expected), "{error}");
        assert_eq!(peer.calls().len(), 1, "{error}");
    }
}

#[tokio::test]
async fn a_message_larger_than_the_limit_is_not_read() {
    let egress = || Egress::operator().unwrap().with_max_body(1000).with_max_event(500);
    let peer = Peer::of(NEW, &[], |asked| {
        let mut task = a_task(TaskState::Working);
        task.context_id = "c".repeat(600).as_str().into();
        match &*asked.path {
            GET_TASK => reply(&pb::CODEC, Op::GetTask, &Reply::Task(task)),
            _ => grpc_answer(vec![event(&pb::CODEC, &Event::Task(task))], End::Ok),
        }
    })
    .await;
    let client = builder().egress(egress()).connect(&peer.base).await.unwrap();
    client.get("t-1").await.unwrap();
    let text = seen(client.stream("hello").await).await;
    assert!(text.starts_with("InvalidAgentResponse") && text.ends_with("limit of 500 bytes"), "{text}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_asked_for_again_only_if_it_may_be() {
    for end in [End::Reset, End::Silent, End::Trailers(&[("x-other", "1")])] {
        let peer = Peer::of(NEW, &[], move |asked| match asked.before {
            0 => grpc_answer(vec![framed(b"")], end),
            _ => fine("1.0")(asked),
        })
        .await;
        let client = peer.client().await;
        let error = client.send("hello").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        client.get("t-1").await.unwrap();
        assert_eq!(peer.calls().len(), 3, "a send is not repeated, a read is");
    }
}

#[tokio::test]
async fn streams_and_what_becomes_of_them() {
    for (binding, rpc) in [(NEW, STREAM), (OLD, "/a2a.v1.A2AService/SendStreamingMessage")] {
        let codec = codec(binding.1);
        let peer = Peer::of(binding, &[], move |_| {
            let events = [
                Event::Task(a_task(TaskState::Submitted)),
                update(TaskState::Working),
                update(TaskState::Completed),
            ];
            let mut bytes: Vec<u8> = events.iter().flat_map(|one| event(codec, one)).collect();
            // However the bytes are cut.
            let tail = bytes.split_off(7);
            grpc_answer(vec![bytes.into(), tail.into()], End::Ok)
        })
        .await;
        let client = peer.client().await;
        assert_eq!(seen(client.stream("hello").await).await, "task:SUBMITTED WORKING COMPLETED");
        assert_eq!(peer.calls(), [format!("POST {rpc}")]);
    }

    let peer = Peer::of(NEW, &[], |_| {
        let reply = Event::Message(Arc::new(Message::agent("m", Part::text("hi"))));
        grpc_answer(vec![event(&pb::CODEC, &reply)], End::Ok)
    })
    .await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "hi");

    let refused = Error::new(ErrorKind::UnsupportedOperation, "no streams");
    let peer = Peer::of(NEW, &[], move |_| refusal(&refused)).await;
    let text = seen(peer.client().await.stream("hello").await).await;
    assert_eq!(text, "refused UnsupportedOperation: no streams");

    let peer = Peer::of(NEW, &[RESUME_EXTENSION], |_| {
        let start = event(&pb::CODEC, &Event::Task(a_task(TaskState::Submitted)));
        grpc_answer(vec![start], End::Trailers(&[("grpc-status", "13"), ("grpc-message", "sorry")]))
    })
    .await;
    assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:SUBMITTED Internal: sorry");
    assert_eq!(peer.calls().len(), 1, "an error is the end");
}

#[tokio::test]
async fn a_cut_stream_goes_on_with_a_snapshot() {
    for end in [End::Reset, End::Silent, End::Ok] {
        let peer = Peer::of(NEW, &[RESUME_EXTENSION], move |asked| {
            let send = |events: &[Event], end| {
                grpc_answer(events.iter().map(|one| event(&pb::CODEC, one)).collect(), end)
            };
            match &*asked.path {
                STREAM => send(&[Event::Task(a_task(TaskState::Submitted))], end),
                _ => send(&[Event::Task(a_task(TaskState::Working)), update(TaskState::Completed)], End::Ok),
            }
        })
        .await;
        let stream = peer.client().await.stream("hello").await;
        assert_eq!(seen(stream).await, "task:SUBMITTED task:WORKING COMPLETED");
        assert_eq!(peer.calls(), [format!("POST {STREAM}"), format!("POST {SUBSCRIBE}")]);
        assert_eq!(peer.asked(SUBSCRIBE)[0].header("last-event-id"), None, "events have no numbers");
    }
}

#[tokio::test]
async fn a_history_of_none_is_none_in_the_old_version_too() {
    // protocol-notes.md, loss table: there 0 means all.
    let peer = Peer::of(OLD, &[], |asked| {
        let mut task = a_task(TaskState::Completed);
        task.history = vec![Arc::new(Message::user("m", Part::text("hello")))];
        let codec = codec("0.3");
        match call(codec, asked).op() {
            Op::SendStreamingMessage => grpc_answer(vec![event(codec, &Event::Task(task))], End::Ok),
            Op::SendMessage => reply(codec, Op::SendMessage, &Reply::Sent(SendMessageResponse::Task(task))),
            op => reply(codec, op, &Reply::Task(task)),
        }
    })
    .await;
    let client = peer.client().await;
    for (length, left) in [(Some(0), 0), (Some(1), 1), (None, 1)] {
        let get = GetTaskRequest { id: "t-1".into(), history_length: length, ..Default::default() };
        assert_eq!(client.get_with(get).await.unwrap().history.len(), left);
        let send = SendMessageRequest {
            message: Message::user("m", Part::text("hello")),
            configuration: Some(SendMessageConfiguration { history_length: length, ..Default::default() }),
            ..Default::default()
        };
        let SendMessageResponse::Task(task) = client.send(send).await.unwrap() else { panic!("a message") };
        assert_eq!(task.history.len(), left);
    }
}

#[tokio::test]
async fn the_next_interface_is_used_when_nobody_answers() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let peer = Peer::start(move |asked| match &*asked.path {
        "/.well-known/agent-card.json" => {
            let mut card = card(&asked.base, &[]);
            let interface = |url: &str, binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
            card["supportedInterfaces"] = json!([
                interface("https://agent.example/a/path", "GRPC"),
                interface(&gone.to_string(), "GRPC"),
                interface(&format!("{}/api", asked.base), "HTTP+JSON"),
            ]);
            json_answer(&card)
        }
        _ => json_answer(&crate::peer::task("TASK_STATE_WORKING")),
    })
    .await;
    let client = peer.client().await;
    let bindings: Vec<_> = client.candidates().iter().map(|candidate| candidate.binding).collect();
    assert_eq!(bindings, [Binding::Grpc, Binding::HttpJson], "one has no usable address");
    client.get("t-1").await.unwrap();
    assert_eq!(peer.calls(), ["GET /api/tasks/t-1"]);
    // Who insists on gRPC gets nothing else.
    let client = builder().binding(Binding::Grpc).connect(&peer.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert!(error.message().starts_with("cannot connect to "), "{error}");
}

#[tokio::test]
async fn credentials_do_not_follow_a_card_to_another_port() {
    // Lesson 10
    let agent = Peer::of(NEW, &[], |asked| match asked.header("authorization") {
        None => refusal(&Error::new(ErrorKind::Unauthenticated, "who are you?")),
        Some(_) => fine("1.0")(asked),
    })
    .await;
    let place = agent.base.replace("http://", "");
    let directory = Peer::start(move |asked| {
        let mut card = card(&asked.base, &[]);
        card["supportedInterfaces"][0] =
            json!({ "url": place, "protocolBinding": "GRPC", "protocolVersion": "1.0" });
        json_answer(&card)
    })
    .await;
    let client = builder().bearer("secret").connect(&directory.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().starts_with("who are you?; the credentials were not sent"), "{error}");
    let allowed = builder().bearer("secret").allow_origin(&agent.base).connect(&directory.base);
    allowed.await.unwrap().get("t-1").await.unwrap();
}

#[tokio::test]
async fn the_deadline_is_kept() {
    let peer = Peer::of(NEW, &[], |_| {
        let never = stream::pending::<Result<Frame<Bytes>, io::Error>>();
        answer(200, &[("content-type", "application/grpc")], Body::new(StreamBody::new(never)))
    })
    .await;
    let client = peer.client().await;
    let cx = CallContext { deadline: Some(Instant::now()), ..client.context() };
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    let error = client.service().get_task(&cx, req).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn who_does_not_speak_http2_is_told_apart() {
    for says in ["HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "SSH-2.0-OpenSSH\r\n", ""] {
        let (client, connections) = hanging_up(says).await;
        // The message may have arrived: it is sent once.
        let error = client.send("hello").await.unwrap_err();
        assert_eq!((error.kind(), connections.load(Ordering::SeqCst)), (ErrorKind::Unavailable, 1));
        assert!(error.message().ends_with("; does it speak HTTP/2, as gRPC does?"), "{error}");
        client.get("t-1").await.unwrap_err();
        assert_eq!(connections.load(Ordering::SeqCst), 5, "a read is repeated as long as there is patience");
    }
}

/// An agent behind which somebody listens, says this and hangs up; and how often.
async fn hanging_up(says: &'static str) -> (Client, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut preface = [0; 24];
            connection.read_exact(&mut preface).await.unwrap();
            connection.write_all(says.as_bytes()).await.unwrap();
            connection.shutdown().await.unwrap();
        }
    });
    let url = agent_url(&place).unwrap();
    let mut card = AgentCard::default();
    card.supported_interfaces.push(AgentInterface {
        url: place,
        protocol_binding: "GRPC".to_owned(),
        protocol_version: "1.0".to_owned(),
        tenant: None,
    });
    let card = FetchedCard { card, json: Value::Null, url };
    (builder().with_card(Arc::new(card)).unwrap(), connections)
}
