//! Limits: how much callers may ask for.

use nuncio_server::{Limits as RuntimeLimits, bind::BindOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// What each caller may ask for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory limit of the hub in bytes: near it, large requests are refused with 429 and small ones are served.
    /// Three quarters of the container's or the machine's memory when absent.
    #[schemars(example = 536870912, range(min = 67108864))]
    pub memory_limit_bytes: Option<usize>,
    /// Bytes of a request.
    #[schemars(range(min = 1))]
    pub body_bytes: usize,
    /// Parts of a message.
    #[schemars(range(min = 1))]
    pub parts: usize,
    /// Bytes of a task: all that was said and made, replaced versions included. A task that grows beyond is stopped
    /// and ends as failed.
    #[schemars(range(min = 1))]
    pub max_task_bytes: usize,
    /// Requests of a caller; as many as it likes when absent.
    #[schemars(example = EXAMPLE_RATE)]
    pub rate: Option<Rate>,
    /// Tasks of a caller at a time; as many as it likes when absent.
    #[schemars(example = 100, range(min = 1))]
    pub tasks: Option<u32>,
    /// Streams of a caller at a time; as many as it likes when absent.
    #[schemars(example = 100, range(min = 1))]
    pub streams: Option<u32>,
    /// Tasks of a caller that the hub works on at a time, in the background as well; as many as it likes when absent.
    #[schemars(example = 1000, range(min = 1))]
    pub unfinished_tasks: Option<u32>,
    /// Percent of an agent's executions, processes and calls that one caller may hold while others want them; 0: all.
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
            caller_share_percent: 25,
        }
    }
}

/// What all callers together may ask of one agent, and how large a message for it may be.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentLimits {
    /// Bytes of a request; as for all agents when absent.
    #[schemars(example = 1048576, range(min = 1))]
    pub body_bytes: Option<usize>,
    /// Parts of a message; as for all agents when absent.
    #[schemars(example = 10, range(min = 1))]
    pub parts: Option<usize>,
    /// Bytes of a task; as for all agents when absent.
    #[schemars(example = 16777216, range(min = 1))]
    pub max_task_bytes: Option<usize>,
    /// Requests; as many as they like when absent.
    #[schemars(example = EXAMPLE_RATE)]
    pub rate: Option<Rate>,
    /// Tasks at a time; as many as they like when absent.
    #[schemars(example = 10, range(min = 1))]
    pub tasks: Option<u32>,
    /// Streams at a time; as many as they like when absent.
    #[schemars(example = 100, range(min = 1))]
    pub streams: Option<u32>,
}

/// So many requests a second, and so many at once.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Requests a second in the long run; less than one is possible.
    #[serde(deserialize_with = "per_second")]
    #[schemars(example = 20)]
    pub per_second: f64,
    /// Requests at once after a rest; one second's worth when absent.
    #[schemars(example = 40, range(min = 1))]
    pub burst: Option<u32>,
}

const EXAMPLE_RATE: Rate = Rate { per_second: 20.0, burst: Some(40) };

impl Rate {
    /// Requests at once after a rest.
    #[must_use]
    pub fn burst(&self) -> u32 {
        // A float becomes the nearest number there is.
        self.burst.unwrap_or(self.per_second.ceil().max(1.0) as u32)
    }
}

/// Refuses a rate that never or always lets requests pass: slower than one in a day, faster than a million a second.
fn per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    if (1.0 / 86_400.0..=1_000_000.0).contains(&rate) {
        return Ok(rate);
    }
    Err(D::Error::custom("expected more than 0, and at most 1000000"))
}
