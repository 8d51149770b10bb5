//! Callers of agents that ask first: listed, accepted, declined, blocked, revoked.

use std::sync::Arc;

use super::{
    AdminState,
    api::{
        self, AcceptAccess, AccessCaller, AccessFilter, AccessPage, AccessState, BlockAccess, DeclineAccess,
        ListAccess, RevokeAccess,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::{
    agents::{CallerAccess, CallerKey, Decision, DecisionError, REQUEST_LIFETIME, Standing},
    clock,
};

pub(super) async fn list(
    state: Arc<AdminState>,
    request: ListAccess,
) -> Result<Reply<AccessPage>, AdminProblem> {
    let AccessFilter { agent, state: in_state, paging } = request.filter;
    let limit = paging.limit();
    let (mut callers, mut after) = (Vec::new(), paging.after);
    loop {
        let (page, next) = state.consents.page(agent.as_deref(), after).await?;
        for access in page {
            // Without a request, grant or block there is nothing to show.
            let is_meant = match in_state {
                Some(state) => state_of(access.standing) == state,
                None => access.standing != Standing::Declined,
            };
            if !is_meant {
                continue;
            }
            let key = access.caller.key();
            callers.push(shown(access));
            if callers.len() == limit {
                return Ok(Reply::new(AccessPage { callers, next: Some(key) }));
            }
        }
        if next.is_none() {
            return Ok(Reply::new(AccessPage { callers, next: None }));
        }
        after = next;
    }
}

pub(super) async fn accept(
    state: Arc<AdminState>,
    request: AcceptAccess,
) -> Result<Reply<api::CallerAccess>, AdminProblem> {
    decide(&state, request.caller, Decision::Accept).await
}

pub(super) async fn decline(
    state: Arc<AdminState>,
    request: DeclineAccess,
) -> Result<Reply<api::CallerAccess>, AdminProblem> {
    decide(&state, request.caller, Decision::Decline).await
}

pub(super) async fn block(
    state: Arc<AdminState>,
    request: BlockAccess,
) -> Result<Reply<api::CallerAccess>, AdminProblem> {
    decide(&state, request.caller, Decision::Block).await
}

pub(super) async fn revoke(
    state: Arc<AdminState>,
    request: RevokeAccess,
) -> Result<Reply<api::CallerAccess>, AdminProblem> {
    decide(&state, request.caller, Decision::Revoke).await
}

async fn decide(
    state: &AdminState,
    caller: AccessCaller,
    decision: Decision,
) -> Result<Reply<api::CallerAccess>, AdminProblem> {
    let AccessCaller { agent: name, principal, tenant } = caller;
    let agent = state.fleet.get(&name);
    // A grant for an agent that does not look at it would be a mistake; an old one may always be taken back.
    if matches!(decision, Decision::Accept | Decision::Block) {
        let agent = agent.as_ref().ok_or_else(|| {
            AdminProblem::not_found(format!("there is no agent {name}; GET /api/v1/agents lists them"))
        })?;
        if !agent.asks() {
            return Err(AdminProblem::conflict(format!(
                "{name} does not ask for consent: its access is open; set access = \"ask\" to decide on its callers"
            )));
        }
    }
    let key = CallerKey {
        agent: name.as_str().into(),
        tenant: tenant.map(Into::into),
        principal: principal.as_str().into(),
    };
    let runtime = agent.as_ref().and_then(|agent| agent.runtime());
    let access = state.consents.decide(runtime, &key, decision).await.map_err(|error| match error {
        DecisionError::NothingToDecide => AdminProblem::not_found(format!(
            "there is nothing to {decision} for {principal} at {name}; GET /api/v1/access lists all callers and their \
             tenants"
        )),
        DecisionError::Failed(error) => {
            tracing::error!(%error, "a decision about a caller could not be stored");
            AdminProblem::unavailable("the decision could not be stored; see the hub's log")
        }
    })?;
    Ok(Reply::new(shown(access)).subject(name).principal(principal))
}

fn state_of(standing: Standing) -> AccessState {
    match standing {
        Standing::Waiting => AccessState::Waiting,
        Standing::Accepted => AccessState::Accepted,
        Standing::Declined => AccessState::Declined,
        Standing::Blocked => AccessState::Blocked,
    }
}

fn shown(access: CallerAccess) -> api::CallerAccess {
    let CallerAccess { caller, standing, since, held } = access;
    let messages = held.len();
    let mut tasks: Vec<_> = held.into_iter().map(|held| held.task.to_string()).collect();
    tasks.dedup();
    api::CallerAccess {
        agent: caller.agent.to_string(),
        principal: caller.principal.to_string(),
        tenant: caller.tenant.map(|tenant| tenant.to_string()),
        state: state_of(standing),
        since,
        expires: (standing == Standing::Waiting).then(|| clock::later(since, REQUEST_LIFETIME)),
        messages,
        tasks,
    }
}
