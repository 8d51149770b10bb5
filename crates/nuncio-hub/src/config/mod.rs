//! The configuration of the hub: one type per table of `nuncio.toml`, which is also the setting that the hub
//! reads.
//!
//! A key is a field: its type, its default, its checks (`range`, or the format by a form), its doc and its
//! example are defined there and nowhere else. The schema is generated from the types. Files are checked,
//! defaults filled in, `nuncio init` written and `nuncio config show` ordered by the schema.
//!
//! Reading order: this file has the root, and each table has a file; `form` has the formats of values.
//! `agent` has the keys of agents, with a file per kind. `file` reads texts into a tree in which every value
//! knows its position, and the tree into settings. `source` merges flags, variables, files and defaults,
//! `validate` finds settings that contradict each other, `api` reads an agent for the admin API, `changes`
//! compares two configurations, and `lost` refuses the loss of important settings while the hub runs.
#![allow(
    rustdoc::bare_urls,
    reason = "the docs of keys are also the texts of `nuncio.toml`, which is not Markdown"
)]

mod agent;
mod api;
mod calls;
mod changes;
mod cors;
mod data;
mod edge;
mod fields;
pub(crate) mod file;
mod form;
mod identity;
mod limits;
mod lost;
mod network;
mod push;
mod rooms;
mod secret;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod tools;
mod validate;

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use url::{Host, Url};

use self::{
    agent::AgentTables,
    form::{Address, BaseUrl, Form, HostText, Opt, Seconds, ValueList},
};
pub use self::{
    agent::{
        Agent, AgentAccess, AgentKind, AgentName, AgentOrigin, Auth, CardSource, ClientIdentity, Command,
        CommandLine, Credential, DeliverAs, Demo, Environment, Extension, Follow, Format, Mailbox, Mode,
        Model, ModelDialect, ModelTarget, OAuth2, Profile, Provider, Reasoning, Serial, Skill, Trust,
        Upstream, WhenDown,
    },
    calls::{AgentCalls, Calls},
    changes::{AgentChanges, Changes, changes},
    cors::{Cors, WebOrigin},
    data::{Data, DatabaseUrl, Durability, KEEP_FINISHED, Storage},
    edge::{Admin, CardKey, Connections, TlsFiles},
    file::{Origin, Problem, Problems, Severity, did_you_mean, format, init, schema, show},
    identity::{Algorithm, Anonymous, Cards, Identity, Issuer},
    limits::{AgentLimits, Limits, Rate},
    network::Network,
    push::{AgentPush, Dialect, Push},
    rooms::{Absent, Completed, Party, Room, Rounds, Seat},
    secret::Secret,
    source::{Given, Loaded, Source, Told, Variables, agent_spec, fuzz_config},
    telemetry::{LogFormat, Telemetry},
    tools::{NamedTools, ToolServer, ToolTarget},
    validate::Invalid,
};
pub(crate) use self::{
    agent::{AgentTable, NO_TASK_TO_HOLD},
    api::{agent_from_api, room_from_api},
    lost::lost,
    tools::AGENTS_PREFIX,
    validate::NO_AGENT,
};

