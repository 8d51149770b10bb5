//! The catalogue of checks, as data.

mod agent;
mod conversation;
mod framing;
mod operations;
mod push;
mod streams;

use std::sync::LazyLock;

use nuncio_protocol::{Binding, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A check: one demand of the specification that an agent can be seen to meet or to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The stable name, `area.name`.
    pub id: &'static str,
    /// The area, which is also its category in the score.
    pub area: Area,
    /// The strength of the demand.
    pub level: Level,
    /// The numbers of its requirements (`REQ`), empty where the check only informs.
    pub requirements: &'static [u16],
    /// The sections of the specification, per version.
    pub sections: Sections,
    /// The least depth of an audit that runs this check.
    pub depth: Depth,
    /// The number of findings it makes: one for the agent, or one per interface.
    pub scope: Scope,
    /// The bindings that it applies to.
    pub bindings: &'static [Binding],
    /// The demand in one sentence.
    pub title: &'static str,
    /// The harm to callers of an agent that breaks it.
    pub why: &'static str,
    /// The change that mends it.
    pub fix: &'static str,
}

/// Sections of the specification, such as `3.1.4`; `None` where that version does not demand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    /// In A2A 1.0.
    pub v1_0: Option<&'static str>,
    /// In A2A 0.3.0.
    pub v0_3: Option<&'static str>,
}

/// The strength of a demand (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Information only.
    May,
    /// Recommended.
    Should,
    /// Required.
    Must,
}

/// The depth of an audit, in the order in which it touches the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Reads the card, and sends requests that read or must be refused.
    Look,
    /// Sends messages.
    Send,
    /// Receives webhooks on this machine.
    Push,
    /// Calls as a second caller.
    Key,
}

/// The number of findings of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One for the agent.
    Agent,
    /// One per interface.
    Interface,
}

/// An area of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// The agent card.
    Card,
    /// Reachability of the interfaces.
    Reach,
    /// JSON-RPC framing.
    Rpc,
    /// HTTP+JSON framing.
    Http,
    /// gRPC framing.
    Grpc,
    /// Negotiation of versions.
    Version,
    /// Errors and their codes.
    Errors,
    /// Lists of tasks.
    List,
    /// Operations that the card does not declare.
    Undeclared,
    /// Extensions.
    Extensions,
    /// Authentication.
    Auth,
    /// Sending of messages.
    Send,
    /// Tasks.
    Task,
    /// Streams.
    Stream,
    /// Webhooks.
    Push,
    /// Isolation of callers.
    Isolation,
}

impl Area {
    /// Every area, in the order of reports.
    pub const ALL: &[Self] = &[
        Self::Card,
        Self::Reach,
        Self::Rpc,
        Self::Http,
        Self::Grpc,
        Self::Version,
        Self::Errors,
        Self::List,
        Self::Undeclared,
        Self::Extensions,
        Self::Auth,
        Self::Send,
        Self::Task,
        Self::Stream,
        Self::Push,
        Self::Isolation,
    ];

    /// The name in ids and options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Reach => "reach",
            Self::Rpc => "rpc",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Version => "version",
            Self::Errors => "errors",
            Self::List => "list",
            Self::Undeclared => "undeclared",
            Self::Extensions => "extensions",
            Self::Auth => "auth",
            Self::Send => "send",
            Self::Task => "task",
            Self::Stream => "stream",
            Self::Push => "push",
            Self::Isolation => "isolation",
        }
    }

    /// The title in reports.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Card => "Agent card",
            Self::Reach => "Reachability",
            Self::Rpc => "JSON-RPC",
            Self::Http => "HTTP+JSON",
            Self::Grpc => "gRPC",
            Self::Version => "Versions",
            Self::Errors => "Errors",
            Self::List => "Lists of tasks",
            Self::Undeclared => "Undeclared operations",
            Self::Extensions => "Extensions",
            Self::Auth => "Authentication",
            Self::Send => "Messages",
            Self::Task => "Tasks",
            Self::Stream => "Streams",
            Self::Push => "Webhooks",
            Self::Isolation => "Isolation of callers",
        }
    }
}

/// Declares the checks of an area: `name level [requirements] (section of 1.0, section of 0.3) depth scope bindings`,
/// then title, why and fix. An empty section means that the version does not demand it.
macro_rules! checks {
    ($list:ident $area:ident $prefix:literal $(
        $name:literal $level:ident [$($req:literal)*] ($new:literal, $old:literal) $depth:ident $scope:ident $bindings:ident
        $title:literal $why:literal $fix:literal;
    )+) => {
        pub(super) const $list: &[$crate::catalogue::Check] = &[$($crate::catalogue::Check {
            id: concat!($prefix, ".", $name),
            area: $crate::catalogue::Area::$area,
            level: $crate::catalogue::Level::$level,
            requirements: &[$($req),*],
            sections: $crate::catalogue::sections($new, $old),
            depth: $crate::catalogue::Depth::$depth,
            scope: $crate::catalogue::Scope::$scope,
            bindings: $crate::catalogue::$bindings,
            title: $title,
            why: $why,
            fix: $fix,
        }),+];
    };
}
use checks;

/// Every binding.
const ANY: &[Binding] = Binding::ALL;
/// JSON-RPC.
const RPC: &[Binding] = &[Binding::JsonRpc];
/// HTTP+JSON.
const HTTP: &[Binding] = &[Binding::HttpJson];
/// gRPC.
const GRPC: &[Binding] = &[Binding::Grpc];
/// The bindings with JSON bodies.
const JSON: &[Binding] = &[Binding::JsonRpc, Binding::HttpJson];

const fn sections(v1_0: &'static str, v0_3: &'static str) -> Sections {
    const fn some(section: &'static str) -> Option<&'static str> {
        if section.is_empty() { None } else { Some(section) }
    }
    Sections { v1_0: some(v1_0), v0_3: some(v0_3) }
}

impl Sections {
    /// The section of this version.
    #[must_use]
    pub fn of(self, version: Version) -> Option<&'static str> {
        match version {
            Version::V1_0 => self.v1_0,
            Version::V0_3 => self.v0_3,
        }
    }
}

impl Check {
    /// True if the check applies to an interface of this version and binding.
    #[must_use]
    pub fn applies(&self, version: Version, binding: Binding) -> bool {
        self.sections.of(version).is_some() && self.bindings.contains(&binding)
    }

    /// True if the check recommends a change; those that only inform say that nothing has to be changed.
    #[must_use]
    pub fn asks_for_change(&self) -> bool {
        !self.fix.starts_with("Nothing has to be changed")
    }
}

/// Every check, area by area.
pub static CATALOGUE: LazyLock<Vec<Check>> = LazyLock::new(|| {
    let areas = [
        agent::CARD,
        agent::REACH,
        framing::RPC,
        framing::HTTP,
        framing::GRPC,
        framing::VERSION,
        operations::ERRORS,
        operations::LIST,
        operations::UNDECLARED,
        operations::EXTENSIONS,
        operations::AUTH,
        conversation::SEND,
        conversation::TASK,
        streams::STREAM,
        push::PUSH,
        push::ISOLATION,
    ];
    areas.concat()
});

/// The check of this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Check> {
    CATALOGUE.iter().find(|check| check.id == id)
}
