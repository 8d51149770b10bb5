//! The first look at the interfaces of a card: which of them answer, and how.

use nuncio_protocol::{ErrorKind, op::Op};

use crate::{
    answer::{Answer, Said},
    audit::{InterfaceReport, Reachability},
    card::FoundCard,
    observed::{Kind, Observed},
    outcome::{InterfaceId, Unseen},
    probe::Probe,
};

/// The agent as a whole.
#[derive(Debug)]
pub(crate) struct Survey<'a> {
    pub(crate) card: &'a FoundCard,
    pub(crate) reports: &'a [InterfaceReport],
    /// The errors of the same calls over each interface.
    pub(crate) errors: Vec<SeenError>,
}

/// The error of a call for the unknown task.
#[derive(Clone, Debug)]
pub(crate) struct SeenError {
    pub(crate) op: &'static str,
    pub(crate) kind: ErrorKind,
    pub(crate) interface: InterfaceId,
}

/// Finds out whether an interface answers in its version and binding, by a read of a task that does not exist.
pub(crate) async fn reach(probe: &Probe<'_>) -> (Reachability, Observed) {
    match probe.of_unknown(Op::GetTask).await {
        Ok(answer) => judge(&answer),
        Err(observed) => match observed.kind {
            Kind::Unseen(Unseen::Unreachable) => {
                let why = format!("the interface does not answer: {}", observed.reason);
                (Reachability::Silent, observed.judged(Kind::Broken, why))
            }
            _ => (Reachability::Slow, observed),
        },
    }
}

fn judge(answer: &Answer) -> (Reachability, Observed) {
    let wrong = |why: String| {
        let observed =
            Observed::broken(format!("the interface does not answer in its version and binding: {why}"));
        (Reachability::Wrong, observed.seen(why).on(&answer.exchange))
    };
    match &answer.said {
        Said::Foreign(why) => wrong(why.clone()),
        Said::Silent(failure) => (Reachability::Silent, Observed::silent(failure)),
        Said::Success(_) => (Reachability::Answers, Observed::met()),
        Said::Error(refusal) => match refusal.kind {
            ErrorKind::VersionNotSupported | ErrorKind::MethodNotFound => wrong(refusal.shown()),
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
                let why = format!("the interface answers only callers with credentials: {}", refusal.message);
                (Reachability::Closed, Observed::unseen(Unseen::Credentials, why).on(&answer.exchange))
            }
            _ => (Reachability::Answers, Observed::met().on(&answer.exchange)),
        },
    }
}

/// The reason why nothing was seen of an interface.
pub(crate) fn blind(reachability: Reachability) -> Option<Observed> {
    let (why, reason) = match reachability {
        Reachability::Answers => return None,
        Reachability::Wrong => {
            (Unseen::Unreachable, "the interface does not answer in its version and binding")
        }
        Reachability::Silent => (Unseen::Unreachable, "the interface does not answer"),
        Reachability::Closed => (Unseen::Credentials, "the interface needs credentials"),
        Reachability::Slow => (Unseen::Slow, "the interface did not answer in time"),
        Reachability::Unknown => (Unseen::Unreachable, "the interface is unknown to the auditor"),
    };
    Some(Observed::unseen(why, reason))
}
