//! The health of the hub and of its agents.

use std::sync::Arc;

use super::{
    AdminState, agents,
    api::{AgentStatus, HubHealth, ShowHealth},
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::fleet;

pub(super) async fn show(state: Arc<AdminState>, _: ShowHealth) -> Result<Reply<HubHealth>, AdminProblem> {
    let reasons = state.fleet.why_not_ready();
    let agents = state.fleet.all();
    let status = |agent: &Arc<fleet::ServedAgent>| AgentStatus {
        name: agent.name().to_string(),
        health: agents::health_of(agent),
    };
    Ok(Reply::new(HubHealth {
        ready: reasons.is_empty(),
        reasons: reasons.into_iter().map(str::to_owned).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agents: agents.iter().map(status).collect(),
    }))
}
