//! Agents: listed, shown, added, changed, removed.
//!
//! Programs can be configured on the machine only: the holder of the token may use everything that the hub
//! can reach, but must not run programs as the hub's user.

use std::sync::Arc;

use nuncio_protocol::{AgentCard, AgentInterface};
use nuncio_server::store::Expect;

use super::{
    AdminState,
    api::{
        self, AddAgent, AddedAgent, Agent, AgentDetails, AgentHealth, Agents, ChangeAgent, HealthState,
        Interface, ListAgents, NewAgent, RefreshAgent, RemoveAgent, ShowAgent, ShowAgentHealth, TaskMode,
    },
    endpoint::Reply,
    observed,
    problem::AdminProblem,
};
use crate::{
    config::{self, AgentName},
    fleet::{self, Condition},
    registry::{ChangeRefusal, Desired},
};

pub(super) async fn list(state: Arc<AdminState>, _: ListAgents) -> Result<Reply<Agents>, AdminProblem> {
    let mut agents = Vec::new();
    for agent in state.fleet.all() {
        let wanted = state.registry.find(agent.name()).await;
        agents.push(shown(&agent, wanted.as_ref()));
    }
    Ok(Reply::new(Agents { agents }))
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowAgent,
) -> Result<Reply<AgentDetails>, AdminProblem> {
    details(&state, &request.name).await
}

async fn details(state: &AdminState, name: &str) -> Result<Reply<AgentDetails>, AdminProblem> {
    let agent = find(state, name)?;
    let wanted = state.registry.find(name).await;
    let card = serde_json::to_value(&*agent.shown().card).map_err(|_| AdminProblem::internal())?;
    let upstream_card = agent.upstream().and_then(|upstream| upstream.card());
    let volatile = state.is_volatile;
    let audits = state.audits.summaries(name).await;
    let observed = observed::observed(state, &agent);
    let agent = shown(&agent, wanted.as_ref());
    let reply = Reply::new(AgentDetails { agent, volatile, card, upstream_card, audits, observed });
    Ok(match wanted.and_then(|wanted| wanted.given) {
        Some((_, version)) => reply.version(version),
        None => reply,
    })
}

pub(super) async fn health(
    state: Arc<AdminState>,
    request: ShowAgentHealth,
) -> Result<Reply<AgentHealth>, AdminProblem> {
    Ok(Reply::new(health_of(&*find(&state, &request.name)?)))
}

pub(super) async fn refresh(
    state: Arc<AdminState>,
    request: RefreshAgent,
) -> Result<Reply<AgentDetails>, AdminProblem> {
    let RefreshAgent { name } = request;
    let agent = find(&state, &name)?;
    let upstream = agent.upstream().ok_or_else(|| {
        AdminProblem::conflict(format!("{name} is not a remote agent: it has no card to fetch"))
    })?;
    upstream
        .refresh(&agent)
        .await
        .map_err(|why| AdminProblem::unavailable(format!("the card could not be fetched: {why}")))?;
    details(&state, &name).await
}

pub(super) async fn add(
    state: Arc<AdminState>,
    request: AddAgent,
) -> Result<Reply<AddedAgent>, AdminProblem> {
    let NewAgent { name, settings } = request.agent;
    let parsed: AgentName =
        name.parse().map_err(|why| AdminProblem::invalid(format!("name: {name} {why}")))?;
    let added = state.registry.add(&parsed, settings.0).await.map_err(|refused| problem(&name, refused))?;
    let root_lost = added.root_lost.map(|name| name.to_string());
    Ok(details(&state, &name).await?.map(|details| AddedAgent { details, root_lost }).subject(name))
}

pub(super) async fn change(
    state: Arc<AdminState>,
    request: ChangeAgent,
) -> Result<Reply<AgentDetails>, AdminProblem> {
    let ChangeAgent { name, settings, version } = request;
    let changed = state.registry.change(&name, settings.0, expect(version)).await;
    changed.map_err(|refused| problem(&name, refused))?;
    details(&state, &name).await
}

pub(super) async fn remove(state: Arc<AdminState>, request: RemoveAgent) -> Result<Reply<()>, AdminProblem> {
    let RemoveAgent { name, version } = request;
    let removed = state.registry.remove(&name, expect(version)).await;
    removed.map_err(|refused| problem(&name, refused))?;
    // Another agent may get this name.
    state.audits.forget(&name).await;
    Ok(Reply::new(()))
}

