//! What the hub is to do: settings are what is meant, `raw` is what may be written.
//!
//! Reading order: this file has the settings, with a file for each part that has several; `validate` says what
//! does not go together. `raw` has the keys of `nuncio.toml`; `file` reads them: from texts to a tree whose every
//! value knows where it comes from, checked by the schema. `read` makes settings of it. `source` puts flags,
//! variables, files and defaults on top of each other, `added` reads what the admin API is given, `changes`
//! compares two outcomes, and `dropped` says what a file may not lose while the hub runs.

mod added;
mod agent;
mod changes;
mod cors;
mod data;
mod dropped;
mod fields;
pub(crate) mod file;
mod identity;
mod limits;
mod network;
mod push;
pub(crate) mod raw;
mod read;
mod secret;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod validate;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use url::{Host, Url};

pub(crate) use self::validate::NO_AGENT;
pub(crate) use self::{added::added, dropped::dropped};
pub use self::{
    agent::{
        Agent, AgentKind, AgentName, AgentOrigin, AgentPush, Auth, CardSource, ClientIdentity, Command,
        Credential, Demo, Environment, Follow, Format, Mode, OAuth2, Trust, Upstream,
    },
    changes::{AgentChanges, Changes, changes},
    cors::WebOrigin,
    data::{Data, DatabaseUrl, Durability, KEEP_FINISHED},
    file::{Origin, Problem, Problems, Severity, init, schema, show},
    identity::{Algorithm, Anonymous, Cards, Identity, Issuer},
    limits::{AgentLimits, Limits, Rate},
    network::Network,
    push::{Dialect, Push},
    secret::Secret,
    source::{Given, Loaded, Source, Told, Variables, agent_spec, fuzz_config},
    telemetry::{LogFormat, Telemetry},
    validate::Invalid,
};
use crate::agents::Profile;

/// What the hub is to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Where callers reach us; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where whoever administers us reaches us; `None`: nowhere.
    pub admin: Option<Admin>,
    /// Speak TLS with these; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// How callers see us, if not at the address we listen on.
    pub public_url: Option<Url>,
    /// Names to answer to on loopback, besides our own and that of the public address.
    pub allowed_hosts: Vec<Host>,
    /// Who may say how callers see us. Whoever else sends such headers is not believed.
    pub trusted_proxies: Vec<Network>,
    /// The keys that cards are signed with, all of them. None: cards are not signed. Behind proxies they
    /// need a public address: what is signed is not for proxies to say.
    pub card_keys: Vec<CardKey>,
    /// Serve cards also where old clients look for them.
    pub legacy_card: bool,
    /// Where tasks are kept.
    pub data: Data,
    /// How long finished tasks are kept; `None`: for ever, or until memory is full.
    pub keep: Option<Duration>,
    /// The key from which the hub makes its others; `None`: beside the data. A database needs one.
    pub key_file: Option<PathBuf>,
    /// Webhooks; `None`: no agent has any.
    pub push: Option<Push>,
    /// Serves the demo agents.
    pub demo: bool,
    /// How the demo's conformance agent behaves for a test kit; `None`: for people.
    pub profile: Option<Profile>,
    /// Agents besides those of the demo.
    pub agents: Vec<Agent>,
    /// This agent answers at the root, too.
    pub default_agent: Option<String>,
    /// Who may call.
    pub identity: Identity,
    /// How much callers may ask for.
    pub limits: Limits,
    /// Web pages that may call.
    pub cors: Vec<WebOrigin>,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// How long running tasks may go on after the signal to stop.
    pub drain_grace: Duration,
    /// What connections may do.
    pub connections: Connections,
}

/// Where whoever administers the hub reaches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// On this machine; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the token is written to; `None`: where the commands of this user look for it.
    pub token_file: Option<PathBuf>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, and those between it and its root.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A private key that signs cards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardKey {
    /// A PKCS#8 PEM.
    pub file: PathBuf,
    /// How verifiers find the public key; `None`: by its thumbprint (RFC 7638).
    pub kid: Option<String>,
}

/// What connections may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// The most at a time.
    pub most: usize,
    /// The most at a time of one address, unless it is this machine's or a trusted proxy's; `None`: no limit.
    pub most_per_address: Option<usize>,
    /// The most requests at a time on one connection of HTTP/2.
    pub streams: u32,
    /// How long a handshake of TLS may take, and how long the head of a request, from its first byte.
    pub head_timeout: Duration,
    /// How long one may stay open with nothing to answer.
    pub idle_timeout: Duration,
    /// How long a caller may take nothing of what we have for it. With nothing to say we wait for ever.
    pub write_timeout: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            // More than the usual limit of open files allows: the system's limit then decides.
            most: 100_000,
            // Enough for an office behind one address, and for a client that opens one for each of many calls.
            most_per_address: Some(1000),
            // A proxy puts the streams of many callers on one connection. Each may hold a whole body while it
            // comes in: the window that they share is given back as bodies are read, and bounds no memory.
            streams: 250,
            head_timeout: Duration::from_secs(30),
            // Longer than proxies and clients usually keep one (60 and 90 seconds): whoever may send next
            // should be the one to close, or requests meet a connection that has just gone.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
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
    /// A hub at this address with no agent yet, and everything else as usual.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            admin: None,
            tls: None,
            public_url: None,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            card_keys: Vec::new(),
            legacy_card: true,
            data: Data::Memory { keep_finished: KEEP_FINISHED },
            keep: None,
            key_file: None,
            push: None,
            demo: false,
            profile: None,
            agents: Vec::new(),
            default_agent: None,
            identity: Identity::default(),
            limits: Limits::default(),
            cors: Vec::new(),
            telemetry: Telemetry::default(),
            drain_grace: Duration::from_secs(30),
            connections: Connections::default(),
        }
    }

    /// How an address of ours begins, unless somebody stands before us.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
