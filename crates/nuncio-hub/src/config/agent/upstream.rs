//! An agent that speaks A2A already, somewhere else.

use std::{path::PathBuf, time::Duration};

use http::HeaderName;
use nuncio_protocol::{Binding, FileBytes, Version};
use url::{Host, Url};

use crate::config::Secret;

/// Where it is, how it is spoken to, and how patiently.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    /// Its address, or that of its card.
    pub url: Url,
    /// Whose the tasks are.
    pub mode: Mode,
    /// Speak this version only; `None`: the best one of its card.
    pub version: Option<Version>,
    /// Speak this binding only; `None`: the best one of its card.
    pub binding: Option<Binding>,
    /// Where its card is; `None`: where cards are.
    pub card: Option<CardSource>,
    /// How often to look for a new card.
    pub card_refresh: Duration,
    /// Hosts besides those of its address and its card at which its interfaces may be.
    pub allow_hosts: Vec<Host>,
    /// What signatures of its card mean.
    pub trust: Trust,
    /// How we prove who we are.
    pub auth: Auth,
    /// Headers of callers that are passed on.
    pub forward_headers: Vec<HeaderName>,
    /// How long it may take to answer, except for a message.
    pub timeout: Duration,
    /// How long it may take to answer a message.
    pub send_timeout: Duration,
    /// A task whose agent cannot be reached for so long has failed.
    pub give_up: Duration,
    /// The most calls at a time; `None`: as many as there are.
    pub max_concurrent: Option<usize>,
    /// A message may be sent twice.
    pub idempotent: bool,
    /// How its tasks are followed.
    pub follow: Follow,
    /// How long lies between two looks at a task, at first.
    pub poll_every: Duration,
    /// Form of file content that it uses where SDKs differ.
    pub file_bytes: FileBytes,
    /// Callers with credentials may read its extended card.
    pub extended_card: bool,
}

impl Upstream {
    /// The agent at this address, and everything else as usual.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            url,
            mode: Mode::default(),
            version: None,
            binding: None,
            card: None,
            card_refresh: Duration::from_secs(300),
            allow_hosts: Vec::new(),
            trust: Trust::default(),
            auth: Auth::default(),
            forward_headers: Vec::new(),
            timeout: Duration::from_secs(30),
            // As long as a caller of ours would wait.
            send_timeout: Duration::from_secs(600),
            give_up: Duration::from_secs(24 * 60 * 60),
            max_concurrent: None,
            idempotent: false,
            follow: Follow::default(),
            poll_every: Duration::from_secs(1),
            file_bytes: FileBytes::default(),
            extended_card: false,
        }
    }
}

/// Whose the tasks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Ours: own id, own log, own webhooks.
    #[default]
    Durable,
    /// The upstream's: calls are passed on.
    Proxy,
}

/// Where a card is, if not where cards are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CardSource {
    /// At an address.
    Url(Url),
    /// In a file.
    File(PathBuf),
}

/// What signatures of a card mean.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trust {
    /// The keys that count: JWKS, JWK or PEM files. None: signatures mean nothing.
    pub keys: Vec<PathBuf>,
    /// A card without a signature is refused, too.
    pub require: bool,
}

/// How we prove who we are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Auth {
    /// What stands in `Authorization`.
    pub credential: Option<Credential>,
    /// Further headers.
    pub headers: Vec<(HeaderName, Secret)>,
    /// A certificate to show.
    pub identity: Option<ClientIdentity>,
    /// Certificate authorities to trust besides the usual ones: PEM files.
    pub authorities: Vec<PathBuf>,
}

/// What stands in `Authorization`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A token.
    Bearer(Secret),
    /// A user and a password.
    Basic { user: String, password: Secret },
    /// A token that is asked for when it is needed.
    OAuth2(OAuth2),
}

/// Access tokens by OAuth 2.0 client credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OAuth2 {
    /// Where tokens are made.
    pub token_url: Url,
    /// Who we are there.
    pub client_id: String,
    /// How we prove it there.
    pub client_secret: Secret,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// The audience to ask for.
    pub audience: Option<String>,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// How tasks are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Follow {
    /// As well as the agent can.
    #[default]
    Auto,
    /// By streams.
    Stream,
    /// By looking at them again and again.
    Poll,
    /// By a call that answers when the task is done.
    Block,
}
