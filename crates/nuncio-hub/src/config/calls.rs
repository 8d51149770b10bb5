//! Calls: how they are taken (contradiction C-65), and how long their callers and agents may take.

use std::time::Duration;

use nuncio_server::{Limits as RuntimeLimits, bind::BindOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{Form, Opt, Seconds, SecondsOrNever};

/// How calls of all agents are taken.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Calls {
    /// Take calls by a method or a path that only version 1.0 has, although their callers send no A2A-Version, which
    /// means 0.3. Otherwise they are refused.
    pub lenient_version: bool,
    /// Requests in a JSON-RPC batch, none of which may stream; 0: batches are refused.
    #[schemars(range(max = 1000))]
    pub batch: usize,
    /// How many seconds a send waits for its task before it is answered with the task as it is.
    #[serde(rename = "blocking_ceiling_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub blocking_ceiling: Duration,
    /// How many seconds an agent may work on a task without a sign of life before the task fails; 0: as long as it
    /// likes.
    #[serde(rename = "watchdog_seconds", with = "SecondsOrNever")]
    pub watchdog: Option<Duration>,
    /// Cancel a task when the connection of the caller that waits for it closes, and nobody else follows the task.
    /// Otherwise tasks go on, and callers come back.
    pub cancel_on_disconnect: bool,
    /// Take a message for a repeat if its caller has used its messageId before, as under an Idempotency-Key. One with
    /// other content is refused: some clients reuse ids.
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

/// How calls of one agent are taken, if not as those of all agents.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentCalls {
    /// Take calls of version 1.0 that do not say their version.
    #[schemars(example = true)]
    pub lenient_version: Option<bool>,
    /// Requests in a JSON-RPC batch; 0: batches are refused.
    #[schemars(example = 10, range(max = 1000))]
    pub batch: Option<usize>,
    /// How many seconds a send waits for its task.
    #[serde(rename = "blocking_ceiling_seconds", with = "Opt::<Seconds>")]
    #[schemars(example = 60, range(min = 1))]
    pub blocking_ceiling: Option<Duration>,
    /// How many seconds the agent may work on a task without a sign of life; 0: as long as it likes.
    #[serde(rename = "watchdog_seconds", with = "Opt::<SecondsOrNever>")]
    #[schemars(example = 300)]
    pub watchdog: Option<Option<Duration>>,
    /// Cancel a task when the connection of the caller that waits for it closes.
    #[schemars(example = true)]
    pub cancel_on_disconnect: Option<bool>,
    /// Take a message for a repeat if its caller has used its messageId before.
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
