//! Bodies that are no JSON, no JSON-RPC, or no call that there is.

use nuncio_protocol::{Version, op::Op};
use serde_json::{Value, json};

use crate::{Refusal, VERSIONS, Victim, call, dialect, garbage, send};

/// REQ-026: not JSON. There is no id to answer to.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_is_a_parse_error() {
    let victim = Victim::new().await;
    let good = call(Version::V1_0, Op::GetTask, r#"{"id":"t"}"#);
    let bodies = garbage(&good);
    for version in VERSIONS {
        for (what, body) in &bodies {
            Refusal::of_body(-32700).check(what, &victim.post(version, body.clone()).await);
        }
    }
    victim.still_works().await;
}

/// REQ-025: JSON, but no request. The id is echoed where there is a good one.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_an_invalid_request() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let get = dialect(version).method(Op::GetTask).unwrap();
        let refused = [
            ("null", "null".to_owned(), json!(null)),
            ("a number", "5".to_owned(), json!(null)),
            ("text", "\"x\"".to_owned(), json!(null)),
            ("an empty object", "{}".to_owned(), json!(null)),
            ("an empty batch", "[]".to_owned(), json!(null)),
            // Off unless it is configured.
            ("a batch", format!("[{}]", call(version, Op::GetTask, r#"{"id":"t"}"#)), json!(null)),
            ("no jsonrpc", format!(r#"{{"id":"c","method":"{get}"}}"#), json!("c")),
            ("another jsonrpc", format!(r#"{{"jsonrpc":"1.0","id":"c","method":"{get}"}}"#), json!("c")),
            ("jsonrpc as a number", format!(r#"{{"jsonrpc":2.0,"id":"c","method":"{get}"}}"#), json!("c")),
            ("an id of true", format!(r#"{{"jsonrpc":"2.0","id":true,"method":"{get}"}}"#), json!(null)),
            ("an id of objects", format!(r#"{{"jsonrpc":"2.0","id":{{}},"method":"{get}"}}"#), json!(null)),
            ("an id of arrays", format!(r#"{{"jsonrpc":"2.0","id":[1],"method":"{get}"}}"#), json!(null)),
            ("no method", r#"{"jsonrpc":"2.0","id":"c"}"#.to_owned(), json!("c")),
            ("a method of null", r#"{"jsonrpc":"2.0","id":"c","method":null}"#.to_owned(), json!("c")),
            ("a method of numbers", r#"{"jsonrpc":"2.0","id":"c","method":5}"#.to_owned(), json!("c")),
            ("params of text", call(version, Op::GetTask, "\"t\""), json!("c")),
            ("params of a number", call(version, Op::GetTask, "1"), json!("c")),
            // Which of the two counts is anybody's guess, and attackers guess well.
            ("two ids", format!(r#"{{"jsonrpc":"2.0","id":"c","id":"d","method":"{get}"}}"#), json!(null)),
            (
                "two methods",
                format!(r#"{{"jsonrpc":"2.0","id":"c","method":"x","method":"{get}"}}"#),
                json!(null),
            ),
        ];
        for (what, body, id) in refused {
            let expected = Refusal { id, ..Refusal::of_body(-32600) };
            expected.check(what, &victim.post(version, body).await);
        }
        let positional = call(version, Op::GetTask, r#"["t"]"#);
        Refusal::of_call(-32602, "params")
            .check("params by position", &victim.post(version, positional).await);
    }
    victim.still_works().await;
}

/// REQ-027, REQ-032, REQ-033: each version knows its own names.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_method_is_not_found() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let other = VERSIONS.into_iter().find(|other| *other != version).unwrap();
        let other_name = dialect(other).method(Op::SendMessage).unwrap();
        for method in [other_name, "Nope", "", "sendmessage", "message/Send", "tasks/list", "__proto__"] {
            let body = json!({"jsonrpc": "2.0", "id": "c", "method": method, "params": {}}).to_string();
            Refusal::of_call(-32601, "").check(method, &victim.post(version, body).await);
        }
    }
    victim.still_works().await;
}

/// REQ-070 to REQ-074, traps T-06, T-38.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_spoken_is_told_which_are() {
    let victim = Victim::new().await;
    let new = call(Version::V1_0, Op::SendMessage, &send(Version::V1_0, "completed"));
    let old = call(Version::V0_3, Op::SendMessage, &send(Version::V0_3, "completed"));
    for (version, body) in
        [("99.0", &new), ("99.0", &old), ("1", &new), ("2.0", &new), ("v1.0", &new), ("\u{e9}", &new)]
    {
        let answer = victim.raw.post(&[("a2a-version", version)], body.clone()).await;
        Refusal::of_call(-32009, "").check(version, &answer);
        let error = &answer.json()["error"];
        assert_eq!(error["data"][0]["metadata"]["supportedVersions"], "1.0,0.3");
        assert!(error["message"].as_str().unwrap().contains("A2A-Version"), "{error}");
    }
    let no_header = victim.raw.post(&[], new.clone()).await;
    Refusal::of_call(-32009, "").check("a 1.0 method without a version", &no_header);
    let empty = victim.raw.post(&[("a2a-version", "")], new.clone()).await;
    Refusal::of_call(-32009, "").check("a 1.0 method with an empty version", &empty);

    for (header, body) in [("1.0.7", &new), (" 1.0 ", &new), ("0.3.0", &old), ("", &old)] {
        let answer = victim.raw.post(&[("a2a-version", header)], body.clone()).await.json();
        assert!(answer.get("result").is_some(), "{header}: {answer}");
    }
    assert!(victim.raw.post(&[], old).await.json().get("result").is_some(), "no version means 0.3");
}

/// REQ-029: the id comes back as it was written.
#[tokio::test(flavor = "multi_thread")]
async fn every_legal_id_is_echoed() {
    let victim = Victim::new().await;
    let ids = [
        "1",
        "0",
        "-7",
        "1.5",
        "1e3",
        "123456789012345678901234567890",
        "\"\"",
        "\"c\"",
        "\"\\u00e9 \\\"\"",
        "null",
    ];
    for version in VERSIONS {
        for id in ids {
            let body = call(version, Op::SendMessage, &send(version, "completed")).replacen("\"c\"", id, 1);
            let answer = victim.post(version, body).await;
            assert!(
                answer.body.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)),
                "{answer:?}"
            );
        }
    }
}

/// JSON-RPC 2.0, section 4.1: carried out, not answered; but who is refused learns why.
#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_carried_out_and_not_answered() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let mut params: Value = serde_json::from_str(&send(version, "completed")).unwrap();
        params["message"]["contextId"] = json!(format!("notified in {version}"));
        let notify = |op: Op| call(version, op, &params.to_string()).replacen(r#""id":"c","#, "", 1);
        let answer = victim.post(version, notify(Op::SendMessage)).await;
        assert_eq!((answer.status, &*answer.body), (204, ""));
        let filter = json!({ "contextId": params["message"]["contextId"] }).to_string();
        let listed = victim.result(Version::V1_0, Op::ListTasks, &filter).await;
        assert_eq!(listed["totalSize"], 1);

        let bad = call(version, Op::GetTask, r#"{"id":"unknown"}"#).replacen(r#""id":"c","#, "", 1);
        Refusal::of_body(-32001).check("a refused notification", &victim.post(version, bad).await);
        let stream = victim.post(version, notify(Op::SendStreamingMessage)).await;
        Refusal::of_body(-32600).check("a stream without an id", &stream);
    }
}