fn expect(version: Option<u64>) -> Expect {
    version.map_or(Expect::Anything, Expect::Version)
}

pub(super) fn find(state: &AdminState, name: &str) -> Result<Arc<fleet::ServedAgent>, AdminProblem> {
    state.fleet.get(name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> AdminProblem {
    AdminProblem::not_found(format!("there is no agent {name}; GET /api/v1/agents lists them"))
}

/// The answer to a change of agents, or of a room, that was refused.
pub(super) fn problem(name: &str, refused: ChangeRefusal) -> AdminProblem {
    let place = |origin| match origin {
        config::AgentOrigin::Flag => "on the command line",
        config::AgentOrigin::File => "in the configuration file",
        config::AgentOrigin::Api => "by the API",
    };
    match refused {
        ChangeRefusal::Missing => missing(name),
        ChangeRefusal::Taken(origin) => AdminProblem::conflict(format!(
            "the agent {name} exists already, defined {}; change or remove it, or use another name",
            place(origin)
        )),
        ChangeRefusal::Elsewhere(origin) => {
            AdminProblem::conflict(format!("{name} is defined {}; change it there", place(origin)))
        }
        ChangeRefusal::Changed(version) => AdminProblem::changed(format!(
            "{name} was changed meanwhile (its version is \"{version}\" now); read it again"
        )),
        ChangeRefusal::Forbidden(why) => AdminProblem::forbidden(why),
        ChangeRefusal::Invalid(why) => AdminProblem::invalid(why),
        ChangeRefusal::Failed(why) => AdminProblem::conflict(why),
        ChangeRefusal::Store(error) => error.into(),
    }
}

fn shown(agent: &fleet::ServedAgent, wanted: Option<&Desired>) -> Agent {
    let served = agent.shown();
    let card: &AgentCard = &served.card;
    let offered = |interface: &AgentInterface| Interface {
        version: interface.protocol_version.clone(),
        binding: interface.protocol_binding.clone(),
    };
    let mut interfaces: Vec<_> = card.supported_interfaces.iter().map(offered).collect();
    // At the root by the tenant, too.
    let mut seen = Vec::new();
    interfaces.retain(|interface| {
        let is_new = !seen.contains(interface);
        seen.push(interface.clone());
        is_new
    });
    let base = card.supported_interfaces.first().map(|interface| interface.url.as_str()).unwrap_or_default();
    Agent {
        name: agent.name().to_string(),
        kind: agent.kind().to_owned(),
        mode: if agent.runtime().is_some() { TaskMode::Durable } else { TaskMode::Proxy },
        origin: match wanted.map(|wanted| wanted.agent.origin) {
            None | Some(config::AgentOrigin::Flag) => api::AgentOrigin::Flag,
            Some(config::AgentOrigin::File) => api::AgentOrigin::File,
            Some(config::AgentOrigin::Api) => api::AgentOrigin::Api,
        },
        url: agent.upstream().map(|upstream| upstream.url()),
        speaks: agent.upstream().and_then(|upstream| upstream.speaks()).map(|(version, binding)| Interface {
            version: version.as_str().to_owned(),
            binding: binding.as_str().to_owned(),
        }),
        health: health_of(agent),
        interfaces,
        tasks_in_flight: agent.runtime().map_or(0, |runtime| runtime.running()),
        card_url: format!("{base}/.well-known/agent-card.json"),
        description: card.description.clone(),
    }
}

/// The health of an agent. One that runs in the hub is always up.
pub(super) fn health_of(agent: &fleet::ServedAgent) -> AgentHealth {
    let Some(health) = agent.upstream().map(|upstream| upstream.health()) else {
        return AgentHealth { state: HealthState::Up, since: None, reason: None };
    };
    let state = match health.condition {
        Condition::Unknown => HealthState::Unknown,
        Condition::Up => HealthState::Up,
        Condition::Degraded(_) => HealthState::Degraded,
        Condition::Down(_) => HealthState::Down,
    };
    AgentHealth { state, since: Some(health.since), reason: health.condition.reason().map(str::to_owned) }
}
