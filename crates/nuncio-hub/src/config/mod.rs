//! The configuration of the hub: one type per table of `nuncio.toml`, which is also the setting that the hub reads.
//!
//! A key is a field: its type, its default, its checks (`range`, or the format by a form), its doc and its example
//! stand there and nowhere else. The schema is made of the types, and by the schema files are checked, defaults filled
//! in, `nuncio init` written and `nuncio config show` ordered.
//!
//! Reading order: this file has the root, a file for each table; `form` has the formats of values. `agent` has the keys
//! of agents, a file per kind. `file` reads: from texts to a tree whose every value knows where it comes from, and from
//! the tree to settings. `source` puts flags, variables, files and defaults on top of each other, `validate` finds
//! settings that do not go together, `api` reads an agent for the admin API, `changes` compares two configurations, and
//! `lost` says what a file may not lose while the hub runs.
#![allow(
    rustdoc::bare_urls,
    reason = "the docs of keys are also the texts of `nuncio.toml`, which is not Markdown"
)]

mod agent;
mod api;
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
mod secret;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod validate;

use std::{net::SocketAddr, path::Path, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use url::{Host, Url};

pub(crate) use self::{agent::AgentTable, api::agent_from_api, lost::lost, validate::NO_AGENT};
use self::{
    agent::AgentTables,
    form::{Address, BaseUrl, Form, HostText, List, Opt, Seconds},
};
pub use self::{
    agent::{
        Agent, AgentKind, AgentName, AgentOrigin, Auth, CardSource, ClientIdentity, Command, CommandLine,
        Credential, Demo, Environment, Follow, Format, Mode, OAuth2, Profile, Trust, Upstream,
    },
    changes::{AgentChanges, Changes, changes},
    cors::{Cors, WebOrigin},
    data::{Data, DatabaseUrl, Durability, KEEP_FINISHED, Storage},
    edge::{Admin, CardKey, Connections, TlsFiles},
    file::{Origin, Problem, Problems, Severity, format, init, schema, show},
    identity::{Algorithm, Anonymous, Cards, Identity, Issuer},
    limits::{AgentLimits, Limits, Rate},
    network::Network,
    push::{AgentPush, Dialect, Push},
    secret::Secret,
    source::{Given, Loaded, Source, Told, Variables, agent_spec, fuzz_config},
    telemetry::{LogFormat, Telemetry},
    validate::Invalid,
};

/// The configuration of a Nuncio hub.
///
/// `${NAME}` in a text stands for the environment variable, `${NAME:-text}` for the text if there is none, and
/// `$${` for `${` itself. Paths are seen from the file that names them.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Files to read as well; a star stands for any characters of a file's name. Agents and issuers come
    /// together from all files, any other key is in one of them.
    #[schemars(example = ["conf.d/*.toml"])]
    pub include: Vec<String>,
    /// Where callers reach the agents; port 0 takes a free one.
    #[serde(with = "Address")]
    pub listen: SocketAddr,
    /// How callers see the hub, if not at the address where it listens.
    #[serde(with = "Opt::<BaseUrl>")]
    #[schemars(example = "https://agents.example.com")]
    pub public_url: Option<Url>,
    /// This agent answers at the root, too.
    #[schemars(example = &"billing")]
    pub default_agent: Option<String>,
    /// Serve the demo agents: echo, slow and conformance.
    pub demo: bool,
    /// On loopback, host names to answer to besides our own and that of public_url. To others we do not
    /// answer: a web page could call us by them (DNS rebinding).
    #[serde(rename = "allow_hosts", with = "List::<HostText>")]
    #[schemars(example = ["agents.internal"])]
    pub allowed_hosts: Vec<Host>,
    /// Networks of proxies that are believed about how they were called (Forwarded, X-Forwarded-*). Name only
    /// networks from which nobody but your proxies can connect.
    #[schemars(example = ["10.0.0.0/8"])]
    pub trusted_proxies: Vec<Network>,
    /// How many seconds running tasks may go on after the signal to stop.
    #[serde(rename = "drain_seconds", with = "Seconds")]
    pub drain_grace: Duration,
    /// Serve cards at /.well-known/agent.json, too, where clients older than 0.3 look for them.
    pub legacy_card: bool,
    /// Administration: for this machine only, with a token.
    pub admin: Admin,
    /// TLS; without it the hub speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Keys that sign cards, all of them. The public ones are served at /.well-known/jwks.json.
    pub card_keys: Vec<CardKey>,
    /// Where tasks are kept, and for how long.
    pub data: Storage,
    /// What connections may do.
    pub connections: Connections,
    /// Webhooks: where notifications may go, how long they are tried, and what they look like.
    pub push: Push,
    /// Web pages that may call agents.
    pub cors: Cors,
    /// Who may call.
    pub identity: Identity,
    /// How much a caller may ask for.
    pub limits: Limits,
    /// Metrics, logs and traces.
    pub telemetry: Telemetry,
    /// The agents, by name: a to z, 0 to 9 and -, at most 63 characters.
    #[serde(with = "AgentTables")]
    pub agents: Vec<Agent>,
    /// Behaviour of the demo's conformance agent for a test kit; `None`: for people.
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
            limits: Limits::default(),
            telemetry: Telemetry::default(),
            agents: Vec::new(),
            profile: None,
        }
    }
}

/// A path for messages. What can be the name of no file is not shown: somebody has put the content in its place,
/// which may be a private key.
pub(crate) fn shown_path(path: &Path) -> String {
    const MAX_NAME_BYTES: usize = 255;
    let text = path.to_string_lossy();
    let is_name = |part: &str| part.len() <= MAX_NAME_BYTES && !part.contains(char::is_control);
    if text.split('/').all(is_name) { text.into_owned() } else { "(this is no path)".to_owned() }
}

impl Config {
    /// A hub at this address without agents, administration and webhooks, with the defaults of every other key.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            admin: Admin { listen: None, token_file: None },
            push: Push { enabled: false, ..Push::default() },
            ..Self::default()
        }
    }

    /// How an address of ours begins, unless somebody stands before us.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
