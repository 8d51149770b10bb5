//! Tasks, their status and their artifacts (spec 4.1.1 to 4.1.3, 4.1.7).

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    ArtifactId, ContextId, Message, Metadata, Part, TaskId, Timestamp,
    lenient::{list, null_default, proto_enum},
    message::join_text,
    metadata::metadata,
};

proto_enum! {
    /// The state of a task.
    TaskState {
        /// Unknown; never emitted by a server, never terminal.
        #[default]
        Unspecified = 0 "TASK_STATE_UNSPECIFIED",
        /// Acknowledged by the server.
        Submitted = 1 "TASK_STATE_SUBMITTED",
        /// In progress.
        Working = 2 "TASK_STATE_WORKING",
        /// Terminal: done.
        Completed = 3 "TASK_STATE_COMPLETED",
        /// Terminal: ended by an error.
        Failed = 4 "TASK_STATE_FAILED",
        /// Terminal: ended by the caller.
        Canceled = 5 "TASK_STATE_CANCELED",
        /// Interrupted: the caller has to send more input.
        InputRequired = 6 "TASK_STATE_INPUT_REQUIRED",
        /// Terminal: refused by the agent.
        Rejected = 7 "TASK_STATE_REJECTED",
        /// Interrupted: the agent needs an authorisation.
        AuthRequired = 8 "TASK_STATE_AUTH_REQUIRED",
    }
}

impl TaskState {
    /// True if the task has ended: it does not change any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// True if the task waits for input or an authorisation.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// True if terminal or interrupted: a blocking send waits for this (spec 3.2.2).
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }
}

/// A unit of work. Messages and artifacts are shared, so that cloning a task costs little.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Task {
    /// Created by the server.
    #[serde(deserialize_with = "null_default")]
    pub id: TaskId,
    /// Its context; empty only if the peer left it out.
    #[serde(
        alias = "context_id",
        deserialize_with = "null_default",
        skip_serializing_if = "ContextId::is_empty"
    )]
    pub context_id: ContextId,
    /// The status.
    #[serde(deserialize_with = "null_default")]
    pub status: TaskStatus,
    /// The artifacts.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Arc<Artifact>>,
    /// The messages, oldest first.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Arc<Message>>,
    /// Free-form data.
    #[serde(deserialize_with = "metadata::<_, 1>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl Task {
    /// Keeps at most `length` messages of history, the most recent ones; `None` keeps all
    /// (spec 3.2.4, REQ-113 to REQ-115).
    pub fn trim_history(&mut self, length: Option<i32>) {
        let Some(length) = length.and_then(|n| usize::try_from(n).ok()) else { return };
        let surplus = self.history.len().saturating_sub(length);
        self.history.drain(..surplus);
    }
}

/// The status of a task: its state, the time of it, and the agent's message.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskStatus {
    /// The state.
    #[serde(deserialize_with = "null_default")]
    pub state: TaskState,
    /// The agent's message about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<Message>>,
    /// The time at which it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// A result of a task.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Artifact {
    /// Unique within the task.
    #[serde(alias = "artifact_id", deserialize_with = "null_default")]
    pub artifact_id: ArtifactId,
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The content; at least one.
    #[serde(deserialize_with = "list")]
    pub parts: Vec<Part>,
    /// Free-form data.
    #[serde(deserialize_with = "metadata::<_, 3>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// URIs of the extensions that contributed to it.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

impl Artifact {
    /// An artifact with these parts.
    pub fn new(id: impl Into<ArtifactId>, parts: impl Into<Vec<Part>>) -> Self {
        Self { artifact_id: id.into(), parts: parts.into(), ..Self::default() }
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// All text parts, concatenated.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        join_text(&self.parts, "")
    }
}
