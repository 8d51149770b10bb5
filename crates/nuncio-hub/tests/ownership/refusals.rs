//! Refusals of callers: the error of the binding, with the status and headers of HTTP.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_hub::{
    ApiKeyLimits, NewApiKey,
    config::{AgentKind, Anonymous, Limits, Rate},
};
use nuncio_protocol::{
    GetTaskRequest, Message, Part, SendMessageRequest, Version,
    op::{Call, Op},
};
use serde_json::{Value, json};

use crate::{
    Running, TEST_TIMEOUT,
    wire::{Answer, REQUEST_ID, WIRES, Wire, get, read},
};

fn list() -> Call {
    Call::ListTasks(Box::default())
}

pub(crate) fn get_task() -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: "t".into(), ..Default::default() }))
}

pub(crate) fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| std::str::from_utf8(value).unwrap())
}

/// The status of HTTP, and the error in the binding's own words.
fn error(wire: Wire, answer: &Answer) -> (u16, String) {
    // Alone, or as the only event of a stream.
    let text = answer.body.strip_prefix(b"data: ").unwrap_or(&answer.body);
    let json: Value = serde_json::from_slice(text).unwrap_or_default();
    let told = match wire {
        Wire::JsonRpc(_) => json["error"]["code"].to_string(),
        Wire::Rest(Version::V1_0) => json["error"]["status"].to_string(),
        Wire::Rest(Version::V0_3) => json["code"].to_string(),
        Wire::Grpc(_) => header(answer, "grpc-status").to_owned(),
    };
    (answer.status, told)
}

