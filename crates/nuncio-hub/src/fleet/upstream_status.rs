//! The status of an agent whose work is done elsewhere: its health, and what it says of itself.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{Binding, Timestamp, Version};
use serde_json::Value;

use super::Agent;

/// The agent behind an agent, as administration, metrics and readiness see it.
///
/// The kind that sets one gets it back by downcasting it to its own type, for the routes that are its own.
#[async_trait]
pub(crate) trait UpstreamStatus: Any + Send + Sync {
    /// Its health, as its last answer showed it.
    fn health(&self) -> Arc<Health>;

    /// Its address, without credentials.
    fn url(&self) -> String;

    /// Its card as it came; `None` before there was one.
    fn card(&self) -> Option<Value>;

    /// The version and the binding that calls to it use; `None` before its card has said so.
    fn speaks(&self) -> Option<(Version, Binding)>;

    /// Fetches its card now, and has the agent before it show what is new.
    ///
    /// # Errors
    /// The reason why there is none, for whoever runs the hub.
    async fn refresh(&self, before: &Agent) -> Result<(), String>;
}

/// A condition, and since when it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
}

/// Whether an agent answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// No call has been made yet.
    Unknown,
    /// It answers.
    Up,
    /// It answers, but not as it should, for this reason.
    Degraded(String),
    /// It does not answer, for this reason.
    Down(String),
}

impl Condition {
    /// The condition in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Degraded(_) => "degraded",
            Self::Down(_) => "down",
        }
    }

    /// The reason, where there is one.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Up => None,
            Self::Degraded(reason) | Self::Down(reason) => Some(reason),
        }
    }
}
