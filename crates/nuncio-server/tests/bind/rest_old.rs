//! The HTTP+JSON binding, version 0.3, below `/v1`.

use nuncio_server::protocol::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::{Answer, V1, Wire, probe::Probe};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn hello() -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "content": [{ "text": "hi" }] } })
}

fn hello_with(part: &Value) -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "content": [part] } })
}

#[tokio::test]
async fn every_operation_has_its_verb_and_its_path() {
    // REQ-043, REQ-045, REQ-048, REQ-059, traps T-01 and T-08
    let (probe, port) = Probe::on_the_wire();
    let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let config = json!({ "taskId": "t-1", "id": "p-1", "url": "https://hook.test/" });
    let old_config = json!({ "config": {
        "name": "tasks/t-1/pushNotificationConfigs/p-1",
        "pushNotificationConfig": { "id": "p-1", "url": "https://hook.test/" },
    } });
    for (verb, path, body, expected) in [
        ("POST", "/message:send", hello(), json!({ "SendMessage": { "message": message } })),
        ("POST", "/message:stream", hello(), json!({ "SendStreamingMessage": { "message": message } })),
        ("GET", "/tasks/t-1", json!(null), json!({ "GetTask": { "id": "t-1" } })),
        (
            "GET",
            "/tasks/t-1?historyLength=2",
            json!(null),
            json!({ "GetTask": { "id": "t-1", "historyLength": 2 } }),
        ),
        ("POST", "/tasks/t-1:cancel", json!(null), json!({ "CancelTask": { "id": "t-1" } })),
        (
            "POST",
            "/tasks/t-1:cancel",
            json!({ "name": "tasks/t-1" }),
            json!({ "CancelTask": { "id": "t-1" } }),
        ),
        ("POST", "/tasks/a%2Fb:cancel", json!({}), json!({ "CancelTask": { "id": "a/b" } })),
        ("GET", "/tasks/a%3Acancel", json!(null), json!({ "GetTask": { "id": "a:cancel" } })),
        ("GET", "/tasks/t-1:subscribe", json!(null), json!({ "SubscribeToTask": { "id": "t-1" } })),
        ("POST", "/tasks/t-1:subscribe", json!(null), json!({ "SubscribeToTask": { "id": "t-1" } })),
        (
            "POST",
            "/tasks/t-1/pushNotificationConfigs",
            old_config,
            json!({ "CreateTaskPushNotificationConfig": config }),
        ),
        (
            "GET",
            "/tasks/t-1/pushNotificationConfigs/p-1",
            json!(null),
            json!({ "GetTaskPushNotificationConfig": { "taskId": "t-1", "id": "p-1" } }),
        ),
        (
            "GET",
            "/tasks/t-1/pushNotificationConfigs",
            json!(null),
            json!({ "ListTaskPushNotificationConfigs": { "taskId": "t-1" } }),
        ),
        (
            "DELETE",
            "/tasks/t-1/pushNotificationConfigs/p-1",
            json!(null),
            json!({ "DeleteTaskPushNotificationConfig": { "taskId": "t-1", "id": "p-1" } }),
        ),
        ("GET", "/card", json!(null), json!({ "GetExtendedAgentCard": {} })),
    ] {
        let (headers, body) =
            if body.is_null() { (&[][..], String::new()) } else { (JSON, body.to_string()) };
        let answer = port.ask(verb, &format!("/v1{path}"), headers, &body).await;
        let mut seen = probe.seen();
        if let Some(call) = seen.as_object_mut().and_then(|call| call.values_mut().next()?.as_object_mut()) {
            // In this form absent means not to wait, see trap T-22.
            call.remove("configuration");
        }
        assert_eq!((answer.status.as_u16(), seen), (200, expected), "{verb} {path} {answer:?}");
        let media_type = answer.header("content-type").unwrap();
        assert!(["application/json", "text/event-stream"].contains(&media_type), "REQ-048: {media_type}");
    }
}

