//! Bytes in, bytes out.

use http::StatusCode;
use nuncio_protocol::{Binding, Version};

use super::*;

/// A send in each form, with members that nobody knows, and what the agent answers, with others.
pub(super) struct Case {
    pub(super) form: (Binding, Version),
    pub(super) asked: Asked,
    pub(super) answer: Bytes,
    /// The address of the request.
    path: &'static str,
}

/// Field 90 of a protobuf message, which nobody knows.
const UNKNOWN: [u8; 4] = [0xd2, 0x05, 0x01, b'x'];

pub(super) fn cases() -> Vec<Case> {
    let rpc = |method: &str| {
        format!(
            r#"{{ "jsonrpc":"2.0", "id" : "a-1", "method":"{method}","extra":{{"a":1}}, "params":{{"message":{{"messageId":"m","role":"user","parts":[{{"kind":"text","text":"hi","new":true}}],"novel":[1.50]}},"later":null}}}}"#
        )
    };
    let rest = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"novel":[1.50]}}"#;
    let rpc_answer = r#"{"jsonrpc":"2.0","id":"a-1","result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"unheard":"of"}}, "more":1}"#;
    let old_answer = r#"{"jsonrpc":"2.0","id":"a-1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"},"unheard":"of"}}"#;
    let rest_answer =
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"unheard":"of"}}"#;
    // SendMessageRequest with a message (2) that has an id and a role; the older one has it at 1.
    let message = [0x0a, 0x01, b'm', 0x20, 0x01, 0x2a, 0x04, 0x0a, 0x02, b'h', b'i', 0xd2, 0x05, 0x01, b'y'];
    let grpc = |field: u8| {
        let mut bytes = vec![field << 3 | 2, u8::try_from(message.len()).unwrap()];
        bytes.extend_from_slice(&message);
        bytes.extend_from_slice(&UNKNOWN);
        framed(&bytes)
    };
    let mut task = vec![0x0a, 0x0a, 0x0a, 0x01, b't', 0x12, 0x01, b'c', 0xd2, 0x05, 0x01, b'z'];
    task.extend_from_slice(&UNKNOWN);
    let agent = format!("/agents/{NAME}");
    let case =
        |form: (Binding, Version), below: &str, media_type: &str, body: Bytes, answer: Bytes, path| Case {
            form,
            asked: posted(
                &format!("{}{below}", if form.0 == Binding::Grpc { "" } else { &agent }),
                media_type,
                form.1,
                body,
            ),
            answer,
            path,
        };
    let [rpc1, rpc0, rest1, rest0, grpc1, grpc0] = FORMS;
    let json = "application/json";
    vec![
        case(rpc1, "", json, rpc("SendMessage").into(), rpc_answer.into(), "/"),
        case(rpc0, "", json, rpc("message/send").into(), old_answer.into(), "/"),
        case(
            rest1,
            "/message:send?later=1",
            "application/a2a+json",
            rest.into(),
            rest_answer.into(),
            "/message:send?later=1",
        ),
        case(rest0, "/v1/message:send", json, rest.into(), rest_answer.into(), "/v1/message:send"),
        case(
            grpc1,
            "/lf.a2a.v1.A2AService/SendMessage",
            "application/grpc",
            grpc(2),
            framed(&task),
            "/lf.a2a.v1.A2AService/SendMessage",
        ),
        case(
            grpc0,
            "/a2a.v1.A2AService/SendMessage",
            "application/grpc",
            grpc(1),
            framed(&task),
            "/a2a.v1.A2AService/SendMessage",
        ),
    ]
}

pub(super) fn grpc_answer(body: Bytes) -> Response {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(body).with_trailers(async move { Some(Ok(trailers)) });
    typed(StatusCode::OK, "application/grpc", Body::new(body))
}

