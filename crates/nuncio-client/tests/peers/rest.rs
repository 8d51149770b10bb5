//! HTTP+JSON, in both versions.

use axum::response::Response;
use nuncio_client::{
    Client, Egress, RESUME_EXTENSION,
    protocol::{
        CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ErrorKind, FileBytes,
        GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
        ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part, SendMessageConfiguration,
        SendMessageRequest, SendMessageResponse, TaskPushNotificationConfig, TaskState, Version,
    },
};
use serde_json::{Value, json};

use crate::peer::{
    Asked, Peer, Then, answer, bare_frame, builder, card, events, json_answer, seen, status, task, update,
};

const NEW: (&str, &str, &str) = ("HTTP+JSON", "1.0", "/api");
const OLD: (&str, &str, &str) = ("HTTP+JSON", "0.3", "/api");

/// The answer of a peer of either version to any request.
fn fine(asked: &Asked) -> Response {
    let config = json!({ "taskId": "t-1", "id": "c-1", "url": "https://hook.example/" });
    let old_config = json!({
        "name": "tasks/t-1/pushNotificationConfigs/c-1",
        "pushNotificationConfig": { "id": "c-1", "url": "https://hook.example/" },
    });
    let is_old = asked.path.starts_with("/api/v1/");
    let config = if is_old { old_config } else { config };
    let path = asked.path.trim_start_matches("/api/v1").trim_start_matches("/api");
    json_answer(&match path {
        "/message:send" => json!({ "task": task("TASK_STATE_COMPLETED") }),
        "/tasks" => json!({ "tasks": [task("TASK_STATE_WORKING")], "totalSize": 1 }),
        "/extendedAgentCard" | "/card" => card(&asked.base, &[]),
        path if path.ends_with("/pushNotificationConfigs") && asked.verb == "GET" => {
            json!({ "configs": [config] })
        }
        path if path.contains("/pushNotificationConfigs") => config,
        _ => task("TASK_STATE_WORKING"),
    })
}

/// Makes every call that has one answer; the errors of those that this version does not have.
async fn call_all(client: &Client) -> Vec<ErrorKind> {
    let (service, cx) = (client.service(), client.context());
    let (task, config) = ("t-1", "c-1");
    let sent = client.send("hello").await.unwrap();
    assert!(matches!(sent, SendMessageResponse::Task(task) if task.status.state == TaskState::Completed));
    let get = GetTaskRequest { id: task.into(), history_length: Some(2), ..Default::default() };
    assert_eq!(service.get_task(&cx, get).await.unwrap().id.as_str(), task);
    let cancel = CancelTaskRequest { id: task.into(), ..Default::default() };
    assert_eq!(service.cancel_task(&cx, cancel).await.unwrap().id.as_str(), task);
    let create = TaskPushNotificationConfig {
        id: Some(config.into()),
        task_id: Some(task.into()),
        url: "https://hook.example/".to_owned(),
        ..Default::default()
    };
    let made = service.create_task_push_notification_config(&cx, create).await.unwrap();
    assert_eq!((made.id, made.task_id), (Some(config.into()), Some(task.into())));
    let get = GetTaskPushNotificationConfigRequest { task_id: task.into(), id: config.into(), tenant: None };
    assert_eq!(service.get_task_push_notification_config(&cx, get).await.unwrap().id, Some(config.into()));
    let list =
        ListTaskPushNotificationConfigsRequest { task_id: task.into(), page_size: 5, ..Default::default() };
    assert_eq!(service.list_task_push_notification_configs(&cx, list).await.unwrap().configs.len(), 1);
    let delete =
        DeleteTaskPushNotificationConfigRequest { task_id: task.into(), id: config.into(), tenant: None };
    service.delete_task_push_notification_config(&cx, delete).await.unwrap();
    let card = service.get_extended_agent_card(&cx, GetExtendedAgentCardRequest::default()).await.unwrap();
    assert_eq!(card.name, "peer");
    let list = ListTasksRequest { context_id: Some("c 1".into()), ..Default::default() };
    service.list_tasks(&cx, list).await.err().map(|error| error.kind()).into_iter().collect()
}

