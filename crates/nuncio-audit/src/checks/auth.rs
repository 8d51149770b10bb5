//! Checks of authentication.

use futures_util::FutureExt as _;
use nuncio_protocol::{Binding, ErrorKind, op::Op};

use super::{Row, Run};
use crate::{
    answer::Answer,
    observed::{Checked, Observed},
    outcome::Unseen,
    probe::{Probe, UNKNOWN, on_task},
    wire::Identity,
};

pub(super) const CHECKS: &[Row] = &[
    ("auth.missing", Run::Probe(|p| missing(p).boxed())),
    ("auth.invalid", Run::Probe(|p| invalid(p).boxed())),
    ("auth.challenge", Run::Probe(|p| challenge(p).boxed())),
    ("auth.card", Run::Probe(|p| card(p).boxed())),
    ("auth.list", Run::List(|p| list(p).boxed())),
];

/// True if the card requires credentials of every call.
pub(crate) fn is_required(p: &Probe<'_>) -> bool {
    let requirements = &p.card.security_requirements;
    !requirements.is_empty() && requirements.iter().all(|requirement| !requirement.schemes.is_empty())
}

fn is_denied(answer: &Answer) -> bool {
    let is_denied = |kind| matches!(kind, ErrorKind::Unauthenticated | ErrorKind::PermissionDenied);
    answer.error().is_some_and(|refusal| is_denied(refusal.kind))
}

/// The answer to a caller without valid credentials, where credentials are required.
async fn stranger(p: &Probe<'_>, identity: Identity) -> Result<Answer, Observed> {
    if !is_required(p) {
        return Err(Observed::skip());
    }
    p.call_by(identity, on_task(Op::GetTask, UNKNOWN)).await
}

/// Refused means: by its error, or at least by another answer than a caller with credentials gets.
async fn enforced(p: &Probe<'_>, identity: Identity, who: &str) -> Checked {
    let answer = stranger(p, identity).await?;
    let usual = p.of_unknown(Op::GetTask).await?;
    let kind = |answer: &Answer| answer.error().map(|refusal| (refusal.kind, refusal.code));
    if is_denied(&answer) || (answer.success().is_none() && kind(&answer) != kind(&usual)) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken(format!("the card requires credentials, and a call {who} is executed"))
        .seen(answer.shown())
        .expecting("HTTP 401 with WWW-Authenticate, or UNAUTHENTICATED")
        .on(&answer.exchange))
}

async fn missing(p: &Probe<'_>) -> Checked {
    enforced(p, Identity::Nobody, "without credentials").await
}

async fn invalid(p: &Probe<'_>) -> Checked {
    enforced(p, Identity::Invalid, "with an invalid token").await
}

async fn challenge(p: &Probe<'_>) -> Checked {
    let answer = stranger(p, Identity::Nobody).await?;
    if !is_denied(&answer) {
        return Ok(Observed::no_setup("no call was refused for its credentials"));
    }
    let response = answer.exchange.response.as_ref().ok();
    let has_challenge = match p.interface.binding {
        Binding::Grpc => answer.error().is_some_and(|refusal| refusal.kind == ErrorKind::Unauthenticated),
        Binding::JsonRpc | Binding::HttpJson => response
            .is_some_and(|response| response.status == 401 && response.header("www-authenticate").is_some()),
    };
    if has_challenge {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("the refusal has no challenge")
        .seen(answer.shown())
        .expecting("HTTP 401 with WWW-Authenticate, or UNAUTHENTICATED")
        .on(&answer.exchange))
}

async fn card(p: &Probe<'_>) -> Checked {
    if p.card.capabilities.extended_agent_card != Some(true) {
        return Ok(Observed::skip());
    }
    let answer = p.call_by(Identity::Nobody, on_task(Op::GetExtendedAgentCard, "")).await?;
    if answer.success().is_some() {
        return Err(Observed::broken("the extended card is given to a caller without credentials")
            .seen("the card")
            .expecting("HTTP 401, or UNAUTHENTICATED")
            .on(&answer.exchange));
    }
    if is_denied(&answer) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Ok(Observed::unseen(Unseen::Setup, format!("the extended card is refused otherwise: {}", answer.shown())))
}

async fn list(p: &Probe<'_>) -> Checked {
    if is_required(p) {
        return Ok(Observed::skip());
    }
    let answer = p.call_by(Identity::Nobody, on_task(Op::ListTasks, "")).await?;
    let count = answer.success().and_then(|success| success.raw["tasks"].as_array().map(Vec::len));
    Ok(match count {
        Some(count) => Observed::info(format!(
            "anybody who reaches the agent can list tasks ({count} shown); that is right only if nobody else calls it"
        )),
        None => Observed::skip(),
    })
}
