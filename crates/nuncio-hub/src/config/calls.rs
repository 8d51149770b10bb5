//! Rules of calls: accepted versions and batches (contradiction C-65), timeouts, disconnects and repeats.

use std::time::Duration;

use nuncio_server::{Limits as RuntimeLimits, bind::BindOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{Form, Opt, Seconds, SecondsOrNever};

/// Rules of calls to all agents.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Calls {
    /// Accept calls without an A2A-Version, which means 0.3, if only version 1.0 has their method or path. Otherwise they
    /// are refused.
    pub lenient_version: bool,
    /// Maximum number of requests in a JSON-RPC batch, none of which may stream; 0: batches are refused.
    #[schemars(range(max = 1000))]
    pub batch: usize,
    /// Maximum time that a send waits for its task, in seconds; then it is answered with the task as it is.
    #[serde(rename = "blocking_ceiling_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub blocking_ceiling: Duration,
    /// Maximum time without an event of the agent, in seconds, after which the task fails; 0: no limit.
    #[serde(rename = "watchdog_seconds", with = "SecondsOrNever")]
    pub watchdog: Option<Duration>,
    /// Cancel a task when the connection of the caller that waits for it closes and no other caller follows the task.
    /// Otherwise the task continues, and the caller can reconnect.
    pub cancel_on_disconnect: bool,
    /// Treat a message as a repeat if its caller has used its messageId before, as under an Idempotency-Key. A message
    /// with other content is refused, because some clients reuse ids.
    pub dedupe_message_id: bool,
}

impl Default for Calls {
    fn default() -> Self {
        let (binding, runtime) = (BindOptions::default(), RuntimeLimits::default());
        Self {
            lenient_version: binding.lenient_version,
            batch: binding.batch,
            blocking_ceiling: runtime.blocking_ceiling,
            watchdog: runtime.silence,
            cancel_on_disconnect: false,
            dedupe_message_id: false,
        }
    }
}

/// Rules of calls to one agent, in place of those of all agents.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentCalls {
    /// Accept calls of version 1.0 without an A2A-Version.
    #[schemars(example = true)]
    pub lenient_version: Option<bool>,
    /// Maximum number of requests in a JSON-RPC batch; 0: batches are refused.
    #[schemars(example = 10, range(max = 1000))]
    pub batch: Option<usize>,
    /// Maximum time that a send waits for its task, in seconds.
    #[serde(rename = "blocking_ceiling_seconds", with = "Opt::<Seconds>")]
    #[schemars(example = 60, range(min = 1))]
    pub blocking_ceiling: Option<Duration>,
    /// Maximum time without an event of the agent, in seconds; 0: no limit.
    #[serde(rename = "watchdog_seconds", with = "Opt::<SecondsOrNever>")]
    #[schemars(example = 300)]
    pub watchdog: Option<Option<Duration>>,
    /// Cancel a task when the connection of the caller that waits for it closes.
    #[schemars(example = true)]
    pub cancel_on_disconnect: Option<bool>,
    /// Treat a message as a repeat if its caller has used its messageId before.
    #[schemars(example = true)]
    pub dedupe_message_id: Option<bool>,
}

impl AgentCalls {
    /// Keys that are about tasks, and so have no effect where the hub keeps none.
    pub(super) const OF_TASKS: [&str; 4] =
        ["blocking_ceiling_seconds", "watchdog_seconds", "cancel_on_disconnect", "dedupe_message_id"];

    /// The settings of an agent, given those of all.
    pub(crate) fn over(&self, all: &Calls) -> Calls {
        Calls {
            lenient_version: self.lenient_version.unwrap_or(all.lenient_version),
            batch: self.batch.unwrap_or(all.batch),
            blocking_ceiling: self.blocking_ceiling.unwrap_or(all.blocking_ceiling),
            watchdog: self.watchdog.unwrap_or(all.watchdog),
            cancel_on_disconnect: self.cancel_on_disconnect.unwrap_or(all.cancel_on_disconnect),
            dedupe_message_id: self.dedupe_message_id.unwrap_or(all.dedupe_message_id),
        }
    }
}
