//! The HTTP+JSON binding, version 1.0: what a request means.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use nuncio_server::{
    bind::{Agent, BindOptions},
    protocol::{Binding, Caller},
    testing::card,
};
use serde_json::{Value, json};

use crate::{Answer, Port, V1, Wire, hello, post, probe::Probe};

/// The headers of a request with a body.
const JSON: &[(&str, &str)] = &[("a2a-version", "1.0"), ("content-type", "application/a2a+json")];

#[tokio::test]
async fn every_operation_has_its_verb_and_its_path() {
    // REQ-042, REQ-044, REQ-045, REQ-050 to REQ-052, REQ-059, trap T-01
    let (probe, port) = Probe::on_the_wire();
    let message = hello()["message"].clone();
    for (verb, path, body, expected) in [
        ("POST", "/message:send", hello(), json!({ "SendMessage": { "message": message } })),
        ("POST", "/message:stream", hello(), json!({ "SendStreamingMessage": { "message": message } })),
        ("GET", "/tasks/t-1", json!(null), json!({ "GetTask": { "id": "t-1" } })),
        (
            "GET",
            "/tasks/t-1?historyLength=0",
            json!(null),
            json!({ "GetTask": { "id": "t-1", "historyLength": 0 } }),
        ),
        ("GET", "/tasks/t-1?historyLength=", json!(null), json!({ "GetTask": { "id": "t-1" } })),
        ("GET", "/tasks", json!(null), json!({ "ListTasks": {} })),
        (
            "GET",
            "/tasks?contextId=c%201&status=TASK_STATE_WORKING&pageSize=7&pageToken=a%2Bb&historyLength=3\
             &statusTimestampAfter=2026-01-02T03:04:05%2B01:00&includeArtifacts=true&unknown=1",
            json!(null),
            json!({ "ListTasks": {
                "contextId": "c 1", "status": "TASK_STATE_WORKING", "pageSize": 7, "pageToken": "a+b",
                "historyLength": 3, "statusTimestampAfter": "2026-01-02T02:04:05.000Z",
                "includeArtifacts": true,
            } }),
        ),
        ("POST", "/tasks/t-1:cancel", json!(null), json!({ "CancelTask": { "id": "t-1" } })),
        (
            "POST",
            "/tasks/t-1:cancel",
            json!({ "id": "t-1", "metadata": { "why": 1 } }),
            json!({ "CancelTask": { "id": "t-1", "metadata": { "why": 1 } } }),
        ),
        ("GET", "/tasks/t-1:subscribe", json!(null), json!({ "SubscribeToTask": { "id": "t-1" } })),
        ("POST", "/tasks/t-1:subscribe", json!(null), json!({ "SubscribeToTask": { "id": "t-1" } })),
        ("POST", "/tasks/t-1:subscribe", json!({}), json!({ "SubscribeToTask": { "id": "t-1" } })),
        (
            "POST",
            "/tasks/t-1/pushNotificationConfigs",
            json!({ "id": "p-1", "url": "https://hook.test/" }),
            json!({ "CreateTaskPushNotificationConfig": {
                "id": "p-1", "taskId": "t-1", "url": "https://hook.test/",
            } }),
        ),
        (
            "GET",
            "/tasks/t-1/pushNotificationConfigs/p-1",
            json!(null),
            json!({ "GetTaskPushNotificationConfig": { "taskId": "t-1", "id": "p-1" } }),
        ),
        (
            "GET",
            "/tasks/t-1/pushNotificationConfigs?pageSize=2&pageToken=x",
            json!(null),
            json!({ "ListTaskPushNotificationConfigs": {
                "taskId": "t-1", "pageSize": 2, "pageToken": "x",
            } }),
        ),
        (
            "DELETE",
            "/tasks/t-1/pushNotificationConfigs/p-1",
            json!(null),
            json!({ "DeleteTaskPushNotificationConfig": { "taskId": "t-1", "id": "p-1" } }),
        ),
        ("GET", "/extendedAgentCard", json!(null), json!({ "GetExtendedAgentCard": {} })),
    ] {
        let (headers, body) = if body.is_null() { (V1, String::new()) } else { (JSON, body.to_string()) };
        let answer = port.ask(verb, path, headers, &body).await;
        assert_eq!(
            (answer.status.as_u16(), probe.seen()),
            (200, expected.clone()),
            "{verb} {path} {answer:?}"
        );
        let answer = port.ask(verb, &format!("/acme{path}"), headers, &body).await;
        assert_eq!(answer.status, 200, "{verb} /acme{path} {answer:?}");
        assert_eq!(probe.seen(), of_tenant("acme", expected), "{verb} /acme{path}");
    }
}

