//! The HTTP+JSON binding, version 1.0: types, versions, errors and headers of its answers.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use nuncio_server::{
    Limits,
    bind::BindOptions,
    protocol::{AgentExtension, Caller, Error, ErrorKind},
    store::MemoryStore,
    testing::{Harness, ScriptedExecutor, card},
};
use serde_json::json;

use crate::{Answer, V1, Wire, hello, post, probe::Probe};

const A2A: &str = "application/a2a+json";
const JSON: &str = "application/json";

#[tokio::test]
async fn answers_are_of_the_type_that_the_caller_knows() {
    // REQ-046, REQ-047, trap T-07
    let (_, port) = Probe::on_the_wire();
    for (accept, content_type, expected) in [
        (None, None, A2A),
        (None, Some(A2A), A2A),
        (None, Some(JSON), JSON),
        (None, Some("application/json; charset=utf-8"), JSON),
        (Some("*/*"), None, A2A),
        (Some("*/*"), Some(JSON), JSON),
        (Some("application/*"), None, A2A),
        (Some(A2A), Some(JSON), A2A),
        (Some("APPLICATION/A2A+JSON"), Some(JSON), A2A),
        (Some(JSON), Some(A2A), JSON),
        (Some("application/json, application/a2a+json"), None, A2A),
        (Some("application/json;q=0.9, */*;q=0.1"), None, JSON),
        // Who knows none of the two is most likely to know the older one.
        (Some("text/event-stream"), None, JSON),
        (Some("text/event-stream"), Some(A2A), JSON),
        (Some("text/event-stream, application/a2a+json"), None, A2A),
        (Some("text/html"), None, JSON),
    ] {
        let headers: Vec<_> =
            [("accept", accept), ("content-type", content_type), ("a2a-version", Some("1.0"))]
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
        let (verb, body) = if content_type.is_some() { ("POST", "{}") } else { ("POST", "") };
        for (path, status) in [("/tasks/t:cancel", 200), ("/nowhere", 404), ("/extendedAgentCard", 405)] {
            let answer = port.ask(verb, path, &headers, body).await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("content-type")),
                (status, Some(expected)),
                "{path} {headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_body_of_another_type_is_refused_before_it_is_read() {
    // REQ-031 in this binding
    let (probe, port) = Probe::on_the_wire();
    let good = hello().to_string();
    for (path, content_type, body, status) in [
        ("/message:send", Some(JSON), &*good, 200),
        ("/message:send", Some(A2A), &good, 200),
        ("/message:send", Some("Application/A2A+JSON ; charset=UTF-8"), &good, 200),
        ("/message:send", Some("text/plain"), &good, 415),
        ("/message:send", Some("text/plain"), "{ not JSON", 415),
        ("/message:send", Some("application/jsonx"), &good, 415),
        ("/message:send", Some("application/grpc-web+proto"), &good, 415),
        ("/message:send", None, &good, 415),
        ("/message:send", None, "{ not JSON", 415),
        ("/message:send", None, "", 400),
        ("/tasks/t:cancel", Some("text/plain"), "{}", 415),
        ("/tasks/t:cancel", None, "{}", 415),
        // Nothing has no type.
        ("/tasks/t:cancel", None, "", 200),
        ("/tasks/t:cancel", Some(JSON), "", 200),
        ("/tasks/t:cancel", Some(A2A), "null", 200),
        ("/tasks/t:cancel", Some(A2A), " ", 200),
        ("/tasks/t:subscribe", None, "", 200),
        ("/tasks/t:subscribe", Some(JSON), "", 200),
        ("/nowhere", Some("text/plain"), "{}", 404),
        ("/extendedAgentCard", Some("text/plain"), "{}", 405),
    ] {
        // Whether the length is known beforehand is the transport's affair.
        for is_chunked in [false, true] {
            let mut request = Request::post(path).header("a2a-version", "1.0");
            if let Some(content_type) = content_type {
                request = request.header("content-type", content_type);
            }
            let chunk = Ok::<_, std::io::Error>(Bytes::from(body.to_owned()));
            let body = match (is_chunked, body) {
                (true, _) => Body::from_stream(futures_util::stream::iter([chunk])),
                (false, "") => Body::empty(),
                (false, body) => Body::from(body.to_owned()),
            };
            let answer = Answer::read(port.request(request.body(body).unwrap()).await).await;
            assert_eq!(answer.status, status, "{path} {content_type:?} chunked {is_chunked}: {answer:?}");
            assert_eq!(probe.seen().is_null(), status != 200);
            if status == 415 {
                assert_eq!((&*answer.reason(), answer.code()), ("CONTENT_TYPE_NOT_SUPPORTED", 415));
            }
        }
    }
}

#[tokio::test]
async fn every_error_is_a_status_with_its_details() {
    // REQ-007, REQ-055 to REQ-058
    let (probe, port) = Probe::on_the_wire();
    for row in ErrorKind::TABLE {
        probe.refuse(|| Error::new(row.kind, "so it is").with_metadata("taskId", "t"));
        for (verb, path) in
            [("GET", "/tasks/t"), ("GET", "/tasks/t:subscribe"), ("GET", "/extendedAgentCard")]
        {
            let answer = port.ask(verb, path, V1, "").await;
            assert_eq!((answer.status.as_u16(), answer.header("content-type")), (row.http, Some(A2A)));
            let info = json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": row.reason,
                "domain": "a2a-protocol.org", "metadata": { "taskId": "t" },
            });
            assert_eq!(
                answer.json(),
                json!({ "error": {
                    "code": row.http, "status": row.grpc.name, "message": "so it is", "details": [info],
                } })
            );
            probe.seen();
        }
    }
    probe.refuse(|| Error::invalid_field("id", "too odd"));
    let answer = port.ask("GET", "/tasks/t", V1, "").await;
    assert_eq!(
        answer.details()[1],
        json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{ "field": "id", "description": "too odd" }],
        })
    );
}

