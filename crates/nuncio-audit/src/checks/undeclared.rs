//! Checks of operations that the card does not declare.

use futures_util::FutureExt as _;
use nuncio_protocol::{Binding, ErrorKind, Version, op::Op};

use super::{Row, Run};
use crate::{
    observed::{Checked, Observed},
    probe::{Probe, refused_with},
};

pub(super) const CHECKS: &[Row] = &[
    ("undeclared.stream", Run::Probe(|p| stream(p).boxed())),
    ("undeclared.push", Run::Probe(|p| push(p).boxed())),
    ("undeclared.card", Run::Probe(|p| card(p).boxed())),
];

/// The operation is refused with this kind. The unknown task may be refused first: both errors are true.
async fn refused(p: &Probe<'_>, op: Op, kind: ErrorKind) -> Checked {
    let answer = p.of_unknown(op).await?;
    if answer.error().is_some_and(|refusal| refusal.kind == ErrorKind::TaskNotFound) {
        let why = format!(
            "the task is looked up before the capability: TaskNotFoundError is true as well as {}",
            kind.row().reason
        );
        return Ok(Observed::info(why).on(&answer.exchange));
    }
    refused_with(&answer, &[kind])
}

async fn stream(p: &Probe<'_>) -> Checked {
    if p.streams() {
        return Ok(Observed::skip());
    }
    refused(p, Op::SubscribeToTask, ErrorKind::UnsupportedOperation).await
}

async fn push(p: &Probe<'_>) -> Checked {
    if p.pushes() {
        return Ok(Observed::skip());
    }
    refused(p, Op::CreateTaskPushNotificationConfig, ErrorKind::PushNotificationNotSupported).await
}

/// 0.3 has several words for it.
async fn card(p: &Probe<'_>) -> Checked {
    if p.card.capabilities.extended_agent_card == Some(true) {
        return Ok(Observed::skip());
    }
    let answer = p.of_unknown(Op::GetExtendedAgentCard).await?;
    if p.interface.version == Version::V1_0 {
        return refused_with(&answer, &[ErrorKind::UnsupportedOperation]);
    }
    if p.interface.binding == Binding::Grpc && answer.error().is_none() {
        let why = "GetAgentCard of 0.3 answers with the card, whether or not there is an extended one";
        return Ok(Observed::info(why).on(&answer.exchange));
    }
    let kinds = [
        ErrorKind::UnsupportedOperation,
        ErrorKind::ExtendedAgentCardNotConfigured,
        ErrorKind::MethodNotFound,
        ErrorKind::TaskNotFound,
    ];
    refused_with(&answer, &kinds)
}
