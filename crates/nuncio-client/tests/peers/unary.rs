//! Calls with one answer.

use std::time::{Duration, Instant};

use axum::body::Body;
use nuncio_client::{
    Credentials, Egress, agent_url, discover,
    protocol::{
        CallContext, Content, ErrorKind, GetTaskRequest, ListTasksRequest, Message, Part,
        SendMessageResponse, TaskState, TraceContext,
    },
};
use serde_json::json;

use crate::peer::{Asked, Peer, answer, builder, card, error, json_answer, result, status, task};

#[tokio::test]
async fn a_message_and_its_answer() {
    let peer = Peer::agent(&[], |asked| match asked.body["params"]["message"]["parts"][0]["text"].as_str() {
        Some("task") => result(asked, &json!({ "task": task("TASK_STATE_COMPLETED") })),
        _ => result(
            asked,
            &json!({ "message": {
                "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hello yourself" }],
            }}),
        ),
    })
    .await;
    let client = peer.client().await;
    let SendMessageResponse::Message(reply) = client.send("hello").await.unwrap() else { panic!("a task") };
    assert_eq!(reply.text(), "hello yourself");
    let message = Message::user("m-1", Part::text("task"));
    let SendMessageResponse::Task(task) = client.send(message).await.unwrap() else { panic!("a message") };
    assert_eq!((task.id.as_str(), task.status.state), ("t-1", TaskState::Completed));

    let asked = &peer.asked("/rpc")[0];
    assert_eq!(asked.body["jsonrpc"], "2.0");
    assert_eq!(asked.body["method"], "SendMessage");
    assert_eq!(asked.body["params"]["message"]["role"], "ROLE_USER");
    assert!(asked.body["params"].get("tenant").is_none(), "unset is omitted");
    assert_eq!(asked.header("a2a-version"), Some("1.0"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("accept"), Some("application/json"));
    assert!(asked.header("user-agent").unwrap().starts_with("nuncio/"));
    let keys: Vec<_> =
        peer.asked("/rpc").iter().map(|asked| asked.header("idempotency-key").unwrap().to_owned()).collect();
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn what_the_context_says_goes_along() {
    let peer = Peer::start(|asked| match &*asked.path {
        "/rpc" => result(asked, &task("TASK_STATE_WORKING")),
        _ => {
            let mut card = card(&asked.base, &[nuncio_client::RESUME_EXTENSION]);
            card["supportedInterfaces"][0]["tenant"] = json!("acme");
            json_answer(&card)
        }
    })
    .await;
    let client = builder()
        .extensions(["https://e.example/1"])
        .header("x-team", "a")
        .connect(&peer.base)
        .await
        .unwrap();
    let trace = TraceContext {
        parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        state: None,
    };
    let cx = CallContext { trace: Some(trace), ..client.context() };
    let req = GetTaskRequest { id: "t-1".into(), tenant: Some("mine".to_owned()), ..Default::default() };
    client.service().get_task(&cx, req).await.unwrap();
    let asked = &peer.asked("/rpc")[0];
    assert_eq!(asked.body["params"]["tenant"], "acme", "the interface's, no more and no less");
    assert_eq!(asked.header("a2a-extensions"), Some("https://e.example/1,https://nuncio.dev/a2a/resume/v1"));
    assert_eq!(asked.header("traceparent"), Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    assert_eq!(asked.header("x-team"), Some("a"));
    assert_eq!(asked.header("idempotency-key"), None, "only sends have one");
}

#[tokio::test]
async fn errors_keep_their_kind() {
    let peer = Peer::agent(&[], |asked| error(asked, -32001, "no such task")).await;
    let error = peer.client().await.get("x").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::TaskNotFound, "no such task"));
}

