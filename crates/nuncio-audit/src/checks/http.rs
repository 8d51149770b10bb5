//! Checks of HTTP+JSON framing.

use futures_util::FutureExt as _;
use http::Method;
use nuncio_protocol::{ErrorKind, Version, op::Op};
use serde_json::Value;

use super::{
    Row, Run,
    errors::{expected_info, is_error_info},
};
use crate::{
    answer::{Answer, Said},
    observed::{Checked, Observed},
    probe::{Probe, UNKNOWN, on_task},
};

pub(super) const CHECKS: &[Row] = &[
    ("http.routes", Run::Probe(|p| routes(p).boxed())),
    ("http.subscribe", Run::Probe(|p| subscribe(p).boxed())),
    ("http.error-shape", Run::Probe(|p| error_shape(p).boxed())),
    ("http.error-info", Run::Probe(|p| error_info(p).boxed())),
    ("http.media-type", Run::Probe(|p| media_type(p).boxed())),
    ("http.json-accepted", Run::Probe(|p| json_accepted(p).boxed())),
    ("http.query", Run::Probe(|p| query(p).boxed())),
];

/// The operations that can be read or must be refused, and that the card declares.
pub(super) fn readable(p: &Probe<'_>) -> Vec<Op> {
    let mut ops = vec![Op::GetTask, Op::CancelTask];
    if p.interface.version == Version::V1_0 {
        ops.push(Op::ListTasks);
    }
    if p.streams() {
        ops.push(Op::SubscribeToTask);
    }
    if p.pushes() {
        ops.push(Op::ListTaskPushNotificationConfigs);
    }
    if p.card.capabilities.extended_agent_card == Some(true) {
        ops.push(Op::GetExtendedAgentCard);
    }
    ops
}

/// True if the answer is that of a server without this route.
pub(super) fn has_no_route(answer: &Answer) -> bool {
    match &answer.said {
        Said::Error(refusal) => {
            matches!(refusal.http, 404 | 405) && refusal.kind == ErrorKind::MethodNotFound
        }
        Said::Foreign(_) => {
            answer.exchange.response.as_ref().is_ok_and(|response| matches!(response.status, 404 | 405))
        }
        Said::Success(_) | Said::Silent(_) => false,
    }
}

async fn routes(p: &Probe<'_>) -> Checked {
    for op in readable(p) {
        let answer = p.of_unknown(op).await?;
        let is_by_get = op == Op::SubscribeToTask && !has_no_route(&subscribe_by(p, Method::GET).await?);
        if has_no_route(&answer) && !is_by_get {
            let request = &answer.exchange.request;
            let route = format!("{} {}", request.method, request.url.path());
            let why = format!("{} has no route: {}", op.name(), answer.shown());
            return Err(Observed::broken(why).seen(answer.shown()).expecting(route).on(&answer.exchange));
        }
    }
    Ok(Observed::met())
}

/// The answer to a subscription to the unknown task, by this method.
pub(super) async fn subscribe_by(p: &Probe<'_>, method: Method) -> Result<Answer, Observed> {
    let mut request = p.request(on_task(Op::SubscribeToTask, UNKNOWN))?;
    if method == Method::GET {
        request = request.without("content-type").with_body("");
    }
    request.method = method;
    p.ask(Op::SubscribeToTask, request).await
}

/// Contested: the prose says POST, the proto GET.
async fn subscribe(p: &Probe<'_>) -> Checked {
    if !p.streams() {
        return Ok(Observed::skip());
    }
    let mut taken = Vec::new();
    for method in [Method::GET, Method::POST] {
        if !has_no_route(&subscribe_by(p, method.clone()).await?) {
            taken.push(method.to_string());
        }
    }
    Ok(match taken.len() {
        2 => Observed::skip(),
        0 => Observed::info("subscribe is accepted neither by GET nor by POST"),
        _ => Observed::info(format!(
            "subscribe is accepted by {} only: the prose of the specification says POST, its proto GET; clients use either",
            taken[0]
        )),
    })
}