/// The same call for a tenant.
fn of_tenant(tenant: &str, mut call: Value) -> Value {
    call.as_object_mut().unwrap().values_mut().next().unwrap()["tenant"] = json!(tenant);
    call
}

#[tokio::test]
async fn answers_are_bare() {
    // REQ-012, REQ-021, REQ-046, REQ-054, trap T-29
    let (_, port) = Probe::on_the_wire();
    let task = |id: &str| {
        let status = json!({ "state": "TASK_STATE_UNSPECIFIED", "timestamp": "2026-01-02T03:04:05.678Z" });
        json!({ "id": id, "contextId": "c-1", "status": status })
    };
    let config = json!({ "taskId": "t-1", "id": "p-1", "url": "https://hook.test/" });
    for (verb, path, body, expected) in [
        ("POST", "/message:send", hello(), json!({ "task": task("t-new") })),
        ("GET", "/tasks/t-1", json!(null), task("t-1")),
        ("POST", "/tasks/t-1:cancel", json!({}), task("t-1")),
        (
            "GET",
            "/tasks",
            json!(null),
            json!({ "tasks": [task("t-1")], "nextPageToken": "", "pageSize": 0, "totalSize": 1 }),
        ),
        ("POST", "/tasks/t-1/pushNotificationConfigs", config.clone(), config.clone()),
        ("GET", "/tasks/t-1/pushNotificationConfigs/p-1", json!(null), config.clone()),
        ("GET", "/tasks/t-1/pushNotificationConfigs", json!(null), json!({ "configs": [config] })),
        ("DELETE", "/tasks/t-1/pushNotificationConfigs/p-1", json!(null), json!({})),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = port.ask(verb, path, JSON, &body).await;
        let mut json = answer.json();
        if path.ends_with("Configs") && verb == "GET" {
            json.as_object_mut().unwrap().remove("nextPageToken");
        }
        assert_eq!((answer.status.as_u16(), json), (200, expected), "{verb} {path}");
        assert_eq!(answer.header("content-type"), Some("application/a2a+json"));
    }
}

