//! The work of a lease, as the hub describes it.

use nuncio_protocol::{ContextId, Json, Message, Metadata, Task, TaskId, TraceContext};
use serde::Deserialize;

/// One turn of a task: the caller's message, and all that is needed to answer it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Claim {
    /// The id of the lease.
    pub lease: String,
    /// The number of the offer: each lease of a turn has a higher one.
    pub generation: u64,
    /// The number of this attempt; 1 is the first.
    pub attempt: u32,
    /// The time for which the lease is good without a heartbeat, in seconds.
    pub ttl_seconds: u64,
    /// True if an earlier lease had begun with this turn. What it has written is in `task`.
    pub resumed: bool,
    /// The memo that an earlier lease of this task has left.
    pub memo: Option<Json>,
    /// An id of the turn, the same for each lease of it: an `Idempotency-Key` for other agents.
    pub repeat_id: Option<String>,
    /// The number of lines that the hub has of this lease, after a repeated claim.
    pub have: u64,
    /// True if the caller has canceled the task.
    pub cancel: bool,
    /// The mailbox.
    pub agent: String,
    /// The task.
    pub task_id: TaskId,
    /// The conversation, under a name that the hub has derived from the caller's.
    pub context_id: ContextId,
    /// The caller; `None` for the anonymous one.
    pub principal: Option<String>,
    /// The tenant that the caller has proved to belong to.
    pub tenant: Option<String>,
    /// The earlier tasks of the conversation, oldest first.
    pub earlier: Vec<Task>,
    /// The caller's message.
    pub message: Message,
    /// The task as it is, if the message continues one or the turn is resumed.
    pub task: Option<Task>,
    /// The caller's tasks that the message refers to.
    pub references: Vec<Task>,
    /// The media types that the caller accepts.
    pub accepted_output_modes: Vec<String>,
    /// Free-form data of the request.
    pub metadata: Metadata,
    /// The trace of the call, for calls that this one causes.
    traceparent: Option<String>,
    tracestate: Option<String>,
    /// The hubs that the call has passed, to detect circles.
    pub hops: Vec<String>,
}

impl Claim {
    /// The trace of the call.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let parent = self.traceparent.clone()?;
        Some(TraceContext { parent, state: self.tracestate.clone() })
    }
}