#[tokio::test]
async fn our_own_faults_are_not_explained() {
    // Invariant 10
    let (probe, port) = Probe::on_the_wire();
    probe.refuse(|| Error::internal("the secret"));
    for path in ["/tasks/t", "/v1/tasks/t"] {
        let headers = if path.starts_with("/v1") { &[][..] } else { V1 };
        let answer = port.ask("GET", path, headers, "").await;
        assert_eq!((answer.status.as_u16(), answer.text.contains("secret")), (500, false), "{path}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found_and_a_wrong_verb_is_told_the_right_ones() {
    let (probe, port) = Probe::on_the_wire();
    for (verb, path, allow) in [
        ("GET", "/message:send", "POST"),
        ("DELETE", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("PUT", "/tasks/t", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("PATCH", "/tasks/t", "GET"),
        ("HEAD", "/tasks/t", "GET"),
        ("OPTIONS", "/tasks/t", "GET"),
        ("get", "/tasks/t", "GET"),
        ("GET", "/tasks/t:cancel", "POST"),
        ("PUT", "/tasks/t:subscribe", "GET, POST"),
        ("DELETE", "/tasks/t/pushNotificationConfigs", "POST, GET"),
        ("POST", "/tasks/t/pushNotificationConfigs/p", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
        ("GET", "/acme/message:send", "POST"),
        ("POST", "/nowhere", ""),
        ("GET", "/nowhere", ""),
        ("POST", "/message:other", ""),
        ("POST", "/message", ""),
        ("GET", "/task", ""),
        ("GET", "/card", ""),
        ("GET", "/a/b/tasks", ""),
        ("GET", "/tasks/t/pushNotificationConfigs/p/q", ""),
        ("GET", "/Tasks", ""),
        ("GET", "/tasks/../tasks", ""),
        ("POST", "/message%3Asend", ""),
    ] {
        let answer = port.ask(verb, path, V1, "").await;
        let (status, allowed) = if allow.is_empty() { (404, None) } else { (405, Some(allow)) };
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (status, allowed), "{verb} {path}");
        if verb != "HEAD" {
            assert_eq!(
                (answer.code(), &*answer.reason()),
                (status.into(), "METHOD_NOT_FOUND"),
                "{verb} {path}"
            );
        }
        assert_eq!(probe.seen(), json!(null), "{verb} {path}");
    }
    for path in ["/nowhere", "/acme/nowhere", "/v1/nowhere", "/v1", "/v1/"] {
        for headers in [&[][..], V1, &[("a2a-version", "0.3")], &[("a2a-version", "99.0")]] {
            let answer = port.ask("GET", path, headers, "").await;
            assert_eq!(answer.status, 404, "where nothing is, no version will help: {path} {headers:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_version_is_that_of_the_path_and_must_be_said() {
    // REQ-070 to REQ-075, traps T-06, T-37 and T-38
    let both = Wire::new([]);
    let lenient = Wire::with([], |options| options.lenient_version = true);
    let only = |version: &str| {
        let mut card = card();
        card.supported_interfaces.retain(|interface| {
            interface.protocol_version == version || interface.protocol_binding != "HTTP+JSON"
        });
        Wire::of(
            Harness::of(card, MemoryStore::default(), ScriptedExecutor::steps([]), |builder| builder),
            "",
            |_| {},
        )
    };
    let (new_only, old_only) = (only("1.0"), only("0.3"));
    let (new, old) = ("/message:send", "/v1/message:send");
    const REFUSED: &str = "VERSION_NOT_SUPPORTED";
    for (wire, headers, query, path, expected) in [
        (&both, &["1.0"][..], "", new, ""),
        (&both, &["1.0.3"], "", new, ""),
        (&both, &[" 1.0 "], "", new, ""),
        (&both, &[], "?A2A-Version=1.0", new, ""),
        (&both, &[], "?x=1&a2a-version=1.0.9", new, ""),
        (&both, &["1.0"], "?A2A-Version=1.0", new, ""),
        (&both, &["1.0"], "?A2A-Version=", new, ""),
        (&both, &[""], "?A2A-Version=1.0", new, ""),
        (&both, &["1.0", "1.0"], "", new, ""),
        (&both, &["1.0"], "?A2A-Version=0.3", new, "INVALID_REQUEST"),
        (&both, &["1.0", "0.3"], "", new, "INVALID_REQUEST"),
        (&both, &["0.3", "1.0"], "", new, "INVALID_REQUEST"),
        (&both, &[], "", new, REFUSED),
        (&both, &[""], "", new, REFUSED),
        (&both, &["0.3"], "", new, REFUSED),
        (&both, &["99.0"], "", new, REFUSED),
        (&both, &["1"], "", new, REFUSED),
        (&both, &["one"], "", new, REFUSED),
        (&both, &["1.0, 0.3"], "", new, REFUSED),
        (&both, &[], "?A2A-Version=99.0", new, REFUSED),
        (&both, &[], "", old, ""),
        (&both, &[""], "", old, ""),
        (&both, &["0.3"], "", old, ""),
        (&both, &["0.3.7"], "", old, ""),
        (&both, &["1.0"], "", old, REFUSED),
        (&both, &["99.0"], "", old, REFUSED),
        (&lenient, &[], "", new, ""),
        (&lenient, &[""], "", new, ""),
        (&lenient, &["0.3"], "", new, REFUSED),
        (&lenient, &["99.0"], "", new, REFUSED),
        (&lenient, &[], "", old, ""),
        (&new_only, &["1.0"], "", new, ""),
        (&new_only, &[], "", new, REFUSED),
        (&new_only, &[], "", old, REFUSED),
        (&new_only, &["0.3"], "", old, REFUSED),
        (&old_only, &[], "", old, ""),
        (&old_only, &["0.3"], "", old, ""),
        (&old_only, &["1.0"], "", new, REFUSED),
        (&old_only, &["1.0"], "", old, REFUSED),
    ] {
        let headers: Vec<_> = headers.iter().map(|version| ("a2a-version", *version)).collect();
        let answer = wire.post(&format!("{path}{query}"), &headers, &hello().to_string()).await;
        let status = if expected.is_empty() { 200 } else { 400 };
        assert_eq!(
            (answer.status.as_u16(), &*answer.reason()),
            (status, expected),
            "{headers:?} {path}{query}: {answer:?}"
        );
        if expected == REFUSED {
            let supported = &answer.details()[0]["metadata"]["supportedVersions"];
            let known = if std::ptr::eq(wire, &new_only) {
                "1.0"
            } else if std::ptr::eq(wire, &old_only) {
                "0.3"
            } else {
                "1.0,0.3"
            };
            assert_eq!(supported, known, "{headers:?} {path}");
        }
    }
    let answer = both.post(new, &[], &hello().to_string()).await.json();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("send the header A2A-Version"), "says what to do: {message}");
}

#[tokio::test]
async fn a_version_as_long_as_a_book_is_not_repeated() {
    let (_, port) = Probe::on_the_wire();
    let book = "9".repeat(10_000);
    for path in ["/tasks", "/v1/tasks"] {
        let answer = port.ask("GET", path, &[("a2a-version", &book)], "").await;
        assert_eq!((answer.status.as_u16(), &*answer.reason()), (400, "VERSION_NOT_SUPPORTED"));
        assert!(answer.text.len() < 2000, "{path}: {} bytes", answer.text.len());
        let answer = port.ask("GET", &format!("{path}?A2A-Version={book}"), V1, "").await;
        assert_eq!((answer.status.as_u16(), &*answer.reason()), (400, "INVALID_REQUEST"));
        assert!(answer.text.len() < 2000, "{path}: {} bytes", answer.text.len());
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_that_are_active_are_echoed_under_the_name_of_the_version() {
    // REQ-077 to REQ-082
    let mut known = card();
    known.capabilities.extensions = ["urn:a", "urn:b"]
        .map(|uri| AgentExtension { uri: uri.to_owned(), ..AgentExtension::default() })
        .into();
    let harness = |card| Harness::of(card, MemoryStore::default(), ScriptedExecutor::steps([]), |b| b);
    let wire = Wire::of(harness(known.clone()), "", |_| {});
    known.capabilities.extensions[0].required = true;
    let strict = Wire::of(harness(known), "", |_| {});
    let (now, then) = ("a2a-extensions", "x-a2a-extensions");
    for (path, asked, echoed) in [
        ("/tasks", vec![(now, "urn:a")], Some((now, "urn:a"))),
        ("/tasks", vec![(now, "urn:b, urn:unknown ,urn:a,,")], Some((now, "urn:b, urn:a"))),
        ("/tasks", vec![(now, "urn:a"), (then, "urn:b")], Some((now, "urn:a, urn:b"))),
        ("/tasks", vec![(then, "urn:a")], Some((now, "urn:a"))),
        ("/tasks/unknown", vec![(now, "urn:a")], Some((now, "urn:a"))),
        ("/tasks", vec![(now, "urn:unknown")], None),
        ("/tasks", vec![], None),
        ("/v1/tasks/unknown", vec![(then, "urn:a")], Some((then, "urn:a"))),
        ("/v1/tasks/unknown", vec![(now, "urn:a")], Some((then, "urn:a"))),
        ("/v1/tasks/unknown", vec![], None),
    ] {
        let version = if path.starts_with("/v1") { vec![] } else { V1.to_vec() };
        let headers = [version, asked.clone()].concat();
        let answer = wire.ask("GET", path, &headers, "").await;
        let found = [now, then].into_iter().find_map(|name| Some((name, answer.header(name)?)));
        assert_eq!(found, echoed, "{path} {headers:?}");

        let answer = strict.ask("GET", path, &headers, "").await;
        let declared = asked.iter().any(|(_, value)| value.contains("urn:a"));
        assert_eq!(answer.reason() == "EXTENSION_SUPPORT_REQUIRED", !declared, "{path} {headers:?}");
    }
}

#[tokio::test]
async fn the_extended_card_is_nobody_elses() {
    // Spec 13.3
    let (_, port) = Probe::on_the_wire();
    for (path, headers) in [("/extendedAgentCard", V1), ("/acme/extendedAgentCard", V1), ("/v1/card", &[])] {
        let answer = port.ask("GET", path, headers, "").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["description"]),
            (200, &json!("for you")),
            "{path}"
        );
        assert!(answer.header("cache-control").unwrap().contains("private"), "{path}");
        assert!(answer.header("vary").unwrap().to_lowercase().contains("authorization"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_have_the_headers_that_go_with_them() {
    // REQ-024, REQ-085
    let full = Limits { tasks: 0, ..Limits::default() };
    let mut promising = card();
    promising.capabilities.extended_agent_card = Some(true);
    let executor = ScriptedExecutor::steps([]);
    let harness = Harness::of(promising, MemoryStore::default(), executor, |builder| builder.limits(full));
    let wire = Wire::of(harness, "", |_| {});
    for (path, headers, card_path) in
        [("/message:send", V1, "/extendedAgentCard"), ("/v1/message:send", &[], "/v1/card")]
    {
        let answer = wire.post(path, headers, &hello().to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, Some("1")), "{path}");
        let answer = wire.ask("GET", card_path, headers, "").await;
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, Some("Bearer")));
    }
    wire.harness.runtime.drain(Duration::from_secs(1)).await;
    for (path, headers) in [("/message:send", V1), ("/v1/message:send", &[])] {
        let answer = wire.post(path, headers, &hello().to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("1")), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_a_layer_has_recognised_is_the_caller() {
    // REQ-087, REQ-089
    let wire = Wire::new([]);
    let ask = async |caller: Option<&str>, mut request: Request<Body>| {
        if let Some(name) = caller {
            request.extensions_mut().insert(Caller::authenticated(name));
        }
        Answer::read(wire.request(request).await).await
    };
    let sent = ask(Some("ann"), post("/message:send", V1, &hello().to_string())).await.json();
    let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
    for (caller, status) in [(Some("ann"), 200), (Some("bob"), 404), (None, 404)] {
        let answer = ask(caller, crate::request("GET", &path, V1, "")).await;
        assert_eq!(answer.status, status, "{caller:?}");
    }
    let default = BindOptions::default();
    assert!(!default.lenient_version && default.batch == 0, "nothing lenient unless it is configured");
}
