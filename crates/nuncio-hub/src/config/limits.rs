//! Limits of callers and agents.

use nuncio_server::{Limits as RuntimeLimits, bind::BindOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// Limits of each caller, and of requests and tasks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory limit of the hub in bytes: near it, large requests are refused with 429 and small ones are
    /// served. Default: three quarters of the memory of the container or the machine.
    #[schemars(example = 536870912, range(min = 67108864))]
    pub memory_limit_bytes: Option<usize>,
    /// Maximum size of a request in bytes.
    #[schemars(range(min = 1))]
    pub body_bytes: usize,
    /// Maximum number of parts of a message.
    #[schemars(range(min = 1))]
    pub parts: usize,
    /// Maximum size of a task in bytes: all messages, artifacts and statuses, replaced versions included. A
    /// task that grows beyond it is stopped and fails.
    #[schemars(range(min = 1))]
    pub max_task_bytes: usize,
    /// Request rate of a caller; default: unlimited.
    #[schemars(example = EXAMPLE_RATE)]
    pub rate: Option<Rate>,
    /// Sends of a caller in progress; default: unlimited.
    #[schemars(example = 100, range(min = 1))]
    pub tasks: Option<u32>,
    /// Open streams of a caller; default: unlimited.
    #[schemars(example = 100, range(min = 1))]
    pub streams: Option<u32>,
    /// Unfinished tasks of a caller, in the background as well; default: unlimited.
    #[schemars(example = 1000, range(min = 1))]
    pub unfinished_tasks: Option<u32>,
    /// Tokens that models may use for a caller in a day (UTC), over all agents and hubs; default: unlimited.
    #[schemars(example = 1000000, range(min = 1))]
    pub tokens_per_day: Option<u64>,
    /// Percent of an agent's executions, processes and calls that one caller may hold while others want them;
    /// 0: all.
    #[schemars(range(max = 100))]
    pub caller_share_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_limit_bytes: None,
            body_bytes: BindOptions::default().body_bytes,
            parts: RuntimeLimits::default().parts,
            max_task_bytes: RuntimeLimits::default().max_task_bytes,
            rate: None,
            tasks: None,
            streams: None,
            unfinished_tasks: None,
            tokens_per_day: None,
            caller_share_percent: 25,
        }
    }
}

/// Limits of one agent: for all callers together, and for the size of a message.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Maximum size of a request in bytes; default: as for all agents.
    #[schemars(example = 1048576, range(min = 1))]
    pub body_bytes: Option<usize>,
    /// Maximum number of parts of a message; default: as for all agents.
    #[schemars(example = 10, range(min = 1))]
    pub parts: Option<usize>,
    /// Maximum size of a task in bytes; default: as for all agents.
    #[schemars(example = 16777216, range(min = 1))]
    pub max_task_bytes: Option<usize>,
    /// Request rate; default: unlimited.
    #[schemars(example = EXAMPLE_RATE)]
    pub rate: Option<Rate>,
    /// Sends in progress; default: unlimited.
    #[schemars(example = 10, range(min = 1))]
    pub tasks: Option<u32>,
    /// Open streams; default: unlimited.
    #[schemars(example = 100, range(min = 1))]
    pub streams: Option<u32>,
    /// Tokens that its model may use in a day (UTC), for all callers and over all hubs; default: unlimited.
    #[schemars(example = 1000000, range(min = 1))]
    pub tokens_per_day: Option<u64>,
}

/// A rate limit: requests per second, and a burst.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Requests per second in the long run; may be less than one.
    #[serde(deserialize_with = "per_second")]
    #[schemars(example = 20)]
    pub per_second: f64,
    /// Requests at once after a pause; default: one second's worth.
    #[schemars(example = 40, range(min = 1))]
    pub burst: Option<u32>,
}

const EXAMPLE_RATE: Rate = Rate { per_second: 20.0, burst: Some(40) };

impl Rate {
    /// Requests at once after a pause.
    #[must_use]
    pub fn burst(&self) -> u32 {
        // A float is converted to the nearest integer in range.
        self.burst.unwrap_or(self.per_second.ceil().max(1.0) as u32)
    }
}

/// Refuses a rate below one request a day or above a million a second.
fn per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    if (1.0 / 86_400.0..=1_000_000.0).contains(&rate) {
        return Ok(rate);
    }
    Err(D::Error::custom("expected more than 0, and at most 1000000"))
}
