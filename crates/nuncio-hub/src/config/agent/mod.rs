//! The agents that the hub serves: the keys of all agents here, those of a kind in its own file.

mod auth;
mod card;
mod command;
mod command_line;
mod demo;
mod kinds;
mod mailbox;
mod model;
mod name;
mod remote;

use std::time::Duration;

use nuncio_protocol::Version;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};
use url::Url;

pub use self::{
    auth::{Auth, ClientIdentity, Credential, OAuth2},
    card::{Extension, Provider, Skill},
    command::{Command, CommandLine, Environment, Format},
    demo::{Demo, Profile},
    mailbox::{DeliverAs, Mailbox, Serial},
    model::{Model, ModelDialect, ModelTarget, Reasoning},
    name::AgentName,
    remote::{CardSource, Follow, Mode, Trust, Upstream, WhenDown},
};
pub(crate) use self::{
    auth::{AuthTable, OAuth2Table},
    kinds::{AgentTable, Example, KINDS, KindEntry, order},
};
use super::{
    AgentCalls, AgentLimits, AgentPush, Cards, Seat, fields,
    file::{Files, Findings, Node, read},
    form::{Form, HttpUrl, Opt, ValueList, schema_of, word},
};

/// An agent: exactly one of url, command, model, mailbox and demo selects its kind.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default = "Agent::unnamed", deny_unknown_fields)]
pub struct Agent {
    /// Name by which callers address it.
    #[serde(skip)]
    pub name: AgentName,
    /// Settings of its kind.
    #[serde(skip)]
    pub kind: AgentKind,
    /// Name on its card; default: the agent's own.
    #[schemars(example = &"Billing")]
    pub title: Option<String>,
    /// Description on its card; default: the agent's own.
    #[schemars(example = "Knows every invoice")]
    pub description: Option<String>,
    /// Words by which it is found in the directory, on each of its skills.
    #[schemars(example = ["finance"])]
    pub tags: Vec<String>,
    /// A picture of it, on its card.
    #[serde(with = "Opt::<HttpUrl>")]
    #[schemars(example = "https://acme.example/billing.png")]
    pub icon: Option<Url>,
    /// Its documentation, on its card.
    #[serde(with = "Opt::<HttpUrl>")]
    #[schemars(example = "https://acme.example/billing")]
    pub documentation: Option<Url>,
    /// The directory lists it. A caller that knows its name can call it in any case.
    pub visible: bool,
    /// public: anybody may read its card without credentials. protected: only callers that may call it; for
    /// others there is no such agent. Default: identity.cards if it is visible, else protected.
    #[schemars(example = Cards::Public)]
    pub cards: Option<Cards>,
    /// open: every caller that may call it. ask: the messages of a caller wait until an operator has accepted it
    /// (nuncio access).
    #[schemars(example = AgentAccess::Ask)]
    pub access: AgentAccess,
    /// The versions for callers: its card lists these, and others are refused.
    #[serde(with = "Versions")]
    #[schemars(length(min = 1))]
    pub versions: Vec<Version>,
    /// Limits of this agent.
    pub limits: AgentLimits,
    /// Rules of its calls, in place of those of all agents.
    pub calls: AgentCalls,
    /// Format of its notifications; default: as for all agents.
    pub push: AgentPush,
    /// The organization that runs it, on its card.
    pub provider: Option<Provider>,
    /// Its skills, on its card, instead of its own.
    pub skills: Vec<Skill>,
    /// Extensions that its card declares, besides its own.
    pub extensions: Vec<Extension>,
    /// The source that defines it.
    #[serde(skip)]
    pub origin: AgentOrigin,
}

impl Agent {
    /// An agent with the defaults of every key.
    #[must_use]
    pub fn new(name: AgentName, kind: AgentKind, origin: AgentOrigin) -> Self {
        Self {
            name,
            kind,
            title: None,
            description: None,
            tags: Vec::new(),
            icon: None,
            documentation: None,
            visible: true,
            cards: None,
            access: AgentAccess::default(),
            versions: Version::ALL.to_vec(),
            limits: AgentLimits::default(),
            calls: AgentCalls::default(),
            push: AgentPush::default(),
            provider: None,
            skills: Vec::new(),
            extensions: Vec::new(),
            origin,
        }
    }

    /// Defaults of every key for the schema and for serde. Name, kind and origin follow from the position in
    /// the file.
    fn unnamed() -> Self {
        Self::new(AgentName::default(), AgentKind::default(), AgentOrigin::default())
    }
}

/// The callers whose messages an agent gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentAccess {
    // All that may call it.
    #[default]
    Open,
    // Those that were accepted.
    Ask,
}

/// The mistake of an agent that asks although the hub does not keep its tasks.
pub(crate) const NO_TASK_TO_HOLD: &str = "needs mode = \"durable\": in proxy mode the agent keeps its tasks, so the hub has none that could wait for consent";

