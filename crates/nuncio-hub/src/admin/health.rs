//! How the hub and its agents are. An agent that is down is none of the hub's own faults.

use std::sync::Arc;

use http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Desk, agents,
    answer::Problem,
    route::{Call, Reply, Route, route},
};

pub(super) fn routes() -> Vec<Route> {
    vec![route(Method::GET, "/health", "health.show", "How the hub and each agent are.", show)]
}

/// How all is.
#[derive(Serialize, JsonSchema)]
struct Health {
    /// Calls may come.
    ready: bool,
    /// Why they may not.
    reasons: Vec<&'static str>,
    version: &'static str,
    agents: Vec<Agent>,
}

/// How one is.
#[derive(Serialize, JsonSchema)]
struct Agent {
    name: String,
    #[serde(flatten)]
    health: agents::Health,
}

async fn show(desk: Arc<Desk>, _: Call) -> Result<Reply<Health>, Problem> {
    let reasons = desk.fleet.why_not_ready();
    let agents = desk.fleet.all();
    let agent = |agent: &Arc<crate::fleet::Agent>| Agent {
        name: agent.name().to_string(),
        health: agents::health_of(agent),
    };
    Ok(Reply::new(Health {
        ready: reasons.is_empty(),
        reasons,
        version: env!("CARGO_PKG_VERSION"),
        agents: agents.iter().map(agent).collect(),
    }))
}