#[tokio::test]
async fn every_operation_has_its_verb_and_path() {
    // REQ-042, REQ-049
    let peer = Peer::of(NEW, &[], fine).await;
    assert_eq!(call_all(&peer.client().await).await, []);
    assert_eq!(
        peer.calls(),
        [
            "POST /api/message:send",
            "GET /api/tasks/t-1?historyLength=2",
            "POST /api/tasks/t-1:cancel",
            "POST /api/tasks/t-1/pushNotificationConfigs",
            "GET /api/tasks/t-1/pushNotificationConfigs/c-1",
            "GET /api/tasks/t-1/pushNotificationConfigs?pageSize=5",
            "DELETE /api/tasks/t-1/pushNotificationConfigs/c-1",
            "GET /api/extendedAgentCard",
            "GET /api/tasks?contextId=c%201",
        ]
    );
    let asked = &peer.asked("/api/message:send")[0];
    assert_eq!(asked.body["message"]["parts"][0]["text"], "hello");
    assert_eq!(asked.header("a2a-version"), Some("1.0"));
    assert!(asked.header("idempotency-key").is_some());
    // Trap T-07
    assert_eq!(asked.header("content-type"), Some("application/a2a+json"));
    assert_eq!(asked.header("accept"), Some("application/a2a+json, application/json"));
    let asked = &peer.asked("/api/tasks/t-1")[0];
    assert_eq!(asked.header("content-type"), None, "there is no content");
}

#[tokio::test]
async fn so_it_has_in_the_old_version() {
    let peer = Peer::of(OLD, &[], fine).await;
    // REQ-206; and it is not even asked.
    assert_eq!(call_all(&peer.client().await).await, [ErrorKind::UnsupportedOperation]);
    assert_eq!(
        peer.calls(),
        [
            "POST /api/v1/message:send",
            "GET /api/v1/tasks/t-1?historyLength=2",
            "POST /api/v1/tasks/t-1:cancel",
            "POST /api/v1/tasks/t-1/pushNotificationConfigs",
            "GET /api/v1/tasks/t-1/pushNotificationConfigs/c-1",
            "GET /api/v1/tasks/t-1/pushNotificationConfigs?pageSize=5",
            "DELETE /api/v1/tasks/t-1/pushNotificationConfigs/c-1",
            "GET /api/v1/card",
        ]
    );
    let asked = &peer.asked("/api/v1/message:send")[0];
    assert_eq!(asked.body["message"]["content"][0]["text"], "hello");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("accept"), Some("application/json"));
    assert_eq!(asked.header("a2a-version"), Some("0.3"));
}

#[tokio::test]
async fn a_prefix_that_is_in_the_address_is_not_doubled() {
    let peer = Peer::of(("HTTP+JSON", "0.3", "/api/v1/"), &[], fine).await;
    let client = peer.client().await;
    assert_eq!(client.version(), Version::V0_3);
    client.get("t-1").await.unwrap();
    assert_eq!(peer.calls(), ["GET /api/v1/tasks/t-1"]);
}

#[tokio::test]
async fn the_tenant_of_the_interface_stands_in_the_path() {
    // REQ-180
    let peer = Peer::start(|asked| match &*asked.path {
        "/.well-known/agent-card.json" => {
            let mut card = card(&asked.base, &[]);
            card["supportedInterfaces"][0]["protocolBinding"] = json!("HTTP+JSON");
            card["supportedInterfaces"][0]["tenant"] = json!("acme corp");
            json_answer(&card)
        }
        _ => json_answer(&json!({ "task": task("TASK_STATE_WORKING") })),
    })
    .await;
    let req = SendMessageRequest {
        tenant: Some("somebody else's".to_owned()),
        message: Message::user("m", Part::text("hello")),
        ..Default::default()
    };
    peer.client().await.send(req).await.unwrap();
    assert_eq!(peer.calls(), ["POST /rpc/acme%20corp/message:send"]);
    assert_eq!(peer.asked("/rpc/acme%20corp/message:send")[0].body.get("tenant"), None);
}

