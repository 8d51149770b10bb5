//! Webhooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{self, Secret};

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Push {
    /// Agents tell webhooks.
    pub(crate) enabled: bool,
    /// Callers may name webhooks on this machine and in private networks. Else they are refused: a caller could
    /// reach through us what it cannot reach itself.
    pub(crate) allow_private: bool,
    /// Networks in which callers may name webhooks, whatever they are.
    #[schemars(example = ["10.1.0.0/16"])]
    pub(crate) allow: Vec<String>,
    /// Networks in which callers may name none, whatever else is said: public addresses that are inside of the
    /// house.
    #[schemars(example = ["203.0.113.0/24"])]
    pub(crate) deny: Vec<String>,
    /// Webhooks are told by https only.
    pub(crate) https_only: bool,
    /// After so many hours a delivery that still fails is given up.
    #[schemars(range(min = 1))]
    pub(crate) give_up_hours: u32,
    /// Tell of artifacts piece by piece, as they are made; else once, when they are complete.
    pub(crate) chunks: bool,
    /// What webhooks get that were registered in version 0.3.
    pub(crate) dialect: Dialect,
    /// Sign notifications with these secrets, too (Standard Webhooks: whsec_ and base64). All sign, so that one
    /// can be replaced.
    #[schemars(example = ["${WEBHOOK_SECRET:-whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}"])]
    pub(crate) secrets: Vec<Secret>,
    /// The same, each in a file.
    #[schemars(example = ["webhook.secret"])]
    pub(crate) secret_files: Vec<String>,
}

impl Default for Push {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_private: false,
            allow: Vec::new(),
            deny: Vec::new(),
            https_only: false,
            give_up_hours: 24,
            chunks: false,
            dialect: Dialect::Standard,
            secrets: Vec::new(),
            secret_files: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dialect {
    /// The bare task.
    Standard,
    /// A JSON-RPC response around the event.
    Neuralpost,
}

impl From<Dialect> for config::Dialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Standard => Self::Standard,
            Dialect::Neuralpost => Self::NeuralPost,
        }
    }
}
