//! The JSON-RPC binding.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use nuncio_server::{
    Limits,
    protocol::{AgentCard, AgentExtension, Caller, RESUME_EXTENSION, TaskId},
    store::MemoryStore,
    testing::{Harness, STORE_SECRET, ScriptedExecutor, Step, card},
};
use serde_json::{Value, json};

use crate::{Answer, V1, Wire, frame, hello, post, write};

impl Wire {
    /// Calls a method in version 1.0.
    async fn call(&self, method: &str, params: Value) -> Answer {
        self.post("/", V1, &call(method, &params)).await
    }
}

fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// The same as [`hello`] in version 0.3.
fn old_hello() -> Value {
    json!({ "message": {
        "kind": "message", "messageId": "m-1", "role": "user", "parts": [{ "kind": "text", "text": "hi" }],
    } })
}

/// `1.0`, `0.3`, or the code of the error.
fn spoken(answer: &Answer) -> String {
    let json = answer.json();
    if json["result"]["task"].is_object() {
        "1.0".to_owned()
    } else if json["result"]["kind"] == "task" {
        "0.3".to_owned()
    } else {
        answer.code().to_string()
    }
}

#[tokio::test(start_paused = true)]
async fn the_version_is_chosen_by_header_or_query_and_means_the_old_one_when_absent() {
    // REQ-070 to REQ-075, traps T-06 and T-38, product table "version"
    let both = Wire::new([]);
    let lenient = Wire::with([], |options| options.lenient_version = true);
    let mut new_only = card();
    new_only.supported_interfaces.retain(|interface| interface.protocol_version == "1.0");
    let new_only =
        Harness::of(new_only, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| builder);
    let new_only = Wire::of(new_only, "", |_| {});
    let (new, old) = ("SendMessage", "message/send");
    for (wire, header, query, method, expected) in [
        (&both, Some("1.0"), "", new, "1.0"),
        (&both, Some("1.0.3"), "", new, "1.0"),
        (&both, Some(" 1.0 "), "", new, "1.0"),
        (&both, Some("0.3"), "", old, "0.3"),
        (&both, None, "?A2A-Version=1.0", new, "1.0"),
        (&both, None, "?x=1&a2a-version=1.0", new, "1.0"),
        (&both, Some("1.0"), "?A2A-Version=1.0", new, "1.0"),
        (&both, Some("1.0"), "?A2A-Version=0.3", new, "-32600"),
        (&both, None, "", old, "0.3"),
        (&both, Some(""), "", old, "0.3"),
        (&both, None, "?A2A-Version=", old, "0.3"),
        (&both, None, "", new, "-32009"),
        (&both, Some("99.0"), "", new, "-32009"),
        (&both, Some("99.0"), "", old, "-32009"),
        (&both, Some("one"), "", new, "-32009"),
        (&both, Some("1.0"), "", old, "-32601"),
        (&both, Some("0.3"), "", new, "-32601"),
        (&both, None, "", "NoSuchMethod", "-32601"),
        (&lenient, None, "", new, "1.0"),
        (&lenient, None, "", old, "0.3"),
        (&lenient, Some("0.3"), "", new, "-32601"),
        (&new_only, None, "", old, "-32009"),
        (&new_only, Some("0.3"), "", old, "-32009"),
        (&new_only, None, "", new, "-32009"),
        (&new_only, Some("1.0"), "", new, "1.0"),
    ] {
        let headers: Vec<_> = header.map(|version| ("a2a-version", version)).into_iter().collect();
        let params = if method == old { old_hello() } else { hello() };
        let answer = wire.post(&format!("/{query}"), &headers, &call(method, &params)).await;
        assert_eq!(spoken(&answer), expected, "{header:?} {query} {method}: {answer:?}");
        assert_eq!(answer.status, StatusCode::OK, "trap T-36");
    }
    let answer = both.post("/", &[("a2a-version", "99.0")], &call(new, &hello())).await.json();
    let details = &answer["error"]["data"][0];
    assert_eq!(details["reason"], "VERSION_NOT_SUPPORTED");
    assert_eq!(details["metadata"]["supportedVersions"], "1.0,0.3");
    let answer = both.post("/", &[], &call(new, &hello())).await.json();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("send the header A2A-Version"), "says what to do: {message}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_answers_with_and_without_a_slash_at_the_end() {
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let below = Wire::of(harness.clone(), "/agents/x", |_| {});
    for path in ["/agents/x", "/agents/x/"] {
        let answer = below.post(path, V1, &call("SendMessage", &hello())).await;
        assert_eq!(spoken(&answer), "1.0", "{path}");
        assert_eq!(below.get(path, &[]).await.status(), StatusCode::OK, "the card, {path}");
    }
    assert_eq!(below.get("/agents/x/.well-known/agent-card.json", &[]).await.status(), StatusCode::OK);
    assert_eq!(below.get("/agents/y", &[]).await.status(), StatusCode::NOT_FOUND);
    let delete = Request::builder().method(Method::DELETE).uri("/agents/x").body(Body::empty()).unwrap();
    assert_eq!(below.request(delete).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_type_is_refused_before_it_is_read() {
    // REQ-031, product table "wrong content type"
    let wire = Wire::new([]);
    let good = call("SendMessage", &hello());
    for (content_type, body, status, code) in [
        (Some("application/json"), &*good, 200, 0),
        (Some("application/json; charset=utf-8"), &good, 200, 0),
        (Some("Application/JSON"), &good, 200, 0),
        (Some("application/a2a+json"), &good, 200, 0),
        (Some("text/plain"), &good, 415, -32005),
        (Some("text/plain"), "{ not JSON", 415, -32005),
        (Some("application/jsonx"), &good, 415, -32005),
        (None, &good, 415, -32005),
        (Some("application/json"), "{ not JSON", 200, -32700),
    ] {
        let mut request = Request::post("/").header("a2a-version", "1.0");
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let answer =
            Answer::read(wire.request(request.body(Body::from(body.to_owned())).unwrap()).await).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code), "{content_type:?} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn envelopes_that_are_no_requests_get_their_own_code() {
    // REQ-025 to REQ-029
    let wire = Wire::new([]);
    for (body, code, id) in [
        ("", -32700, json!(null)),
        ("{", -32700, json!(null)),
        ("1", -32600, json!(null)),
        ("{}", -32600, json!(null)),
        (r#"{"jsonrpc":"1.0","id":7,"method":"GetTask"}"#, -32600, json!(7)),
        (r#"{"jsonrpc":"2.0","id":"seven","method":"Nothing"}"#, -32601, json!("seven")),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":[1]}"#, -32602, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":5}}"#, -32602, json!(7)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"GetTask","params":{"id":"t"}}"#, -32001, json!(null)),
    ] {
        let answer = wire.post("/", V1, body).await;
        assert_eq!((answer.code(), &answer.json()["id"]), (code, &id), "{body}");
        assert!(answer.json().get("result").is_none(), "REQ-030");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused() {
    // REQ-023
    let body = call("SendMessage", &hello());
    for (limit, status, code) in [(body.len(), 200, 0), (body.len() - 1, 413, -32054)] {
        let wire = Wire::with([], |options| options.body_bytes = limit);
        let answer = wire.post("/", V1, &body).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code), "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_refused_unless_they_are_switched_on() {
    // Product table "JSON-RPC batch"
    let notification = json!({ "jsonrpc": "2.0", "method": "SendMessage", "params": hello() });
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": hello() },
        notification,
        { "jsonrpc": "2.0", "id": "two", "method": "GetTask", "params": { "id": "t-unknown" } },
        { "jsonrpc": "2.0", "id": 3, "method": "SendStreamingMessage", "params": hello() },
        5,
    ])
    .to_string();
    let off = Wire::new([]);
    assert_eq!(off.post("/", V1, &batch).await.code(), -32600);
    assert_eq!(off.harness.runtime.running(), 0);

    let on = Wire::with([], |options| options.batch = 5);
    let answer = on.post("/", V1, &batch).await.json();
    let answers: Vec<(Value, Value)> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
        .collect();
    assert_eq!(
        answers,
        [
            (json!(1), json!(null)),
            (json!("two"), json!(-32001)),
            (json!(3), json!(-32600)),
            (json!(null), json!(-32600)),
        ]
    );
    let many = format!("[{}]", [call("GetTask", &json!({ "id": "t" })).as_str(); 6].join(","));
    assert_eq!(on.post("/", V1, &many).await.code(), -32600, "too many");
    assert_eq!(on.post("/", V1, "[]").await.code(), -32600);
    let silent = on.post("/", V1, &json!([notification, notification]).to_string()).await;
    assert_eq!((silent.status, &*silent.text), (StatusCode::NO_CONTENT, ""), "nobody waits for an answer");
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_carried_out_and_gets_no_answer() {
    let wire = Wire::new([]);
    let notification = json!({ "jsonrpc": "2.0", "method": "SendMessage", "params": hello() });
    let answer = wire.post("/", V1, &notification.to_string()).await;
    assert_eq!((answer.status, &*answer.text), (StatusCode::NO_CONTENT, ""));
    let list = wire.call("ListTasks", json!({})).await.json();
    assert_eq!(list["result"]["totalSize"], 1);
    let streaming = json!({ "jsonrpc": "2.0", "method": "SendStreamingMessage", "params": hello() });
    assert_eq!(
        wire.post("/", V1, &streaming.to_string()).await.code(),
        -32600,
        "a stream needs somebody to stream to"
    );
}

#[tokio::test(start_paused = true)]
async fn the_card_is_cacheable_and_stands_where_old_clients_look_too() {
    // REQ-002, REQ-182, REQ-183
    let wire = Wire::new([]);
    let answer = Answer::read(wire.get("/.well-known/agent-card.json", &[]).await).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert!(answer.header("last-modified").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(answer.header("deprecation"), None);
    let card: AgentCard = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(card.name, "scripted");
    assert!(card.capabilities.extensions.iter().any(|extension| extension.uri == RESUME_EXTENSION));

    let etag = answer.header("etag").unwrap();
    for (known, status) in [
        (etag.to_owned(), 304),
        (format!("W/{etag}"), 304),
        (format!("\"other\", {etag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
    ] {
        let again = wire.get("/.well-known/agent-card.json", &[("if-none-match", &known)]).await;
        assert_eq!(again.status().as_u16(), status, "{known}");
        let again = Answer::read(again).await;
        assert_eq!(again.header("etag"), Some(etag));
        assert_eq!(again.text.is_empty(), status == 304);
    }

    let legacy = Answer::read(wire.get("/.well-known/agent.json", &[]).await).await;
    assert_eq!((&legacy.text, legacy.header("etag")), (&answer.text, Some(etag)));
    assert_eq!(legacy.header("deprecation"), Some("true"));
    let strict = Wire::with([], |options| options.legacy_card_path = false);
    assert_eq!(strict.get("/.well-known/agent.json", &[]).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn extensions_that_are_active_are_echoed_under_the_name_of_the_version() {
    // REQ-078, REQ-080 to REQ-082
    let mut known = card();
    known.capabilities.extensions = ["urn:a", "urn:b"]
        .map(|uri| AgentExtension { uri: uri.to_owned(), ..AgentExtension::default() })
        .into();
    let harness = Harness::of(known, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| builder);
    let wire = Wire::of(harness, "", |_| {});
    let (now, then) = ("a2a-extensions", "x-a2a-extensions");
    for (version, asked, echoed) in [
        ("1.0", vec![(now, "urn:a")], Some((now, "urn:a"))),
        ("1.0", vec![(now, "urn:b, urn:unknown ,urn:a")], Some((now, "urn:b, urn:a"))),
        ("1.0", vec![(now, "urn:a"), (now, "urn:b")], Some((now, "urn:a, urn:b"))),
        ("1.0", vec![(then, "urn:a")], Some((now, "urn:a"))),
        ("1.0", vec![(now, "urn:a"), (then, "urn:a")], Some((now, "urn:a"))),
        ("1.0", vec![(now, "urn:unknown")], None),
        ("1.0", vec![], None),
        ("0.3", vec![(then, "urn:a")], Some((then, "urn:a"))),
        ("0.3", vec![(now, "urn:a")], Some((then, "urn:a"))),
    ] {
        let headers = [vec![("a2a-version", version)], asked].concat();
        let body =
            if version == "1.0" { call("SendMessage", &hello()) } else { call("message/send", &old_hello()) };
        let answer = wire.post("/", &headers, &body).await;
        let found = [now, then].into_iter().find_map(|name| Some((name, answer.header(name)?)));
        assert_eq!(found, echoed, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_server_sent_events_that_nobody_may_hold_back() {
    // REQ-038, REQ-133
    let wire = Wire::new([Step::Working, Step::Artifact("a", "x")]);
    let body = json!({ "jsonrpc": "2.0", "id": "s-1", "method": "SendStreamingMessage", "params": hello() });
    let answer = wire.post("/", V1, &body.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let frames: Vec<(String, Value)> = answer.text.split_terminator("\n\n").map(frame).collect();
    let ids: Vec<&str> = frames.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    let members = frames.iter().map(|(_, data)| {
        assert_eq!((&data["jsonrpc"], &data["id"]), (&json!("2.0"), &json!("s-1")));
        data["result"].as_object().unwrap().keys().next().unwrap().clone()
    });
    assert_eq!(members.collect::<Vec<_>>(), ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]);
}

#[tokio::test(start_paused = true)]
async fn ids_of_events_increase_and_skip_what_the_caller_says() {
    // The README promises no more: the log has no gap, and one of its entries is no event.
    let asking = ScriptedExecutor::turns([vec![Step::InputRequired("which?")], vec![]]);
    let wire = Wire::of(Harness::new(asking), "", |_| {});
    let first = wire.call("SendStreamingMessage", hello()).await.frames();
    let mut more = hello();
    more["message"]["taskId"] = first[0].1["result"]["task"]["id"].clone();
    let second = wire.call("SendStreamingMessage", more).await.frames();
    let ids = |frames: &[(String, Value)]| -> Vec<u64> {
        frames.iter().map(|(id, _)| id.parse().unwrap()).collect()
    };
    // A send begins with the task as it is after what was said.
    assert_eq!((ids(&first), ids(&second)), (vec![1, 2], vec![3, 4]));
    let id = json!({ "id": first[0].1["result"]["task"]["id"] });
    let headers = [V1, &[("last-event-id", "1")]].concat();
    let replayed = wire.post("/", &headers, &call("SubscribeToTask", &id)).await.frames();
    assert_eq!(ids(&replayed), [2, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_shows_that_it_is_alive() {
    // Pain 19
    let wire = Wire::new([Step::Working, Step::Sleep(Duration::from_secs(40))]);
    let response = wire.request(post("/", V1, &call("SendStreamingMessage", &hello()))).await;
    let (begun, mut body) = (tokio::time::Instant::now(), response.into_body());
    let mut writes = Vec::new();
    while let Some(text) = write(&mut body).await {
        let kind = if text == ": keep-alive\n\n" { "alive" } else { "events" };
        writes.push((begun.elapsed().as_secs(), kind));
    }
    assert_eq!(writes, [(0, "events"), (15, "alive"), (30, "alive"), (40, "events")]);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_mid_stream_is_the_last_frame() {
    // Trap T-34, invariants 4 and 10
    let wire = Wire::new([Step::Working, Step::Sleep(Duration::from_secs(1)), Step::Working]);
    let response = wire.request(post("/", V1, &call("SendStreamingMessage", &hello()))).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let first = write(&mut body).await.unwrap();
    assert_eq!(first.split_terminator("\n\n").count(), 2);
    wire.harness.store.fail_writes(true);
    let last = write(&mut body).await.unwrap();
    assert!(!last.contains(STORE_SECRET));
    let (id, data) = frame(last.trim_end());
    assert_eq!((&*id, &data["id"], &data["error"]["code"]), ("", &json!(1), &json!(-32053)));
    assert_eq!(write(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_before_a_stream_begins_is_a_plain_answer() {
    // Trap T-34
    let wire = Wire::new([]);
    let done = wire.call("SendMessage", hello()).await.json();
    for (method, params, code) in [
        ("SubscribeToTask", json!({ "id": "t-unknown" }), -32001),
        ("SubscribeToTask", json!({ "id": done["result"]["task"]["id"] }), -32004),
        ("SubscribeToTask", json!({}), -32602),
        (
            "SendStreamingMessage",
            json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [] } }),
            -32602,
        ),
    ] {
        let answer = wire.call(method, params.clone()).await;
        assert_eq!(answer.header("content-type"), Some("application/json"), "{params}");
        assert_eq!(answer.code(), code, "{params}");
        // a2a-go drops in silence what is no event.
        for (accept, is_stream) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; q=0.9", true),
            ("text/event-stream, application/json", false),
            ("text/event-stream, */*", false),
            ("*/*", false),
        ] {
            let headers = [V1, &[("accept", accept), ("user-agent", "Go-http-client/1.1")]].concat();
            let answer = wire.post("/", &headers, &call(method, &params)).await;
            assert_eq!(answer.status, StatusCode::OK, "{accept} {params}");
            if !is_stream {
                assert_eq!(answer.header("content-type"), Some("application/json"), "{accept} {params}");
                assert_eq!(answer.code(), code, "{accept} {params}");
                continue;
            }
            let frames = answer.frames();
            let [(id, data)] = &*frames else { panic!("{frames:?}") };
            let found = (&**id, &data["id"], &data["error"]["code"]);
            assert_eq!(found, ("", &json!(1), &json!(code)), "{params}");
            assert!(data["error"]["data"].is_array(), "{data}");
        }
    }
    let stream_only = [V1, &[("accept", "text/event-stream"), ("user-agent", "Go-http-client/1.1")]].concat();
    // Refused before it is known what is called, and what is no stream anyway.
    let answer = wire.post("/", &stream_only, &call("NoSuchMethod", &json!({}))).await;
    assert_eq!(answer.frames()[0].1["error"]["code"], -32601);
    let answer = wire.post("/", &stream_only, &call("GetTask", &json!({ "id": "t-unknown" }))).await;
    assert_eq!((answer.header("content-type"), answer.code()), (Some("application/json"), -32001));
}

#[tokio::test(start_paused = true)]
async fn the_data_of_an_error_has_the_shape_that_the_callers_sdk_reads() {
    // a2a-go 0.3 takes an object only, a2a-go 2.x a list only, also when it speaks 0.3, which it says.
    let wire = Wire::new([]);
    let unknown = json!({ "id": "t-unknown" });
    for (headers, query, method, is_object) in [
        (V1, "", "GetTask", false),
        (V1, "", "NoSuchMethod", false),
        (&[("a2a-version", "0.3")], "", "tasks/get", false),
        (&[], "?A2A-Version=0.3", "tasks/get", false),
        (&[("a2a-version", "99.0")], "", "tasks/get", false),
        (&[], "", "GetTask", false),
        (&[], "", "tasks/get", true),
        (&[], "", "NoSuchMethod", true),
        (&[], "", "tasks/resubscribe", true),
        (&[("a2a-version", "0.3")], "", "tasks/resubscribe", false),
    ] {
        let answer = wire.post(&format!("/{query}"), headers, &call(method, &unknown)).await;
        let body = if method == "tasks/resubscribe" { answer.frames()[0].1.clone() } else { answer.json() };
        let data = &body["error"]["data"];
        let details = if is_object { &data["details"] } else { data };
        assert_eq!(data.is_object(), is_object, "{headers:?} {query} {method}: {body}");
        assert_eq!(details[0]["domain"], "a2a-protocol.org", "{headers:?} {query} {method}: {body}");
    }
    // No method is known of what is no request.
    for (headers, is_object) in [(V1, false), (&[], true)] {
        let body = wire.post("/", headers, "{").await.json();
        assert_eq!(body["error"]["data"].is_object(), is_object, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_resume_and_repeat_reach_the_agent() {
    // Product table "resume"
    let wire = Wire::new([Step::Working]);
    let keyed = [("a2a-version", "1.0"), ("idempotency-key", "k-1")];
    let first = wire.post("/", &keyed, &call("SendMessage", &hello())).await.json();
    let again = wire.post("/", &keyed, &call("SendMessage", &hello())).await.json();
    assert_eq!(first["result"]["task"]["id"], again["result"]["task"]["id"]);
    let subscribe = call("SubscribeToTask", &json!({ "id": first["result"]["task"]["id"] }));
    for (last, expected) in [
        ("1", Ok(vec!["2", "3"])),
        ("3", Ok(vec![])),
        ("9", Err(-32602)),
        ("x", Err(-32602)),
        ("-1", Err(-32602)),
    ] {
        let answer = wire.post("/", &[("a2a-version", "1.0"), ("last-event-id", last)], &subscribe).await;
        let seen = match answer.header("content-type") {
            Some("text/event-stream") => {
                Ok(answer.text.split_terminator("\n\n").map(|text| frame(text).0).collect())
            }
            _ => Err(answer.code()),
        };
        assert_eq!(
            seen,
            expected.map(|ids| ids.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            "{last}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_that_concern_http_have_its_status_and_headers() {
    // Trap T-36, REQ-024, REQ-085
    let full = Limits { tasks: 0, ..Limits::default() };
    let mut promising = card();
    promising.capabilities.extended_agent_card = Some(true);
    let harness = Harness::of(promising, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| {
        builder.limits(full)
    });
    let wire = Wire::of(harness, "", |_| {});
    let answer = wire.call("SendMessage", hello()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code(), answer.header("retry-after")),
        (429, -32052, Some("1"))
    );
    let answer = wire.call("GetExtendedAgentCard", json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (401, -32050));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    wire.harness.runtime.drain(Duration::from_secs(1)).await;
    let answer = wire.call("SendMessage", hello()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code(), answer.header("retry-after")),
        (503, -32053, Some("1"))
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_a_layer_has_recognised_is_the_caller() {
    let wire = Wire::new([]);
    let ask = |caller: Option<&str>, body: String| {
        let mut request = post("/", V1, &body);
        request.extensions_mut().extend(
            caller
                .map(|name| {
                    let mut extensions = http::Extensions::new();
                    extensions.insert(Caller::authenticated(name));
                    extensions
                })
                .unwrap_or_default(),
        );
        let wire = &wire;
        async move { Answer::read(wire.request(request).await).await }
    };
    let sent = ask(Some("ann"), call("SendMessage", &hello())).await.json();
    let id: TaskId = sent["result"]["task"]["id"].as_str().unwrap().into();
    for (caller, code) in [(Some("ann"), 0), (Some("bob"), -32001), (None, -32001)] {
        let answer = ask(caller, call("GetTask", &json!({ "id": id }))).await;
        assert_eq!(answer.code(), code, "{caller:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_arrives_is_not_waited_for() {
    let wire = Wire::new([]);
    let body = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request = Request::post("/").header("content-type", "application/json").body(body).unwrap();
    let answer = Answer::read(wire.request(request).await).await;
    assert_eq!(answer.json()["error"]["code"], -32055);
}
