//! Invalid input of v1.0, as a table: what a caller sent, the field that the answer names, and a piece of
//! what it says (REQ-018 to REQ-020, REQ-028, REQ-116, REQ-121, REQ-125; traps T-12, T-21, T-40).

use nuncio_protocol::{
    Error, ErrorKind, Result, Validate as _,
    op::{Call, Op},
    wire::{Dialect as _, V1},
};
use serde_json::value::RawValue;

fn refuse(op: Op, params: &str) -> Error {
    let params: &RawValue = serde_json::from_str(params).unwrap();
    let call = V1.decode_call(op, Some(params));
    call.and_then(|call| validate(&call)).expect_err("this is invalid")
}

fn validate(call: &Call) -> Result<()> {
    match call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => req.validate(),
        Call::GetTask(req) => req.validate(),
        Call::ListTasks(req) => req.validate(),
        Call::CancelTask(req) => req.validate(),
        Call::SubscribeToTask(req) => req.validate(),
        Call::CreateTaskPushNotificationConfig(req) => req.validate(),
        Call::GetTaskPushNotificationConfig(req) => req.validate(),
        Call::ListTaskPushNotificationConfigs(req) => req.validate(),
        Call::DeleteTaskPushNotificationConfig(req) => req.validate(),
        Call::GetExtendedAgentCard(_) => Ok(()),
    }
}

#[track_caller]
fn check(op: Op, cases: &[(&str, &str, &str)]) {
    for (params, field, words) in cases {
        let error = refuse(op, params);
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{params}");
        let found: Vec<_> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(found, field.split_whitespace().collect::<Vec<_>>(), "{params}: {error}");
        assert!(error.message().contains(words), "{params}: {error} does not say {words:?}");
        assert!(!error.message().contains(" at line "), "{params}: {error} has a position");
    }
}

/// A send of one message with these members besides the required ones.
fn with_part(part: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"ok"}},{part}]}}}}"#)
}