#[tokio::test]
async fn a_delete_may_answer_nothing_at_all() {
    // Trap T-29
    type Script = fn(&Asked) -> Response;
    let cases: [(Script, Result<(), &str>); 6] = [
        (|_| status(204, &[]), Ok(())),
        (|_| status(200, &[]), Ok(())),
        (|_| json_answer(&json!({})), Ok(())),
        (|_| json_answer(&Value::Null), Ok(())),
        (|_| answer(200, &[("content-type", "text/html")], "<html>Sign in".into()), Err("got text/html")),
        (|_| status(302, &[("location", "https://sso.example/")]), Err("redirects are not followed")),
    ];
    for binding in [NEW, OLD] {
        for (script, expected) in cases {
            let peer = Peer::of(binding, &[], script).await;
            let client = peer.client().await;
            let req = DeleteTaskPushNotificationConfigRequest {
                task_id: "t-1".into(),
                id: "c-1".into(),
                tenant: None,
            };
            let deleted = client.service().delete_task_push_notification_config(&client.context(), req).await;
            match (deleted, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(expected)) => assert!(error.message().contains(expected), "{error}"),
                (deleted, expected) => panic!("{deleted:?} instead of {expected:?}"),
            }
        }
    }
}

#[tokio::test]
async fn errors_keep_their_kind_and_details() {
    let peer = Peer::of(NEW, &[], |_| {
        let body = json!({ "error": {
            "code": 400, "status": "FAILED_PRECONDITION", "message": "it has ended",
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_CANCELABLE",
                "domain": "a2a-protocol.org", "metadata": { "taskId": "t-1" },
            }],
        }});
        answer(400, &[("content-type", "application/a2a+json")], body.to_string().into())
    })
    .await;
    let error = peer.client().await.cancel("t-1").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::TaskNotCancelable, "it has ended"));
    assert_eq!(error.metadata()["taskId"], "t-1");

    // protocol-notes.md, Errors: by code, by the name of a class, by status.
    for (code, body, kind) in [
        (400, json!({ "code": -32004, "message": "no" }), ErrorKind::UnsupportedOperation),
        (404, json!({ "message": "TaskNotFoundError: no" }), ErrorKind::TaskNotFound),
        (409, json!({ "message": "no" }), ErrorKind::TaskNotCancelable),
        (500, json!({ "message": "no" }), ErrorKind::Internal),
    ] {
        let peer = Peer::of(OLD, &[], move |_| answer(code, &[], body.to_string().into())).await;
        assert_eq!(peer.client().await.cancel("t-1").await.unwrap_err().kind(), kind, "{code}");
    }
}

#[tokio::test]
async fn files_are_in_the_form_of_the_agent() {
    // "hello" as the proto has it, and as its base64 text.
    let (raw, text) = ("aGVsbG8=", "YUdWc2JHOD0=");
    for (files, said, answered, read) in [
        (FileBytes::Detect, text, raw, "hello"),
        (FileBytes::Base64, text, text, "hello"),
        (FileBytes::Raw, raw, raw, "hello"),
        // Too little to tell.
        (FileBytes::Detect, text, text, "aGVsbG8="),
        (FileBytes::Raw, raw, text, "aGVsbG8="),
    ] {
        let peer = Peer::of(OLD, &[], move |_| {
            let file = json!({ "fileWithBytes": answered, "mimeType": "text/plain" });
            let message = json!({ "messageId": "m-2", "role": "ROLE_AGENT", "content": [{ "file": file }] });
            json_answer(&json!({ "message": message }))
        })
        .await;
        let client = builder().file_bytes(files).connect(&peer.base).await.unwrap();
        let file = Part::raw("hello").with_media_type("text/plain");
        let sent = client.send(Message::user("m-1", file)).await.unwrap();
        let SendMessageResponse::Message(reply) = sent else { panic!("expected a message") };
        assert_eq!(reply.parts, [Part::raw(read).with_media_type("text/plain")], "{files:?} {answered}");
        let asked = &peer.asked("/api/v1/message:send")[0].body;
        let content = &asked["message"]["content"][0]["file"]["fileWithBytes"];
        assert_eq!(content, said, "{files:?}: {asked}");
    }
}

