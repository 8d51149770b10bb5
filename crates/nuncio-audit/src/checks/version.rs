//! Checks of the negotiation of versions.

use futures_util::FutureExt as _;
use nuncio_protocol::{Binding, ErrorKind, op::Op};

use super::{Row, Run, errors::is_error_info};
use crate::{
    observed::{Checked, Observed},
    probe::{Probe, UNKNOWN, expect_error, on_task},
};

pub(super) const CHECKS: &[Row] = &[
    ("version.unsupported", Run::Probe(|p| unsupported(p).boxed())),
    ("version.absent", Run::Probe(|p| absent(p).boxed())),
    ("version.patch", Run::Probe(|p| patch(p).boxed())),
    ("version.query", Run::Probe(|p| query(p).boxed())),
];

async fn unsupported(p: &Probe<'_>) -> Checked {
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.header("a2a-version", "99.0");
    let answer = p.ask(Op::GetTask, request).await?;
    match expect_error(&answer, &[ErrorKind::VersionNotSupported]) {
        Ok(_) => Ok(Observed::met().on(&answer.exchange)),
        Err(_) if p.interface.binding == Binding::Grpc => Ok(Observed::info(
            "A2A-Version 99.0 is not refused: section 3.6.2 demands it, section 10.2 only recommends that gRPC \
             servers validate the version, because the package has it",
        )
        .on(&answer.exchange)),
        Err(broken) => Err(broken),
    }
}

/// A call of 1.0 without a version is one of 0.3, where its method or path does not exist.
async fn absent(p: &Probe<'_>) -> Checked {
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.without("a2a-version");
    let answer = p.ask(Op::GetTask, request).await?;
    let is_processed = match answer.error() {
        Some(refusal) if p.interface.binding == Binding::HttpJson => {
            refusal.kind == ErrorKind::TaskNotFound && refusal.details.iter().any(is_error_info)
        }
        Some(refusal) => refusal.kind == ErrorKind::TaskNotFound,
        None => answer.success().is_some(),
    };
    if is_processed {
        let why = "a call of 1.0 without A2A-Version is executed as 1.0";
        return Err(Observed::broken(why)
            .seen(answer.shown())
            .expecting("VersionNotSupportedError, or an answer of 0.3")
            .on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

async fn patch(p: &Probe<'_>) -> Checked {
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.header("a2a-version", "1.0.1");
    let answer = p.ask(Op::GetTask, request).await?;
    if answer.error().is_some_and(|refusal| refusal.kind == ErrorKind::VersionNotSupported) {
        let why = "A2A-Version 1.0.1 is refused, although the agent speaks 1.0";
        return Err(Observed::broken(why).seen(answer.shown()).on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

async fn query(p: &Probe<'_>) -> Checked {
    let usual = p.of_unknown(Op::GetTask).await?;
    let mut request = p.request(on_task(Op::GetTask, UNKNOWN))?.without("a2a-version");
    request.url.query_pairs_mut().append_pair("A2A-Version", "1.0");
    let answer = p.ask(Op::GetTask, request).await?;
    let kind = |answer: &crate::answer::Answer| answer.error().map(|refusal| refusal.kind);
    if kind(&answer) == kind(&usual) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    let why = "the version in the query is not read";
    Err(Observed::broken(why).seen(answer.shown()).expecting(usual.shown()).on(&answer.exchange))
}
