//! Checks of the gRPC binding.

use futures_util::FutureExt as _;
use nuncio_protocol::{ErrorKind, op::Op};

use super::{
    Row, Run,
    errors::{expected_info, is_error_info},
    http::readable,
};
use crate::{
    observed::{Checked, Observed},
    probe::Probe,
};

pub(super) const CHECKS: &[Row] = &[
    ("grpc.service", Run::Probe(|p| service(p).boxed())),
    ("grpc.error-info", Run::Probe(|p| error_info(p).boxed())),
    ("grpc.codes", Run::Probe(|p| codes(p).boxed())),
];

/// The status of an rpc that does not exist.
const UNIMPLEMENTED: i64 = 12;

async fn service(p: &Probe<'_>) -> Checked {
    for op in readable(p) {
        let answer = p.of_unknown(op).await?;
        let is_missing = answer.error().is_some_and(|refusal| {
            refusal.code == UNIMPLEMENTED && !refusal.details.iter().any(is_error_info)
        });
        if is_missing {
            let rpc = p.interface.method(op).unwrap_or_default();
            let why = format!("the rpc {rpc} of {} is not implemented", p.interface.codec().service);
            return Err(Observed::broken(why).seen("UNIMPLEMENTED").on(&answer.exchange));
        }
    }
    Ok(Observed::met())
}

async fn error_info(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Some(refusal) = answer.error() else { return Ok(Observed::no_setup("the agent gave no error")) };
    if refusal.details.iter().any(is_error_info) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("the status has no google.rpc.ErrorInfo of the domain a2a-protocol.org")
        .seen(serde_json::Value::from(refusal.details.clone()).to_string())
        .expecting(expected_info())
        .on(&answer.exchange))
}

async fn codes(p: &Probe<'_>) -> Checked {
    let answer = p.of_unknown(Op::GetTask).await?;
    let Some(refusal) = answer.error().filter(|refusal| refusal.kind == ErrorKind::TaskNotFound) else {
        return Ok(Observed::no_setup("the agent gave no TaskNotFoundError"));
    };
    let expected = ErrorKind::TaskNotFound.row().grpc;
    if refusal.code == i64::from(expected.number) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("TaskNotFoundError has another gRPC status")
        .seen(refusal.code.to_string())
        .expecting(format!("{} ({})", expected.number, expected.name))
        .on(&answer.exchange))
}
