//! How much a caller may ask for, in all and of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// Bytes of memory that the hub may use: near it, large requests are refused with 429 and small ones are served.
    /// Three quarters of the container's or the machine's memory when absent.
    #[schemars(example = 536870912, range(min = 67108864))]
    pub(crate) memory_limit_bytes: Option<usize>,
    /// Bytes of a request.
    #[schemars(range(min = 1))]
    pub(crate) body_bytes: usize,
    /// Parts of a message.
    #[schemars(range(min = 1))]
    pub(crate) parts: usize,
    /// Bytes of a task: all that was said and made, replaced versions included. A task that grows beyond is stopped
    /// and ends as failed.
    #[schemars(range(min = 1))]
    pub(crate) max_task_bytes: usize,
    /// Requests of a caller; as many as it likes when absent.
    #[schemars(example = Rate { per_second: 20.0, burst: Some(40) })]
    pub(crate) rate: Option<Rate>,
    /// Tasks of a caller at a time; as many as it likes when absent.
    #[schemars(example = 100, range(min = 1))]
    pub(crate) tasks: Option<u32>,
    /// Streams of a caller at a time; as many as it likes when absent.
    #[schemars(example = 100, range(min = 1))]
    pub(crate) streams: Option<u32>,
    /// Tasks of a caller that the hub works on at a time, in the background as well; as many as it likes when absent.
    #[schemars(example = 1000, range(min = 1))]
    pub(crate) unfinished_tasks: Option<u32>,
    /// Percent of an agent's executions, processes and calls that one caller may hold while others want them; 0: all.
    #[schemars(range(max = 100))]
    pub(crate) caller_share_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let usual = config::Limits::default();
        Self {
            memory_limit_bytes: None,
            body_bytes: usual.body_bytes,
            parts: usual.parts,
            max_task_bytes: usual.max_task_bytes,
            rate: None,
            tasks: None,
            streams: None,
            unfinished_tasks: None,
            caller_share_percent: usual.caller_share_percent,
        }
    }
}

/// What all callers together may ask of one agent, and how large a message for it may be.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentLimits {
    /// Bytes of a request; as for all agents when absent.
    #[schemars(example = 1048576, range(min = 1))]
    pub(crate) body_bytes: Option<usize>,
    /// Parts of a message; as for all agents when absent.
    #[schemars(example = 10, range(min = 1))]
    pub(crate) parts: Option<usize>,
    /// Bytes of a task; as for all agents when absent.
    #[schemars(example = 16777216, range(min = 1))]
    pub(crate) max_task_bytes: Option<usize>,
    /// Requests; as many as they like when absent.
    #[schemars(example = Rate { per_second: 20.0, burst: Some(40) })]
    pub(crate) rate: Option<Rate>,
    /// Tasks at a time; as many as they like when absent.
    #[schemars(example = 10, range(min = 1))]
    pub(crate) tasks: Option<u32>,
    /// Streams at a time; as many as they like when absent.
    #[schemars(example = 100, range(min = 1))]
    pub(crate) streams: Option<u32>,
}

/// So many requests a second, and so many at once.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    /// Requests a second in the long run; less than one is possible.
    #[schemars(example = 20)]
    pub(crate) per_second: f64,
    /// Requests at once after a rest; one second's worth when absent.
    #[schemars(example = 40, range(min = 1))]
    pub(crate) burst: Option<u32>,
}