#[test]
fn a_part_holds_exactly_one_thing() {
    for (part, field, words) in [
        ("{}", "message.parts[1]", "none of text, raw, url, data"),
        (r#"{"kind":"text"}"#, "message.parts[1]", "none of text, raw, url, data"),
        (r#"{"text":null}"#, "message.parts[1]", "none of text, raw, url, data"),
        (r#"{"text":"a","url":"b"}"#, "message.parts[1]", "several of text, raw, url, data"),
        (r#"{"text":"a","data":null}"#, "message.parts[1]", "several of text, raw, url, data"),
        (r#"{"text":"a","text":"b"}"#, "message.parts[1]", "several of text, raw, url, data"),
        (r#"{"text":5}"#, "message.parts[1].text", "expected a string"),
        (r#"{"raw":"*"}"#, "message.parts[1].raw", "invalid base64"),
        (r#"{"raw":"AA-/"}"#, "message.parts[1].raw", "invalid base64"),
        (r#"{"raw":[1]}"#, "message.parts[1].raw", "expected base64 text"),
        (r#"{"text":"a","metadata":[]}"#, "message.parts[1].metadata", "expected a map"),
        (r#""hello""#, "message.parts[1]", "expected a part"),
        ("null", "message.parts[1]", "expected a part"),
    ] {
        check(Op::SendMessage, &[(&with_part(part), field, words)]);
    }
}

#[test]
fn a_message_has_what_it_needs() {
    check(
        Op::SendStreamingMessage,
        &[
            ("{}", "message.messageId message.role message.parts", "required"),
            (r#"{"message":null}"#, "message.messageId message.role message.parts", "required"),
            (
                r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}"#,
                "message.parts",
                "at least one part",
            ),
            (r#"{"message":{"messageId":"m","role":"user","parts":[]}}"#, "message.role", "expected one of"),
            (r#"{"message":{"messageId":"m","role":9}}"#, "message.role", "expected one of"),
            (r#"{"message":{"messageId":7}}"#, "message.messageId", "expected a string"),
            (r#"{"message":"hello"}"#, "message", "expected struct Message"),
            (r#"{"message":true}"#, "message", "expected struct Message"),
            (r#"{"message":{"messageId":"m","message_id":"n"}}"#, "message", "duplicate field"),
            (r#"{"message":{"extensions":"x"}}"#, "message.extensions", "expected a sequence"),
        ],
    );
}

#[test]
fn a_configuration_is_in_range() {
    let with = |configuration: &str| {
        format!(
            r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}]}},"configuration":{configuration}}}"#
        )
    };
    for (configuration, field, words) in [
        (r#"{"historyLength":-1}"#, "configuration.historyLength", "negative"),
        (r#"{"historyLength":1.5}"#, "configuration.historyLength", "32-bit integer"),
        (r#"{"historyLength":"x"}"#, "configuration.historyLength", "32-bit integer"),
        (r#"{"historyLength":3000000000}"#, "configuration.historyLength", "32-bit integer"),
        (r#"{"returnImmediately":"yes"}"#, "configuration.returnImmediately", "boolean"),
        (r#"{"taskPushNotificationConfig":{}}"#, "configuration.taskPushNotificationConfig.url", "required"),
        (
            r#"{"taskPushNotificationConfig":{"url":"u","taskId":"t"}}"#,
            "configuration.taskPushNotificationConfig.taskId",
            "must be empty or the task of the message",
        ),
        ("5", "configuration", "SendMessageConfiguration"),
    ] {
        check(Op::SendMessage, &[(&with(configuration), field, words)]);
    }
}

#[test]
fn reads_name_their_task() {
    check(
        Op::GetTask,
        &[
            ("{}", "id", "required"),
            (r#"{"id":""}"#, "id", "required"),
            (r#"{"id":"t","historyLength":-1}"#, "historyLength", "negative"),
            (r#"{"historyLength":-1}"#, "id historyLength", "negative"),
            (r#"{"id":{}}"#, "id", "expected a string"),
        ],
    );
    check(
        Op::CancelTask,
        &[(r#"{"metadata":{}}"#, "id", "required"), (r#"{"id":"t","metadata":3}"#, "metadata", "map")],
    );
    check(Op::SubscribeToTask, &[(r#"{"id":null}"#, "id", "required")]);
}

#[test]
fn a_list_is_in_range() {
    check(
        Op::ListTasks,
        &[
            (r#"{"pageSize":0}"#, "pageSize", "from 1 to 100"),
            (r#"{"pageSize":101}"#, "pageSize", "from 1 to 100"),
            (r#"{"pageSize":-1,"historyLength":-1}"#, "historyLength pageSize", "negative"),
            (r#"{"status":"running"}"#, "status", "expected one of"),
            (r#"{"status":"TASK_STATE_CANCELLED"}"#, "status", "expected one of"),
            (r#"{"statusTimestampAfter":"yesterday"}"#, "statusTimestampAfter", "ISO 8601"),
            (r#"{"statusTimestampAfter":17}"#, "statusTimestampAfter", "ISO 8601"),
            (r#"{"includeArtifacts":"true"}"#, "includeArtifacts", "boolean"),
        ],
    );
}

#[test]
fn a_webhook_has_an_address() {
    check(
        Op::CreateTaskPushNotificationConfig,
        &[
            ("{}", "taskId url", "required"),
            (r#"{"taskId":"t","url":"u","authentication":{}}"#, "authentication.scheme", "required"),
        ],
    );
    check(Op::GetTaskPushNotificationConfig, &[("{}", "taskId id", "required")]);
    check(Op::DeleteTaskPushNotificationConfig, &[(r#"{"taskId":"t"}"#, "id", "required")]);
    check(Op::ListTaskPushNotificationConfigs, &[(r#"{"pageSize":-1}"#, "taskId pageSize", "negative")]);
}

#[test]
fn parameters_are_an_object() {
    for row in Op::TABLE {
        for params in ["5", "\"x\"", "true"] {
            assert_eq!(refuse(row.op, params).kind(), ErrorKind::InvalidParams, "{} {params}", row.name);
        }
    }
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let error = refuse(Op::SendMessage, &with_part(&format!(r#"{{"data":{deep}}}"#)));
    assert!(error.message().contains("recursion limit"), "{error}");
}

/// As deep as serde_json reads the whole of it as a tree, no deeper and no less.
#[test]
fn nesting_has_the_limit_of_the_document() {
    let mut limits = Vec::new();
    for depth in 118..=130 {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let (message, part) = (r#""messageId":"m","role":"ROLE_USER""#, r#"[{"text":"x"}]"#);
        for params in [
            format!(r#"{{"message":{{{message},"parts":[{{"data":{deep}}}]}}}}"#),
            format!(r#"{{"message":{{{message},"parts":[{{"text":"x","metadata":{{"a":{deep}}}}}]}}}}"#),
            format!(r#"{{"message":{{{message},"parts":{part},"metadata":{{"a":{deep}}}}}}}"#),
            format!(r#"{{"message":{{{message},"parts":{part}}},"metadata":{{"a":{deep}}}}}"#),
        ] {
            let tree = serde_json::from_str::<serde_json::Value>(&params).map_err(|error| error.to_string());
            let json: &RawValue = serde_json::from_str(&params).unwrap();
            let call = V1.decode_call(Op::SendMessage, Some(json));
            assert_eq!(call.is_ok(), tree.is_ok(), "{params}: {call:?}");
            limits.push(call.is_ok());
        }
    }
    assert!(limits.contains(&true) && limits.contains(&false));
}

/// Unreadable values are refused with their path, at any depth in free-form data.
#[test]
fn values_that_are_none_are_refused_by_their_path() {
    for (value, inside, words) in [
        ("1e400", "", "number out of range"),
        (r#"{"a":[0,-1e400]}"#, ".a[1]", "number out of range"),
        (r#"["\ud800"]"#, "[0]", "unexpected end of hex escape"),
        (r#"[["\udc00x"]]"#, "[0][0]", "lone leading surrogate in hex escape"),
    ] {
        check(
            Op::SendMessage,
            &[(
                &with_part(&format!(r#"{{"data":{value}}}"#)),
                &format!("message.parts[1].data{inside}"),
                words,
            )],
        );
        let metadata = format!(r#"{{"text":"x","metadata":{{"m":{value}}}}}"#);
        check(
            Op::SendMessage,
            &[(&with_part(&metadata), &format!("message.parts[1].metadata.m{inside}"), words)],
        );
    }
}

#[test]
fn an_array_in_place_of_an_object_is_read_by_position() {
    // Not as it should be: what serde derives takes an array for a struct. No peer is known to send one,
    // both framings refuse one as the parameters, and validation finds what is then missing.
    let error = refuse(Op::SendMessage, r#"{"message":["m",null,null,"ROLE_USER"]}"#);
    assert_eq!(error.violations()[0].field, "message.parts", "{error}");
}
