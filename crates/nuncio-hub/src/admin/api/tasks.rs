//! Tasks of all callers. Their content is returned only on request.

use nuncio_protocol::{TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::{
    mailboxes::MailboxTurn,
    paging::{ListRoute, MAX_PAGE_SIZE, Page, Paging},
    route::routes,
    schema::{TaskStateName, Time},
};

routes! {
    /// Lists tasks of all callers, the latest status first.
    ListTasks: GET "/tasks", "tasks.list" { query filter: TaskFilter, } -> TaskPage;

    /// Shows a task: its timeline and its webhooks.
    ShowTask: GET "/tasks/{id}", "tasks.show" { path id, query options: TimelineOptions, } -> TaskDetails,
        redact TaskDetails::redact;

    /// Lists the artifacts of a task and their parts, without their content.
    ListTaskArtifacts: GET "/tasks/{id}/artifacts", "tasks.artifacts" { path id, } -> TaskArtifacts;

    /// Shows a part of an artifact with its content, in the form of 1.0. It belongs to the caller: read it only if
    /// necessary. A viewer gets none.
    ShowArtifactPart: GET "/tasks/{id}/artifacts/{artifact}/parts/{number}", "tasks.artifactPart" {
        path id,
        path artifact,
        path number,
    } -> ArtifactPart, redact ArtifactPart::redact;

    /// Cancels a task of any caller.
    CancelTask: POST "/tasks/{id}:cancel", "tasks.cancel" { path id, } -> TaskSummary, trail TaskCanceled;

    /// Erases all tasks and replies of a caller.
    EraseTasks: POST "/tasks:erase", "tasks.erase" { body target: ErasureTarget, } -> Erased, trail DataErased;
}

/// A filter of tasks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskFilter {
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only in this state, such as `TASK_STATE_WORKING`.
    #[serde(deserialize_with = "state_name")]
    #[schemars(with = "Option<TaskStateName>")]
    pub state: Option<TaskState>,
    /// Only of this principal.
    pub principal: Option<String>,
    /// Only of this context.
    pub context: Option<String>,
    /// Only with an id that begins with this.
    pub id: Option<String>,
    /// Only with a status since this time.
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// Only with a status before this time.
    #[schemars(with = "Option<Time>")]
    pub before: Option<Timestamp>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// Reads the names of the specification only: the protocol's own types accept more, for old peers.
fn state_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TaskState>, D::Error> {
    let expected = "expected one of the specification's names, such as TASK_STATE_WORKING";
    let read = |name: String| TaskState::from_name(&name).ok_or_else(|| de::Error::custom(expected));
    Option::deserialize(deserializer)?.map(read).transpose()
}

/// A page of tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskPage {
    pub tasks: Vec<TaskSummary>,
    /// Value for `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListRoute for ListTasks {
    type Item = TaskSummary;

    fn paging(&mut self) -> &mut Paging {
        &mut self.filter.paging
    }

    fn page(TaskPage { tasks, next }: TaskPage) -> Page<TaskSummary> {
        Page { items: tasks, next }
    }
}

/// A task, without its content.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    pub id: String,
    pub context_id: String,
    pub agent: String,
    /// The principal that owns it; absent: an anonymous caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[schemars(with = "TaskStateName")]
    pub state: TaskState,
    /// The time of its status.
    #[schemars(with = "Time")]
    pub since: Timestamp,
    /// The id of its last event.
    pub last_event_id: u64,
}

/// The part of a timeline that a request asks for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TimelineOptions {
    /// Include the content of events. It belongs to the callers: read it only if necessary. A viewer gets none.
    pub content: Option<bool>,
    /// Only events after the event of this id.
    pub after: Option<u64>,
    /// Maximum number of events; 1000 by default.
    #[schemars(range(min = 1, max = MAX_PAGE_SIZE))]
    pub limit: Option<usize>,
}

/// A task with its timeline and its webhooks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskDetails {
    #[serde(flatten)]
    pub task: TaskSummary,
    /// Its events, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Value for `after` of the next part of the timeline; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The webhooks that receive its updates.
    pub webhooks: Vec<Webhook>,
    /// The memo of the task, such as the ids of the remote agent, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Value>,
    /// The task at the remote agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteTask>,
    /// The message of it that waits in a mailbox, or that a worker has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<MailboxTurn>,
    /// The ids of tasks that it refers to; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// The ids of tasks that refer to it; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// The tasks that its agent has begun at other agents of this hub, in its conversation; the latest ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<TaskSummary>,
}

/// The ids of a task at a remote agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteTask {
    pub task_id: String,
    pub context_id: String,
    /// The address at which it was begun, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The artifacts of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskArtifacts {
    pub artifacts: Vec<TaskArtifact>,
}

/// An artifact, without its content.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskArtifact {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub parts: Vec<ArtifactPart>,
}

/// A part of an artifact.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactPart {
    /// Its number in the artifact, from 1.
    pub number: usize,
    pub kind: PartKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Size of its content in bytes.
    pub bytes: usize,
    /// The part in the form of 1.0; only of a single part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Value>,
}

impl ArtifactPart {
    /// Removes the content.
    fn redact(&mut self) {
        self.part = None;
    }
}

/// Kinds of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    Text,
    /// The bytes of a file.
    Raw,
    /// The address of a file.
    Url,
    Data,
}

impl TaskDetails {
    /// Removes the content of the task, and the executor's notes, which may quote it.
    fn redact(&mut self) {
        self.upstream = None;
        self.timeline.iter_mut().for_each(|entry| entry.content = None);
    }
}

/// An event of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEntry {
    /// The id of the event, as in streams.
    pub id: u64,
    #[schemars(with = "Time")]
    pub time: Timestamp,
    pub kind: EntryKind,
    /// The event in words, without its content.
    pub summary: String,
    /// The event as callers see it, if the request asks for content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    Task,
    Message,
    Status,
    Artifact,
}

/// A webhook, without its secrets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Webhook {
    pub id: String,
    /// Its origin: a path or a query may be secret.
    pub url: String,
}

/// The callers of tasks to erase.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErasureTarget {
    /// The principal; null: anonymous callers.
    #[serde(deserialize_with = "required")]
    pub principal: Option<String>,
    /// Only in this tenant; in all by default.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Only at this agent; at all by default.
    #[serde(default)]
    pub agent: Option<String>,
}

/// A member that may be null but not absent: a request that forgets it must not erase the tasks of all
/// anonymous callers.
fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// The outcome of an erasure.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Erased {
    /// Number of tasks and replies that were erased.
    pub erased: usize,
}