#[tokio::test]
async fn answers_that_are_no_answers() {
    type Script = fn(&Asked) -> Response;
    let cases: [(Script, ErrorKind, &str); 9] = [
        (
            |_| answer(200, &[("content-type", "text/html")], "<html>Sign in</html>".into()),
            ErrorKind::InvalidAgentResponse,
            "expected JSON from ",
        ),
        (|_| status(200, &[]), ErrorKind::InvalidAgentResponse, "got an answer without a content type"),
        (|_| status(204, &[]), ErrorKind::InvalidAgentResponse, "got an answer without a content type"),
        (
            |_| answer(200, &[("content-type", "application/json")], "{\"id\":".into()),
            ErrorKind::InvalidAgentResponse,
            "the agent's answer is not JSON",
        ),
        (|_| json_answer(&json!("text")), ErrorKind::InvalidAgentResponse, "invalid agent response"),
        (
            |_| answer(404, &[], "{\"detail\":\"Not Found\"}".into()),
            ErrorKind::InvalidAgentResponse,
            "there is no agent at this address",
        ),
        (
            |_| status(401, &[("www-authenticate", "Bearer realm=\"a\"")]),
            ErrorKind::Unauthenticated,
            "it asks for Bearer realm=\"a\"",
        ),
        (|_| status(413, &[]), ErrorKind::PayloadTooLarge, "answered 413"),
        (|_| answer(502, &[], "<html>Bad gateway".into()), ErrorKind::Unavailable, "answered 502"),
    ];
    for binding in [NEW, OLD] {
        for (script, kind, expected) in cases {
            let peer = Peer::of(binding, &[], script).await;
            let error = peer.client().await.get("t-1").await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(expected), "{error}");
        }
    }
}

#[tokio::test]
async fn reads_are_repeated_when_the_agent_says_so() {
    let peer = Peer::of(NEW, &[], |asked| match asked.before {
        0 => status(503, &[("retry-after", "0")]),
        1 => {
            let body = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow" } });
            answer(429, &[("retry-after", "0")], body.to_string().into())
        }
        _ => json_answer(&task("TASK_STATE_WORKING")),
    })
    .await;
    peer.client().await.get("t-1").await.unwrap();
    assert_eq!(peer.calls().len(), 3);
}

#[tokio::test]
async fn credentials_that_were_not_sent_are_told_of() {
    let agent = Peer::of(NEW, &[], |_| {
        let body =
            json!({ "error": { "code": 401, "status": "UNAUTHENTICATED", "message": "who are you?" } });
        answer(401, &[], body.to_string().into())
    })
    .await;
    let base = agent.base.clone();
    let directory = Peer::start(move |_| {
        let mut card = card(&base, &[]);
        card["supportedInterfaces"][0]["protocolBinding"] = json!("HTTP+JSON");
        json_answer(&card)
    })
    .await;
    let client = builder().bearer("secret").connect(&directory.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().starts_with("who are you?; the credentials were not sent"), "{error}");
    assert_eq!(agent.asked("/rpc/tasks/t-1")[0].header("authorization"), None);
}

