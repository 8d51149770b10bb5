//! Webhooks: where notifications may go, how long they are tried, and what they look like.

use std::time::Duration;

pub use nuncio_server::push::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Network, Secret,
    form::{Form, Hours, List, Opt, SigningSecret, SigningSecretFile, word},
};

/// Notifications of all agents.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Push {
    /// Agents tell webhooks.
    pub enabled: bool,
    /// Callers may name webhooks on this machine and in private networks. Else they are refused: a caller could
    /// reach through us what it cannot reach itself.
    pub allow_private: bool,
    /// Networks in which callers may name webhooks, whatever they are.
    #[schemars(example = ["10.1.0.0/16"])]
    pub allow: Vec<Network>,
    /// Networks in which callers may name none, whatever else is said: public addresses that are inside of the
    /// house.
    #[schemars(example = ["203.0.113.0/24"])]
    pub deny: Vec<Network>,
    /// Webhooks are told by https only.
    pub https_only: bool,
    /// After so many hours a delivery that still fails is given up.
    #[serde(rename = "give_up_hours", with = "Hours")]
    #[schemars(range(min = 1))]
    pub give_up: Duration,
    /// Tell of artifacts piece by piece, as they are made; else once, when they are complete.
    pub chunks: bool,
    /// What webhooks get that were registered in version 0.3.
    #[serde(with = "DialectWord")]
    pub dialect: Dialect,
    /// Sign notifications with these secrets, too (Standard Webhooks: whsec_ and base64). All sign, so that one
    /// can be replaced.
    #[serde(with = "List::<SigningSecret>")]
    #[schemars(example = ["${WEBHOOK_SECRET:-whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}"])]
    pub secrets: Vec<Secret>,
    /// The same, each in a file.
    #[serde(with = "List::<SigningSecretFile>")]
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
    /// The secrets that sign, from the configuration and from files.
    pub(crate) fn signing_secrets(&self) -> Vec<Secret> {
        [&self.secrets[..], &self.secret_files].concat()
    }
}

/// What the notifications of one agent look like.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPush {
    /// Tell of artifacts piece by piece.
    #[schemars(example = true)]
    pub chunks: Option<bool>,
    /// What webhooks get that were registered in version 0.3.
    #[serde(with = "Opt::<DialectWord>")]
    #[schemars(example = &"standard")]
    pub dialect: Option<Dialect>,
    /// Sign with these secrets and not with those of all agents.
    #[serde(with = "Opt::<List<SigningSecret>>")]
    #[schemars(example = ["${BILLING_WEBHOOK_SECRET:-whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}"])]
    pub secrets: Option<Vec<Secret>>,
    /// The same, each in a file.
    #[serde(with = "Opt::<List<SigningSecretFile>>")]
    #[schemars(example = ["webhook.secret"])]
    pub secret_files: Option<Vec<Secret>>,
}

impl AgentPush {
    /// The secrets that sign instead of those of all agents, if it has its own.
    pub(crate) fn signing_secrets(&self) -> Option<Vec<Secret>> {
        let own = [&self.secrets, &self.secret_files].into_iter().flatten();
        own.cloned().reduce(|secrets, more| [secrets, more].concat())
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Dialect", rename_all = "lowercase")]
#[schemars(rename = "Dialect")]
pub(super) enum DialectWord {
    /// The bare task.
    Standard,
    /// A JSON-RPC response around the event.
    NeuralPost,
}

word!(DialectWord => Dialect);