#[tokio::test]
async fn what_nobody_knows_is_kept_in_every_form() {
    for Case { form, mut asked, answer, path } in cases() {
        let said = answer.clone();
        let upstream = Canned::start(&[form], move |_| match form.0 {
            Binding::Grpc => grpc_answer(said.clone()),
            _ => typed(StatusCode::OK, "application/json", said.clone()),
        })
        .await;
        for apart in [false, true] {
            let hub = hub(&upstream.base, apart).await;
            for (name, value) in [
                ("a2a-extensions", "urn:x"),
                ("idempotency-key", "k"),
                ("cookie", "secret"),
                ("authorization", "Bearer secret"),
                ("x-forwarded-for", "10.0.0.1"),
                ("connection", "keep-alive"),
            ] {
                // A hub without keys refuses credentials.
                let is_refused = name == "authorization" && !apart;
                if !is_refused && (form.0 != Binding::Grpc || name != "connection") {
                    asked.headers.insert(name, value.parse().unwrap());
                }
            }
            let (status, headers, body, trailers) = hub.ask("ann", asked.clone()).await;
            assert_eq!(body, answer, "{form:?}");
            assert_eq!(status, StatusCode::OK);
            assert_eq!(trailers.is_some(), form.0 == Binding::Grpc);
            assert!(headers.contains_key("content-type"));
            let seen = upstream.asked().pop().unwrap();
            assert_eq!(seen.body, asked.body, "{form:?}");
            assert_eq!((seen.path.as_str(), seen.method), (path, Method::POST));
            let said = |name: &str| seen.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(said("a2a-version").as_deref(), Some(form.1.as_str()));
            assert_eq!(said("a2a-extensions").as_deref(), Some("urn:x"));
            assert_eq!(said("idempotency-key").as_deref() == Some("k"), !apart, "else it says whose it is");
            assert_eq!(said("nuncio-hops").as_deref(), Some("hub-1/up"));
            for absent in ["cookie", "authorization", "x-forwarded-for"] {
                assert_eq!(said(absent), None, "{absent}");
            }
        }
    }
}