#[tokio::test]
async fn a_tenant_is_in_the_path_or_beside_the_parameters_and_never_two() {
    // REQ-044, trap T-10
    let (probe, port) = Probe::on_the_wire();
    let send = |tenant: Value| {
        let mut body = hello();
        body["tenant"] = tenant;
        body.to_string()
    };
    for (verb, path, body, expected) in [
        ("POST", "/message:send", send(json!("acme")), Ok("acme")),
        ("POST", "/acme/message:send", send(json!("acme")), Ok("acme")),
        ("POST", "/acme/message:send", send(json!("")), Ok("acme")),
        ("POST", "/acme/message:send", send(json!(null)), Ok("acme")),
        ("POST", "/acme/message:send", send(json!("other")), Err("tenant")),
        ("GET", "/tasks?tenant=acme", String::new(), Ok("acme")),
        ("GET", "/acme/tasks?tenant=acme", String::new(), Ok("acme")),
        ("GET", "/acme/tasks?tenant=", String::new(), Ok("acme")),
        ("GET", "/acme/tasks?tenant=other", String::new(), Err("tenant")),
        ("GET", "/tasks?tenant=acme&tenant=acme", String::new(), Err("tenant")),
        ("GET", "/acme/tasks/t-1:subscribe?tenant=other", String::new(), Err("tenant")),
        ("GET", "/acme/extendedAgentCard?tenant=other", String::new(), Err("tenant")),
        ("DELETE", "/acme/tasks/t-1/pushNotificationConfigs/p-1?tenant=other", String::new(), Err("tenant")),
        ("POST", "/acme/tasks/t-1:cancel", r#"{"tenant":"other"}"#.to_owned(), Err("tenant")),
        // Any text, escaped.
        ("GET", "/a%2Fb%20%C3%A9/tasks", String::new(), Ok("a/b é")),
        ("GET", "/tasks?tenant=a%2Fb+%C3%A9", String::new(), Ok("a/b é")),
        ("GET", "/v1.0/tasks", String::new(), Ok("v1.0")),
        ("GET", "/message:other/tasks", String::new(), Ok("message:other")),
    ] {
        let answer = port.ask(verb, path, JSON, &body).await;
        let call = probe.seen();
        let tenant = call.as_object().and_then(|call| call.values().next()?["tenant"].as_str());
        let seen = if answer.status == 200 { Ok(tenant.unwrap_or_default()) } else { Err(()) };
        assert_eq!(seen, expected.map_err(drop), "{verb} {path} {body}");
        if let Err(field) = expected {
            assert_eq!((answer.status.as_u16(), &*answer.field()), (400, field), "{verb} {path}");
        }
    }
}

#[tokio::test]
async fn names_that_begin_a_route_are_no_tenants() {
    // Trap T-10. With a version or without: where nothing is, no version will help.
    let (probe, port) = Probe::on_the_wire();
    for tenant in
        ["agents", ".well-known", "message:send", "message:stream", "extendedAgentCard", "%61gents", "%76%31"]
    {
        for headers in [V1, &[][..]] {
            for (verb, path) in
                [("GET", "/tasks"), ("POST", "/message:send"), ("DELETE", "/tasks"), ("GET", "/tasks/t")]
            {
                let answer = port.ask(verb, &format!("/{tenant}{path}"), headers, "").await;
                assert_eq!(answer.status, 404, "{verb} /{tenant}{path} {headers:?}: {answer:?}");
            }
        }
    }
    for (path, id) in [("/tasks/tasks", "tasks"), ("/tasks/extendedAgentCard", "extendedAgentCard")] {
        assert_eq!(port.ask("GET", path, V1, "").await.status, 200);
        assert_eq!(probe.seen(), json!({ "GetTask": { "id": id } }), "a task, not the tenant tasks");
    }
    assert_eq!(port.ask("GET", "/tasks/tasks/t", V1, "").await.status, 404);
    assert_eq!(probe.seen(), json!(null));
}

#[tokio::test]
async fn an_id_is_whatever_its_escapes_mean() {
    // Traps T-11 and T-49, REQ-051
    let (probe, port) = Probe::on_the_wire();
    for (verb, path, expected) in [
        ("GET", "/tasks/a%2Fb", json!({ "GetTask": { "id": "a/b" } })),
        ("GET", "/tasks/a%3Ab", json!({ "GetTask": { "id": "a:b" } })),
        ("GET", "/tasks/a:b", json!({ "GetTask": { "id": "a:b" } })),
        ("GET", "/tasks/a%3Acancel", json!({ "GetTask": { "id": "a:cancel" } })),
        ("GET", "/tasks/a%3acancel", json!({ "GetTask": { "id": "a:cancel" } })),
        ("GET", "/tasks/:cancel", json!({ "GetTask": { "id": ":cancel" } })),
        ("GET", "/tasks/a%253A", json!({ "GetTask": { "id": "a%3A" } })),
        ("GET", "/tasks/a+b", json!({ "GetTask": { "id": "a+b" } })),
        ("GET", "/tasks/%C3%A9", json!({ "GetTask": { "id": "é" } })),
        ("GET", "/tasks/..%2F..%2Fetc", json!({ "GetTask": { "id": "../../etc" } })),
        ("POST", "/tasks/a%2Fb:cancel", json!({ "CancelTask": { "id": "a/b" } })),
        ("POST", "/tasks/a%3Acancel:cancel", json!({ "CancelTask": { "id": "a:cancel" } })),
        ("POST", "/tasks/a:cancel:cancel", json!({ "CancelTask": { "id": "a:cancel" } })),
        ("GET", "/tasks/a%3Asubscribe:subscribe", json!({ "SubscribeToTask": { "id": "a:subscribe" } })),
        (
            "GET",
            "/tasks/a%2Fb/pushNotificationConfigs/p%2Fq",
            json!({ "GetTaskPushNotificationConfig": { "taskId": "a/b", "id": "p/q" } }),
        ),
    ] {
        let answer = port.ask(verb, path, V1, "").await;
        assert_eq!((answer.status.as_u16(), probe.seen()), (200, expected), "{verb} {path}: {answer:?}");
    }
    for (verb, path, status) in [
        ("GET", "/tasks/%zz", 400),
        ("GET", "/tasks/%f", 400),
        ("GET", "/tasks/%ff", 400),
        ("POST", "/tasks/%ff:cancel", 400),
        ("GET", "/tasks?contextId=%ff", 400),
        ("GET", "/%ff/tasks", 404),
        ("GET", "/tasks/", 404),
        ("GET", "//tasks", 404),
        ("GET", "/tasks/a/b", 404),
    ] {
        let answer = port.ask(verb, path, V1, "").await;
        assert_eq!(
            (answer.status.as_u16(), probe.seen()),
            (status, json!(null)),
            "{verb} {path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn below_a_prefix_paths_are_the_same() {
    let probe = Arc::new(Probe::default());
    let port = Port::of(&probe.agent(), "/agents/x");
    for (path, expected) in [
        ("/agents/x/tasks/a%2Fb", json!({ "GetTask": { "id": "a/b" } })),
        ("/agents/x/agents%2Fx/tasks", json!({ "ListTasks": { "tenant": "agents/x" } })),
        ("/agents/x/acme/tasks/t", json!({ "GetTask": { "id": "t", "tenant": "acme" } })),
        ("/agents/x/agents/tasks/t", json!(null)),
        ("/agents/x/agents/x/tasks", json!(null)),
        ("/agents/y/tasks", json!(null)),
        ("/tasks", json!(null)),
    ] {
        let answer = port.ask("GET", path, V1, "").await;
        assert_eq!(
            (answer.status == 200, probe.seen()),
            (!expected.is_null(), expected),
            "{path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn what_the_path_says_the_body_may_repeat_but_not_contradict() {
    let (probe, port) = Probe::on_the_wire();
    for (path, body, field) in [
        ("/tasks/t-1:cancel", r#"{"id":"t-1"}"#, None),
        ("/tasks/t-1:cancel", r#"{"id":""}"#, None),
        ("/tasks/t-1:cancel", r#"{"id":null}"#, None),
        ("/tasks/t-1:cancel", r#"{"id":"t\u002d1"}"#, None),
        ("/tasks/t-1:cancel", r#"{"id":"t-2"}"#, Some("id")),
        ("/tasks/t-1:cancel", r#"{"id":"t-1","id":"t-2"}"#, Some("id")),
        ("/tasks/t-1:cancel", r#"{"id":5}"#, Some("id")),
        ("/tasks/t-1:cancel", r#"{"\u0069d":"t-2"}"#, Some("id")),
        ("/tasks/t-1:subscribe", r#"{"id":"t-2"}"#, Some("id")),
        ("/tasks/t-1/pushNotificationConfigs", r#"{"taskId":"t-1","url":"u"}"#, None),
        ("/tasks/t-1/pushNotificationConfigs", r#"{"task_id":"t-1","url":"u"}"#, None),
        ("/tasks/t-1/pushNotificationConfigs", r#"{"taskId":"t-2","url":"u"}"#, Some("taskId")),
        ("/tasks/t-1/pushNotificationConfigs", r#"{"task_id":"t-2","url":"u"}"#, Some("taskId")),
    ] {
        let answer = port.ask("POST", path, JSON, body).await;
        let call = probe.seen();
        let call = call.as_object().and_then(|call| call.values().next());
        match field {
            None => {
                let call = call.unwrap();
                let id = call.get("taskId").unwrap_or(&call["id"]);
                assert_eq!((answer.status.as_u16(), id), (200, &json!("t-1")), "{path} {body}");
            }
            Some(field) => {
                assert_eq!((answer.status.as_u16(), call), (400, None), "{path} {body}");
                assert_eq!(answer.field(), field, "{path} {body}");
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_before_anybody_is_called() {
    // REQ-018, REQ-022, REQ-052, REQ-055 to REQ-058
    let (probe, port) = Probe::on_the_wire();
    for (verb, path, body, reason, field) in [
        ("POST", "/message:send", "", "PARSE_ERROR", ""),
        ("POST", "/message:send", "{", "PARSE_ERROR", ""),
        ("POST", "/message:send", "null", "INVALID_REQUEST", ""),
        ("POST", "/message:send", "[]", "INVALID_REQUEST", ""),
        ("POST", "/message:send", "5", "INVALID_REQUEST", ""),
        ("POST", "/message:send", r#"{"message":5}"#, "INVALID_PARAMS", "message"),
        ("POST", "/message:send", r#"{"message":{"parts":[{}]}}"#, "INVALID_PARAMS", "message.parts[0]"),
        ("POST", "/message:send", r#"{"message":{},"message":{}}"#, "INVALID_PARAMS", ""),
        ("POST", "/tasks/t:cancel", "{", "PARSE_ERROR", ""),
        ("POST", "/tasks/t:cancel", "[]", "INVALID_REQUEST", ""),
        ("POST", "/tasks/t:cancel", r#"{"metadata":5}"#, "INVALID_PARAMS", "metadata"),
        ("POST", "/tasks/t:subscribe", "5", "INVALID_REQUEST", ""),
        ("POST", "/tasks/t/pushNotificationConfigs", "", "PARSE_ERROR", ""),
        ("POST", "/tasks/t/pushNotificationConfigs", r#"{"url":5}"#, "INVALID_PARAMS", "url"),
        ("GET", "/tasks?pageSize=x", "", "INVALID_PARAMS", "pageSize"),
        ("GET", "/tasks?pageSize=1.5", "", "INVALID_PARAMS", "pageSize"),
        ("GET", "/tasks?pageSize=99999999999", "", "INVALID_PARAMS", "pageSize"),
        ("GET", "/tasks?pageSize=99999999999999999999999", "", "INVALID_PARAMS", "pageSize"),
        ("GET", "/tasks?includeArtifacts=yes", "", "INVALID_PARAMS", "includeArtifacts"),
        ("GET", "/tasks?includeArtifacts=TRUE", "", "INVALID_PARAMS", "includeArtifacts"),
        ("GET", "/tasks?status=nope", "", "INVALID_PARAMS", "status"),
        ("GET", "/tasks?statusTimestampAfter=yesterday", "", "INVALID_PARAMS", "statusTimestampAfter"),
        ("GET", "/tasks?pageSize=1&pageSize=1", "", "INVALID_PARAMS", "pageSize"),
        ("GET", "/tasks/t?historyLength=%31x", "", "INVALID_PARAMS", "historyLength"),
    ] {
        let answer = port.ask(verb, path, JSON, body).await;
        assert_eq!((answer.status.as_u16(), probe.seen()), (400, json!(null)), "{verb} {path} {body}");
        assert_eq!(
            (&*answer.reason(), &*answer.field()),
            (reason, field),
            "{verb} {path} {body}: {answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_or_never_arrives_is_refused() {
    // REQ-023
    let body = hello().to_string();
    for (limit, status, reason) in [(body.len(), 200, ""), (body.len() - 1, 413, "PAYLOAD_TOO_LARGE")] {
        let wire = Wire::with([], |options| options.body_bytes = limit);
        let answer = wire.post("/message:send", V1, &body).await;
        assert_eq!((answer.status.as_u16(), &*answer.reason()), (status, reason), "{limit}");
    }
    let wire = Wire::new([]);
    for path in ["/message:send", "/tasks/t:cancel", "/v1/message:send"] {
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let mut request = post(path, if path.starts_with("/v1") { &[] } else { V1 }, "");
        *request.body_mut() = never;
        let answer = Answer::read(wire.request(request).await).await;
        assert_eq!((answer.status.as_u16(), &*answer.reason()), (504, "DEADLINE_EXCEEDED"), "{path}");
    }
    let broken = futures_util::stream::iter([Ok(Bytes::from("{")), Err(std::io::Error::other("cut"))]);
    let request = Request::post("/message:send").header("a2a-version", "1.0");
    let request = request.header("content-type", "application/json").body(Body::from_stream(broken)).unwrap();
    let answer = Answer::read(wire.request(request).await).await;
    assert_eq!((answer.status.as_u16(), &*answer.reason()), (400, "INVALID_REQUEST"));
    assert!(!answer.text.contains("cut"), "the cause is for the log");
}

#[tokio::test]
async fn what_the_headers_say_reaches_the_service() {
    // In HTTP/2 nothing but what the caller says is a header, so one alone must do.
    let (probe, port) = Probe::on_the_wire();
    for headers in [V1, &[][..]] {
        let path =
            if headers.is_empty() { "/tasks/t:subscribe?A2A-Version=1.0" } else { "/tasks/t:subscribe" };
        let seen = async |name: &str, value: &str| {
            let mut request = crate::request("GET", path, &[headers, &[(name, value)]].concat(), "");
            request.extensions_mut().insert(Caller::authenticated("ann"));
            assert_eq!(port.request(request).await.status(), 200);
            probe.seen_with_context().unwrap().0
        };
        let cx = seen("last-event-id", "7").await;
        assert_eq!((cx.last_event_id.map(|seq| seq.0), cx.caller), (Some(7), Caller::authenticated("ann")));
        assert_eq!(seen("idempotency-key", "k").await.idempotency_key.as_deref(), Some("k"));
        assert_eq!(seen("a2a-extensions", "urn:a, urn:b").await.extensions, ["urn:a", "urn:b"]);
        assert_eq!(seen("traceparent", "00-1-2-3").await.trace.unwrap().parent, "00-1-2-3");
    }
}

#[tokio::test]
async fn how_a_call_came_reaches_the_service() {
    let probe = Arc::new(Probe::default());
    let options = BindOptions { lenient_version: true, ..BindOptions::default() };
    let agent = Agent::new(Arc::clone(&probe) as _, &card(), options).unwrap();
    let port = Port::of(&agent, "");
    let by_method =
        |method: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "id": "t" } });
    let (new, old) = (by_method("GetTask").to_string(), by_method("tasks/get").to_string());
    let (rpc, rest) = (Binding::JsonRpc, Binding::HttpJson);
    let get = |path, headers| crate::request("GET", path, headers, "");
    for (request, binding, unsaid) in [
        (post("/", V1, &new), rpc, false),
        (post("/", &[], &new), rpc, true),
        // Silence means this version: nothing had to be guessed.
        (post("/", &[], &old), rpc, false),
        (get("/tasks/t", V1), rest, false),
        (get("/tasks/t", &[]), rest, true),
        (get("/tasks/t?A2A-Version=1.0", &[]), rest, false),
        (get("/v1/tasks/t", &[]), rest, false),
    ] {
        let shown = format!("{} {:?}", request.uri(), request.headers());
        assert_eq!(port.request(request).await.status(), 200, "{shown}");
        let (cx, _) = probe.seen_with_context().unwrap();
        assert_eq!((cx.binding, cx.version_inferred), (Some(binding), unsaid), "{shown}");
    }
}

impl Answer {
    /// The reason of an error, in the body of either version; empty for a success.
    pub(crate) fn reason(&self) -> String {
        self.details()[0]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The first field that an error names.
    pub(crate) fn field(&self) -> String {
        self.details()[1]["fieldViolations"][0]["field"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn details(&self) -> Value {
        let json = self.json();
        json["error"].get("details").or(json.get("data")).cloned().unwrap_or_default()
    }
}
