//! Requests as text, in and out.

use serde_json::{Value, json};

use super::{
    Outgoing, Paths, RestRefusal, RestRequest, decode_body, decode_error, decode_event, decode_request,
    encode_error, encode_request,
};
use crate::{
    Error, ErrorKind, GetTaskRequest, Message, Part, SendMessageRequest,
    op::{Call, Op, Verb},
    wire::{Dialect as _, V1},
};

/// As the previous version has them (REQ-043).
const OLD: Paths = Paths { prefix: "/v1", card: "/card", tenants: false };

/// `verb target` to `operation tenant params`, or to `status what`.
fn describe(paths: &Paths, request: &str, body: &[u8]) -> String {
    let (verb, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    match decode_request(paths, verb, path, query, body) {
        Ok(RestRequest { tenant, op, params }) => {
            format!("{} {} {params}", op.name(), tenant.as_deref().unwrap_or("-"))
        }
        Err(RestRefusal::MethodNotAllowed { allow }) => {
            format!("405 {}", allow.into_iter().map(Verb::as_str).collect::<Vec<_>>().join(", "))
        }
        Err(RestRefusal::NotFound) => "404".to_owned(),
        Err(RestRefusal::Invalid(error)) => {
            let fields: Vec<_> =
                error.violations().iter().map(|violation| violation.field.as_str()).collect();
            format!("{} {:?} {}", error.kind().row().http, error.kind(), fields.join(" "))
                .trim_end()
                .to_owned()
        }
    }
}

#[track_caller]
fn check(paths: &Paths, cases: &[(&str, &str, &str)]) {
    for (request, body, expected) in cases {
        assert_eq!(describe(paths, request, body.as_bytes()), *expected, "{request} with body {body:?}");
    }
}

#[test]
fn the_eleven_routes() {
    // REQ-042
    check(
        &Paths::V1,
        &[
            ("POST /message:send", "{}", "SendMessage - {}"),
            ("POST /message:stream", "{}", "SendStreamingMessage - {}"),
            ("GET /tasks/t", "", r#"GetTask - {"id":"t"}"#),
            ("GET /tasks", "", "ListTasks - {}"),
            ("POST /tasks/t:cancel", "{}", r#"CancelTask - {"id":"t"}"#),
            ("GET /tasks/t:subscribe", "", r#"SubscribeToTask - {"id":"t"}"#),
            (
                "POST /tasks/t/pushNotificationConfigs",
                r#"{"url":"u"}"#,
                r#"CreateTaskPushNotificationConfig - {"taskId":"t","url":"u"}"#,
            ),
            (
                "GET /tasks/t/pushNotificationConfigs/c",
                "",
                r#"GetTaskPushNotificationConfig - {"taskId":"t","id":"c"}"#,
            ),
            (
                "GET /tasks/t/pushNotificationConfigs",
                "",
                r#"ListTaskPushNotificationConfigs - {"taskId":"t"}"#,
            ),
            ("GET /extendedAgentCard", "", "GetExtendedAgentCard - {}"),
            (
                "DELETE /tasks/t/pushNotificationConfigs/c",
                "",
                r#"DeleteTaskPushNotificationConfig - {"taskId":"t","id":"c"}"#,
            ),
        ],
    );
}

#[test]
fn a_version_with_a_prefix_uses_the_same_routes() {
    // REQ-043
    check(
        &OLD,
        &[
            ("POST /v1/message:send", "{}", "SendMessage - {}"),
            ("GET /v1/tasks/t?historyLength=2", "", r#"GetTask - {"id":"t","historyLength":2}"#),
            ("GET /v1/tasks/t?history_length=2", "", r#"GetTask - {"id":"t","historyLength":2}"#),
            (
                "POST /v1/tasks/t:cancel",
                r#"{"name":"tasks/t"}"#,
                r#"CancelTask - {"id":"t","name":"tasks/t"}"#,
            ),
            ("POST /v1/tasks/t:subscribe", "", r#"SubscribeToTask - {"id":"t"}"#),
            ("GET /v1/card", "", "GetExtendedAgentCard - {}"),
            ("GET /v1/extendedAgentCard", "", "404"),
            ("POST /message:send", "{}", "404"),
            ("GET /v1tasks", "", "404"),
            ("GET /acme/v1/tasks", "", "404"),
        ],
    );
}

#[test]
fn subscribe_takes_both_verbs_and_needs_no_body() {
    // REQ-045, REQ-059, trap T-01
    for request in ["POST /tasks/t:subscribe", "POST /tasks/t:cancel", "GET /tasks/t:subscribe"] {
        for body in ["", "{}", "null", " \n"] {
            assert!(
                describe(&Paths::V1, request, body.as_bytes()).ends_with(r#" - {"id":"t"}"#),
                "{request} {body:?}"
            );
        }
    }
}

#[test]
fn an_action_is_what_follows_the_last_colon() {
    // Traps T-11, T-49: escapes are decoded after splitting
    check(
        &Paths::V1,
        &[
            ("GET /tasks/a:b", "", r#"GetTask - {"id":"a:b"}"#),
            ("GET /tasks/a:b:subscribe", "", r#"SubscribeToTask - {"id":"a:b"}"#),
            ("POST /tasks/x%3Acancel:cancel", "", r#"CancelTask - {"id":"x:cancel"}"#),
            ("POST /tasks/x:cancel:cancel", "", r#"CancelTask - {"id":"x:cancel"}"#),
            ("GET /tasks/x%3Acancel", "", r#"GetTask - {"id":"x:cancel"}"#),
            ("GET /tasks/x:cancel", "", "405 POST"),
            ("GET /tasks/a:Cancel", "", r#"GetTask - {"id":"a:Cancel"}"#),
            ("GET /tasks/a%2Fb", "", r#"GetTask - {"id":"a/b"}"#),
            ("GET /tasks/%C3%A4%20%25", "", r#"GetTask - {"id":"ä %"}"#),
            ("GET /tasks/a+b", "", r#"GetTask - {"id":"a+b"}"#),
            (
                "GET /tasks/x:cancel/pushNotificationConfigs/c:subscribe",
                "",
                r#"GetTaskPushNotificationConfig - {"taskId":"x:cancel","id":"c:subscribe"}"#,
            ),
            ("GET /tasks/%ff", "", "400 InvalidParams id"),
            ("GET /tasks/%4", "", "400 InvalidParams id"),
            ("GET /tasks/%zz", "", "400 InvalidParams id"),
        ],
    );
}

#[test]
fn a_tenant_is_one_segment_and_no_name_of_ours() {
    // REQ-044, trap T-10
    check(
        &Paths::V1,
        &[
            ("POST /acme/message:send", "{}", "SendMessage acme {}"),
            ("GET /acme/tasks/t", "", r#"GetTask acme {"id":"t"}"#),
            ("GET /a%2Fb/tasks", "", "ListTasks a/b {}"),
            ("GET /acme/extendedAgentCard", "", "GetExtendedAgentCard acme {}"),
            ("GET /tasks/tasks", "", r#"GetTask - {"id":"tasks"}"#),
            ("GET /tasks/extendedAgentCard", "", r#"GetTask - {"id":"extendedAgentCard"}"#),
            ("GET /tasks/tasks/t", "", "404"),
            ("GET /%74asks/tasks/t", "", "404"),
            ("POST /message:send/message:send", "{}", "404"),
            ("GET /extendedAgentCard/tasks", "", "404"),
            ("GET //tasks", "", "404"),
            ("GET /%ff/tasks", "", "404"),
            ("GET /a/b/tasks", "", "404"),
        ],
    );
}

#[test]
fn an_unknown_path_is_told_from_a_wrong_verb() {
    check(
        &Paths::V1,
        &[
            ("GET /", "", "404"),
            ("GET ", "", "404"),
            ("GET /tasks/", "", "404"),
            ("GET /tasks/t/", "", "404"),
            ("GET /tasks/t/history", "", "404"),
            ("GET /message:send", "", "405 POST"),
            ("PUT /tasks/t", "", "405 GET"),
            ("DELETE /tasks/t:subscribe", "", "405 GET, POST"),
            ("PATCH /tasks/t/pushNotificationConfigs/c", "", "405 GET, DELETE"),
            ("PUT /acme/tasks/t/pushNotificationConfigs", "", "405 POST, GET"),
            ("get /tasks", "", "405 GET"),
        ],
    );
    assert_eq!(
        (RestRefusal::NotFound.status(), RestRefusal::MethodNotAllowed { allow: vec![] }.status()),
        (404, 405)
    );
    let error = RestRefusal::MethodNotAllowed { allow: vec![Verb::Get, Verb::Post] }.into_error();
    assert_eq!(error.kind(), ErrorKind::MethodNotFound);
    assert!(error.message().ends_with("GET, POST"), "{error}");
}

#[test]
fn query_values_have_their_types() {
    // REQ-049 to REQ-052, REQ-074
    check(
        &Paths::V1,
        &[
            (
                "GET /tasks?pageSize=10&historyLength=0",
                "",
                r#"ListTasks - {"pageSize":10,"historyLength":0}"#,
            ),
            ("GET /tasks?includeArtifacts=true", "", r#"ListTasks - {"includeArtifacts":true}"#),
            ("GET /tasks?status=TASK_STATE_WORKING", "", r#"ListTasks - {"status":"TASK_STATE_WORKING"}"#),
            (
                "GET /tasks?statusTimestampAfter=2026-11-15T12%3A00%3A00Z",
                "",
                r#"ListTasks - {"statusTimestampAfter":"2026-11-15T12:00:00Z"}"#,
            ),
            (
                "GET /tasks?statusTimestampAfter=2026-11-15T12:00:00+02:00",
                "",
                r#"ListTasks - {"statusTimestampAfter":"2026-11-15T12:00:00+02:00"}"#,
            ),
            ("GET /tasks?contextId=a%2Bb+c%20d", "", r#"ListTasks - {"contextId":"a+b c d"}"#),
            ("GET /tasks?pageToken=7", "", r#"ListTasks - {"pageToken":"7"}"#),
            ("GET /tasks?tenant=acme", "", r#"ListTasks - {"tenant":"acme"}"#),
            ("GET /tasks/t?historyLength=", "", r#"GetTask - {"id":"t"}"#),
            ("GET /tasks/t?A2A-Version=1.0&x=%zz&%zz=1&id=other&&=", "", r#"GetTask - {"id":"t"}"#),
            ("GET /tasks?page%53ize=5", "", r#"ListTasks - {"pageSize":5}"#),
            ("GET /tasks?pageSize=many", "", "400 InvalidParams pageSize"),
            ("GET /tasks?pageSize=1.5", "", "400 InvalidParams pageSize"),
            ("GET /tasks?includeArtifacts=1", "", "400 InvalidParams includeArtifacts"),
            ("GET /tasks?contextId=%ff", "", "400 InvalidParams contextId"),
            ("GET /tasks?pageSize=1&pageSize=2", "", "400 InvalidParams pageSize"),
            ("POST /message:send?tenant=acme", "{}", "SendMessage - {}"),
        ],
    );
}

#[test]
fn the_body_may_repeat_the_path_but_not_contradict_it() {
    check(
        &Paths::V1,
        &[
            (
                "POST /tasks/t:cancel",
                r#"{"id":"t","metadata":{"a":1}}"#,
                r#"CancelTask - {"id":"t","metadata":{"a":1}}"#,
            ),
            ("POST /tasks/t:cancel", r#"{"id":"\u0074"}"#, r#"CancelTask - {"id":"t"}"#),
            ("POST /tasks/t:cancel", r#"{"id":null}"#, r#"CancelTask - {"id":"t"}"#),
            ("POST /tasks/t:cancel", r#"{"id":""}"#, r#"CancelTask - {"id":"t"}"#),
            ("POST /tasks/t:cancel", r#"{"id":"u"}"#, "400 InvalidParams id"),
            ("POST /tasks/t:cancel", r#"{"id":5}"#, "400 InvalidParams id"),
            ("POST /tasks/t/pushNotificationConfigs", r#"{"task_id":"u"}"#, "400 InvalidParams taskId"),
            (
                "POST /tasks/t/pushNotificationConfigs",
                r#"{"task_id":"t","id":"c"}"#,
                r#"CreateTaskPushNotificationConfig - {"taskId":"t","id":"c"}"#,
            ),
        ],
    );
}

#[test]
fn a_body_is_one_json_object() {
    check(
        &Paths::V1,
        &[
            ("POST /message:send", "", "400 ParseError"),
            ("POST /message:send", "{", "400 ParseError"),
            ("POST /message:send", "{} {}", "400 ParseError"),
            ("POST /message:send", "[]", "400 InvalidRequest"),
            ("POST /message:send", "null", "400 InvalidRequest"),
            ("POST /tasks/t:cancel", "\"t\"", "400 InvalidRequest"),
            ("POST /tasks/t:cancel", "{\"id\":}", "400 ParseError"),
            ("POST /tasks/t/pushNotificationConfigs", "", "400 ParseError"),
        ],
    );
    assert_eq!(describe(&Paths::V1, "POST /message:send", b"{\"\xff\":1}"), "400 ParseError");
}

#[test]
fn a_body_without_path_variables_is_handed_through() {
    let body = br#" {"message" : { "x":1e400 } } "#;
    let incoming = decode_request(&Paths::V1, "POST", "/message:send", None, body).unwrap();
    let at = |text: &str| text.as_ptr() as usize - body.as_ptr() as usize;
    assert_eq!(at(incoming.params.get()), 1, "the same memory, untouched");
}

#[test]
fn the_tenant_of_the_path_goes_into_the_call() {
    // protocol-notes.md, v1.0: accept all places, reject contradictions
    for (request, expected) in [
        ("GET /acme/tasks", Ok(Some("acme"))),
        ("GET /tasks?tenant=acme", Ok(Some("acme"))),
        ("GET /acme/tasks?tenant=acme", Ok(Some("acme"))),
        ("GET /tasks", Ok(None)),
        ("GET /acme/tasks?tenant=other", Err("tenant")),
    ] {
        let (path, query) = request[4..].split_once('?').map_or((&request[4..], None), |(p, q)| (p, Some(q)));
        let incoming = decode_request(&Paths::V1, "GET", path, query, b"").unwrap();
        let call = incoming.decode_call(&V1);
        let tenant = call.as_ref().map(Call::tenant).map_err(|error| error.violations()[0].field.as_str());
        assert_eq!(tenant, expected, "{request}");
    }
}

/// One call of every operation, with this text wherever a text may stand.
fn every_call(text: &str) -> Vec<Call> {
    let all = json!({
        "id": text, "taskId": text, "contextId": text, "pageToken": text, "url": text, "token": text,
        "message": { "messageId": text, "role": "ROLE_USER", "parts": [{ "text": text }] },
        "configuration": { "historyLength": 0, "returnImmediately": true },
        "status": "TASK_STATE_WORKING", "pageSize": 7, "historyLength": 0, "includeArtifacts": false,
        "statusTimestampAfter": "2026-11-15T12:00:00.123+02:00", "metadata": { text: text },
    });
    let params = serde_json::value::to_raw_value(&all).unwrap();
    Op::TABLE.iter().map(|row| V1.decode_call(row.op, Some(&params)).unwrap()).collect()
}

fn json_of(call: &Call) -> (Op, Value) {
    let mut out = Vec::new();
    V1.encode_call(call, &mut out).unwrap();
    (call.op(), serde_json::from_slice(&out).unwrap())
}

#[track_caller]
fn survives(paths: &Paths, call: &Call) {
    let Outgoing { verb, path, query, body } = encode_request(paths, &V1, call.clone()).unwrap();
    let incoming =
        decode_request(paths, verb.as_str(), &path, Some(&query), body.as_deref().unwrap_or_default());
    let again = incoming.unwrap().decode_call(&V1).unwrap();
    assert_eq!(json_of(&again), json_of(call), "{verb:?} {path}?{query}");
}

#[test]
fn what_a_client_writes_a_server_reads() {
    // REQ-049 to REQ-051, traps T-11, T-49
    for text in
        ["t", "a/b", "x:cancel", "x:subscribe", ":", "ä %", "a+b&c=d?e#f", "100%25", "tasks", "…", "\"\\\n"]
    {
        for mut call in every_call(text) {
            survives(&Paths::V1, &call);
            survives(&OLD, &call);
            call.set_tenant(Some("acme/ä".to_owned()));
            survives(&Paths::V1, &call);
        }
    }
}

#[test]
fn requests_of_a_client() {
    let by_hand = |call: Call| {
        let outgoing = encode_request(&Paths::V1, &V1, call).unwrap();
        let body = String::from_utf8(outgoing.body.clone().unwrap_or_default()).unwrap();
        format!("{} {} {body}", outgoing.verb.as_str(), outgoing.target()).trim_end().to_owned()
    };
    let mut calls = every_call("a b").into_iter();
    let mut next = || by_hand(calls.next().unwrap());
    assert!(next().starts_with(r#"POST /message:send {"message":{"messageId":"a b""#));
    assert!(next().starts_with(r#"POST /message:stream {"message":{"messageId":"a b""#));
    assert_eq!(next(), "GET /tasks/a%20b?historyLength=0");
    assert_eq!(
        next(),
        "GET /tasks?contextId=a%20b&status=TASK_STATE_WORKING&pageSize=7&pageToken=a%20b&historyLength=0\
         &statusTimestampAfter=2026-11-15T10%3A00%3A00.123Z&includeArtifacts=false"
    );
    assert_eq!(next(), r#"POST /tasks/a%20b:cancel {"id":"a b","metadata":{"a b":"a b"}}"#);
    assert_eq!(next(), "POST /tasks/a%20b:subscribe {}");
    assert_eq!(
        next(),
        r#"POST /tasks/a%20b/pushNotificationConfigs {"id":"a b","taskId":"a b","url":"a b","token":"a b"}"#
    );
    assert_eq!(next(), "GET /tasks/a%20b/pushNotificationConfigs/a%20b");
    assert_eq!(next(), "GET /tasks/a%20b/pushNotificationConfigs?pageSize=7&pageToken=a%20b");
    assert_eq!(next(), "GET /extendedAgentCard");
    assert_eq!(next(), "DELETE /tasks/a%20b/pushNotificationConfigs/a%20b");

    let message = Message::user("m", Part::text("hi"));
    let req =
        SendMessageRequest { tenant: Some("acme".to_owned()), message, ..SendMessageRequest::default() };
    assert_eq!(
        by_hand(Call::SendMessage(Box::new(req))),
        r#"POST /acme/message:send {"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#
    );
}

#[test]
fn a_subscribe_can_be_repeated_by_get() {
    // Trap T-01
    let call = every_call("t").into_iter().find(|call| call.op() == Op::SubscribeToTask).unwrap();
    let outgoing = encode_request(&Paths::V1, &V1, call).unwrap().by_get();
    assert_eq!(
        (outgoing.verb, outgoing.target().as_str(), outgoing.body),
        (Verb::Get, "/tasks/t:subscribe", None)
    );
}

#[test]
fn what_cannot_stand_in_a_path_is_refused_before_it_goes_out() {
    let get = |tenant: Option<&str>, id: &str| {
        let req = GetTaskRequest { tenant: tenant.map(str::to_owned), id: id.into(), history_length: None };
        Call::GetTask(Box::new(req))
    };
    for (paths, call, field) in [
        (&Paths::V1, get(None, ""), "id"),
        (&Paths::V1, get(None, "."), "id"),
        (&Paths::V1, get(None, ".."), "id"),
        (&Paths::V1, get(Some(".."), "t"), "tenant"),
        // Trap T-10
        (&Paths::V1, get(Some("tasks"), "t"), "tenant"),
        (&Paths::V1, get(Some("message:send"), "t"), "tenant"),
        (&Paths::V1, get(Some("extendedAgentCard"), "t"), "tenant"),
    ] {
        let error = encode_request(paths, &V1, call.clone()).unwrap_err();
        assert_eq!(error.violations()[0].field, field, "{call:?}");
    }
    let sent = encode_request(&OLD, &V1, get(Some("acme"), "t")).unwrap();
    assert_eq!(sent.target(), "/v1/tasks/t", "there is no tenant to name");
}

#[test]
fn an_error_is_a_status_with_typed_details() {
    // REQ-055 to REQ-058
    let mut out = Vec::new();
    encode_error(400, &Error::invalid_field("message.parts", "at least one part is required"), &mut out);
    let expected = json!({ "error": {
        "code": 400,
        "status": "INVALID_ARGUMENT",
        "message": "invalid parameters: message.parts: at least one part is required",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "INVALID_PARAMS",
                "domain": "a2a-protocol.org",
            },
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": "message.parts", "description": "at least one part is required" }],
            },
        ],
    }});
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
}

#[test]
fn every_kind_of_error_survives() {
    // REQ-210; the reason decides, because seven kinds share one status
    for row in ErrorKind::TABLE {
        let error = Error::new(row.kind, "so it is").with_metadata("taskId", "t");
        let mut out = Vec::new();
        encode_error(row.http, &error, &mut out);
        let again = decode_error(500, &out);
        assert_eq!((again.kind(), again.message()), (row.kind, "so it is"));
        assert_eq!(again.metadata(), error.metadata());
    }
}

#[test]
fn errors_of_others() {
    // protocol-notes.md, Errors; traps T-04, T-18
    for (status, body, kind, message) in [
        (
            400,
            r#"{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"no"}}"#,
            ErrorKind::UnsupportedOperation,
            "no",
        ),
        (404, r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no"}}"#, ErrorKind::TaskNotFound, "no"),
        (
            409,
            r#"{"error":{"code":409,"status":"ABORTED","message":"no"}}"#,
            ErrorKind::TaskNotCancelable,
            "no",
        ),
        (400, r#"{"code":-32002,"message":"no","data":{"x":1}}"#, ErrorKind::TaskNotCancelable, "no"),
        (404, r#"{"message":"Task not found"}"#, ErrorKind::TaskNotFound, "Task not found"),
        (404, r#"{"detail":"Not Found"}"#, ErrorKind::MethodNotFound, "Not Found"),
        (400, r#"{"type":"about:blank","title":"Bad","status":400}"#, ErrorKind::InvalidParams, "Bad"),
        (503, r#"{"error":"draining"}"#, ErrorKind::Unavailable, "draining"),
        (422, "[]", ErrorKind::InvalidParams, "the agent answered with HTTP status 422"),
        (502, "<html>", ErrorKind::InvalidAgentResponse, "the agent answered with HTTP status 502"),
        (415, "", ErrorKind::ContentTypeNotSupported, "the agent answered with HTTP status 415"),
        (405, "", ErrorKind::MethodNotFound, "the agent answered with HTTP status 405"),
        (418, "", ErrorKind::InvalidParams, "the agent answered with HTTP status 418"),
        (500, "", ErrorKind::Internal, "the agent answered with HTTP status 500"),
    ] {
        let error = decode_error(status, body.as_bytes());
        assert_eq!((error.kind(), error.message()), (kind, message), "{status} {body}");
    }
}

#[test]
fn bodies_and_frames_of_an_answer() {
    // REQ-054, trap T-29
    assert_eq!(decode_body(b" ").unwrap().get(), "null");
    assert_eq!(decode_body(b"{}").unwrap().get(), "{}");
    assert_eq!(decode_body(b"<html>").unwrap_err().kind(), ErrorKind::InvalidAgentResponse);
    assert!(decode_event(&V1, r#"{"task":{"id":"t"}}"#).is_ok());
    let frame = r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"draining"}}"#;
    assert_eq!(decode_event(&V1, frame).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(decode_event(&V1, "{}").unwrap_err().kind(), ErrorKind::InvalidAgentResponse);
}
