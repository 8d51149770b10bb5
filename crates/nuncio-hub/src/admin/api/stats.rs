//! The figures of the hub: what an operator looks at first.

use nuncio_protocol::{TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    agents::{HealthState, Interface},
    route::routes,
    schema::{TaskStateName, Time},
};
use crate::samples::MAX_MINUTES;

/// The default number of minutes of the history.
pub const DEFAULT_HISTORY_MINUTES: usize = 60;

routes! {
    /// Shows the figures of the hub: agents, tasks, calls, deliveries, the store, and what needs attention.
    ShowStats: GET "/stats", "stats.show" { query options: StatsOptions, } -> Stats;
}

/// The part of the history that a request asks for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatsOptions {
    /// Number of minutes of the history; 60 by default.
    #[schemars(range(min = 0, max = MAX_MINUTES))]
    pub minutes: Option<usize>,
}

/// The figures of a hub. Those of the store are at most 15 seconds old.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// The version of the hub.
    pub version: String,
    #[schemars(with = "Time")]
    pub started: Timestamp,
    pub uptime_seconds: u64,
    /// The hub accepts calls.
    pub ready: bool,
    /// Circumstances that need attention; empty if all is well.
    pub warnings: Vec<Warning>,
    pub agents: AgentCounts,
    /// Stored tasks by state; states without tasks are left out.
    pub tasks: Vec<StateCount>,
    /// Open streams of callers.
    pub open_streams: u64,
    pub deliveries: DeliveryBacklog,
    pub calls: CallRates,
    /// Errors of calls in the last ten minutes, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Calls of the last ten minutes by version and binding, the most frequent first.
    pub mix: Vec<InterfaceCount>,
    /// The figures of each agent.
    pub by_agent: Vec<AgentFigures>,
    pub store: StoreFigures,
    pub memory: MemoryFigures,
    /// A sample for each of the last minutes, the newest last. The samples are in memory: they begin with the hub,
    /// and reach back six hours.
    pub history: Vec<MinuteSample>,
}

/// A circumstance that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    pub kind: WarningKind,
    /// The name of the subject, such as a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The reason and the remedy, for people.
    pub message: String,
}

/// Kinds of warnings. Later versions may have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The hub is not ready for calls.
    NotReady,
    /// An API key expires soon.
    KeyExpires,
    /// The TLS certificate of the hub expires soon, or has expired.
    CertificateExpires,
    /// Tasks and keys are lost when the hub stops.
    MemoryStore,
    /// Cards are not signed.
    UnsignedCards,
    /// Callers on other machines need no credentials.
    OpenAccess,
}

/// Number of agents by health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCounts {
    pub up: usize,
    pub degraded: usize,
    pub down: usize,
    /// Not called yet.
    pub unknown: usize,
}

/// Number of tasks in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCount {
    #[schemars(with = "TaskStateName")]
    pub state: TaskState,
    pub tasks: u64,
}

/// Webhook deliveries that wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryBacklog {
    /// Number of pending deliveries.
    pub pending: u64,
    /// The time since which the oldest of them is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub oldest: Option<Timestamp>,
}

/// Calls of the last minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRates {
    /// The time that the figures are about: 60 to 70 seconds, less after the start.
    pub window_seconds: u64,
    pub calls: u64,
    /// Calls that failed by a fault of the agent or of the hub.
    pub failed: u64,
    pub per_second: f64,
    /// Milliseconds until a call is answered, or its stream is open; absent without calls. Estimated from the
    /// buckets of the metric `nuncio_request_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Quantiles, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

/// Number of errors of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// The reason in errors of the protocol, such as `TASK_NOT_FOUND`.
    pub reason: String,
    /// The JSON-RPC code.
    pub code: i32,
    pub calls: u64,
}

/// Number of calls over an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceCount {
    #[serde(flatten)]
    pub interface: Interface,
    pub calls: u64,
}

/// The figures of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentFigures {
    pub name: String,
    pub health: HealthState,
    /// Calls of the last ten minutes.
    pub calls: u64,
    /// Those of them that failed by a fault of the agent or of the hub.
    pub failed: u64,
    /// The share of failed calls, from 0 to 1; absent without calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<f64>,
    /// Quantiles of the last ten minutes; absent without calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The time of the last call since the hub started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub last_call: Option<Timestamp>,
    /// Number of its tasks that run in this hub.
    pub tasks_in_flight: usize,
    pub open_streams: u64,
}

/// The store of the tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreFigures {
    pub kind: StoreKind,
    /// The size of its data; absent until it has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Kinds of stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    Memory,
    Sqlite,
    Postgres,
}

/// The memory of the hub, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryFigures {
    pub limit: usize,
    /// Resident memory of the process; absent where the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<usize>,
}

/// The figures of a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinuteSample {
    /// The end of the minute.
    #[schemars(with = "Time")]
    pub at: Timestamp,
    /// Calls within the minute.
    pub calls: u64,
    /// Those of them that failed by a fault of the agent or of the hub.
    pub failed: u64,
    /// Tasks by state at its end.
    pub tasks: Vec<StateCount>,
    pub open_streams: u64,
    pub pending_deliveries: u64,
}