/// The configuration of a Nuncio hub.
///
/// `${NAME}` in a text stands for the environment variable, `${NAME:-text}` for the text if it is not set,
/// and `$${` for `${` itself. Paths are relative to the file that contains them.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Further files to read; a star stands for any characters of a file name. Agents and issuers are merged
    /// from all files, any other key is in one of them.
    #[schemars(example = ["conf.d/*.toml"])]
    pub include: Vec<String>,
    /// Address for callers; port 0 takes a free one.
    #[serde(with = "Address")]
    pub listen: SocketAddr,
    /// Address of the hub as callers see it, if it is not the listening address.
    #[serde(with = "Opt::<BaseUrl>")]
    #[schemars(example = "https://agents.example.com")]
    pub public_url: Option<Url>,
    /// This agent answers at the root, too. When absent: the only one, if there is only one.
    #[schemars(example = &"billing")]
    pub default_agent: Option<String>,
    /// Serve the demo agents: echo, slow and conformance.
    pub demo: bool,
    /// On loopback, host names to answer to besides the hub's own and that of public_url. Other names are
    /// refused: a web page could use them to call the hub (DNS rebinding).
    #[serde(rename = "allow_hosts", with = "ValueList::<HostText>")]
    #[schemars(example = ["agents.internal"])]
    pub allowed_hosts: Vec<Host>,
    /// Networks of proxies whose headers (Forwarded, X-Forwarded-*) are trusted. Name only networks from
    /// which nobody but your proxies can connect.
    #[schemars(example = ["10.0.0.0/8"])]
    pub trusted_proxies: Vec<Network>,
    /// Seconds for which running tasks may continue after the signal to stop.
    #[serde(rename = "drain_seconds", with = "Seconds")]
    pub drain_grace: Duration,
    /// Also serve cards at /.well-known/agent.json, where clients older than 0.3 look for them.
    pub legacy_card: bool,
    /// Administration: for this machine only, with a token.
    pub admin: Admin,
    /// TLS; without it the hub speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Keys that sign cards, all of them. The public ones are served at /.well-known/jwks.json.
    pub card_keys: Vec<CardKey>,
    /// Storage of tasks, and retention.
    pub data: Storage,
    /// Limits of connections.
    pub connections: Connections,
    /// Webhooks: allowed networks, retries and format of notifications.
    pub push: Push,
    /// Web pages that may call agents.
    pub cors: Cors,
    /// Authentication of callers.
    pub identity: Identity,
    /// Rules of calls: versions, batches, timeouts, disconnects and repeats.
    pub calls: Calls,
    /// Limits of callers.
    pub limits: Limits,
    /// Metrics, logs and traces.
    pub telemetry: Telemetry,
    /// Servers of tools for models, by name.
    pub tools: BTreeMap<String, ToolServer>,
    /// The agents, by name: a to z, 0 to 9 and -, at most 63 characters.
    #[serde(with = "AgentTables")]
    pub agents: Vec<Agent>,
    /// Rooms, by name: two parties talk to each other, each on its own side. Their seats are served as agents.
    pub rooms: BTreeMap<String, Room>,
    /// Behaviour of the demo's conformance agent for a test kit; `None`: the normal one.
    #[serde(skip)]
    pub profile: Option<Profile>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            listen: ([127, 0, 0, 1], 2602).into(),
            public_url: None,
            default_agent: None,
            demo: false,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            drain_grace: Duration::from_secs(30),
            legacy_card: true,
            admin: Admin::default(),
            tls: None,
            card_keys: Vec::new(),
            data: Storage::default(),
            connections: Connections::default(),
            push: Push::default(),
            cors: Cors::default(),
            identity: Identity::default(),
            calls: Calls::default(),
            limits: Limits::default(),
            telemetry: Telemetry::default(),
            tools: BTreeMap::new(),
            agents: Vec::new(),
            rooms: BTreeMap::new(),
            profile: None,
        }
    }
}

/// A path for messages. A text that cannot be a path is not shown: it may be the content of the file, such as
/// a private key.
pub(crate) fn shown_path(path: &Path) -> String {
    const MAX_NAME_BYTES: usize = 255;
    let text = path.to_string_lossy();
    let is_name = |part: &str| part.len() <= MAX_NAME_BYTES && !part.contains(char::is_control);
    if text.split('/').all(is_name) { text.into_owned() } else { "(not a path)".to_owned() }
}

impl Config {
    /// A hub at this address without agents, admin API and webhooks, and with the defaults of every other
    /// key.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            admin: Admin { listen: None, token_file: None },
            push: Push { enabled: false, ..Push::default() },
            ..Self::default()
        }
    }

    /// The scheme of the hub's own address.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
