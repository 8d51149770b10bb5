//! Webhooks: allowed networks, retries and format of notifications.

use std::time::Duration;

pub use nuncio_server::push::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Network, Secret,
    form::{Form, Hours, Opt, SigningSecret, SigningSecretFile, ValueList, word},
};

/// Webhooks of all agents.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Push {
    /// Send notifications to webhooks.
    pub enabled: bool,
    /// Callers may register webhooks on this machine and in private networks. Otherwise these are refused: a
    /// caller could use the hub to reach hosts that it cannot reach itself.
    pub allow_private: bool,
    /// Networks in which webhooks are allowed, private ones included.
    #[schemars(example = ["10.1.0.0/16"])]
    pub allow: Vec<Network>,
    /// Networks in which webhooks are refused, whatever else is allowed: for public addresses that are
    /// internal.
    #[schemars(example = ["203.0.113.0/24"])]
    pub deny: Vec<Network>,
    /// Webhooks must use https.
    pub https_only: bool,
    /// Hours after which a failing delivery is given up.
    #[serde(rename = "give_up_hours", with = "Hours")]
    #[schemars(range(min = 1))]
    pub give_up: Duration,
    /// Notify of artifacts piece by piece, as they are produced; otherwise once, when they are complete.
    pub chunks: bool,
    /// Payload for webhooks that were registered in version 0.3.
    #[serde(with = "DialectWord")]
    pub dialect: Dialect,
    /// Also sign notifications with these secrets (Standard Webhooks: whsec_ and base64). All of them sign,
    /// so that one can be replaced.
    #[serde(with = "ValueList::<SigningSecret>")]
    #[schemars(example = ["${WEBHOOK_SECRET}"])]
    pub secrets: Vec<Secret>,
    /// Files with such secrets, one in each.
    #[serde(with = "ValueList::<SigningSecretFile>")]
    #[schemars(example = ["webhook.secret"])]
    pub secret_files: Vec<Secret>,
}

impl Default for Push {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_private: false,
            allow: Vec::new(),
            deny: Vec::new(),
            https_only: false,
            give_up: Duration::from_secs(24 * 60 * 60),
            chunks: false,
            dialect: Dialect::default(),
            secrets: Vec::new(),
            secret_files: Vec::new(),
        }
    }
}

impl Push {
    /// The signing secrets, from the configuration and from files.
    pub(crate) fn signing_secrets(&self) -> Vec<Secret> {
        [&self.secrets[..], &self.secret_files].concat()
    }
}

/// Format of the notifications of one agent.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPush {
    /// Notify of artifacts piece by piece.
    #[schemars(example = true)]
    pub chunks: Option<bool>,
    /// Payload for webhooks that were registered in version 0.3.
    #[serde(with = "Opt::<DialectWord>")]
    #[schemars(example = &"standard")]
    pub dialect: Option<Dialect>,
    /// Sign with these secrets instead of those for all agents.
    #[serde(with = "Opt::<ValueList<SigningSecret>>")]
    #[schemars(example = ["${BILLING_WEBHOOK_SECRET}"])]
    pub secrets: Option<Vec<Secret>>,
    /// Files with such secrets, one in each.
    #[serde(with = "Opt::<ValueList<SigningSecretFile>>")]
    #[schemars(example = ["webhook.secret"])]
    pub secret_files: Option<Vec<Secret>>,
}

impl AgentPush {
    /// The agent's own signing secrets, if it has any.
    pub(crate) fn signing_secrets(&self) -> Option<Vec<Secret>> {
        let own = [&self.secrets, &self.secret_files].into_iter().flatten();
        own.cloned().reduce(|secrets, more| [secrets, more].concat())
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Dialect", rename_all = "lowercase")]
#[schemars(rename = "Dialect")]
pub(super) enum DialectWord {
    /// The task alone.
    Standard,
    /// A JSON-RPC response around the event.
    NeuralPost,
}

word!(DialectWord => Dialect);
