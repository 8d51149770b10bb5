//! Consent by the agent itself: the key of a mailbox decides on the callers of its agent, as an operator does
//! (`access = "ask"`).
//!
//! | call | answer |
//! |---|---|
//! | `GET /mailboxes/NAME/access?state=&after=` | the callers that wait, are accepted or blocked |
//! | `POST /mailboxes/NAME/access:accept`, `:decline`, `:block`, `:revoke` | the caller as it was decided on |

use std::sync::Arc;

use axum::response::Response;
use nuncio_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    problem::{Problem, Reason},
    pull::json,
    registry::Mailbox,
};
use crate::{
    agents::{CallerAccess, CallerKey, Consents, Decision, DecisionError, REQUEST_LIFETIME, Standing},
    clock,
    identity::Authenticator,
    trail::{Row, What},
};

/// Callers of a page.
const MAX_LISTED: usize = 200;

/// Bytes of a decision.
const MAX_DECISION_BYTES: usize = 16 << 10;

/// The body of a decision.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    principal: String,
    #[serde(default)]
    tenant: Option<String>,
}

/// A caller, as the administration shows it.
#[derive(Serialize)]
struct Shown {
    agent: Arc<str>,
    principal: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Arc<str>>,
    state: Standing,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    messages: usize,
    tasks: Vec<String>,
}

/// A page of callers.
#[derive(Serialize)]
struct Page {
    callers: Vec<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<CallerAccess> for Shown {
    fn from(CallerAccess { caller, standing, since, held }: CallerAccess) -> Self {
        let messages = held.len();
        let mut tasks: Vec<_> = held.into_iter().map(|held| held.task.to_string()).collect();
        tasks.dedup();
        let expires = (standing == Standing::Waiting).then(|| clock::later(since, REQUEST_LIFETIME));
        let CallerKey { agent, tenant, principal } = caller;
        Self { agent, principal, tenant, state: standing, since, expires, messages, tasks }
    }
}

/// The decision of a verb; `None` if there is no such verb.
pub(super) fn decision(verb: &str) -> Option<Decision> {
    [Decision::Accept, Decision::Decline, Decision::Block, Decision::Revoke]
        .into_iter()
        .find(|decision| decision.to_string() == verb)
}

/// Lists the callers of the agent of this mailbox.
pub(super) async fn list(consents: &Consents, mailbox: &Mailbox, query: &str) -> Result<Response, Problem> {
    let (mut state, mut after) = (None, None);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "state" => state = Some(standing(&value)?),
            // Keys of other agents are out of reach: the prefix of the agent is looked for.
            "after" => after = Some(format!("{}\0{value}", mailbox.name)),
            _ => return Err(Problem::invalid("the query is wrong; expected state= or after=")),
        }
    }
    let mut callers = Vec::new();
    loop {
        let (page, next) = consents.page(Some(&mailbox.name), after).await?;
        for access in page {
            // Without a request, grant or block there is nothing to show.
            let is_meant =
                state.map_or(access.standing != Standing::Declined, |state| access.standing == state);
            if is_meant {
                let key = access.caller.key();
                callers.push(Shown::from(access));
                if callers.len() == MAX_LISTED {
                    let next = key.split_once('\0').map(|(_, rest)| rest.to_owned());
                    return json(&Page { callers, next });
                }
            }
        }
        if next.is_none() {
            return json(&Page { callers, next: None });
        }
        after = next;
    }
}

fn standing(word: &str) -> Result<Standing, Problem> {
    match word {
        "waiting" => Ok(Standing::Waiting),
        "accepted" => Ok(Standing::Accepted),
        "blocked" => Ok(Standing::Blocked),
        _ => Err(Problem::invalid("state: expected waiting, accepted or blocked")),
    }
}

/// Decides on a caller of the agent of this mailbox.
pub(super) async fn decide(
    consents: &Consents,
    identity: &Authenticator,
    mailbox: &Mailbox,
    decision: Decision,
    body: &[u8],
) -> Result<Response, Problem> {
    if body.len() > MAX_DECISION_BYTES {
        let why = format!("the body has more than {MAX_DECISION_BYTES} bytes");
        return Err(Problem::new(Reason::TooLarge, why));
    }
    let Decided { principal, tenant } = serde_json::from_slice(body).map_err(|_| {
        Problem::invalid(
            "the body is wrong; expected {\"principal\": NAME}, and \"tenant\" if the caller has one",
        )
    })?;
    let name = &mailbox.name;
    let agent = mailbox.agent();
    if !agent.as_ref().is_some_and(|agent| agent.asks())
        && matches!(decision, Decision::Accept | Decision::Block)
    {
        let why = format!(
            "{name} does not ask for consent: its access is open; the operator sets access = \"ask\""
        );
        return Err(Problem::new(Reason::NothingToDecide, why));
    }
    let key = CallerKey {
        agent: Arc::clone(name),
        tenant: tenant.map(Into::into),
        principal: principal.as_str().into(),
    };
    let runtime = mailbox.runtime();
    let access = consents.decide(runtime.as_ref(), &key, decision).await.map_err(|error| match error {
        DecisionError::NothingToDecide => {
            let why = format!("there is nothing to {decision} for {principal}; GET …/access lists all callers and their tenants");
            Problem::new(Reason::NothingToDecide, why)
        }
        DecisionError::Failed(error) => {
            tracing::error!(%error, "a decision about a caller could not be stored");
            Problem::unavailable("the decision could not be stored; try again")
        }
    })?;
    let what = match decision {
        Decision::Accept => What::AccessAccepted,
        Decision::Decline => What::AccessDeclined,
        Decision::Block => What::AccessBlocked,
        Decision::Revoke => What::AccessRevoked,
    };
    identity.trail().note(Row {
        agent: Some(name.to_string()),
        principal: Some(principal),
        detail: Some("by the key of the mailbox".to_owned()),
        ..Row::of(what)
    });
    json(&Shown::from(access))
}