#[tokio::test]
async fn a_history_of_none_is_none_in_the_old_version_too() {
    // protocol-notes.md, loss table: there 0 means all.
    let script = |asked: &Asked| {
        let mut task = task("TASK_STATE_COMPLETED");
        task["history"] =
            json!([{ "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "hello" }] }]);
        match &*asked.path {
            "/api/v1/message:stream" => events(bare_frame(0, &json!({ "task": task })), Then::End),
            "/api/v1/message:send" => json_answer(&json!({ "task": task })),
            _ => json_answer(&task),
        }
    };
    let peer = Peer::of(OLD, &[], script).await;
    let client = peer.client().await;
    for (length, left) in [(Some(0), 0), (Some(1), 1), (None, 1)] {
        let get = GetTaskRequest { id: "t-1".into(), history_length: length, ..Default::default() };
        assert_eq!(client.get_with(get).await.unwrap().history.len(), left);
        let send = || SendMessageRequest {
            message: Message::user("m", Part::text("hello")),
            configuration: Some(SendMessageConfiguration { history_length: length, ..Default::default() }),
            ..Default::default()
        };
        let SendMessageResponse::Task(task) = client.send(send()).await.unwrap() else { panic!("a message") };
        assert_eq!(task.history.len(), left);
        let mut stream = client.stream(send()).await.unwrap();
        let item = futures_util::StreamExt::next(&mut stream).await.unwrap().unwrap();
        let nuncio_client::protocol::Event::Task(task) = &**item.event() else { panic!("no task") };
        assert_eq!(task.history.len(), left);
    }
}

fn start() -> String {
    bare_frame(0, &json!({ "task": task("TASK_STATE_SUBMITTED") }))
}

fn done() -> String {
    bare_frame(0, &update("TASK_STATE_COMPLETED"))
}

#[tokio::test]
async fn a_stream_however_it_is_written() {
    let all = "task:SUBMITTED WORKING COMPLETED";
    let working = bare_frame(0, &update("TASK_STATE_WORKING"));
    for (binding, path, accept) in [
        (NEW, "/api/message:stream", "text/event-stream, application/a2a+json, application/json"),
        (OLD, "/api/v1/message:stream", "text/event-stream, application/json"),
    ] {
        for (text, expected) in [
            (format!("{}{working}{}", start(), done()), all),
            (format!("\u{feff}: hello\n\n{}event: x\n{working}: ping\n\n{}", start(), done()), all),
            (format!("{}{working}{}", start(), done()).replace('\n', "\r\n"), all),
            (bare_frame(0, &json!({ "message": { "messageId": "m", "parts": [{ "text": "hi" }] } })), "hi"),
        ] {
            let peer = Peer::of(binding, &[], move |_| events(text.clone(), Then::End)).await;
            assert_eq!(seen(peer.client().await.stream("hello").await).await, expected);
            assert_eq!(peer.asked(path)[0].header("accept"), Some(accept));
        }
        // Not a stream at all: the only event.
        let peer =
            Peer::of(binding, &[], |_| json_answer(&json!({ "task": task("TASK_STATE_COMPLETED") }))).await;
        assert_eq!(seen(peer.client().await.stream("hello").await).await, "task:COMPLETED");
    }
}

#[tokio::test]
async fn a_cut_stream_goes_on_after_the_last_event() {
    let peer = Peer::of(NEW, &[RESUME_EXTENSION], |asked| match &*asked.path {
        "/api/message:stream" => {
            let text = bare_frame(1, &json!({ "task": task("TASK_STATE_SUBMITTED") }))
                + &bare_frame(2, &update("TASK_STATE_WORKING"))
                + "id: 3\ndata: {\"half";
            events(text, Then::Break)
        }
        _ => events(bare_frame(3, &update("TASK_STATE_COMPLETED")), Then::End),
    })
    .await;
    let stream = peer.client().await.stream("hello").await;
    assert_eq!(seen(stream).await, "1=task:SUBMITTED 2=WORKING 3=COMPLETED");
    assert_eq!(peer.calls(), ["POST /api/message:stream", "POST /api/tasks/t-1:subscribe"]);
    assert_eq!(peer.asked("/api/tasks/t-1:subscribe")[0].header("last-event-id"), Some("2"));
}

#[tokio::test]
async fn errors_before_and_within_a_stream() {
    let wrapped = json!({ "error": { "code": 400, "status": "FAILED_PRECONDITION", "message": "sorry" } });
    let bare = json!({ "code": -32004, "message": "sorry", "data": [] });
    for (binding, error) in [(NEW, &wrapped), (OLD, &bare), (OLD, &wrapped)] {
        let body = error.to_string();
        let peer = Peer::of(binding, &[], move |_| answer(400, &[], body.clone().into())).await;
        let text = seen(peer.client().await.stream("hello").await).await;
        assert_eq!(text, "refused UnsupportedOperation: sorry");

        let text = format!("{}event: error\n{}{}", start(), bare_frame(0, error), done());
        let peer = Peer::of(binding, &[], move |_| events(text.clone(), Then::End)).await;
        let text = seen(peer.client().await.stream("hello").await).await;
        assert_eq!(text, "task:SUBMITTED UnsupportedOperation: sorry");
        assert_eq!(peer.calls().len(), 1, "an error is the end");
    }
}

#[tokio::test]
async fn hostile_streams_are_cut_off() {
    for (text, why) in [
        ("x".repeat(1000), "an endless line"),
        (format!("\u{feff}{}", "x".repeat(1000)), "an endless line after a BOM"),
        ("data: 0123456789\n".to_owned(), "an endless event"),
        ("data: \"\u{e4}\n\n".to_owned(), "no JSON"),
        (bare_frame(0, &json!({ "neither": 1 })), "no event"),
    ] {
        let peer = Peer::of(NEW, &[RESUME_EXTENSION], move |_| events(text.clone(), Then::Repeat)).await;
        let egress = Egress::operator().unwrap().with_max_event(10_000);
        let client = builder().egress(egress).connect(&peer.base).await.unwrap();
        let text = seen(client.stream("hello").await).await;
        assert!(text.starts_with("InvalidAgentResponse"), "{why}: {text}");
        assert_eq!(peer.calls().len(), 1, "{why}: there is no use in asking again");
    }
    let peer = Peer::of(NEW, &[], |_| {
        let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("<p>"));
        answer(200, &[("content-type", "text/html")], axum::body::Body::from_stream(endless))
    })
    .await;
    let error = peer.client().await.stream("hello").await.err().unwrap();
    assert!(error.message().contains("got text/html"), "{error}");
}

#[tokio::test]
async fn a_subscribe_that_is_not_taken_by_post_goes_by_get() {
    // Trap T-01
    for refusal in [404, 405] {
        let peer = Peer::of(NEW, &[], move |asked| match &*asked.verb {
            "GET" => events(start() + &done(), Then::End),
            _ => answer(refusal, &[], "{\"detail\":\"no\"}".into()),
        })
        .await;
        let client = peer.client().await;
        for _ in 0..2 {
            assert_eq!(seen(client.subscribe("t-1").await).await, "task:SUBMITTED COMPLETED");
        }
        let get = "GET /api/tasks/t-1:subscribe";
        assert_eq!(peer.calls(), ["POST /api/tasks/t-1:subscribe", get, get], "and it is remembered");
    }
    // A task that is not there is not looked for twice.
    let peer = Peer::of(NEW, &[], |_| {
        let body = json!({ "error": { "code": 404, "status": "NOT_FOUND", "message": "no such task" } });
        answer(404, &[], body.to_string().into())
    })
    .await;
    let text = seen(peer.client().await.subscribe("t-1").await).await;
    assert_eq!(text, "refused TaskNotFound: no such task");
    assert_eq!(peer.calls().len(), 1);
}