#[tokio::test]
async fn answers_are_in_the_form_of_the_old_messages() {
    // REQ-202, trap T-08, trap T-29
    let (_, port) = Probe::on_the_wire();
    let task = |id: &str| {
        let status = json!({ "state": "TASK_STATE_UNSPECIFIED", "timestamp": "2026-01-02T03:04:05.678Z" });
        json!({ "id": id, "contextId": "c-1", "status": status })
    };
    for (verb, path, body, expected) in [
        ("POST", "/v1/message:send", hello(), json!({ "task": task("t-new") })),
        ("GET", "/v1/tasks/t-1", json!(null), task("t-1")),
        ("POST", "/v1/tasks/t-1:cancel", json!({}), task("t-1")),
        ("DELETE", "/v1/tasks/t-1/pushNotificationConfigs/p-1", json!(null), json!({})),
        (
            "GET",
            "/v1/tasks/t-1/pushNotificationConfigs/p-1",
            json!(null),
            json!({
                "name": "tasks/t-1/pushNotificationConfigs/p-1",
                "pushNotificationConfig": { "id": "p-1", "url": "https://hook.test/" },
            }),
        ),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        // Its media type is the only one, whatever the caller knows.
        let headers = [JSON, &[("accept", "application/a2a+json")]].concat();
        let answer = port.ask(verb, path, &headers, &body).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, expected), "{verb} {path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let stream = port.ask("POST", "/v1/message:stream", JSON, &hello().to_string()).await.frames();
    assert_eq!(stream.len(), 1);
    let message = &stream[0].1["message"];
    assert_eq!(
        (&stream[0].0, &message["content"][0]["text"]),
        (&"7".to_owned(), &json!("hello")),
        "{message}"
    );
}

#[tokio::test]
async fn there_are_neither_lists_nor_tenants() {
    // REQ-206
    let (probe, port) = Probe::on_the_wire();
    let answer = port.ask("GET", "/v1/tasks", &[], "").await;
    assert_eq!((answer.status.as_u16(), &*answer.reason()), (501, "UNSUPPORTED_OPERATION"));
    for path in ["/acme/v1/tasks/t", "/v1/acme/tasks/t", "/v1/extendedAgentCard", "/v1/v1/tasks/t", "/v1card"]
    {
        assert_eq!(port.ask("GET", path, &[], "").await.status, 404, "{path}");
    }
    let mut body = hello();
    body["tenant"] = json!("acme");
    assert_eq!(port.ask("POST", "/v1/message:send", JSON, &body.to_string()).await.status, 200);
    let call = probe.seen();
    assert!(call["SendMessage"].is_object() && call["SendMessage"].get("tenant").is_none(), "{call}");
}