#[tokio::test]
async fn errors_of_the_agent_are_its_own_words() {
    // Statuses and bodies as they came, also those that are no better than they have to be.
    for (status, body) in [
        (200, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"own","data":{"x":1}}}"#),
        (400, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#),
        (500, r#"{"detail":"oops"}"#),
    ] {
        let answer = move |_: &Asked| typed(StatusCode::from_u16(status).unwrap(), "application/json", body);
        let upstream = Canned::start(&FORMS[..1], answer).await;
        let hub = hub(&upstream.base, true).await;
        let (got, _, said, _) = hub.ask("ann", cases().remove(0).asked).await;
        assert_eq!((got.as_u16(), &said[..]), (status, body.as_bytes()));
    }
}

/// Go servers of 0.3 send their errors so.
#[tokio::test]
async fn json_that_comes_as_plain_text_is_taken_if_it_parses() {
    let error = r#"{"jsonrpc":"2.0","id":"a-1","error":{"code":-32001,"message":"own"}}"#;
    let rest = r#"{"code":-32001,"message":"own"}"#;
    for Case { form, asked, answer: result, .. } in cases() {
        let json = match form.0 {
            Binding::JsonRpc => error,
            Binding::HttpJson => rest,
            Binding::Grpc => continue,
        };
        let result = String::from_utf8(result.to_vec()).unwrap();
        for (status, said, is_taken) in [
            (200, json, true),
            (400, json, true),
            (200, &*result, true),
            (404, "no such page", false),
            (200, "[1]", false),
            (500, r#"{"cut":"#, false),
        ] {
            let text = said.to_owned();
            let answer = move |_: &Asked| {
                typed(StatusCode::from_u16(status).unwrap(), "text/plain; charset=utf-8", text.clone())
            };
            let upstream = Canned::start(&[form], answer).await;
            for apart in [false, true] {
                let hub = hub(&upstream.base, apart).await;
                for asked in [asked.clone(), streams::stream_call(form)] {
                    let what = format!("{form:?} {} {status} {said}", asked.path);
                    let (got, headers, body, _) = hub.ask("ann", asked).await;
                    assert!(headers["content-type"].to_str().unwrap().contains("json"), "{what}");
                    let is_theirs = (got.as_u16(), &body[..]) == (status, said.as_bytes());
                    assert_eq!(is_theirs, is_taken, "{what}: {}", String::from_utf8_lossy(&body));
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_answer_becomes_an_error_of_the_protocol() {
    let page = |status: u16| {
        move |_: &Asked| typed(StatusCode::from_u16(status).unwrap(), "text/html", "<p>10.1.2.3 is down</p>")
    };
    for (status, code) in [(502, -32053), (200, -32006), (404, -32006)] {
        let upstream = Canned::start(&FORMS[..1], page(status)).await;
        let hub = hub(&upstream.base, false).await;
        let (_, _, body, _) = hub.ask("ann", cases().remove(0).asked).await;
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&answer["id"], answer["error"]["code"].as_i64()),
            (&"a-1".into(), Some(code)),
            "{answer}"
        );
        assert!(!answer.to_string().contains("10.1.2.3"), "{answer}");
    }
    // An agent that was there, and is not.
    for Case { form, asked, .. } in cases() {
        let (hub, _, base) = left_alone(form).await;
        let (status, headers, body, _) = hub.ask("ann", asked).await;
        let told = format!("{status} {headers:?} {}", String::from_utf8_lossy(&body)).replace("%20", " ");
        assert!(told.contains("cannot be reached") || told.contains("not available"), "{form:?} {told}");
        assert!(!told.contains(base.trim_start_matches("http://")), "{told}");
    }
}

/// gRPC over HTTP/2, "Responses": a status in the head is `Trailers-Only`, which ends the stream.
#[tokio::test]
async fn a_grpc_error_is_one_headers_frame() {
    for form in FORMS.into_iter().filter(|(binding, _)| *binding == Binding::Grpc) {
        // An agent that does the same, and one that ends its stream with an empty frame.
        for ends_with_head in [true, false] {
            let upstream = Canned::start(&[form], move |_| {
                let nothing = futures_util::stream::empty::<Result<Bytes, std::io::Error>>();
                let body = if ends_with_head { Body::empty() } else { Body::from_stream(nothing) };
                let mut answer = typed(StatusCode::OK, "application/grpc", body);
                answer.headers_mut().insert("grpc-status", "5".parse().unwrap());
                answer.headers_mut().insert("grpc-message", "no task".parse().unwrap());
                answer
            })
            .await;
            for apart in [false, true] {
                let hub = hub(&upstream.base, apart).await;
                let unary = cases().into_iter().find(|case| case.form == form).unwrap().asked;
                for asked in [unary, streams::stream_call(form)] {
                    let what = format!("{form:?} {ends_with_head} {apart} {}", asked.path);
                    let response = hub.open("ann", asked).await;
                    assert_eq!(response.headers()["grpc-status"], "5", "{what}");
                    assert_eq!(response.headers()["grpc-message"], "no task", "{what}");
                    assert!(hyper::body::Body::is_end_stream(response.body()), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_can_be_read_in_two_ways_goes_out_in_our_own_words() {
    let said = r#"{"jsonrpc":"2.0","id":1,"result":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let upstream = Canned::start(&FORMS[..1], move |_| typed(StatusCode::OK, "application/json", said)).await;
    let hub = hub(&upstream.base, false).await;
    let body = r#"{"jsonrpc":"2.0","id":9,"method":"GetTask","params":{"id":"t","ID":"u"}}"#;
    let (.., answer, _) = hub.ask("ann", posted("/agents/up", "application/json", Version::V1_0, body)).await;
    assert!(String::from_utf8_lossy(&answer).contains("\"id\":9"));
    let seen = upstream.asked().pop().unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(seen["params"], serde_json::json!({ "id": "t" }));
}

#[tokio::test]
async fn an_agent_that_takes_too_long_is_not_waited_for() {
    let upstream = Canned::start(&FORMS[..1], |_| {
        typed(
            StatusCode::OK,
            "application/json",
            Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>()),
        )
    })
    .await;
    let mut settings = Upstream::new(Url::parse(&upstream.base).unwrap());
    settings.send_timeout = std::time::Duration::from_millis(50);
    let hub = hub_with(settings, false, None, Arc::new(MemoryStore::default())).await;
    let (_, _, body, _) = hub.ask("ann", cases().remove(0).asked).await;
    assert!(String::from_utf8_lossy(&body).contains("too long"), "{body:?}");
}
