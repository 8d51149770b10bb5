//! Checks of errors about a task that does not exist.

use futures_util::FutureExt as _;
use http::Method;
use nuncio_protocol::{Binding, ERROR_DOMAIN, ErrorKind, Version, op::Op};
use serde_json::Value;

use super::{
    Row, Run,
    http::{has_no_route, subscribe_by},
};
use crate::{
    answer::Answer,
    interface::Interface,
    observed::{Checked, Observed},
    probe::{Probe, refused_with},
    survey::Survey,
};

pub(super) const CHECKS: &[Row] = &[
    ("errors.get", Run::Probe(|p| not_found(p, Op::GetTask).boxed())),
    ("errors.cancel", Run::Probe(|p| not_found(p, Op::CancelTask).boxed())),
    ("errors.subscribe", Run::Probe(|p| subscribe(p).boxed())),
    ("errors.push", Run::Probe(|p| push(p).boxed())),
    ("errors.data", Run::Probe(|p| data(p).boxed())),
    ("errors.info", Run::Probe(|p| info(p).boxed())),
    ("errors.same", Run::Agent(same)),
];

async fn not_found(p: &Probe<'_>, op: Op) -> Checked {
    refused_with(&p.of_unknown(op).await?, &[ErrorKind::TaskNotFound])
}

async fn subscribe(p: &Probe<'_>) -> Checked {
    if !p.streams() {
        return Ok(Observed::skip());
    }
    let mut answer = p.of_unknown(Op::SubscribeToTask).await?;
    // Contested: agents by the proto take GET only.
    if p.interface.binding == Binding::HttpJson && has_no_route(&answer) {
        answer = subscribe_by(p, Method::GET).await?;
    }
    refused_with(&answer, &[ErrorKind::TaskNotFound])
}

async fn push(p: &Probe<'_>) -> Checked {
    if !p.pushes() {
        return Ok(Observed::skip());
    }
    let answer = p.of_unknown(Op::CreateTaskPushNotificationConfig).await?;
    if let Some(contested) = contested_body(p.interface, &answer) {
        return Ok(contested);
    }
    refused_with(&answer, &[ErrorKind::TaskNotFound])
}

/// Contested in 0.3: the body of a new webhook over HTTP+JSON.
pub(super) fn contested_body(interface: &Interface, answer: &Answer) -> Option<Observed> {
    let is_old_http = interface.version == Version::V0_3 && interface.binding == Binding::HttpJson;
    let is_refused = answer.error().is_some_and(|refusal| refusal.kind == ErrorKind::InvalidParams);
    (is_old_http && is_refused).then(|| {
        let why = "the agent refuses the whole request as body: the prose of 0.3 does not tell its form, the proto has \
                   the configuration alone in the body, and most SDKs read the whole request";
        Observed::info(why).on(&answer.exchange)
    })
}

/// True for an `ErrorInfo` of the protocol.
pub(super) fn is_error_info(detail: &Value) -> bool {
    let kind = detail["@type"].as_str().unwrap_or_default();
    kind.ends_with("google.rpc.ErrorInfo")
        && detail["domain"] == ERROR_DOMAIN
        && detail["reason"].as_str().is_some_and(|reason| !reason.is_empty())
}

async fn data(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Some(refusal) = answer.error() else { return Ok(Observed::no_setup("the agent gave no error")) };
    let typed = |list: &Vec<Value>| list.iter().all(|detail| detail["@type"].is_string());
    Ok(match &refusal.raw["data"] {
        Value::Null => Observed::met(),
        Value::Array(list) if typed(list) => Observed::met(),
        other => Observed::broken("error.data is not a list of objects with @type")
            .seen(other.to_string())
            .expecting(expected_info()),
    }
    .on(&answer.exchange))
}

async fn info(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Some(refusal) = answer.error() else { return Ok(Observed::no_setup("the agent gave no error")) };
    if refusal.details.iter().any(is_error_info) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("the error has no google.rpc.ErrorInfo of the domain a2a-protocol.org")
        .seen(refusal.raw["data"].to_string())
        .expecting(expected_info())
        .on(&answer.exchange))
}

/// The details of a `TaskNotFoundError`.
pub(super) fn expected_info() -> String {
    let row = ErrorKind::TaskNotFound.row();
    format!(
        r#"[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"{}","domain":"{ERROR_DOMAIN}"}}]"#,
        row.reason
    )
}

/// Compares the errors of the same calls over all interfaces.
fn same(survey: &Survey<'_>) -> Checked {
    let mut compared = false;
    for op in ["GetTask", "CancelTask"] {
        let seen = survey.errors.iter().filter(|error| error.op == op);
        let Some(first) = seen.clone().next() else { continue };
        for other in seen.skip(1) {
            compared = true;
            if other.kind != first.kind {
                let (a, b) = (first.kind.row().reason, other.kind.row().reason);
                let why = format!(
                    "{op} of an unknown task is {a} over {} {}, and {b} over {} {}",
                    first.interface.binding,
                    first.interface.version,
                    other.interface.binding,
                    other.interface.version
                );
                return Err(Observed::broken(why).seen(b).expecting(a));
            }
        }
    }
    Ok(if compared { Observed::met() } else { Observed::skip() })
}
