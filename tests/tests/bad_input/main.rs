//! Requests of careless and hostile callers, over real sockets, in both versions and every binding. Each
//! answer names the mistake in the protocol's terms, and after all requests the server still works.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod envelope;
mod frames;
mod grpc;
mod http;
mod parameters;
mod rest;
mod strangers;
mod streams;
mod ways;

use nuncio_protocol::{
    ErrorKind, Version,
    op::Op,
    v03,
    wire::{Dialect, V1},
};
use nuncio_server::bind::BindOptions;
use nuncio_tests::{
    agent::{Gates, Scripted},
    raw::{Answer, Raw},
    world::Server,
};
use serde_json::{Value, json};

/// Small, so that a body can be too large without costing much.
const BODY_BYTES: usize = 1 << 20;

/// The depth of the deepest nesting, far beyond any stack.
const NESTING_DEPTH: usize = 100_000;

const VERSIONS: [Version; 2] = [Version::V1_0, Version::V0_3];

/// A server, and a way to be rude to it.
struct Victim {
    raw: Raw,
    /// The gate at which its scripts wait.
    gates: Gates,
    server: Server,
}

impl Victim {
    async fn new() -> Self {
        Self::with(BindOptions { body_bytes: BODY_BYTES, ..BindOptions::default() }).await
    }

    async fn with(options: BindOptions) -> Self {
        let scripted = Scripted::default();
        let gates = scripted.gates.clone();
        let server = Server::start(scripted, options, |_| {}).await;
        Self { raw: Raw::new(format!("http://{}/", server.address)), gates, server }
    }

    /// Posts a body in this version.
    async fn post(&self, version: Version, body: impl Into<Vec<u8>>) -> Answer {
        self.raw.post(&[("a2a-version", version.as_str())], body).await
    }

    /// Makes a good call and gives its result.
    async fn result(&self, version: Version, op: Op, params: &str) -> Value {
        let answer = self.post(version, call(version, op, params)).await;
        let answer = answer.json();
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// A task that is finished, in the terms of this version.
    async fn task(&self, version: Version, script: &str) -> Value {
        let result = self.result(version, Op::SendMessage, &send(version, script)).await;
        if version == Version::V1_0 { result["task"].clone() } else { result }
    }

    /// It still works, whatever was sent to it.
    async fn still_works(&self) {
        for version in VERSIONS {
            let state = self.task(version, "completed").await["status"]["state"].clone();
            assert!(state == "TASK_STATE_COMPLETED" || state == "completed", "{state}");
            let params = send(version, "completed");
            let answer = self.rest(version, Op::SendMessage, &params).await.unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            let outcome = self.grpc(version, Op::SendMessage, &params).await.unwrap();
            assert_eq!(outcome.code(), Some(0), "{outcome:?}");
        }
    }
}

/// Bodies that are no JSON, given one that is.
fn garbage(good: &str) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("nothing", Vec::new()),
        ("blanks", b" \n\t ".to_vec()),
        ("a word", b"hello".to_vec()),
        ("cut off", good[..good.len() - 1].into()),
        ("more than one", format!("{good}{good}").into()),
        ("single quotes", br"{'jsonrpc':'2.0'}".to_vec()),
        ("a trailing comma", br#"{"jsonrpc":"2.0",}"#.to_vec()),
        ("a comment", b"{/* */}".to_vec()),
        ("not UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\"}".to_vec()),
        ("a byte order mark", format!("\u{feff}{good}").into()),
        ("a bad escape", br#"{"jsonrpc":"2.0","id":"\x"}"#.to_vec()),
        ("a control character", b"{\"jsonrpc\":\"2.0\",\"id\":\"\x00\"}".to_vec()),
        ("NaN", br#"{"jsonrpc":"2.0","id":NaN}"#.to_vec()),
        ("many open arrays", "[".repeat(NESTING_DEPTH).into()),
        ("many open objects", "{\"a\":".repeat(NESTING_DEPTH).into()),
        (
            "many open arrays in the parameters",
            format!("{}{}", &good[..good.len() - 12], "[".repeat(NESTING_DEPTH)).into(),
        ),
        ("form data", b"a=b&c=d".to_vec()),
    ]
}

fn dialect(version: Version) -> &'static dyn Dialect {
    match version {
        Version::V1_0 => &V1,
        Version::V0_3 => &v03::JsonRpc,
    }
}

/// A call with the id `"c"`.
fn call(version: Version, op: Op, params: &str) -> String {
    let method = dialect(version).method(op).unwrap();
    format!(r#"{{"jsonrpc":"2.0","id":"c","method":"{method}","params":{params}}}"#)
}

/// The parameters of a send of this script.
fn send(version: Version, script: &str) -> String {
    json!({ "message": message(version, script) }).to_string()
}

fn message(version: Version, script: &str) -> Value {
    match version {
        Version::V1_0 => json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": script}]}),
        Version::V0_3 => json!({
            "kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": script}],
        }),
    }
}

/// The expected form of a refusal.
struct Refusal {
    status: u16,
    code: i32,
    /// The field that it names; empty if it is about none.
    field: &'static str,
    id: Value,
}

impl Refusal {
    /// An answer to the call `"c"`, with status 200.
    fn of_call(code: i32, field: &'static str) -> Self {
        Self { status: 200, code, field, id: json!("c") }
    }

    /// An answer to nobody in particular.
    fn of_body(code: i32) -> Self {
        Self { status: 200, code, field: "", id: Value::Null }
    }

    /// Fails with all that came, unless it is exactly this (REQ-007, REQ-026 to REQ-030, REQ-040, REQ-041).
    fn check(&self, what: &str, answer: &Answer) {
        assert_eq!(answer.status, self.status, "{what}: {answer:?}");
        assert_eq!(answer.header("content-type"), "application/json", "{what}");
        let body = answer.json();
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &self.id), "{what}: {body}");
        assert!(body.get("result").is_none(), "{what}: {body}");
        let error = &body["error"];
        assert_eq!(error["code"], self.code, "{what}: {body}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {body}");
        let (info, bad) = (&error["data"][0], &error["data"][1]);
        assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{what}: {body}");
        assert_eq!(info["domain"], "a2a-protocol.org", "{what}: {body}");
        let kind = ErrorKind::from_code(self.code).unwrap();
        assert_eq!(info["reason"], kind.row().reason, "{what}: {body}");
        let field = bad["fieldViolations"][0]["field"].as_str().unwrap_or_default();
        assert_eq!(field, self.field, "{what}: {body}");
    }
}