/// The error for the unknown task.
async fn unknown_error(p: &Probe<'_>) -> Result<(Answer, Value), Observed> {
    let answer = p.of_unknown(Op::GetTask).await?;
    match answer.error().map(|refusal| refusal.raw.clone()) {
        Some(raw) => Ok((answer, raw)),
        None => Err(Observed::no_setup("the agent gave no error")),
    }
}

async fn error_shape(p: &Probe<'_>) -> Checked {
    let (answer, raw) = unknown_error(p).await?;
    let status = answer.error().map_or(0, |refusal| refusal.http);
    let error = &raw["error"];
    let wrong = if !error.is_object() {
        Some("there is no object error")
    } else if error["code"].as_u64() != Some(u64::from(status)) {
        Some("error.code is not the HTTP status")
    } else if !error["status"].is_string() || !error["message"].is_string() {
        Some("error.status or error.message is missing")
    } else {
        None
    };
    let Some(wrong) = wrong else { return Ok(Observed::met().on(&answer.exchange)) };
    Err(Observed::broken(wrong)
        .seen(raw.to_string())
        .expecting(format!(
            r#"{{"error":{{"code":{status},"status":"NOT_FOUND","message":"…","details":{}}}}}"#,
            expected_info()
        ))
        .on(&answer.exchange))
}

async fn error_info(p: &Probe<'_>) -> Checked {
    let (answer, raw) = unknown_error(p).await?;
    let details = answer.error().map(|refusal| refusal.details.clone()).unwrap_or_default();
    let wrong = if !details.iter().any(is_error_info) {
        "the details have no google.rpc.ErrorInfo of the domain a2a-protocol.org"
    } else if details.iter().any(|detail| !detail["@type"].is_string()) {
        "a detail has no @type"
    } else {
        return Ok(Observed::met().on(&answer.exchange));
    };
    let seen = raw["error"]["details"].to_string();
    Err(Observed::broken(wrong).seen(seen).expecting(expected_info()).on(&answer.exchange))
}

/// 1.0.0 said application/json, 1.0.1 says application/a2a+json: the older form is no more than information.
async fn media_type(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Ok(response) = &answer.exchange.response else { return Ok(Observed::skip()) };
    let (seen, expected) = (response.media_type(), p.interface.media_type());
    let observed = if seen == expected {
        Observed::met()
    } else if seen == "application/json" {
        Observed::info("the answer is application/json: 1.0.0 says so; 1.0.1 asks for application/a2a+json")
    } else {
        Observed::broken(format!("the answer is not {expected}")).seen(seen).expecting(expected)
    };
    Ok(observed.on(&answer.exchange))
}

async fn json_accepted(p: &Probe<'_>) -> Checked {
    let request = p.request(on_task(Op::CancelTask, UNKNOWN))?.header("content-type", "application/json");
    let answer = p.ask(Op::CancelTask, request).await?;
    let is_refused = answer
        .error()
        .is_some_and(|refusal| refusal.kind == ErrorKind::ContentTypeNotSupported || refusal.http == 415);
    if is_refused {
        let shown = answer.shown();
        return Err(Observed::broken("a body of type application/json is refused")
            .seen(shown)
            .on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

async fn query(p: &Probe<'_>) -> Checked {
    if p.of_unknown(Op::ListTasks).await?.success().is_none() {
        return Ok(Observed::no_setup("the agent does not list tasks"));
    }
    let mut request = p.request(on_task(Op::ListTasks, ""))?;
    request.url.set_query(Some(
        "pageSize=5&includeArtifacts=true&status=TASK_STATE_WORKING&historyLength=1\
         &statusTimestampAfter=2020-01-01T00%3A00%3A00.000Z",
    ));
    let answer = p.ask(Op::ListTasks, request).await?;
    if answer.success().is_some() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    let why = "a list with a number, a boolean, a state and a timestamp in its query is refused";
    Err(Observed::broken(why).seen(answer.shown()).expecting("a page of tasks").on(&answer.exchange))
}
