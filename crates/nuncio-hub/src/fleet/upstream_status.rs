//! The status of a remote agent: its health and its card.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use nuncio_client::{Credentials, Egress, InterfaceHosts};
use nuncio_protocol::{Binding, Timestamp, Version};
use serde_json::Value;
use url::Url;

use super::ServedAgent;

/// The upstream of an agent, as administration, metrics and readiness see it.
///
/// A kind can downcast it to its own type, for its own routes.
#[async_trait]
pub(crate) trait UpstreamStatus: Any + Send + Sync {
    /// The health that the last answer showed.
    fn health(&self) -> Arc<Health>;

    /// The URL without credentials.
    fn url(&self) -> String;

    /// The upstream card, unchanged; `None` if none was fetched yet.
    fn card(&self) -> Option<Value>;

    /// The upstream card for callers: only if the operator shows it, because it contains the address of the
    /// agent.
    fn card_for_callers(&self) -> Option<Value> {
        None
    }

    /// The version and binding of calls to it; `None` before its card is known.
    fn speaks(&self) -> Option<(Version, Binding)>;

    /// True if the agent recognises a message that is sent again under its `Idempotency-Key`, or is configured as
    /// idempotent.
    fn may_repeat(&self) -> bool {
        false
    }

    /// The means to call it directly, for an upstream that speaks A2A.
    fn access(&self) -> Option<UpstreamAccess> {
        None
    }

    /// Fetches the card now, and updates the card that `before`, the agent on this hub, shows.
    ///
    /// # Errors
    /// The reason why there is no card, for the operator.
    async fn refresh(&self, before: &ServedAgent) -> Result<(), String>;
}

/// The means to call a remote agent directly, as the hub does.
pub(crate) struct UpstreamAccess {
    /// The address of the agent or of its card.
    pub(crate) url: Url,
    pub(crate) egress: Egress,
    pub(crate) credentials: Credentials,
    /// The hosts that the operator allows for its interfaces.
    pub(crate) hosts: InterfaceHosts,
}

/// A condition and the time of its beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
}

/// The condition of an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// No call has been made yet.
    Unknown,
    /// It answers.
    Up,
    /// It answers with errors, for this reason.
    Degraded(String),
    /// It does not answer, for this reason.
    Down(String),
}

impl Condition {
    /// The name of the condition.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Degraded(_) => "degraded",
            Self::Down(_) => "down",
        }
    }

    /// The reason of a bad condition.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Up => None,
            Self::Degraded(reason) | Self::Down(reason) => Some(reason),
        }
    }
}
