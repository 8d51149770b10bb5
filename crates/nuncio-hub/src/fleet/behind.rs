//! What stands behind an agent whose work is done elsewhere: how it is, and what it says of itself.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Binding, Timestamp, Version};
use serde_json::Value;

use super::Agent;

/// The agent behind an agent.
#[async_trait]
pub(crate) trait Behind: Send + Sync {
    /// How it was when it was last heard of.
    fn health(&self) -> Arc<Health>;

    /// Its card as it came; `None` before there was one.
    fn card(&self) -> Option<Value>;

    /// How it is spoken to; `None` before its card has said so.
    fn speaks(&self) -> Option<(Version, Binding)>;

    /// Looks for its card now, and has the agent before it show what is new.
    ///
    /// # Errors
    /// Why there is none, for whoever runs the hub.
    async fn refresh(&self, before: &Agent) -> Result<(), String>;
}

/// How an agent is, and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
}

/// How an agent is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Nobody has asked yet.
    Unknown,
    /// It answers.
    Up,
    /// It answers, but not as it should, for this reason.
    Degraded(String),
    /// It does not answer, for this reason.
    Down(String),
}

impl Condition {
    /// In a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Degraded(_) => "degraded",
            Self::Down(_) => "down",
        }
    }

    /// Why it is so.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Up => None,
            Self::Degraded(reason) | Self::Down(reason) => Some(reason),
        }
    }
}
