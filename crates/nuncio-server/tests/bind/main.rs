//! The bindings, called without a socket.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "grpc")]
mod grpc_calls;
#[cfg(feature = "grpc")]
mod grpc_frames;
mod jsonrpc;
mod large;
mod probe;
mod rest;
mod rest_answers;
mod rest_old;
mod rest_streams;

use std::{ops::Deref, sync::Arc};

use axum::{Router, body::Body, response::Response};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use nuncio_server::{
    bind::{self, Agent, BindOptions},
    testing::{Harness, ScriptedExecutor, Step},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const V1: &[(&str, &str)] = &[("a2a-version", "1.0")];

/// The entry point of requests.
#[derive(Clone)]
struct Port {
    router: Router,
}

impl Port {
    /// An agent with all its bindings at the root, or with those that may be elsewhere below a prefix.
    fn of(agent: &Agent, prefix: &str) -> Self {
        Self { router: if prefix.is_empty() { bind::router(agent) } else { agent.router(prefix) } }
    }

    async fn request(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request(request("GET", path, headers, "")).await
    }

    /// Posts a body as JSON with these headers.
    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        Answer::read(self.request(post(path, headers, body)).await).await
    }

    /// Sends exactly this: no header but these.
    async fn ask(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        Answer::read(self.request(request(verb, path, headers, body)).await).await
    }
}

/// An agent on the wire, and the harness behind it.
struct Wire {
    harness: Harness,
    port: Port,
}

impl Deref for Wire {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.port
    }
}

impl Wire {
    fn new(steps: impl Into<Vec<Step>>) -> Self {
        Self::with(steps, |_| {})
    }

    fn with(steps: impl Into<Vec<Step>>, change: impl FnOnce(&mut BindOptions)) -> Self {
        Self::of(Harness::new(ScriptedExecutor::steps(steps)), "", change)
    }

    fn of(harness: Harness, prefix: &str, change: impl FnOnce(&mut BindOptions)) -> Self {
        let mut options = BindOptions::default();
        change(&mut options);
        let agent = Agent::new(Arc::new(harness.runtime.clone()), &harness.runtime.card(), options).unwrap();
        Self { harness, port: Port::of(&agent, prefix) }
    }
}

fn request(verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(verb).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_empty() { Body::empty() } else { Body::from(body.to_owned()) };
    request.body(body).unwrap()
}

fn post(path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = request("POST", path, headers, body);
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    request
}

fn hello() -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } })
}

/// The complete answer.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, text }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The frames of a stream: id and data.
    fn frames(&self) -> Vec<(String, Value)> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        self.text.split_terminator("\n\n").map(frame).collect()
    }
}

/// The id and the data of a frame; an error frame has no id.
fn frame(text: &str) -> (String, Value) {
    let mut lines = text.lines();
    let mut id = String::new();
    let mut line = lines.next().unwrap();
    if let Some(number) = line.strip_prefix("id: ") {
        number.clone_into(&mut id);
        line = lines.next().unwrap();
    }
    assert_eq!(lines.next(), None, "one line of data: {text}");
    (id, serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap())
}

/// The next write of a body.
async fn write(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}
