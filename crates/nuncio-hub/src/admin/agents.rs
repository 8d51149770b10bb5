//! Agents: what is served and how it is, and what is added, changed and taken away.
//!
//! Programs are named on the machine only: whoever has the token may use what the hub can reach, and not run
//! what the hub's user can.

use std::sync::Arc;

use http::Method;
use nuncio_protocol::{AgentCard, AgentInterface, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Desk,
    answer::Problem,
    openapi::Time,
    route::{Call, Reply, Route, route},
};
use crate::{
    config::{AgentKind, AgentName, AgentOrigin, Mode},
    fleet,
    registry::{Refused, Settings, Wanted},
    trail::What,
};

pub(super) fn routes() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    vec![
        route(get.clone(), "/agents", "agents.list", "The agents that are served.", list),
        route(
            post.clone(),
            "/agents",
            "agents.add",
            "Serves one more, which is kept: one that speaks A2A at a URL.",
            add,
        )
        .creates()
        .noted(What::AgentAdded),
        route(get.clone(), "/agents/{name}", "agents.show", "One agent, with its cards.", show),
        route(
            Method::PATCH,
            "/agents/{name}",
            "agents.change",
            "Changes what was said of it when it was added: what is given replaces, null takes away.",
            change,
        )
        .versioned()
        .noted(What::AgentChanged),
        route(
            Method::DELETE,
            "/agents/{name}",
            "agents.remove",
            "Serves it no more. Its tasks stay where they are kept.",
            remove,
        )
        .versioned()
        .noted(What::AgentRemoved),
        route(post, "/agents/{name}:refresh", "agents.refresh", "Looks for its card now.", refresh)
            .noted(What::AgentRefreshed),
        route(get, "/agents/{name}/health", "agents.health", "How it is.", health),
    ]
}

/// All agents.
#[derive(Serialize, JsonSchema)]
struct Agents {
    agents: Vec<Agent>,
}

/// An agent that is served.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Agent {
    name: String,
    kind: Kind,
    /// Whose the tasks are.
    mode: TaskMode,
    /// Who named it.
    origin: Origin,
    /// Where the agent behind it is, without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// How the agent behind it is spoken to, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    speaks: Option<Speaks>,
    health: Health,
    /// How callers may speak to it.
    interfaces: Vec<Speaks>,
    /// How many of its tasks run in this hub.
    tasks_in_flight: usize,
    /// Where callers find its card.
    card_url: String,
    description: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Demo,
    Upstream,
    Command,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TaskMode {
    Durable,
    Proxy,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Origin {
    Flag,
    File,
    Api,
}

/// A version and a binding of the protocol.
#[derive(Serialize, JsonSchema)]
struct Speaks {
    version: String,
    binding: String,
}

/// How an agent is.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// `up`, `degraded`, `down`, or `unknown` before it was heard of.
    pub(super) state: &'static str,
    /// Since when; absent: since the hub is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// An agent with its cards.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Whole {
    #[serde(flatten)]
    agent: Agent,
    /// The card that callers see, before signatures.
    card: Value,
    /// The card of the agent behind it, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_card: Option<Value>,
}

async fn list(desk: Arc<Desk>, _: Call) -> Result<Reply<Agents>, Problem> {
    let mut agents = Vec::new();
    for agent in desk.fleet.all() {
        let wanted = desk.registry.find(agent.name()).await;
        agents.push(told(&agent, wanted.as_ref()));
    }
    Ok(Reply::new(Agents { agents }))
}

async fn show(desk: Arc<Desk>, call: Call) -> Result<Reply<Whole>, Problem> {
    whole(&desk, call.name()).await
}

async fn whole(desk: &Desk, name: &str) -> Result<Reply<Whole>, Problem> {
    let agent = find(desk, name)?;
    let wanted = desk.registry.find(name).await;
    let card = serde_json::to_value(&*agent.shown().card).map_err(|_| Problem::broken())?;
    let upstream_card = agent.behind().and_then(|behind| behind.card());
    let reply = Reply::new(Whole { agent: told(&agent, wanted.as_ref()), card, upstream_card });
    Ok(match wanted.and_then(|wanted| wanted.given) {
        Some((_, version)) => reply.version(version),
        None => reply,
    })
}

async fn health(desk: Arc<Desk>, call: Call) -> Result<Reply<Health>, Problem> {
    Ok(Reply::new(health_of(&*find(&desk, call.name())?)))
}

async fn refresh(desk: Arc<Desk>, call: Call) -> Result<Reply<Whole>, Problem> {
    let agent = find(&desk, call.name())?;
    let behind = agent.behind().ok_or_else(|| {
        Problem::conflict(format!(
            "{} is this hub's own, and so is its card: there is nothing to look for",
            call.name()
        ))
    })?;
    behind
        .refresh(&agent)
        .await
        .map_err(|why| Problem::unavailable(format!("there is no new card: {why}")))?;
    whole(&desk, call.name()).await
}

/// An agent to be served: its name, and what the file would say below it.
#[derive(Deserialize, JsonSchema)]
struct New {
    /// How callers call it: a to z, 0 to 9 and -, at most 63 characters.
    name: String,
    #[serde(flatten)]
    #[schemars(with = "Settings")]
    settings: Map<String, Value>,
}

