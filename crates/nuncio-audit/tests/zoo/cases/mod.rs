//! The cases: one broken agent per check.

mod card;
mod deep;
mod framing;
mod messages;
pub(crate) mod operations;
mod streams;

use axum::{body::Body, response::Response};
use nuncio_protocol::{Binding, Version};
use serde_json::{Value, json};

use crate::{agent::Behaviour, breaker::Breaker};

/// The depth of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Look,
    Send,
    Push,
    Key,
}

/// An agent that breaks one check.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The check.
    pub(crate) check: &'static str,
    /// The interface that is audited.
    pub(crate) on: (Binding, Version),
    pub(crate) depth: Depth,
    pub(crate) behaviour: Behaviour,
    pub(crate) breaker: Breaker,
    /// The breach cannot be had without others, such as a missing route without a failing call: only this check
    /// runs.
    pub(crate) alone: bool,
    /// Every interface is audited, because the check compares them.
    pub(crate) everywhere: bool,
}

pub(crate) const J1: (Binding, Version) = (Binding::JsonRpc, Version::V1_0);
pub(crate) const H1: (Binding, Version) = (Binding::HttpJson, Version::V1_0);
pub(crate) const G1: (Binding, Version) = (Binding::Grpc, Version::V1_0);
pub(crate) const J0: (Binding, Version) = (Binding::JsonRpc, Version::V0_3);

/// The task that does not exist.
pub(crate) const UNKNOWN: &str = "00000000-0000-4000-8000-6e756e63696f";

/// A case that looks at the usual agent.
pub(crate) fn look(check: &'static str, on: (Binding, Version), breaker: Breaker) -> Case {
    Case {
        check,
        on,
        depth: Depth::Look,
        behaviour: Behaviour::default(),
        breaker,
        alone: false,
        everywhere: false,
    }
}

/// A case that sends messages over JSON-RPC.
pub(crate) fn send(check: &'static str, breaker: Breaker) -> Case {
    Case { depth: Depth::Send, ..look(check, J1, breaker) }
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        card::cases(),
        framing::cases(),
        operations::cases(),
        messages::cases(),
        streams::cases(),
        deep::cases(),
    ];
    areas.into_iter().flatten().collect()
}

/// An error of JSON-RPC.
pub(crate) fn rpc_error(code: i32) -> Response {
    let error = json!({ "code": code, "message": "broken" });
    json_response(200, &json!({ "jsonrpc": "2.0", "id": 1, "error": error }))
}

/// A result of JSON-RPC: a message, as of an agent that accepts anything.
pub(crate) fn accepted() -> Response {
    let message =
        json!({ "messageId": "m", "contextId": "c", "role": "ROLE_AGENT", "parts": [{ "text": "yes" }] });
    json_response(200, &json!({ "jsonrpc": "2.0", "id": 1, "result": { "message": message } }))
}

/// An answer as JSON.
pub(crate) fn json_response(status: u16, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

/// An answer as a page.
pub(crate) fn page(status: u16) -> Response {
    let mut response = Response::new(Body::from("<html>not here</html>"));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/html"));
    response
}

/// An internal error instead of another.
pub(crate) fn internal() -> Value {
    let info = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INTERNAL_ERROR",
        "domain": "a2a-protocol.org" });
    json!({ "code": -32603, "message": "broken", "data": [info] })
}
