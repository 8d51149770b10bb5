//! Requests that are refused before their body is read.

use nuncio_protocol::{Version, op::Op};
use serde_json::Value;

use crate::{BODY_BYTES, Refusal, VERSIONS, Victim, call, send};

/// REQ-031, trap T-36: refused before parsing.
#[tokio::test(flavor = "multi_thread")]
async fn another_content_type_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let body = call(version, Op::SendMessage, &send(version, "completed"));
        for content_type in ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json", ""] {
            let headers = [("a2a-version", version.as_str()), ("content-type", content_type)];
            for body in [&*body, "{"] {
                let answer = victim.raw.post(&headers, body).await;
                let expected = Refusal { status: 415, id: Value::Null, ..Refusal::of_call(-32005, "") };
                expected.check(content_type, &answer);
            }
        }
        for content_type in ["application/json; charset=utf-8", "Application/JSON", "application/a2a+json"] {
            let headers = [("a2a-version", version.as_str()), ("content-type", content_type)];
            let answer = victim.raw.post(&headers, &*body).await;
            assert!(answer.json().get("result").is_some(), "{content_type}: {answer:?}");
        }
    }
}

/// REQ-023: to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused() {
    let victim = Victim::new().await;
    for version in VERSIONS {
        let body = call(version, Op::SendMessage, &send(version, "completed"));
        let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
        let answer = victim.post(version, padded(BODY_BYTES)).await;
        assert!(answer.json().get("result").is_some(), "{answer:?}");
        let expected = Refusal { status: 413, id: Value::Null, ..Refusal::of_call(-32054, "") };
        for length in [BODY_BYTES + 1, 2 * BODY_BYTES] {
            expected.check("too much", &victim.post(version, padded(length)).await);
        }
    }
    victim.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_make_no_sense_are_named() {
    let victim = Victim::new().await;
    let version = Version::V1_0;
    let body = call(version, Op::SendMessage, &send(version, "completed"));
    let long = "k".repeat(257);
    for (name, value) in [("last-event-id", "seven"), ("last-event-id", "-1"), ("idempotency-key", &long)] {
        let answer = victim.raw.post(&[("a2a-version", "1.0"), (name, value)], &*body).await;
        let field = if name == "last-event-id" { "Last-Event-ID" } else { "Idempotency-Key" };
        Refusal::of_call(-32602, field).check(value, &answer);
    }
    victim.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_verb_or_path_is_not_for_calls() {
    let victim = Victim::new().await;
    let answer = victim.raw.get("nowhere", &[]).await;
    assert_eq!(answer.status, 404);
    let answer = victim.raw.get("", &[]).await;
    assert_eq!(
        (answer.status, &answer.json()["name"]),
        (200, &"scripted".into()),
        "the card, for the curious"
    );
}
