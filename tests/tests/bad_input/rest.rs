//! HTTP+JSON that is none.

use nuncio_protocol::{ErrorKind, Version, op::Op};
use serde_json::Value;

use crate::{
    BODY_BYTES, VERSIONS, Victim, garbage, send,
    ways::{check_rest, escape, prefix},
};

/// REQ-055: not JSON, whatever the operation.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_is_a_parse_error() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let headers = [("a2a-version", version.as_str()), ("content-type", "application/json")];
        for path in ["message:send", "message:stream", "tasks/t:cancel", "tasks/t/pushNotificationConfigs"] {
            let path = format!("{}{path}", prefix(version));
            for (what, body) in garbage(&send(version, "completed")) {
                if path.ends_with(":cancel") && body.trim_ascii().is_empty() {
                    continue; // Everything is in the path (REQ-059).
                }
                let answer = victim.raw.ask("POST", &path, &headers, body).await;
                check_rest(version, &answer, ErrorKind::ParseError, "", &format!("{path} {what}"));
            }
            for body in ["null", "5", "\"x\"", "[]", "[{}]", "true"] {
                if path.ends_with(":cancel") && body == "null" {
                    continue;
                }
                let answer = victim.raw.ask("POST", &path, &headers, body).await;
                check_rest(version, &answer, ErrorKind::InvalidRequest, "", &format!("{path} {body}"));
            }
        }
    }
    victim.still_works().await;
}

/// REQ-023, REQ-031: what is wrong before the body is even read.
#[tokio::test(flavor = "multi_thread")]
async fn another_type_or_too_much_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let (path, body) = (format!("{}message:send", prefix(version)), send(version, "completed"));
        for content_type in ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json", ""] {
            let headers = [("a2a-version", version.as_str()), ("content-type", content_type)];
            for body in [&*body, "{"] {
                let answer = victim.raw.ask("POST", &path, &headers, body).await;
                assert_eq!(answer.status, 415, "{content_type}: {answer:?}");
                assert!(answer.body.contains("CONTENT_TYPE_NOT_SUPPORTED"), "{answer:?}");
            }
        }
        let headers = [("a2a-version", version.as_str()), ("content-type", "application/json")];
        for (length, status) in [(BODY_BYTES, 200), (BODY_BYTES + 1, 413), (2 * BODY_BYTES, 413)] {
            let padded = format!("{body}{}", " ".repeat(length - body.len()));
            let answer = victim.raw.ask("POST", &path, &headers, padded).await;
            assert_eq!(answer.status, status, "{length}: {answer:?}");
        }
    }
    victim.still_works().await;
}

/// Paths, queries and verbs that mean nothing, or something that nobody expects.
#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_are_not_found_and_odd_values_are_named() {
    let victim = Victim::new().await;
    let headers = [("a2a-version", "1.0"), ("accept", "application/json")];
    let long = "x".repeat(10_000);
    for (verb, path, status) in [
        ("GET", "nowhere".to_owned(), 404),
        ("GET", "tasks/a/b/c/d".to_owned(), 404),
        ("GET", format!("tasks/{long}"), 404),
        ("GET", format!("{long}/nowhere"), 404),
        ("GET", "tasks/%00".to_owned(), 404),
        ("GET", "tasks/%ff".to_owned(), 400),
        ("GET", "tasks/%".to_owned(), 400),
        ("GET", "tasks?status=%ff".to_owned(), 400),
        ("GET", format!("tasks?pageSize={}", "9".repeat(1000)), 400),
        ("GET", format!("tasks?pageToken={long}"), 400),
        ("GET", "tasks?pageSize=1&pageSize=2".to_owned(), 400),
        ("GET", "tasks?&&&=&==&%=%&".to_owned(), 200),
        ("GET", format!("tasks?{}", "a=b&".repeat(2000)), 200),
        ("DELETE", "tasks/t".to_owned(), 405),
        ("PROPFIND", "tasks/t".to_owned(), 405),
        ("TRACE", "tasks".to_owned(), 405),
        ("PUT", "message:send".to_owned(), 405),
    ] {
        let answer = victim.raw.ask(verb, &path, &headers, "").await;
        let shown: String = path.chars().take(60).collect();
        assert_eq!(answer.status, status, "{verb} {shown}: {answer:?}");
        if status != 200 {
            assert!(answer.json()["error"]["details"][0]["reason"].is_string(), "{verb} {shown}: {answer:?}");
            assert!(answer.body.len() < 2000, "{verb} {shown}: {} bytes", answer.body.len());
        }
    }
    victim.still_works().await;
}

/// An answer does not repeat what a caller floods us with.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_not_thrown_back() {
    let victim = Victim::new().await;
    let flood = "\u{e9}".repeat(50_000);
    for version in VERSIONS {
        let path = format!("{}message:send", prefix(version));
        let headers = [("a2a-version", version.as_str()), ("content-type", "application/json")];
        let mut role: Value = serde_json::from_str(&send(version, "completed")).unwrap();
        role["message"]["role"] = Value::from(&*flood);
        let mut other: Value = serde_json::from_str(&send(version, "completed")).unwrap();
        other["message"]["taskId"] = Value::from(&*flood);
        for body in [role.to_string(), other.to_string(), format!(r#"{{"metadata":{{"{flood}":1e400}}}}"#)] {
            let answer = victim.raw.ask("POST", &path, &headers, body).await;
            assert!((400..500).contains(&answer.status) && answer.body.len() < 2000, "{}", answer.body.len());
        }
        let id = escape(&"\u{e9}".repeat(5_000));
        let answer = victim.raw.ask("GET", &format!("{}tasks/{id}", prefix(version)), &headers, "").await;
        assert!(answer.status == 404 && answer.body.len() < 2000, "{} bytes", answer.body.len());
    }
    let answer = victim.rest(Version::V1_0, Op::ListTasks, r#"{"status":"NOPE"}"#).await.unwrap();
    check_rest(Version::V1_0, &answer, ErrorKind::InvalidParams, "status", "a status");
    victim.still_works().await;
}
