//! The HTTP+JSON binding, both versions: streams.

use std::time::Duration;

use http::StatusCode;
use nuncio_server::testing::{STORE_SECRET, Step};
use serde_json::{Value, json};

use crate::{V1, Wire, frame, hello, post, write};

/// The routes of both versions: headers, send, stream, and the tasks.
const BOTH: [(&[(&str, &str)], &str); 2] = [(V1, ""), (&[], "/v1")];

#[tokio::test(start_paused = true)]
async fn a_stream_is_bare_events_that_nobody_may_hold_back() {
    // REQ-054, REQ-133, REQ-147, REQ-148
    for (headers, prefix) in BOTH {
        let wire = Wire::new([Step::Working, Step::Artifact("a", "x")]);
        let answer = wire.post(&format!("{prefix}/message:stream"), headers, &hello().to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(answer.header("x-accel-buffering"), Some("no"));
        let frames = answer.frames();
        let ids: Vec<&str> = frames.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["1", "2", "3", "4"]);
        let members: Vec<&str> = frames
            .iter()
            .map(|(_, data)| data.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        assert_eq!(members, ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]);
        for (_, data) in &frames {
            assert!(data.as_object().unwrap().len() == 1 && data.get("jsonrpc").is_none(), "{data}");
            assert!(!data.to_string().contains("\"kind\""), "{data}");
        }
        let last = &frames[3].1["statusUpdate"];
        assert_eq!(last.get("final"), (prefix == "/v1").then_some(&json!(true)), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_shows_that_it_is_alive() {
    // Pain 19
    for (headers, prefix) in BOTH {
        let wire = Wire::with([Step::Working, Step::Sleep(Duration::from_secs(25))], |options| {
            options.heartbeat = Duration::from_secs(10);
        });
        let response =
            wire.request(post(&format!("{prefix}/message:stream"), headers, &hello().to_string())).await;
        let (begun, mut body) = (tokio::time::Instant::now(), response.into_body());
        let mut writes = Vec::new();
        while let Some(text) = write(&mut body).await {
            let kind = if text == ": keep-alive\n\n" { "alive" } else { "events" };
            writes.push((begun.elapsed().as_secs(), kind));
        }
        assert_eq!(writes, [(0, "events"), (10, "alive"), (20, "alive"), (25, "events")]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_mid_stream_is_the_last_frame() {
    // Trap T-34, invariants 4 and 10
    for (headers, prefix) in BOTH {
        let wire = Wire::new([Step::Working, Step::Sleep(Duration::from_secs(1)), Step::Working]);
        let response =
            wire.request(post(&format!("{prefix}/message:stream"), headers, &hello().to_string())).await;
        let mut body = response.into_body();
        assert_eq!(write(&mut body).await.unwrap().split_terminator("\n\n").count(), 2);
        wire.harness.store.fail_writes(true);
        let last = write(&mut body).await.unwrap();
        assert!(!last.contains(STORE_SECRET));
        let (id, data) = frame(last.trim_end());
        let code = if prefix.is_empty() { 503 } else { -32053 };
        assert_eq!((&*id, &data["error"]["code"]), ("", &json!(code)), "{data}");
        let details = data["error"].get("details").or(data["error"].get("data")).unwrap();
        assert_eq!(details[0]["reason"], "UNAVAILABLE");
        assert_eq!(write(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_before_a_stream_begins_is_a_plain_answer() {
    // Trap T-34, REQ-144, REQ-145
    let wire = Wire::new([]);
    let done = wire.post("/message:send", V1, &hello().to_string()).await.json();
    let id = done["task"]["id"].as_str().unwrap();
    for (headers, prefix) in BOTH {
        let subscribe = |id: &str| format!("{prefix}/tasks/{id}:subscribe");
        let (unsupported, odd) = if prefix.is_empty() { (400, 400) } else { (501, 422) };
        for (path, body, status, reason) in [
            (subscribe("unknown"), json!({}), 404, "TASK_NOT_FOUND"),
            (subscribe(id), json!({}), unsupported, "UNSUPPORTED_OPERATION"),
            (format!("{prefix}/message:stream"), json!({}), odd, "INVALID_PARAMS"),
            (format!("{prefix}/message:stream"), json!(5), 400, "INVALID_REQUEST"),
        ] {
            let answer = wire.post(&path, headers, &body.to_string()).await;
            assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
            assert_eq!((answer.status.as_u16(), &*answer.reason()), (status, reason), "{path} {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_after_the_last_event_that_was_seen() {
    // Product table "resume", by either verb
    let wire = Wire::new([Step::Working]);
    let sent = wire.post("/message:send", V1, &hello().to_string()).await.json();
    let id = sent["task"]["id"].as_str().unwrap();
    for (headers, prefix) in BOTH {
        for (last, expected) in [
            ("1", Ok(vec!["2", "3"])),
            ("2", Ok(vec!["3"])),
            ("3", Ok(vec![])),
            ("9", Err("Last-Event-ID")),
            ("x", Err("Last-Event-ID")),
            ("-1", Err("Last-Event-ID")),
            ("18446744073709551616", Err("Last-Event-ID")),
        ] {
            for verb in ["GET", "POST"] {
                let headers = [headers, &[("last-event-id", last)]].concat();
                let answer = wire.ask(verb, &format!("{prefix}/tasks/{id}:subscribe"), &headers, "").await;
                let seen: Result<Vec<String>, String> = if answer.status == StatusCode::OK {
                    Ok(answer.frames().into_iter().map(|(id, _)| id).collect())
                } else {
                    Err(answer.field())
                };
                let expected = match &expected {
                    Ok(ids) => Ok(ids.iter().map(ToString::to_string).collect()),
                    Err(field) => Err(field.to_string()),
                };
                assert_eq!(seen, expected, "{verb} {prefix} {last}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_under_the_same_key_is_the_same_task() {
    for (headers, prefix) in BOTH {
        let wire = Wire::new([Step::Working]);
        let keyed = [headers, &[("idempotency-key", "k-1")]].concat();
        let ids: Vec<Value> = [
            wire.post(&format!("{prefix}/message:send"), &keyed, &hello().to_string()).await.json(),
            wire.post(&format!("{prefix}/message:send"), &keyed, &hello().to_string()).await.json(),
        ]
        .map(|answer| answer["task"]["id"].clone())
        .into();
        assert!(ids[0].is_string() && ids[0] == ids[1], "{prefix}: {ids:?}");
    }
}
