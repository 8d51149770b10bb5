//! Calls whose parameters are wrong: each answer names the field (REQ-018 to REQ-020, REQ-028, REQ-116).

use nuncio_protocol::{ErrorKind, Version, op::Op};
use serde_json::{Value, json};

use crate::{NESTING_DEPTH, Refusal, VERSIONS, Victim, call, message, send, ways};

/// Sends parameters of this operation over every binding in which they can be said, and expects this field
/// to be named.
async fn check(victim: &Victim, version: Version, op: Op, params: &str, field: &'static str) {
    let answer = victim.post(version, call(version, op, params)).await;
    let shown: String = params.chars().take(200).collect();
    let what = format!("{version} {op:?} {shown}");
    Refusal::of_call(-32602, field).check(&what, &answer);
    ways::check(victim, version, op, params, ErrorKind::InvalidParams, field, &what).await;
}

/// The cases of this file are worth little if they cannot be said.
#[tokio::test(flavor = "multi_thread")]
async fn most_can_be_said_over_every_binding() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        for (op, params, over_grpc) in [
            (Op::SendMessage, "{}".to_owned(), true),
            (Op::SendMessage, with_parts(version, json!([])), true),
            (Op::SendMessage, with(version, "role", json!(99)), false),
            (Op::GetTask, r#"{"id":"t","historyLength":-1}"#.to_owned(), true),
            (Op::GetTask, r#"{"id":"t","historyLength":"x"}"#.to_owned(), false),
        ] {
            assert!(victim.rest(version, op, &params).await.is_some(), "{version} {params}");
            assert_eq!(victim.grpc(version, op, &params).await.is_some(), over_grpc, "{version} {params}");
        }
    }
}

/// A message with one member changed.
fn with(version: Version, member: &str, value: Value) -> String {
    let mut message = message(version, "completed");
    message[member] = value;
    json!({ "message": message }).to_string()
}

