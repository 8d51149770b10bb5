//! The events of a stream (spec 4.2 and 3.2.3). [`Event`] is the specification's `StreamResponse`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Artifact, ContextId, Message, Metadata, Task, TaskId, TaskStatus,
    lenient::{null_default, oneof},
    metadata::metadata,
};

/// One event of a stream, the body of a webhook, and an entry of a task's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The whole task: first event of a task's stream.
    Task(Task),
    /// A direct reply: the only event of a stream without a task. In a task's log: a message of the caller
    /// to the running task, which is not sent on streams.
    Message(Arc<Message>),
    /// A new status.
    StatusUpdate(TaskStatusUpdateEvent),
    /// An artifact, or a chunk of one.
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

oneof!("StreamResponse", Event {
    "task" => Task(Task),
    "message" => Message(Arc<Message>),
    "statusUpdate" | "status_update" => StatusUpdate(TaskStatusUpdateEvent),
    "artifactUpdate" | "artifact_update" => ArtifactUpdate(TaskArtifactUpdateEvent),
});

impl Event {
    /// The task of the event; a direct reply has none.
    #[must_use]
    pub fn task_id(&self) -> Option<&TaskId> {
        match self {
            Self::Task(task) => Some(&task.id),
            Self::Message(message) => message.task_id.as_ref(),
            Self::StatusUpdate(update) => Some(&update.task_id),
            Self::ArtifactUpdate(update) => Some(&update.task_id),
        }
    }

    /// The context of the event.
    #[must_use]
    pub fn context_id(&self) -> Option<&ContextId> {
        match self {
            Self::Task(task) => Some(&task.context_id),
            Self::Message(message) => message.context_id.as_ref(),
            Self::StatusUpdate(update) => Some(&update.context_id),
            Self::ArtifactUpdate(update) => Some(&update.context_id),
        }
    }

    /// The status in the event, if any.
    #[must_use]
    pub fn status(&self) -> Option<&TaskStatus> {
        match self {
            Self::Task(task) => Some(&task.status),
            Self::StatusUpdate(update) => Some(&update.status),
            Self::Message(_) | Self::ArtifactUpdate(_) => None,
        }
    }

    /// The metadata of the task, message or update in the event.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        match self {
            Self::Task(task) => &mut task.metadata,
            Self::Message(message) => &mut Arc::make_mut(message).metadata,
            Self::StatusUpdate(update) => &mut update.metadata,
            Self::ArtifactUpdate(update) => &mut update.metadata,
        }
    }
}

/// A change of a task's status.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "null_default")]
    pub task_id: TaskId,
    /// Its conversation.
    #[serde(alias = "context_id", deserialize_with = "null_default")]
    pub context_id: ContextId,
    /// The new status.
    #[serde(deserialize_with = "null_default")]
    pub status: TaskStatus,
    /// Free-form data.
    #[serde(deserialize_with = "metadata::<_, 2>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// A new artifact of a task, or a chunk of one.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "null_default")]
    pub task_id: TaskId,
    /// Its conversation.
    #[serde(alias = "context_id", deserialize_with = "null_default")]
    pub context_id: ContextId,
    /// The artifact, or its next chunk.
    #[serde(deserialize_with = "null_default")]
    pub artifact: Arc<Artifact>,
    /// True: append the parts to the artifact with the same id. False: replace it.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// True: the artifact is complete.
    #[serde(
        alias = "last_chunk",
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub last_chunk: bool,
    /// True: the text of the first part goes on with the text of the artifact's last part. Only the server that records
    /// the event knows it: on the wire the piece is a part of its own, and what comes from there never joins.
    #[serde(skip)]
    pub joins: bool,
    /// Free-form data.
    #[serde(deserialize_with = "metadata::<_, 2>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}
