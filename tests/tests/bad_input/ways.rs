//! The parameters of a JSON-RPC call, said over the other bindings, as far as they can be said there.

use std::fmt::Write as _;

use nuncio_protocol::{ErrorKind, Version, op::Op, pb, v03};
use nuncio_tests::{
    http2::{Http2, Outcome, frame, rpc},
    raw::Answer,
};
use serde_json::{Map, Value, value::RawValue};

use crate::{Victim, dialect};

pub(crate) fn codec(version: Version) -> &'static pb::Codec {
    match version {
        Version::V1_0 => &pb::CODEC,
        Version::V0_3 => &v03::pb::CODEC,
    }
}

/// The prefix of the HTTP+JSON routes.
pub(crate) fn prefix(version: Version) -> &'static str {
    match version {
        Version::V1_0 => "",
        Version::V0_3 => "v1/",
    }
}

/// Percent-encoded.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").unwrap();
        }
    }
    escaped
}

/// A verb, a path and a body that say this; `None` if paths and queries cannot.
fn rest_request(version: Version, op: Op, params: &str) -> Option<(&'static str, String, String)> {
    let prefix = prefix(version);
    if matches!(op, Op::SendMessage | Op::SendStreamingMessage) {
        return Some(("POST", format!("{prefix}{}", &op.row().path[1..]), params.to_owned()));
    }
    let mut members: Map<String, Value> = serde_json::from_str(params).ok()?;
    let mut id = || match members.remove("id") {
        Some(Value::String(id)) if !id.is_empty() => Some(escape(&id)),
        _ => None,
    };
    match op {
        Op::GetTask => {
            let path = format!("{prefix}tasks/{}", id()?);
            Some(("GET", format!("{path}{}", query(&members)?), String::new()))
        }
        Op::ListTasks => Some(("GET", format!("{prefix}tasks{}", query(&members)?), String::new())),
        Op::CancelTask => {
            let path = format!("{prefix}tasks/{}:cancel", id()?);
            Some(("POST", path, Value::Object(members).to_string()))
        }
        Op::SubscribeToTask => Some(("GET", format!("{prefix}tasks/{}:subscribe", id()?), String::new())),
        _ => None,
    }
}

fn query(members: &Map<String, Value>) -> Option<String> {
    let mut query = String::new();
    for (name, value) in members {
        let value = match value {
            Value::String(text) => text.clone(),
            // There every value is a text, so that a number is as good.
            Value::Number(_) if name == "contextId" => return None,
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        write!(query, "{}{name}={}", if query.is_empty() { '?' } else { '&' }, escape(&value)).unwrap();
    }
    Some(query)
}

impl Victim {
    /// Says it over HTTP+JSON, if it can be said there.
    pub(crate) async fn rest(&self, version: Version, op: Op, params: &str) -> Option<Answer> {
        self.rest_as(version, op, params, &[]).await
    }

    pub(crate) async fn rest_as(
        &self,
        version: Version,
        op: Op,
        params: &str,
        headers: &[(&str, &str)],
    ) -> Option<Answer> {
        let (verb, path, body) = rest_request(version, op, params)?;
        let own = [("a2a-version", version.as_str()), ("content-type", "application/json")];
        Some(self.raw.ask(verb, &path, &[&own, headers].concat(), body).await)
    }

    /// Says it over gRPC, if it can be said there.
    pub(crate) async fn grpc(&self, version: Version, op: Op, params: &str) -> Option<Outcome> {
        self.grpc_as(version, op, params, &[]).await
    }

    pub(crate) async fn grpc_as(
        &self,
        version: Version,
        op: Op,
        params: &str,
        headers: &[(&str, &str)],
    ) -> Option<Outcome> {
        let json: &RawValue = serde_json::from_str(params).ok()?;
        let (call, codec) = (dialect(version).decode_call(op, Some(json)).ok()?, codec(version));
        (codec.rpc_name)(op)?;
        let mut message = Vec::new();
        (codec.encode_call)(&call, &mut message).ok()?;
        Some(self.http2().await.ask(&rpc(codec, op), headers, frame(&message)).await)
    }

    pub(crate) async fn http2(&self) -> Http2 {
        Http2::connect(self.server.address).await
    }
}

/// Says it over the other bindings and expects to be refused so.
pub(crate) async fn check(
    victim: &Victim,
    version: Version,
    op: Op,
    params: &str,
    kind: ErrorKind,
    field: &str,
    what: &str,
) {
    if let Some(answer) = victim.rest(version, op, params).await {
        check_rest(version, &answer, kind, field, what);
    }
    if let Some(outcome) = victim.grpc(version, op, params).await {
        check_grpc(version, &outcome, kind, field, what);
    }
}

/// REQ-055 to REQ-058; protocol-notes.md, Errors.
pub(crate) fn check_rest(version: Version, answer: &Answer, kind: ErrorKind, field: &str, what: &str) {
    let body = answer.json();
    let (status, code, error, details) = match version {
        Version::V1_0 => {
            let http = kind.row().http;
            (http, i64::from(http), &body["error"], &body["error"]["details"])
        }
        Version::V0_3 => {
            let error = nuncio_protocol::Error::from(kind);
            (v03::rest_error(&error).0, i64::from(kind.row().code), &body, &body["data"])
        }
    };
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    assert_eq!(error["code"], code, "{what}: {body}");
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {body}");
    assert_eq!(details[0]["reason"], kind.row().reason, "{what}: {body}");
    assert_eq!(details[0]["domain"], "a2a-protocol.org", "{what}: {body}");
    assert_eq!(
        details[1]["fieldViolations"][0]["field"].as_str().unwrap_or_default(),
        field,
        "{what}: {body}"
    );
}

/// REQ-064, REQ-065.
pub(crate) fn check_grpc(version: Version, outcome: &Outcome, kind: ErrorKind, field: &str, what: &str) {
    assert_eq!((outcome.http.as_u16(), outcome.messages.len()), (200, 0), "{what}: {outcome:?}");
    assert_eq!(outcome.code(), Some((codec(version).status_code)(kind).number), "{what}: {outcome:?}");
    let error = outcome.error(codec(version));
    assert_eq!(error.kind(), kind, "{what}: {error:?}");
    let named = error.violations().first().map_or("", |violation| &*violation.field);
    assert_eq!(named, field, "{what}: {error:?}");
}
