//! Events of the hub as they happen.

use nuncio_protocol::{TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    route::routes,
    schema::{TaskStateName, Time},
};

routes! {
    /// Follows the changes of tasks, deliveries, agents, keys and the configuration, as server-sent events. They
    /// name what has changed and have no content. Tasks that a remote agent owns (proxy mode), and what other hubs
    /// of the same store do, cause no events.
    FollowEvents: GET "/events", "events.follow" { query options: EventOptions, } -> HubEvent, stream cursor;
}

/// The position in the stream of events.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventOptions {
    /// The `cursor` of the last event that was seen; by default only new events follow. The header `Last-Event-ID`
    /// takes precedence.
    pub after: Option<String>,
}

/// A change. Of a task that changes often, only the last of several changes may be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HubEvent {
    /// The position after this event. It is opaque.
    pub cursor: String,
    pub kind: EventKind,
    #[schemars(with = "Time")]
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The new state of a task; absent: it is as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TaskStateName>")]
    pub state: Option<TaskState>,
    /// The number of the last event of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The id of a delivery, a key or a trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The change in a word: the health of an agent (`up`, `degraded`, `down`), the state of a delivery, or the kind
    /// of a row of the trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// The subject of an event. Later versions may have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    Task,
    Delivery,
    Agent,
    Key,
    Config,
    /// A row of the trail about something else.
    Trail,
    /// Frames of a trial of the playground.
    Trial,
    /// Events were missed: the position is too old, or of before a restart. Read the lists again.
    Reset,
}