/// The error on each wire: JSON-RPC, HTTP+JSON (of either version), gRPC.
pub(crate) fn check(wire: Wire, answer: &Answer, http: u16, code: i32, status: &str, grpc: &str) {
    let expected = match wire {
        Wire::JsonRpc(_) => (http, code.to_string()),
        Wire::Rest(Version::V1_0) => (http, format!("\"{status}\"")),
        Wire::Rest(Version::V0_3) => (http, code.to_string()),
        Wire::Grpc(_) => (200, grpc.to_owned()),
    };
    assert_eq!(error(wire, answer), expected, "{wire:?}: {}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_credentials_and_with_wrong_ones() {
    let hub = Running::start(|_| {}).await;
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", None, get_task()).await.unwrap();
        assert_ne!(answer.status, 401, "as long as there is no key: {}", answer.text());
        // What is shown is verified all the same.
        for (bearer, headers) in [(Some("wrong"), &[][..]), (None, &[("x-api-key", "wrong")])] {
            let answer = wire.call_as(&hub, "echo", bearer, headers, get_task()).await.unwrap();
            check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
            assert!(
                header(&answer, "www-authenticate").contains("this hub has no keys"),
                "{}",
                answer.text()
            );
        }
    }
    hub.key("team-a", None).await;
    for wire in WIRES {
        for (key, challenge) in [
            (None, "Bearer realm=\"nuncio\""),
            (
                Some("nuncio_wrong"),
                "Bearer realm=\"nuncio\", error=\"invalid_token\", error_description=\"the key is mistyped or cut off\"",
            ),
        ] {
            let answer = wire.call(&hub, "echo", key, get_task()).await.unwrap();
            check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
            assert_eq!(header(&answer, "www-authenticate"), challenge, "{wire:?}");
        }
    }
    for open in ["/healthz", "/readyz"] {
        assert_eq!(get(&hub, open, None).await.status, 200, "{open}");
    }
    assert_eq!(get(&hub, "/agents", None).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_card_says_what_is_asked_for_from_the_first_key_on() {
    let hub = Running::start(|_| {}).await;
    let card = async |key: Option<&str>| {
        let answer = get(&hub, "/agents/echo/.well-known/agent-card.json", key).await;
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    assert_eq!(card(None).await["securitySchemes"], Value::Null);
    let key = hub.key("team-a", None).await;
    // Made anew beside the calls: soon.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while card(Some(&key)).await["securitySchemes"].is_null() {
        assert!(Instant::now() < deadline, "the card does not change");
    }
    let schemes = card(Some(&key)).await["securitySchemes"].clone();
    let names: Vec<_> = schemes.as_object().unwrap().keys().collect();
    assert_eq!(names, ["apiKey", "bearer"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_is_not_for_you() {
    let hub = Running::start(|_| {}).await;
    let new = NewApiKey { operations: Some(vec!["GetTask".to_owned()]), ..NewApiKey::named("reader") };
    let key = hub.keyring.create(new).await.unwrap().1;
    let send = || {
        let message = Message::user("m", [Part::text("hello")]);
        Call::SendMessage(Box::new(SendMessageRequest { message, ..Default::default() }))
    };
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", Some(key.reveal()), send()).await.unwrap();
        check(wire, &answer, 403, -32051, "PERMISSION_DENIED", "7");
        let answer = wire.call(&hub, "echo", Some(key.reveal()), get_task()).await.unwrap();
        let (http, _) = error(wire, &answer);
        assert_ne!(http, 403, "{wire:?}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_is_yours() {
    let rate = Some(Rate { per_second: 0.001, burst: Some(2) });
    let hub = Running::start(|config| config.limits = Limits { rate, ..Limits::default() }).await;
    for (number, wire) in WIRES.into_iter().enumerate() {
        let key = hub.key(&format!("team-{number}"), None).await;
        let ask = || wire.call(&hub, "echo", Some(&key), get_task());
        for _ in 0..2 {
            let answer = ask().await.unwrap();
            assert_ne!(error(wire, &answer).0, 429, "{wire:?}: {}", answer.text());
        }
        let answer = ask().await.unwrap();
        check(wire, &answer, 429, -32052, "RESOURCE_EXHAUSTED", "8");
        let wait: u32 = header(&answer, "retry-after").parse().unwrap();
        assert!((900..=1000).contains(&wait), "{wire:?}: {wait}");
    }
    let limits = ApiKeyLimits { per_second: Some(1000.0), burst: Some(1000), ..ApiKeyLimits::default() };
    let key = hub.keyring.create(NewApiKey { limits, ..NewApiKey::named("generous") }).await.unwrap().1;
    // More than others have, from when the hub has heard of it: soon.
    let wire = Wire::JsonRpc(Version::V1_0);
    let (mut taken, deadline) = (0, Instant::now() + TEST_TIMEOUT);
    while taken < 10 {
        assert!(Instant::now() < deadline, "{taken} were taken");
        taken += usize::from(wire.call(&hub, "echo", Some(key.reveal()), list()).await.unwrap().is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_key_that_it_was_asked_for_by() {
    let hub = Running::start(|_| {}).await;
    let wire = Wire::Rest(Version::V1_0);
    for (name, why) in
        [("revoked", "the key was revoked"), ("replaced", "the key was replaced by a newer one")]
    {
        let key = hub.key(name, None).await;
        let message = Message::user("m", [Part::text("hold")]);
        let send = Call::SendStreamingMessage(Box::new(SendMessageRequest { message, ..Default::default() }));
        let keyring = Arc::clone(&hub.keyring);
        let stream = wire.call(&hub, "echo", Some(&key), send);
        let end = async {
            // Once it was used, the call is in; whether the stream is open by then does not matter: it ends, or is
            // refused.
            while keyring.show(name).unwrap().1.is_none() {
                tokio::task::yield_now().await;
            }
            match name {
                "revoked" => drop(keyring.revoke(name).await.unwrap()),
                _ => drop(keyring.rotate(name, Duration::ZERO).await.unwrap()),
            }
        };
        let (answer, ()) = futures_util::future::join(stream, end).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let again = wire.call(&hub, "echo", Some(&key), get_task()).await.unwrap();
        assert_eq!(again.status, 401, "{name}");
        assert!(header(&again, "www-authenticate").contains(why), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_in_where_nobody_may() {
    let hub = Running::start(|config| config.identity.anonymous = Anonymous::Never).await;
    for wire in WIRES {
        let answer = wire.call(&hub, "echo", None, get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
        assert!(wire.has(Op::GetTask));
    }
}

/// In a hub without credentials of its own, the agent judges the credentials that it receives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_an_agent_receives_are_judged_by_the_agent() {
    let far = Running::start(|_| {}).await;
    let key = far.key("team-a", None).await;
    let hub = Running::before(&far, |config, agent| {
        let AgentKind::Upstream(upstream) = &mut agent.kind else { panic!("{agent:?}") };
        upstream.forward_headers = vec!["authorization".parse().unwrap()];
        // The only one that 0.3 reaches over gRPC.
        config.default_agent = Some("far".to_owned());
    })
    .await;
    for wire in WIRES {
        let answer = wire.call(&hub, "far", Some(&key), get_task()).await.unwrap();
        assert!(answer.text().replace("%20", " ").contains("not found"), "{wire:?}: {}", answer.text());
        let answer = wire.call(&hub, "far", Some("nuncio_wrong"), get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
        assert!(answer.text().replace("%20", " ").contains("mistyped"), "{wire:?}: {}", answer.text());
        // A header that this agent does not receive, and an agent that receives none.
        let answer = wire.call_as(&hub, "far", None, &[("x-api-key", &key)], get_task()).await.unwrap();
        check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
        if wire != Wire::Grpc(Version::V0_3) {
            let answer = wire.call(&hub, "echo", Some(&key), get_task()).await.unwrap();
            check(wire, &answer, 401, -32050, "UNAUTHENTICATED", "16");
            assert!(answer.text().replace("%20", " ").contains("this hub has no keys"), "{}", answer.text());
        }
    }
    for (tenant, shown, status, words) in [
        ("far", &*key, 404, "not found"),
        ("far", "nuncio_wrong", 401, "mistyped"),
        ("echo", &*key, 401, "this hub has no keys"),
    ] {
        let by_path = hub.http.get(format!("{}/{tenant}/tasks/t", hub.url));
        let by_query = hub.http.get(format!("{}/tasks/t?tenant={tenant}", hub.url));
        let params = json!({ "id": "t", "tenant": tenant });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": params });
        let by_body = hub
            .http
            .post(format!("{}/", hub.url))
            .header("content-type", "application/json")
            .body(body.to_string());
        // An error of JSON-RPC has the status 200, unless it is about credentials.
        for (request, status) in
            [(by_path, status), (by_query, status), (by_body, if status == 404 { 200 } else { status })]
        {
            let answer = read(request.header("a2a-version", "1.0").bearer_auth(shown)).await;
            assert_eq!(answer.status, status, "{tenant}: {}", answer.text());
            assert!(answer.text().contains(words), "{tenant}: {}", answer.text());
        }
    }
    assert_eq!(get(&hub, "/agents", Some(&key)).await.status, 401, "no agent receives it");
}

/// R-53: a caller can name the request to an operator, by whatever binding the error came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_their_request_and_answers_their_version() {
    let hub = Running::start(|_| {}).await;
    let send = |text: &str| {
        let message = Message::user("m", [Part::text(text)]);
        Box::new(SendMessageRequest { message, ..Default::default() })
    };
    let unknown = || {
        let mut request = send("hello");
        request.message.task_id = Some("unknown".into());
        request
    };
    for wire in WIRES {
        for (call, is_error) in [
            (Call::SendMessage(send("hello")), false),
            (Call::SendStreamingMessage(send("hello")), false),
            (get_task(), true),
            (Call::SendMessage(unknown()), true),
            (Call::SendStreamingMessage(unknown()), true),
            (Call::SendMessage(Box::default()), true),
        ] {
            let op = call.op();
            let answer = wire.call(&hub, "echo", None, call).await.unwrap();
            let text = answer.text();
            assert_eq!(header(&answer, "a2a-version"), wire.version().as_str(), "{wire:?} {op:?}: {text}");
            assert_eq!(header(&answer, "x-request-id"), REQUEST_ID, "{wire:?} {op:?}");
            let named = text.matches("requestId").count();
            assert_eq!(named > 0, is_error, "{wire:?} {op:?}: {text}");
            // In the header, and beside each `requestId`.
            assert_eq!(text.matches(REQUEST_ID).count(), named + 1, "{wire:?} {op:?}: {text}");
        }
        let answer = wire.call(&hub, "echo", Some("wrong"), get_task()).await.unwrap();
        assert_eq!(header(&answer, "a2a-version"), wire.version().as_str(), "{wire:?}: {}", answer.text());
        assert!(answer.text().contains("requestId"), "{wire:?}: {}", answer.text());
    }
}

/// C-69: an agent that is not there is no unknown task, and JSON-RPC is answered by JSON-RPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_agent_is_told_in_the_words_of_the_binding() {
    let hub = Running::start(|_| {}).await;
    for wire in WIRES {
        let answer = wire.call(&hub, "nope", None, get_task()).await.unwrap();
        match wire {
            Wire::JsonRpc(_) => {
                check(wire, &answer, 404, -32601, "", "");
                let body: Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!((&body["jsonrpc"], &body["id"]), (&"2.0".into(), &Value::Null));
                assert!(answer.text().contains("there is nothing at /agents/nope; GET /agents lists"));
            }
            Wire::Rest(_) => check(wire, &answer, 404, -32601, "UNIMPLEMENTED", ""),
            Wire::Grpc(Version::V1_0) => check(wire, &answer, 200, 0, "", "3"),
            // It names no agent, and reaches the default one.
            Wire::Grpc(Version::V0_3) => check(wire, &answer, 200, 0, "", "5"),
        }
    }
    // At the root, where no agent is the default one, the tenant is missing.
    let hub = Running::start(|config| config.default_agent = None).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}"#;
    let request = hub.http.post(&hub.url).header("content-type", "application/json");
    let answer = read(request.header("a2a-version", "1.0").body(call)).await;
    check(Wire::JsonRpc(Version::V1_0), &answer, 200, -32602, "", "");
}
