//! Checks of JSON-RPC framing.

use futures_util::FutureExt as _;
use nuncio_protocol::{Binding, ErrorKind, op::Op};
use serde_json::{Value, json};

use super::{Row, Run};
use crate::{
    answer::Answer,
    observed::{Checked, Observed},
    probe::{Probe, UNKNOWN, on_task},
    wire::Request,
};

pub(super) const CHECKS: &[Row] = &[
    ("rpc.parse", Run::Probe(|p| parse(p).boxed())),
    ("rpc.member", Run::Probe(|p| member(p).boxed())),
    ("rpc.method", Run::Probe(|p| method(p).boxed())),
    ("rpc.params", Run::Probe(|p| params(p).boxed())),
    ("rpc.id", Run::Probe(|p| id(p).boxed())),
    ("rpc.either", Run::Probe(|p| either(p).boxed())),
    ("rpc.content-type", Run::Probe(|p| content_type(p).boxed())),
    ("rpc.unknown-member", Run::Probe(|p| unknown_member(p).boxed())),
];

/// The body of an answer as JSON.
fn body(answer: &Answer) -> Value {
    let response = answer.exchange.response.as_ref().ok();
    response.and_then(|response| serde_json::from_slice(&response.body).ok()).unwrap_or_default()
}

/// The method and the id member for a read of the unknown task.
fn read_unknown(p: &Probe<'_>) -> (&'static str, Value) {
    let method = p.interface.dialect().method(Op::GetTask).unwrap_or("GetTask");
    (method, p.interface.with_tenant(json!({ "id": UNKNOWN })))
}

fn with_envelope(p: &Probe<'_>, envelope: &Value) -> Request {
    p.interface.post(Op::GetTask).with_body(envelope.to_string())
}

/// The answer to a request that has to be refused with this code.
async fn refused(p: &Probe<'_>, request: Request, kind: ErrorKind) -> Result<Answer, Observed> {
    let answer = p.ask(Op::GetTask, request).await?;
    let code = kind.row().code;
    let seen = body(&answer)["error"]["code"].as_i64();
    if seen == Some(i64::from(code)) {
        return Ok(answer);
    }
    let shown = answer.shown();
    Err(Observed::broken(format!("expected error {code}, got {shown}"))
        .seen(shown)
        .expecting(format!("error {code}"))
        .on(&answer.exchange))
}

async fn parse(p: &Probe<'_>) -> Checked {
    let request = p.interface.post(Op::GetTask).with_body(r#"{"jsonrpc":"2.0","id":1,"method":"#);
    let answer = refused(p, request, ErrorKind::ParseError).await?;
    let id = body(&answer).get("id").cloned();
    Ok(match id {
        Some(Value::Null) => Observed::met(),
        Some(id) => Observed::broken("the response to malformed JSON has an id")
            .seen(id.to_string())
            .expecting("null"),
        None => Observed::broken("the response to malformed JSON has no member id").expecting("\"id\":null"),
    }
    .on(&answer.exchange))
}

async fn member(p: &Probe<'_>) -> Checked {
    let (method, params) = read_unknown(p);
    let envelope = json!({ "jsonrpc": "1.0", "id": 1, "method": method, "params": params });
    let answer = refused(p, with_envelope(p, &envelope), ErrorKind::InvalidRequest).await?;
    Ok(Observed::met().on(&answer.exchange))
}

async fn method(p: &Probe<'_>) -> Checked {
    let request = p.interface.call("nuncio/audit", &json!({}));
    let answer = refused(p, request, ErrorKind::MethodNotFound).await?;
    Ok(Observed::met().on(&answer.exchange))
}

async fn params(p: &Probe<'_>) -> Checked {
    let (method, _) = read_unknown(p);
    let request = p.interface.call(method, &json!({ "id": { "not": "a string" } }));
    let answer = refused(p, request, ErrorKind::InvalidParams).await?;
    Ok(Observed::met().on(&answer.exchange))
}

async fn id(p: &Probe<'_>) -> Checked {
    let (method, params) = read_unknown(p);
    for id in [json!("nuncio-audit"), json!(42)] {
        let envelope = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let answer = p.ask(Op::GetTask, with_envelope(p, &envelope)).await?;
        let seen = body(&answer)["id"].clone();
        if seen != id {
            return Err(Observed::broken(format!("the response to id {id} has id {seen}"))
                .seen(seen.to_string())
                .expecting(id.to_string())
                .on(&answer.exchange));
        }
    }
    Ok(Observed::met())
}

async fn either(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let body = body(&answer);
    let (result, error) = (body.get("result").is_some(), body.get("error").is_some());
    let broken = |why: &str| Err(Observed::broken(why).on(&answer.exchange));
    match (result, error) {
        (true, true) => broken("the response has both result and error"),
        (false, false) => broken("the response has neither result nor error"),
        _ if body["jsonrpc"] != "2.0" => broken("the response has no jsonrpc 2.0"),
        _ => Ok(Observed::met().on(&answer.exchange)),
    }
}

async fn content_type(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Ok(response) = &answer.exchange.response else { return Ok(Observed::skip()) };
    let seen = response.media_type();
    if seen == "application/json" {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("the response is not application/json")
        .seen(if seen.is_empty() { "no content type".to_owned() } else { seen })
        .expecting("application/json")
        .on(&answer.exchange))
}

/// Over JSON-RPC in params, over HTTP+JSON in the body of a cancel.
async fn unknown_member(p: &Probe<'_>) -> Checked {
    let (op, request) = match p.interface.binding {
        Binding::HttpJson => {
            let request = p.request(on_task(Op::CancelTask, UNKNOWN))?;
            (Op::CancelTask, request.with_body(r#"{"nuncioAudit":true}"#))
        }
        Binding::JsonRpc | Binding::Grpc => {
            let (method, mut params) = read_unknown(p);
            params["nuncioAudit"] = true.into();
            (Op::GetTask, p.interface.call(method, &params))
        }
    };
    let answer = p.ask(op, request).await?;
    let is_refused = answer.error().is_some_and(|refusal| {
        matches!(refusal.kind, ErrorKind::InvalidParams | ErrorKind::InvalidRequest | ErrorKind::ParseError)
    });
    if is_refused {
        let shown = answer.shown();
        return Err(Observed::broken("a request with an unknown member is refused")
            .seen(shown)
            .on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}
