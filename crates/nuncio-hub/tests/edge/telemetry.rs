//! Traces leave the hub, and nobody waits for them.

use axum::{Router, routing::post};
use bytes::Bytes;
use http::HeaderMap;
use nuncio_hub::config::{Secret, Telemetry};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc};

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// With spans that go to this address.
fn traced(collector: &str) -> Config {
    let telemetry = Telemetry {
        otlp_endpoint: Some(collector.parse().unwrap()),
        otlp_headers: vec![("x-team".parse().unwrap(), Secret::new("blue"))],
        ..Telemetry::default()
    };
    Config { telemetry, ..config() }
}

/// Says hello to the echo agent, as part of a trace, and then stops the hub.
async fn say_hello_and_stop(hub: Running) {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "xyzzy-4711" }] });
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client
        .post(format!("{}/agents/echo", hub.url))
        .header("content-type", "application/json")
        .header("a2a-version", "1.0")
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .body(call.to_string());
    let answer = within("the answer", request.send()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    drop((answer, client));
    hub.stop.send(()).unwrap();
    within("the end of the hub", hub.ended).await.unwrap().unwrap();
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// The bytes of a text in hexadecimal.
fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}

#[tokio::test]
async fn spans_reach_their_collector_before_the_end() {
    let (sender, mut received) = mpsc::unbounded_channel::<(HeaderMap, Bytes)>();
    let take = post(async move |headers: HeaderMap, body: Bytes| drop(sender.send((headers, body))));
    let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let collector = tokio::spawn(axum::serve(socket, Router::new().route("/v1/traces", take)).into_future());
    say_hello_and_stop(Running::start(traced(&format!("http://{address}"))).await).await;
    let (headers, body) = received.try_recv().expect("the hub has sent them before its end");
    collector.abort();
    assert_eq!(headers["content-type"], "application/x-protobuf");
    assert_eq!(headers["x-team"], "blue");
    for part in ["SendMessage echo", "gen_ai.agent.name", "a2a.task.id", "service.name"] {
        assert!(has(&body, part.as_bytes()), "{part}");
    }
    assert!(has(&body, &bytes(TRACE)) && has(&body, &bytes(PARENT)), "the trace goes on");
    assert!(!has(&body, b"xyzzy-4711"), "nothing of what was said");
}

#[tokio::test]
async fn a_collector_that_is_down_harms_nobody() {
    // Port 1 of loopback: nothing listens there.
    say_hello_and_stop(Running::start(traced("http://127.0.0.1:1")).await).await;
}