/// Notes keys of the `auth` table below this one that contradict each other.
pub(super) fn check_auth(table: &Node, path: &[&str], findings: &mut Findings) {
    if !findings.is_wrong_within(path) {
        auth::check(&mut kinds::TableKeys::new(table, path, findings));
    }
}

/// Settings of an agent's kind.
#[derive(Clone, PartialEq, Debug)]
pub enum AgentKind {
    /// A built-in agent.
    Demo(Demo),
    /// A remote agent.
    Upstream(Box<Upstream>),
    /// A program.
    Command(Box<Command>),
    /// A model.
    Model(Box<Model>),
    /// A mailbox.
    Mailbox(Box<Mailbox>),
    /// A seat of a room, which the table of the room defines.
    Seat(Seat),
    /// The kind that tests add.
    #[cfg(test)]
    Toy(crate::agents::Toy),
}

impl AgentKind {
    /// True for a program.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self, Self::Command(_))
    }

    /// The key that names what the hub calls.
    pub(crate) fn target_key(&self) -> &'static str {
        match self {
            Self::Upstream(_) => "url",
            Self::Command(_) => "command",
            Self::Model(_) => "model",
            Self::Mailbox(_) => "mailbox",
            Self::Demo(_) | Self::Seat(_) => "demo",
            #[cfg(test)]
            Self::Toy(_) => "toy",
        }
    }

    /// The time between two looks at the list of a provider, for a model.
    #[must_use]
    pub fn check_every(&self) -> Option<Duration> {
        match self {
            Self::Model(model) => Some(model.check_every),
            Self::Demo(_) | Self::Upstream(_) | Self::Command(_) | Self::Mailbox(_) | Self::Seat(_) => None,
            #[cfg(test)]
            Self::Toy(_) => None,
        }
    }

    /// True for a provider of models, whose models are the agents.
    #[must_use]
    pub fn is_template(&self) -> bool {
        matches!(self, Self::Model(model) if model.target.name.is_empty())
    }
}

impl From<Demo> for AgentKind {
    fn from(demo: Demo) -> Self {
        Self::Demo(demo)
    }
}

impl From<Model> for AgentKind {
    fn from(model: Model) -> Self {
        Self::Model(Box::new(model))
    }
}

impl Default for AgentKind {
    fn default() -> Self {
        Self::Demo(Demo::default())
    }
}

/// The source that defines an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AgentOrigin {
    /// The command line.
    Flag,
    /// The file.
    #[default]
    File,
    /// The admin API.
    Api,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Version")]
#[schemars(rename = "Version")]
pub(super) enum VersionWord {
    #[serde(rename = "1.0")]
    V1_0,
    #[serde(rename = "0.3")]
    V0_3,
}

word!(VersionWord => Version);

/// Versions, newest first and each once, in whatever order they are written.
pub(super) struct Versions;

schema_of!([] Versions, ValueList<VersionWord>);

impl Form for Versions {
    type Value = Vec<Version>;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Version>, D::Error> {
        let written = ValueList::<VersionWord>::deserialize(deserializer)?;
        Ok(Version::ALL.iter().copied().filter(|version| written.contains(version)).collect())
    }

    fn serialize<S: Serializer>(value: &Vec<Version>, serializer: S) -> Result<S::Ok, S::Error> {
        ValueList::<VersionWord>::serialize(value, serializer)
    }
}

/// The tables of the agents by name. Each is read by its kind, in [`read_agents`].
pub(super) struct AgentTables;

schema_of!([] AgentTables, std::collections::BTreeMap<String, AgentTable>);

impl Form for AgentTables {
    type Value = Vec<Agent>;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Agent>, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Vec::new())
    }

    fn serialize<S: Serializer>(_: &Vec<Agent>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(std::iter::empty::<((), ())>())
    }
}

/// Reads every valid agent.
pub(super) fn read_agents(tree: &Node, files: &mut Files, findings: &mut Findings) -> Vec<Agent> {
    let Some(tables) = tree.find(&["agents"]) else { return Vec::new() };
    tables.keys().filter_map(|name| read_agent(tables, name, files, findings)).collect()
}

fn read_agent(tables: &Node, name: &str, files: &mut Files, findings: &mut Findings) -> Option<Agent> {
    let path = ["agents", name];
    let table = tables.find(&[name]).filter(|_| !findings.is_left_out(&path.map(str::to_owned)))?;
    let parsed = name.parse::<AgentName>().map_err(|wrong| findings.refuse(&path, &table.spot, wrong));
    let shared = table.with_keys(|key| fields::of::<Agent>().contains(&key));
    let mut agent: Agent = read(&shared, &path, files, findings)?;
    agent.kind = kinds::read_of_kind(table, &path, &agent, files, findings)?;
    agent.name = parsed.ok()?;
    agent.origin = if table.spot.is_file() { AgentOrigin::File } else { AgentOrigin::Flag };
    Some(agent)
}