#[tokio::test]
async fn answers_that_are_no_answers() {
    type Script = fn(&Asked) -> axum::response::Response;
    let cases: [(Script, ErrorKind, &str); 7] = [
        (
            |_| answer(200, &[("content-type", "text/html")], "<html>Sign in</html>".into()),
            ErrorKind::InvalidAgentResponse,
            "got text/html; is this an A2A address?",
        ),
        (|_| status(200, &[]), ErrorKind::InvalidAgentResponse, "got an answer without a content type"),
        (
            |_| json_answer(&json!({ "hello": "world" })),
            ErrorKind::InvalidAgentResponse,
            "neither result nor error",
        ),
        (|asked| result(asked, &json!("text")), ErrorKind::InvalidAgentResponse, "invalid agent response"),
        (|_| status(404, &[]), ErrorKind::InvalidAgentResponse, "there is no agent at this address"),
        (|_| status(413, &[]), ErrorKind::PayloadTooLarge, "answered 413"),
        (|_| status(415, &[]), ErrorKind::ContentTypeNotSupported, "answered 415"),
    ];
    for (script, kind, expected) in cases {
        let peer = Peer::agent(&[], script).await;
        let error = peer.client().await.get("t-1").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let peer = Peer::agent(&[], |_| {
        let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(" ".repeat(1000)));
        answer(200, &[("content-type", "application/json")], Body::from_stream(endless))
    })
    .await;
    let egress = Egress::operator().unwrap().with_max_body(100_000);
    let client = builder().egress(egress).connect(&peer.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert!(error.message().ends_with("is larger than the limit of 100000 bytes"), "{error}");
}

#[tokio::test]
async fn reads_are_repeated_and_sends_are_not() {
    // Twice too busy, then fine.
    let busy = |asked: &Asked| match asked.before {
        0 => status(503, &[("retry-after", "0")]),
        1 => status(429, &[("retry-after", "0")]),
        _ => result(asked, &json!({ "tasks": [task("TASK_STATE_WORKING")], "totalSize": 1 })),
    };
    let peer = Peer::agent(&[], busy).await;
    let page = peer.client().await.list(ListTasksRequest::default()).await.unwrap();
    assert_eq!((page.tasks.len(), peer.methods().len()), (1, 3));

    let peer = Peer::agent(&[], busy).await;
    let error = peer.client().await.send("hello").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Unavailable, Some(Duration::ZERO)));
    assert_eq!(peer.methods(), ["SendMessage"]);
    let error = peer.client().await.cancel("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert_eq!(peer.methods(), ["SendMessage", "CancelTask"]);

    // Who does not say when is not asked again.
    let peer = Peer::agent(&[], |_| status(503, &[])).await;
    assert_eq!(peer.client().await.get("t-1").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(peer.methods(), ["GetTask"]);
}

#[tokio::test]
async fn a_send_that_may_have_arrived_is_not_repeated() {
    // The answer breaks off.
    let peer = Peer::agent(&[], |asked| match asked.before {
        0 => {
            let body = futures_util::stream::iter([Ok("{\"json"), Err(std::io::Error::other("cut"))]);
            answer(200, &[("content-type", "application/json")], Body::from_stream(body))
        }
        _ => result(asked, &task("TASK_STATE_WORKING")),
    })
    .await;
    let error = peer.client().await.send("hello").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(peer.methods(), ["SendMessage"]);
    peer.client().await.get("t-1").await.unwrap();
    assert_eq!(peer.methods(), ["SendMessage", "GetTask"]);
}

#[tokio::test]
async fn a_read_that_broke_off_is_repeated() {
    let peer = Peer::agent(&[], |asked| match asked.before {
        0 => {
            let body = futures_util::stream::iter([Ok("{\"json"), Err(std::io::Error::other("cut"))]);
            answer(200, &[("content-type", "application/json")], Body::from_stream(body))
        }
        _ => result(asked, &task("TASK_STATE_WORKING")),
    })
    .await;
    peer.client().await.get("t-1").await.unwrap();
    assert_eq!(peer.methods(), ["GetTask", "GetTask"]);
}

#[tokio::test]
async fn the_deadline_is_kept() {
    let peer = Peer::agent(&[], |_| {
        let never = futures_util::stream::pending::<Result<String, std::io::Error>>();
        answer(200, &[("content-type", "application/json")], Body::from_stream(never))
    })
    .await;
    let client = peer.client().await;
    let cx = CallContext { deadline: Some(Instant::now()), ..client.context() };
    let req = GetTaskRequest { id: "t-1".into(), ..Default::default() };
    let error = client.service().get_task(&cx, req).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    // The same by the client's own timeout, which would hold for fetching the card as well.
    let card =
        discover(&Egress::operator().unwrap(), &agent_url(&peer.base).unwrap(), &Credentials::none()).await;
    let client = builder().timeout(Duration::from_millis(1)).with_card(card.unwrap()).unwrap();
    assert_eq!(client.get("t-1").await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    let req = GetTaskRequest { id: "t-1".into(), history_length: Some(1), ..Default::default() };
    assert_eq!(client.get_with(req).await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn bytes_survive_the_way() {
    let peer = Peer::agent(&[], |asked| {
        let message = asked.body["params"]["message"].clone();
        result(asked, &json!({ "message": message }))
    })
    .await;
    let sent = Part::raw(vec![0, 255, 10]).with_filename("a.bin");
    let SendMessageResponse::Message(echo) = peer.client().await.send(sent).await.unwrap() else {
        panic!("a task")
    };
    assert_eq!(echo.parts[0].content, Content::Raw(vec![0, 255, 10].into()));
}

#[tokio::test]
async fn basic_credentials_and_keys() {
    let peer = Peer::agent(&[], |asked| result(asked, &task("TASK_STATE_WORKING"))).await;
    let credentials = Credentials::none().basic("user", "pass").unwrap().api_key("X-API-Key", "k").unwrap();
    let client = builder().credentials(credentials).connect(&peer.base).await.unwrap();
    client.get("t-1").await.unwrap();
    let asked = &peer.asked("/rpc")[0];
    assert_eq!(asked.header("authorization"), Some("Basic dXNlcjpwYXNz"));
    assert_eq!(asked.header("x-api-key"), Some("k"));
}
