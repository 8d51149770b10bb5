//! The agents that the hub serves, a file per kind that has settings of its own.

mod command;
mod name;
mod upstream;
mod words;

use nuncio_protocol::Version;
use nuncio_server::push::Dialect;

pub use self::{
    command::{Command, Environment, Format},
    name::AgentName,
    upstream::{Auth, CardSource, ClientIdentity, Credential, Follow, Mode, OAuth2, Trust, Upstream},
};
use super::{AgentLimits, Cards, Secret};

/// An agent, as the operator wants it.
#[derive(Clone, PartialEq, Debug)]
pub struct Agent {
    /// How callers call it.
    pub name: AgentName,
    /// What it is.
    pub kind: AgentKind,
    /// What its card calls it; `None`: what it calls itself.
    pub title: Option<String>,
    /// What its card says it does; `None`: what it says itself.
    pub description: Option<String>,
    /// Words by which it is found.
    pub tags: Vec<String>,
    /// The directory lists it.
    pub visible: bool,
    /// Access to its card; `None`: as for all agents if it is visible, else protected.
    pub cards: Option<Cards>,
    /// The versions in which callers reach it.
    pub versions: Vec<Version>,
    /// What all callers together may ask of it.
    pub limits: AgentLimits,
    /// What its notifications look like, if not as those of all agents.
    pub push: AgentPush,
    /// Who named it.
    pub origin: AgentOrigin,
}

impl Agent {
    /// An agent with nothing else said about it.
    #[must_use]
    pub fn new(name: AgentName, kind: AgentKind, origin: AgentOrigin) -> Self {
        Self {
            name,
            kind,
            title: None,
            description: None,
            tags: Vec::new(),
            visible: true,
            cards: None,
            versions: Version::ALL.to_vec(),
            limits: AgentLimits::default(),
            push: AgentPush::default(),
            origin,
        }
    }
}

/// What an agent is.
#[derive(Clone, PartialEq, Debug)]
pub enum AgentKind {
    /// One of those that come with the hub.
    Demo(Demo),
    /// One that speaks A2A already.
    Upstream(Box<Upstream>),
    /// A program.
    Command(Box<Command>),
    /// The kind that tests add.
    #[cfg(test)]
    Toy(crate::agents::Toy),
}

impl From<Demo> for AgentKind {
    fn from(demo: Demo) -> Self {
        Self::Demo(demo)
    }
}

/// An agent that comes with the hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demo {
    Echo,
    Slow,
    Conformance,
}

/// Who named an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentOrigin {
    /// The command line.
    Flag,
    /// The file.
    File,
    /// The admin API.
    Api,
}

/// What the notifications of one agent look like; `None`: as those of all agents.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentPush {
    /// Artifacts are sent piece by piece.
    pub chunks: Option<bool>,
    /// What receivers of the old version get.
    pub dialect: Option<Dialect>,
    /// Notifications are signed with these.
    pub secrets: Option<Vec<Secret>>,
}
