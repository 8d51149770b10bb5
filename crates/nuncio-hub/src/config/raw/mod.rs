//! What may be written in `nuncio.toml`, as it is written.
//!
//! The types are the one definition: serde reads them, schemars makes the JSON Schema of them, and by that
//! schema files are checked, defaults are filled in, `nuncio init` is written and `nuncio config show` is
//! ordered. Their docs are for whoever writes the file. What they mean is in the settings beside this folder.

mod agent;
mod edge;
mod identity;
mod limits;
mod push;
mod store;
mod telemetry;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use self::{
    agent::{
        Agent, AgentPush, Auth, Binding, CommandLine, Demo, FileBytes, Follow, Format, Mode, OAuth2, Trust,
        Version,
    },
    edge::{Admin, CardKey, Connections, Cors, Tls},
    identity::{Cards, Identity, Issuer},
    limits::{AgentLimits, Limits, Rate},
    push::Push,
    store::Data,
    telemetry::Telemetry,
};
use super::{Secret, fields};

/// The configuration of a Nuncio hub.
///
/// `${NAME}` in a text stands for the environment variable, `${NAME:-text}` for the text if there is none, and
/// `$${` for `${` itself. Paths are seen from the file that names them.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    /// Files to read as well; a star stands for any characters of a file's name. Agents and issuers come
    /// together from all files, any other key is in one of them.
    #[schemars(example = ["conf.d/*.toml"])]
    pub(crate) include: Vec<String>,
    /// Where callers reach the agents; port 0 takes a free one.
    pub(crate) listen: String,
    /// How callers see the hub, if not at the address where it listens.
    #[schemars(example = "https://agents.example.com")]
    pub(crate) public_url: Option<String>,
    /// This agent answers at the root, too.
    #[schemars(example = &"billing")]
    pub(crate) default_agent: Option<String>,
    /// Serve the demo agents: echo, slow and conformance.
    pub(crate) demo: bool,
    /// On loopback, host names to answer to besides our own and that of public_url. To others we do not
    /// answer: a web page could call us by them (DNS rebinding).
    #[schemars(example = ["agents.internal"])]
    pub(crate) allow_hosts: Vec<String>,
    /// Networks of proxies that are believed about how they were called (Forwarded, X-Forwarded-*). Name only
    /// networks from which nobody but your proxies can connect.
    #[schemars(example = ["10.0.0.0/8"])]
    pub(crate) trusted_proxies: Vec<String>,
    /// How many seconds running tasks may go on after the signal to stop.
    pub(crate) drain_seconds: u64,
    /// Serve cards at /.well-known/agent.json, too, where clients older than 0.3 look for them.
    pub(crate) legacy_card: bool,
    /// Administration: for this machine only, with a token.
    pub(crate) admin: Admin,
    /// TLS; without it the hub speaks plain HTTP.
    pub(crate) tls: Option<Tls>,
    /// Keys that sign cards, all of them. The public ones are served at /.well-known/jwks.json.
    pub(crate) card_keys: Vec<CardKey>,
    /// Where tasks are kept, and for how long.
    pub(crate) data: Data,
    /// What connections may do.
    pub(crate) connections: Connections,
    /// Webhooks: where notifications may go, how long they are tried, and what they look like.
    pub(crate) push: Push,
    /// Web pages that may call agents.
    pub(crate) cors: Cors,
    /// Who may call.
    pub(crate) identity: Identity,
    /// How much a caller may ask for.
    pub(crate) limits: Limits,
    /// Logs and traces.
    pub(crate) telemetry: Telemetry,
    /// The agents, by name: a to z, 0 to 9 and -, at most 63 characters.
    pub(crate) agents: BTreeMap<String, Agent>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            listen: "127.0.0.1:2602".to_owned(),
            public_url: None,
            default_agent: None,
            demo: false,
            allow_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            drain_seconds: 30,
            legacy_card: true,
            admin: Admin::default(),
            tls: None,
            card_keys: Vec::new(),
            data: Data::default(),
            connections: Connections::default(),
            push: Push::default(),
            cors: Cors::default(),
            identity: Identity::default(),
            limits: Limits::default(),
            telemetry: Telemetry::default(),
            agents: BTreeMap::new(),
        }
    }
}

/// A secret, here or in a file.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum SecretText {
    /// Here; better as `${NAME}`.
    Here(Secret),
    /// In a file.
    There(SecretFile),
}

/// The file that holds a secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretFile {
    /// The file; the end of its last line does not belong to the secret.
    pub(crate) file: String,
}

/// The keys of every table, in the order in which people read them: a schema has them by the alphabet.
pub(crate) fn orders() -> BTreeMap<&'static str, &'static [&'static str]> {
    fn of<T: DeserializeOwned>(name: &'static str) -> (&'static str, &'static [&'static str]) {
        (name, fields::of::<T>())
    }
    BTreeMap::from([
        of::<File>("File"),
        of::<Admin>("Admin"),
        of::<Tls>("Tls"),
        of::<CardKey>("CardKey"),
        of::<Data>("Data"),
        of::<Connections>("Connections"),
        of::<Push>("Push"),
        of::<Cors>("Cors"),
        of::<Identity>("Identity"),
        of::<Issuer>("Issuer"),
        of::<Limits>("Limits"),
        of::<AgentLimits>("AgentLimits"),
        of::<Rate>("Rate"),
        of::<Telemetry>("Telemetry"),
        of::<Agent>("Agent"),
        of::<AgentPush>("AgentPush"),
        of::<Auth>("Auth"),
        of::<OAuth2>("OAuth2"),
        of::<Trust>("Trust"),
        of::<SecretFile>("SecretFile"),
    ])
}
