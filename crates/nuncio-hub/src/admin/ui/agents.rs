//! The agents, and a form to add one.

use askama::Template;
use serde_json::Map;

use super::{
    form::Form,
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    agents,
    api::{AddAgent, Agent, AgentSettings, Interface, ListAgents, NewAgent},
    problem::AdminProblem,
};

/// A row of the list of agents.
pub(super) struct AgentRow {
    pub(super) name: String,
    pub(super) path: String,
    /// The name as a value in an address.
    pub(super) query: String,
    pub(super) kind: String,
    pub(super) mode: String,
    pub(super) origin: String,
    pub(super) health: String,
    pub(super) reason: String,
    pub(super) since: Option<String>,
    pub(super) speaks: String,
    pub(super) url: String,
    pub(super) interfaces: String,
    pub(super) running: usize,
    pub(super) description: String,
    pub(super) card_url: String,
}

impl From<Agent> for AgentRow {
    fn from(agent: Agent) -> Self {
        let spoken = |interface: &Interface| format!("{} {}", interface.version, interface.binding);
        Self {
            path: format!("/ui/agents/{}", show::segment(&agent.name)),
            query: show::segment(&agent.name),
            name: agent.name,
            kind: agent.kind,
            mode: show::word(agent.mode),
            origin: show::word(agent.origin),
            health: show::word(agent.health.state),
            reason: show::cell(agent.health.reason.as_deref().unwrap_or_default()),
            since: agent.health.since.map(|since| since.to_string()),
            speaks: agent.speaks.as_ref().map(spoken).unwrap_or_default(),
            url: show::cell(agent.url.as_deref().unwrap_or_default()),
            interfaces: agent.interfaces.iter().map(spoken).collect::<Vec<_>>().join(", "),
            running: agent.tasks_in_flight,
            description: show::cell(&agent.description),
            card_url: agent.card_url,
        }
    }
}

#[derive(Template)]
#[template(path = "ui/agents.html")]
struct AgentsPage {
    shell: Shell,
    agents: Vec<AgentRow>,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Agents", Area::Agents);
    let shell = shell.with_route(&ListAgents {}, Some("agent list".to_owned()))?;
    let agents = visit.call(agents::list, ListAgents {}).await?.agents;
    render(&AgentsPage { shell, agents: agents.into_iter().map(AgentRow::from).collect() })
}

pub(super) async fn add(visit: Visit, form: Form) -> Answer {
    let name = form.required("name")?.to_owned();
    let url = form.required("url")?.to_owned();
    let mut settings = Map::new();
    settings.insert("url".to_owned(), url.into());
    if let Some(mode) = form.get("mode") {
        settings.insert("mode".to_owned(), mode.into());
    }
    let agent = NewAgent { name, settings: AgentSettings(settings) };
    let added = visit.call(agents::add, AddAgent { agent }).await?;
    let name = added.details.agent.name;
    let lost = added.root_lost.map(|root| format!(" {root} does not answer at the root any more."));
    visit.done(
        &format!("/ui/agents/{}", show::segment(&name)),
        format!("The agent {name} was added.{}", lost.unwrap_or_default()),
    )
}

/// The settings that an operator has typed as TOML, by the keys of a configuration file.
pub(super) fn settings(text: &str) -> Result<AgentSettings, AdminProblem> {
    let table: Map<String, serde_json::Value> = toml::from_str(text)
        .map_err(|error| AdminProblem::invalid(format!("settings: {}", error.message())))?;
    Ok(AgentSettings(table))
}