/// A message with these parts.
fn with_parts(version: Version, parts: Value) -> String {
    with(version, "parts", parts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_none_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let op = Op::SendMessage;
        for (params, field) in [
            ("{}".to_owned(), "message.messageId"),
            (r#"{"message":null,"configuration":null,"metadata":null}"#.to_owned(), "message.messageId"),
            (r#"{"message":5}"#.to_owned(), "message"),
            (r#"{"message":"hello"}"#.to_owned(), "message"),
            (with(version, "messageId", json!(null)), "message.messageId"),
            (with(version, "messageId", json!("")), "message.messageId"),
            (with(version, "messageId", json!(5)), "message.messageId"),
            (with(version, "messageId", json!("x".repeat(257))), "message.messageId"),
            (with(version, "role", json!(null)), "message.role"),
            (with(version, "role", json!("robot")), "message.role"),
            (with(version, "role", json!(99)), "message.role"),
            (with(version, "contextId", json!({})), "message.contextId"),
            (with(version, "taskId", json!([])), "message.taskId"),
            (with(version, "referenceTaskIds", json!("t")), "message.referenceTaskIds"),
            (with(version, "extensions", json!([1])), "message.extensions[0]"),
            (with(version, "metadata", json!([])), "message.metadata"),
            (with(version, "metadata", json!("x")), "message.metadata"),
            (with_parts(version, json!(null)), "message.parts"),
            (with_parts(version, json!([])), "message.parts"),
            (with_parts(version, json!({})), "message.parts"),
            (with_parts(version, json!("hello")), "message.parts"),
            (with_parts(version, json!([null])), "message.parts[0]"),
            (with_parts(version, json!([1])), "message.parts[0]"),
        ] {
            check(&victim, version, op, &params, field).await;
        }
    }
    victim.still_works().await;
}

/// REQ-020, traps T-12, T-30, T-40; the member's presence counts, not its value.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_holds_exactly_one_thing() {
    let victim = Victim::new().await;
    for part in [
        json!({}),
        json!({"kind": "text"}),
        json!({"metadata": {"a": 1}}),
        json!({"text": null}),
        json!({"raw": null, "url": null}),
        json!({"raw": "AA==", "url": "https://x.example"}),
        json!({"text": "a", "data": null}),
        json!({"text": "a", "raw": "AA=="}),
        json!({"text": "a", "raw": "AA==", "url": "u", "data": {}}),
    ] {
        check(
            &victim,
            Version::V1_0,
            Op::SendMessage,
            &with_parts(Version::V1_0, json!([part])),
            "message.parts[0]",
        )
        .await;
    }
    for (part, field) in [
        (json!({"text": 5}), "message.parts[0].text"),
        (json!({"raw": "?"}), "message.parts[0].raw"),
        (json!({"raw": 5}), "message.parts[0].raw"),
        (json!({"url": {}}), "message.parts[0].url"),
        (json!({"text": "a", "metadata": 5}), "message.parts[0].metadata"),
        (json!({"text": "a", "mediaType": 5}), "message.parts[0].mediaType"),
    ] {
        check(&victim, Version::V1_0, Op::SendMessage, &with_parts(Version::V1_0, json!([part])), field)
            .await;
    }
    for part in [
        json!({}),
        json!({"kind": "text"}),
        json!({"kind": "file"}),
        json!({"kind": "file", "file": {}}),
        json!({"kind": "file", "file": {"name": "a"}}),
        json!({"kind": "data"}),
        json!({"kind": "poem", "poem": "x"}),
    ] {
        check(
            &victim,
            Version::V0_3,
            Op::SendMessage,
            &with_parts(Version::V0_3, json!([part])),
            "message.parts[0]",
        )
        .await;
    }
    for (part, field) in [
        (
            json!({"kind": "file", "file": {"bytes": "AA==", "uri": "https://x.example"}}),
            "message.parts[0].file",
        ),
        (json!({"kind": "file", "file": {"bytes": "?"}}), "message.parts[0].file.bytes"),
        (json!({"kind": "text", "text": 5}), "message.parts[0].text"),
    ] {
        check(&victim, Version::V0_3, Op::SendMessage, &with_parts(Version::V0_3, json!([part])), field)
            .await;
    }
    let null = with_parts(Version::V1_0, json!([{"text": "completed"}, {"data": null}]));
    victim.result(Version::V1_0, Op::SendMessage, &null).await;
    victim.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_out_of_range_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        for number in ["-1", "1.5", "99999999999", "1e400", "-1e400", "\"x\"", "true", "[]", "{}"] {
            let get = format!(r#"{{"id":"t","historyLength":{number}}}"#);
            check(&victim, version, Op::GetTask, &get, "historyLength").await;
            let message = message(version, "completed");
            let send = format!(r#"{{"message":{message},"configuration":{{"historyLength":{number}}}}}"#);
            check(&victim, version, Op::SendMessage, &send, "configuration.historyLength").await;
        }
        for number in ["1e400", "-1e999999999"] {
            let message = message(version, "completed").to_string();
            let (open, _) = message.split_at(message.len() - 1);
            let params = format!(r#"{{"message":{open},"metadata":{{"n":{number}}}}}}}"#);
            check(&victim, version, Op::SendMessage, &params, "message.metadata.n").await;
        }
    }
    for (params, field) in [
        (r#"{"pageSize":0}"#, "pageSize"),
        (r#"{"pageSize":101}"#, "pageSize"),
        (r#"{"pageSize":-5}"#, "pageSize"),
        (r#"{"pageSize":2147483648}"#, "pageSize"),
        (r#"{"pageToken":"forged"}"#, "pageToken"),
        (r#"{"pageToken":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#, "pageToken"),
        (r#"{"pageToken":"%00"}"#, "pageToken"),
        (r#"{"pageToken":5}"#, "pageToken"),
        (r#"{"status":"NOPE"}"#, "status"),
        (r#"{"status":99}"#, "status"),
        (r#"{"statusTimestampAfter":"yesterday"}"#, "statusTimestampAfter"),
        (r#"{"includeArtifacts":"yes"}"#, "includeArtifacts"),
        (r#"{"contextId":5}"#, "contextId"),
        (r#"{"historyLength":-1}"#, "historyLength"),
    ] {
        check(&victim, Version::V1_0, Op::ListTasks, params, field).await;
    }
    victim.still_works().await;
}

/// REQ-122: a page token with one character changed is forged.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_token_that_was_touched_is_refused() {
    let victim = Victim::new().await;
    for _ in 0..2 {
        victim.task(Version::V1_0, "completed").await;
    }
    let page = victim.result(Version::V1_0, Op::ListTasks, r#"{"pageSize":1}"#).await;
    let token = page["nextPageToken"].as_str().unwrap();
    victim
        .result(Version::V1_0, Op::ListTasks, &json!({"pageSize": 1, "pageToken": token}).to_string())
        .await;
    for i in 0..token.len() {
        let other = if token.as_bytes()[i] == b'A' { "B" } else { "A" };
        let forged = format!("{}{other}{}", &token[..i], &token[i + 1..]);
        let params = json!({"pageSize": 1, "pageToken": forged}).to_string();
        check(&victim, Version::V1_0, Op::ListTasks, &params, "pageToken").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_about_no_task_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        for op in [Op::GetTask, Op::CancelTask] {
            for params in
                ["{}", "null", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":5}"#, r#"{"id":{"id":"t"}}"#]
            {
                check(&victim, version, op, params, "id").await;
            }
        }
    }
    victim.still_works().await;
}

/// Far deeper than any stack: refused, and nothing breaks.
#[tokio::test(flavor = "multi_thread")]
async fn bottomless_nesting_is_refused() {
    let victim = Victim::new().await;
    let arrays = format!("{}{}", "[".repeat(NESTING_DEPTH), "]".repeat(NESTING_DEPTH));
    let objects = format!("{}1{}", "{\"a\":".repeat(NESTING_DEPTH), "}".repeat(NESTING_DEPTH));
    for (version, value) in VERSIONS.into_iter().flat_map(|version| [(version, &arrays), (version, &objects)])
    {
        let message = message(version, "completed").to_string();
        let open = message.strip_suffix('}').unwrap();
        let data = match version {
            Version::V1_0 => format!(r#"{{"data":{value}}}"#),
            Version::V0_3 => format!(r#"{{"kind":"data","data":{{"a":{value}}}}}"#),
        };
        for (params, field) in [
            (format!(r#"{{"message":{message},"metadata":{{"a":{value}}}}}"#), "metadata.a"),
            (format!(r#"{{"message":{open},"metadata":{{"a":{value}}}}}}}"#), "message.metadata.a"),
            (format!(r#"{{"message":{{"messageId":"m","parts":[{data}]}}}}"#), "message.parts[0].data"),
        ] {
            let answer = victim.post(version, call(version, Op::SendMessage, &params)).await.json();
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            let violation = &answer["error"]["data"][1]["fieldViolations"][0];
            assert_eq!(violation["description"], "recursion limit exceeded");
            assert!(violation["field"].as_str().unwrap().starts_with(field), "{field}: {violation}");
        }
        // What nobody reads does no harm (REQ-010).
        let params = format!(r#"{{"message":{message},"unknown":{value}}}"#);
        victim.result(version, Op::SendMessage, &params).await;
    }
    victim.still_works().await;
}

/// An answer does not repeat what a caller floods us with.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_not_thrown_back() {
    let victim = Victim::new().await;
    let flood = "\u{e9}".repeat(100_000);
    for version in VERSIONS {
        for body in [
            call(version, Op::SendMessage, &with(version, "role", json!(flood))),
            call(version, Op::SendMessage, &format!(r#"{{"metadata":{{"{flood}":1e400}}}}"#)),
            call(version, Op::GetTask, &format!(r#"{{"id":["{flood}"]}}"#)),
            call(version, Op::GetTask, &format!(r#"{{"id":"{flood}"}}"#)),
            json!({"jsonrpc": "2.0", "id": "c", "method": flood}).to_string(),
            format!(r#"{{"jsonrpc":"2.0","id":"c","{flood}":1,"method":5}}"#),
        ] {
            let answer = victim.post(version, body).await;
            assert!(answer.json()["error"]["code"].is_number(), "{version}");
            assert!(answer.body.len() < 2000, "{} bytes", answer.body.len());
        }
    }
    victim.still_works().await;
}

/// Two members of one name: which of them counts is anybody's guess.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_given_twice_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let message = message(version, "completed");
        let twice = format!(r#"{{"message":{message},"message":{message}}}"#);
        let nested = message.to_string().replacen('{', r#"{"messageId":"n","#, 1);
        // The field is the object that has the member twice; the description says which member.
        check(&victim, version, Op::SendMessage, &twice, "").await;
        check(&victim, version, Op::SendMessage, &format!(r#"{{"message":{nested}}}"#), "message").await;
        let answer = victim.post(version, call(version, Op::GetTask, r#"{"id":"a","id":"b"}"#)).await;
        Refusal::of_call(-32602, "").check("two ids", &answer);
    }
    victim.still_works().await;
}

/// REQ-098, REQ-103, REQ-105, over the wire as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_the_wrong_task_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let done = victim.task(version, "completed").await;
        let params = with(version, "taskId", done["id"].clone());
        let answer = victim.post(version, call(version, Op::SendMessage, &params)).await;
        Refusal::of_call(-32004, "").check("a finished task", &answer);
        let kind = ErrorKind::UnsupportedOperation;
        ways::check(&victim, version, Op::SendMessage, &params, kind, "", "a finished task").await;

        let asked = victim.task(version, "ask Which?").await;
        let mut message = message(version, "completed");
        message["taskId"] = asked["id"].clone();
        message["contextId"] = json!("another");
        check(
            &victim,
            version,
            Op::SendMessage,
            &json!({ "message": message }).to_string(),
            "message.contextId",
        )
        .await;

        let unsupported = match version {
            Version::V1_0 => json!([{"raw": "AA==", "mediaType": "application/x-unsupported"}]),
            Version::V0_3 => {
                json!([{"kind": "file", "file": {"bytes": "AA==", "mimeType": "application/x-unsupported"}}])
            }
        };
        let (params, what) = (with_parts(version, unsupported), "a media type that is not taken");
        let answer = victim.post(version, call(version, Op::SendMessage, &params)).await;
        Refusal::of_call(-32005, "").check(what, &answer);
        let kind = ErrorKind::ContentTypeNotSupported;
        ways::check(&victim, version, Op::SendMessage, &params, kind, "", what).await;
    }
    victim.still_works().await;
}

/// REQ-010: what we do not know is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_members_are_ignored() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let mut params: Value = serde_json::from_str(&send(version, "completed")).unwrap();
        params["unknown"] = json!({"a": [1]});
        params["message"]["unknown"] = json!(null);
        params["message"]["parts"][0]["unknown"] = json!("x");
        params["configuration"] = json!({"unknown": true});
        victim.result(version, Op::SendMessage, &params.to_string()).await;
    }
}