async fn add(desk: Arc<Desk>, call: Call<(), New>) -> Result<Reply<Whole>, Problem> {
    let New { name, settings } = call.body;
    let parsed: AgentName = name.parse().map_err(|why| Problem::invalid(format!("name: {name} {why}")))?;
    desk.registry.add(&parsed, settings).await.map_err(|refused| problem(&name, refused))?;
    Ok(whole(&desk, &name).await?.about(name))
}

/// What is to be otherwise.
#[derive(Deserialize, JsonSchema)]
struct Patch(#[schemars(with = "Settings")] Map<String, Value>);

async fn change(desk: Arc<Desk>, call: Call<(), Patch>) -> Result<Reply<Whole>, Problem> {
    let name = call.name().to_owned();
    let Patch(patch) = call.body;
    desk.registry.change(&name, patch, call.expect).await.map_err(|refused| problem(&name, refused))?;
    whole(&desk, &name).await
}

async fn remove(desk: Arc<Desk>, call: Call) -> Result<Reply<()>, Problem> {
    desk.registry.remove(call.name(), call.expect).await.map_err(|refused| problem(call.name(), refused))?;
    Ok(Reply::new(()))
}

fn find(desk: &Desk, name: &str) -> Result<Arc<fleet::Agent>, Problem> {
    desk.fleet.get(name).ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Problem {
    Problem::not_found(format!("there is no agent {name}; GET /api/v1/agents lists them"))
}

fn problem(name: &str, refused: Refused) -> Problem {
    let place = |origin| match origin {
        AgentOrigin::Flag => "on the command line",
        AgentOrigin::File => "in the file",
        AgentOrigin::Api => "by the API",
    };
    match refused {
        Refused::Missing => missing(name),
        Refused::Taken(origin) => Problem::conflict(format!(
            "there is an agent {name} already, which was named {}; change or remove it, or take another name",
            place(origin)
        )),
        Refused::Elsewhere(origin) => {
            Problem::conflict(format!("{name} was named {}; change it there", place(origin)))
        }
        Refused::Changed(version) => Problem::changed(format!(
            "{name} was changed by somebody else (it is at \"{version}\" now); look at it again"
        )),
        Refused::Forbidden(why) => Problem::forbidden(why),
        Refused::Invalid(why) => Problem::invalid(why),
        Refused::Failed(why) => Problem::conflict(why),
        Refused::Store(error) => error.into(),
    }
}

fn told(agent: &fleet::Agent, wanted: Option<&Wanted>) -> Agent {
    let shown = agent.shown();
    let card: &AgentCard = &shown.card;
    let speaks = |interface: &AgentInterface| Speaks {
        version: interface.protocol_version.clone(),
        binding: interface.protocol_binding.clone(),
    };
    let (kind, mode, url) = kind_of(wanted);
    let base = card.supported_interfaces.first().map(|interface| interface.url.as_str()).unwrap_or_default();
    Agent {
        name: agent.name().to_string(),
        kind,
        mode,
        origin: match wanted.map(|wanted| wanted.agent.origin) {
            None | Some(AgentOrigin::Flag) => Origin::Flag,
            Some(AgentOrigin::File) => Origin::File,
            Some(AgentOrigin::Api) => Origin::Api,
        },
        url,
        speaks: agent.behind().and_then(|behind| behind.speaks()).map(|(version, binding)| Speaks {
            version: version.as_str().to_owned(),
            binding: binding.as_str().to_owned(),
        }),
        health: health_of(agent),
        interfaces: card.supported_interfaces.iter().map(speaks).collect(),
        tasks_in_flight: agent.runtime().map_or(0, |runtime| runtime.running()),
        card_url: format!("{base}/.well-known/agent-card.json"),
        description: card.description.clone(),
    }
}

fn kind_of(wanted: Option<&Wanted>) -> (Kind, TaskMode, Option<String>) {
    match wanted.map(|wanted| &wanted.agent.kind) {
        None | Some(AgentKind::Demo(_)) => (Kind::Demo, TaskMode::Durable, None),
        Some(AgentKind::Command(_)) => (Kind::Command, TaskMode::Durable, None),
        Some(AgentKind::Upstream(upstream)) => {
            let mode = match upstream.mode {
                Mode::Durable => TaskMode::Durable,
                Mode::Proxy => TaskMode::Proxy,
            };
            (Kind::Upstream, mode, Some(without_credentials(&upstream.url)))
        }
    }
}

/// A user, a password or a query in an address may be secret.
fn without_credentials(url: &url::Url) -> String {
    let mut url = url.clone();
    // Neither can fail where there is a host, and there is one.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// What the hub does by itself is as well as the hub.
pub(super) fn health_of(agent: &fleet::Agent) -> Health {
    let Some(health) = agent.behind().map(|behind| behind.health()) else {
        return Health { state: "up", since: None, reason: None };
    };
    let reason = health.condition.reason().map(str::to_owned);
    Health { state: health.condition.word(), since: Some(health.since), reason }
}