#[tokio::test]
async fn every_error_has_the_status_and_the_body_of_the_time() {
    // protocol-notes.md, Errors
    let (probe, port) = Probe::on_the_wire();
    for row in ErrorKind::TABLE {
        probe.refuse(|| Error::new(row.kind, "so it is").with_metadata("taskId", "t"));
        let status = match row.kind {
            ErrorKind::TaskNotCancelable => 409,
            ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation => 501,
            ErrorKind::ContentTypeNotSupported => 415,
            ErrorKind::InvalidAgentResponse => 502,
            ErrorKind::InvalidParams => 422,
            ErrorKind::ExtendedAgentCardNotConfigured => 404,
            _ => row.http,
        };
        let answer = port.ask("GET", "/v1/tasks/t", &[], "").await;
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": row.reason,
            "domain": "a2a-protocol.org", "metadata": { "taskId": "t" },
        });
        let mut body = answer.json();
        // The class, for clients that know errors by nothing else.
        let class = body.as_object_mut().unwrap().remove("type");
        if row.kind == ErrorKind::TaskNotFound {
            assert_eq!(class, Some(json!("TaskNotFoundError")));
        }
        assert_eq!(
            (answer.status.as_u16(), body),
            (
                status,
                json!({
                    "code": row.code, "message": "so it is", "data": [info],
                    // a2a-go 2.x reads this one.
                    "error": {
                        "code": status, "status": row.grpc.name, "message": "so it is", "details": [info],
                    },
                })
            ),
            "{:?}",
            row.kind
        );
        assert_eq!(answer.header("content-type"), Some("application/json"));
        probe.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn files_have_the_form_that_the_callers_sdk_uses() {
    // Python, Go and Java have the base64 text of a file where its bytes belong, JavaScript has the bytes.
    const TEXT: &str = "text/plain";
    const BINARY: &str = "application/octet-stream";
    let (hello, hello_text) = ("aGVsbG8=", "YUdWc2JHOD0=");
    let (bytes, bytes_text) = ("AQIDBAUGBwgJCgsMDQ4=", "QVFJREJBVUdCd2dKQ2dzTURRND0=");
    for (user_agent, media_type, said, kept) in [
        ("python-httpx/0.28.1", TEXT, hello_text, hello),
        ("python-httpx/0.28.1", BINARY, bytes_text, bytes),
        ("Go-http-client/1.1", TEXT, hello_text, hello),
        ("Java-http-client/21.0.4", TEXT, hello_text, hello),
        ("node", TEXT, hello, hello),
        ("node", BINARY, bytes_text, bytes_text),
        ("curl/8.5.0", BINARY, bytes_text, bytes),
    ] {
        let wire = Wire::new([]);
        let file = json!({ "fileWithBytes": said, "mimeType": media_type });
        let mut body = hello_with(&json!({ "file": file }));
        body["configuration"] = json!({ "blocking": true });
        let headers = [JSON, &[("user-agent", user_agent)]].concat();
        let sent = wire.ask("POST", "/v1/message:send", &headers, &body.to_string()).await.json();
        let answered = &sent["task"]["history"][0]["content"][0]["file"]["fileWithBytes"];
        assert_eq!(answered, said, "{user_agent} {media_type}: {sent}");
        let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
        let task = wire.ask("GET", &path, V1, "").await.json();
        assert_eq!(task["history"][0]["parts"][0]["raw"], kept, "{user_agent} {media_type}");
    }
    // A caller of whom nothing is known and whose bytes are no text gets the text of them, as most want it.
    let wire = Wire::new([]);
    for (file, kept, answered) in [
        (json!({ "fileWithBytes": bytes }), bytes, bytes_text),
        (json!({ "fileWithBytes": hello_text, "mimeType": TEXT }), hello_text, "WVVkV2MySkhPRDA9"),
        // The names of JSON-RPC mean what they mean there.
        (json!({ "bytes": bytes_text }), bytes_text, "UVZGSlJFSkJWVWRDZDJkS1EyZHpUVVJSTkQwPQ=="),
    ] {
        let mut body = hello_with(&json!({ "file": file }));
        body["configuration"] = json!({ "blocking": true });
        let sent = wire.ask("POST", "/v1/message:send", JSON, &body.to_string()).await.json();
        let content = &sent["task"]["history"][0]["content"][0]["file"]["fileWithBytes"];
        assert_eq!(content, answered, "{file}");
        let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
        let task = wire.ask("GET", &path, V1, "").await.json();
        assert_eq!(task["history"][0]["parts"][0]["raw"], kept, "{file}");
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (probe, port) = Probe::on_the_wire();
    let good = hello().to_string();
    for (verb, path, content_type, body, status, reason) in [
        ("POST", "/v1/message:send", "text/plain", &*good, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        ("POST", "/v1/message:send", "text/plain", "{", 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        ("POST", "/v1/message:send", "application/json", "{", 400, "PARSE_ERROR"),
        ("POST", "/v1/message:send", "application/json", "5", 400, "INVALID_REQUEST"),
        ("POST", "/v1/message:send", "application/json", r#"{"message":5}"#, 422, "INVALID_PARAMS"),
        ("POST", "/v1/tasks/t:cancel", "application/json", "[]", 400, "INVALID_REQUEST"),
        ("POST", "/v1/tasks/t:cancel", "application/json", r#"{"name":5}"#, 422, "INVALID_PARAMS"),
        ("POST", "/v1/tasks/t:cancel", "application/json", r#"{"name":"t"}"#, 422, "INVALID_PARAMS"),
        ("POST", "/v1/tasks/t:cancel", "application/json", r#"{"name":"tasks/u"}"#, 422, "INVALID_PARAMS"),
        ("POST", "/v1/tasks/t:cancel", "application/json", r#"{"id":"u"}"#, 422, "INVALID_PARAMS"),
        ("POST", "/v1/tasks/t:subscribe", "application/json", r#"{"name":"tasks/u"}"#, 422, "INVALID_PARAMS"),
        ("GET", "/v1/tasks/t?historyLength=x", "application/json", "", 422, "INVALID_PARAMS"),
        ("GET", "/v1/tasks/%ff", "application/json", "", 422, "INVALID_PARAMS"),
        ("GET", "/v1/nowhere", "application/json", "", 404, "METHOD_NOT_FOUND"),
        ("GET", "/v1/message:send", "application/json", "", 405, "METHOD_NOT_FOUND"),
    ] {
        let answer: Answer = port.ask(verb, path, &[("content-type", content_type)], body).await;
        assert_eq!(
            (answer.status.as_u16(), &*answer.reason()),
            (status, reason),
            "{verb} {path} {body} {answer:?}"
        );
        assert_eq!(probe.seen(), json!(null), "{verb} {path} {body}");
        assert_eq!(answer.header("allow"), (status == 405).then_some("POST"));
    }
}
