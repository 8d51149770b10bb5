//! Mailboxes: `mailbox`. An agent without an address, whose messages wait for its workers.

use std::time::Duration;

use nuncio_protocol::Version;
use nuncio_server::push::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Agent, AgentKind, kinds::KindKeys};
use crate::config::form::{Form, Hours, HttpUrl, Opt, Seconds};

/// The keys of an agent that is a mailbox.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MailboxKeys {
    /// A mailbox: messages wait for workers that fetch them by the pull API. Its settings; {} for the defaults.
    mailbox: Mailbox,
}

impl KindKeys for MailboxKeys {
    const KEY: &'static str = "mailbox";
    const EXAMPLE: &'static str = "laptop";

    fn into_kind(self, _: &Agent) -> Result<AgentKind, String> {
        Ok(AgentKind::Mailbox(Box::new(self.mailbox)))
    }
}

/// A mailbox: for how long a message waits, and for how long a worker holds it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mailbox {
    /// Hours for which a message waits for a worker; then its task fails.
    #[serde(rename = "wait_hours", with = "Hours")]
    #[schemars(range(min = 1, max = 8760))]
    pub wait: Duration,
    /// Seconds after which a worker that gave no sign loses its lease.
    #[serde(rename = "lease_seconds", with = "Seconds")]
    #[schemars(range(min = 2, max = 86400))]
    pub lease: Duration,
    /// Number of times that a message is offered; then its task fails and is listed as poison.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u32,
    /// Maximum number of messages that wait or are held by workers; more are refused.
    #[schemars(with = "u32", range(min = 1, max = 10000000))]
    pub max_waiting: usize,
    /// Offer a message again whose worker was lost after it had begun. Without it, only a message whose worker
    /// left a memo is offered again, and the task of any other fails.
    pub redeliver: bool,
    /// context: tasks of one conversation are handed out one at a time. none: at the same time.
    pub serial: Serial,
    /// The webhook of the agent: the hub posts each message to this address, as soon as it may be handed out.
    #[serde(with = "Opt::<HttpUrl>")]
    #[schemars(example = &"https://agents.example.com/hook")]
    pub deliver_to: Option<Url>,
    /// Format of what is posted: the task in 1.0, in 0.3, or in the JSON-RPC envelope of NeuralPost.
    pub deliver_as: DeliverAs,
    /// Hours that a webhook which has answered 202 has for its next line.
    #[serde(rename = "answer_hours", with = "Hours")]
    #[schemars(range(min = 1, max = 8760))]
    pub answer: Duration,
    /// Post only where callers may register webhooks (`[push]`). On for mailboxes of invitations, whose address is not
    /// the operator's choice.
    pub guarded: bool,
}

/// The format of a message that is posted to a webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeliverAs {
    // A response of a stream, with the task.
    #[default]
    #[serde(rename = "1.0")]
    V1,
    // The bare task.
    #[serde(rename = "0.3")]
    V03,
    // The task as the result of a JSON-RPC response.
    #[serde(rename = "neuralpost")]
    NeuralPost,
}

impl DeliverAs {
    /// The version of the task, and the dialect around it.
    pub(crate) fn format(self) -> (Version, Dialect) {
        match self {
            Self::V1 => (Version::V1_0, Dialect::Standard),
            Self::V03 => (Version::V0_3, Dialect::Standard),
            Self::NeuralPost => (Version::V0_3, Dialect::NeuralPost),
        }
    }
}

/// The order of tasks of one conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Serial {
    // One at a time.
    #[default]
    Context,
    // At the same time.
    None,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(24 * 60 * 60),
            lease: Duration::from_secs(60),
            max_attempts: 3,
            max_waiting: 10_000,
            redeliver: false,
            serial: Serial::default(),
            deliver_to: None,
            deliver_as: DeliverAs::default(),
            answer: Duration::from_secs(24 * 60 * 60),
            guarded: false,
        }
    }
}
