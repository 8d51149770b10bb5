//! Decodes messages, tasks, artifacts and events of v0.3, in either form (REQ-201). Each shape builds our
//! own type directly, without a JSON tree. Defaults are given member by member: a default value of the
//! whole object would be built and dropped for each input.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};

use super::{
    leftover,
    shape::{Up, list, maybe, one},
};
use crate::{
    Artifact, ArtifactId, ContextId, Event, Message, MessageId, Metadata, Part, Role, SendMessageResponse,
    Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
    lenient::{self, Key, none_if_empty, null_default},
    metadata::metadata,
};

/// Implements `Up` for a type with a shape.
macro_rules! up {
    ($($name:ident: $shape:ident $(, $settle:ident)?;)+) => {$(
        impl<'de> Deserialize<'de> for Up<$name> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = $shape::deserialize(deserializer)?;
                $(let value = $settle(value);)?
                Ok(Up(value))
            }
        }
    )+};
}

up! {
    Message: MessageShape, settle;
    Artifact: ArtifactShape;
    TaskStatus: TaskStatusShape;
    Task: OldTask;
    TaskStatusUpdateEvent: TaskStatusUpdateEventShape;
    TaskArtifactUpdateEvent: TaskArtifactUpdateEventShape;
}

#[derive(Deserialize)]
#[serde(remote = "Message", rename_all = "camelCase")]
struct MessageShape {
    #[serde(default, alias = "message_id", deserialize_with = "null_default")]
    message_id: MessageId,
    #[serde(default, alias = "context_id", deserialize_with = "none_if_empty")]
    context_id: Option<ContextId>,
    #[serde(default, alias = "task_id", deserialize_with = "none_if_empty")]
    task_id: Option<TaskId>,
    #[serde(default, deserialize_with = "one::<_, Role, _>")]
    role: Role,
    #[serde(default, alias = "content", deserialize_with = "list::<_, Part, _>")]
    parts: Vec<Part>,
    #[serde(default, deserialize_with = "metadata::<_, 2>")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "lenient::list")]
    extensions: Vec<String>,
    #[serde(default, alias = "reference_task_ids", deserialize_with = "lenient::list")]
    reference_task_ids: Vec<TaskId>,
}

/// Restores the leftover.
pub(super) fn settle(mut message: Message) -> Message {
    if message.metadata.is_empty() {
        return message;
    }
    let leftover = leftover::take(&mut message.metadata);
    message.metadata.merge(&leftover.metadata);
    message.role = leftover.role.unwrap_or(message.role);
    if message.reference_task_ids.is_empty() {
        message.reference_task_ids = leftover.reference_task_ids.into_owned();
    }
    message
}

#[derive(Deserialize)]
#[serde(remote = "Artifact", rename_all = "camelCase")]
struct ArtifactShape {
    #[serde(default, alias = "artifact_id", deserialize_with = "null_default")]
    artifact_id: ArtifactId,
    #[serde(default, deserialize_with = "null_default")]
    name: String,
    #[serde(default, deserialize_with = "null_default")]
    description: String,
    #[serde(default, alias = "content", deserialize_with = "list::<_, Part, _>")]
    parts: Vec<Part>,
    #[serde(default, deserialize_with = "metadata::<_, 3>")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "lenient::list")]
    extensions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(remote = "TaskStatus", rename_all = "camelCase")]
struct TaskStatusShape {
    #[serde(default, deserialize_with = "one::<_, TaskState, _>")]
    state: TaskState,
    // `update` is the name of the field in the proto, which Python clients use.
    #[serde(default, alias = "update", deserialize_with = "maybe::<_, Message, _>")]
    message: Option<Arc<Message>>,
    timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(remote = "Task", rename_all = "camelCase")]
struct OldTask {
    #[serde(default, deserialize_with = "null_default")]
    id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_default")]
    context_id: ContextId,
    #[serde(default, deserialize_with = "one::<_, TaskStatus, _>")]
    status: TaskStatus,
    #[serde(default, deserialize_with = "list::<_, Artifact, _>")]
    artifacts: Vec<Arc<Artifact>>,
    #[serde(default, deserialize_with = "list::<_, Message, _>")]
    history: Vec<Arc<Message>>,
    #[serde(default, deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(remote = "TaskStatusUpdateEvent", rename_all = "camelCase")]
struct TaskStatusUpdateEventShape {
    #[serde(default, alias = "task_id", deserialize_with = "null_default")]
    task_id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_default")]
    context_id: ContextId,
    #[serde(default, deserialize_with = "one::<_, TaskStatus, _>")]
    status: TaskStatus,
    #[serde(default, deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(remote = "TaskArtifactUpdateEvent", rename_all = "camelCase")]
struct TaskArtifactUpdateEventShape {
    #[serde(default, alias = "task_id", deserialize_with = "null_default")]
    task_id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_default")]
    context_id: ContextId,
    #[serde(default, deserialize_with = "one::<_, Artifact, _>")]
    artifact: Arc<Artifact>,
    #[serde(default, deserialize_with = "null_default")]
    append: bool,
    #[serde(default, alias = "last_chunk", deserialize_with = "null_default")]
    last_chunk: bool,
    #[serde(skip)]
    joins: bool,
    #[serde(default, deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

/// The value of `kind`.
#[derive(Clone, Copy)]
enum ObjectKind {
    Task,
    Message,
    StatusUpdate,
    ArtifactUpdate,
    Other,
}

impl<'de> Deserialize<'de> for ObjectKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match &*Key::deserialize(deserializer)?.0 {
            "task" => Self::Task,
            "message" => Self::Message,
            "status-update" => Self::StatusUpdate,
            "artifact-update" => Self::ArtifactUpdate,
            _ => Self::Other,
        })
    }
}

/// All members of a task, a message, an update, or an object around one of them. `kind` may come last, so
/// one pass decodes all members and then decides.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyShape {
    kind: Option<ObjectKind>,

    #[serde(default, deserialize_with = "maybe::<_, Task, _>")]
    task: Option<Box<Task>>,
    #[serde(default, alias = "msg", deserialize_with = "maybe::<_, Message, _>")]
    message: Option<Arc<Message>>,
    #[serde(default, alias = "status_update", deserialize_with = "maybe::<_, TaskStatusUpdateEvent, _>")]
    status_update: Option<Box<TaskStatusUpdateEvent>>,
    #[serde(default, alias = "artifact_update", deserialize_with = "maybe::<_, TaskArtifactUpdateEvent, _>")]
    artifact_update: Option<Box<TaskArtifactUpdateEvent>>,

    #[serde(default, deserialize_with = "none_if_empty")]
    id: Option<TaskId>,
    #[serde(default, alias = "task_id", deserialize_with = "none_if_empty")]
    task_id: Option<TaskId>,
    #[serde(default, alias = "context_id", deserialize_with = "none_if_empty")]
    context_id: Option<ContextId>,
    #[serde(default, deserialize_with = "maybe::<_, TaskStatus, _>")]
    status: Option<TaskStatus>,
    #[serde(default, deserialize_with = "list::<_, Artifact, _>")]
    artifacts: Vec<Arc<Artifact>>,
    #[serde(default, deserialize_with = "list::<_, Message, _>")]
    history: Vec<Arc<Message>>,
    #[serde(default, deserialize_with = "maybe::<_, Artifact, _>")]
    artifact: Option<Arc<Artifact>>,
    #[serde(default, deserialize_with = "null_default")]
    append: bool,
    #[serde(default, alias = "last_chunk", deserialize_with = "null_default")]
    last_chunk: bool,
    #[serde(default, alias = "message_id")]
    message_id: Option<MessageId>,
    #[serde(default, deserialize_with = "maybe::<_, Role, _>")]
    role: Option<Role>,
    #[serde(default, alias = "content", deserialize_with = "list::<_, Part, _>")]
    parts: Vec<Part>,
    #[serde(default, deserialize_with = "lenient::list")]
    extensions: Vec<String>,
    #[serde(default, alias = "reference_task_ids", deserialize_with = "lenient::list")]
    reference_task_ids: Vec<TaskId>,
    #[serde(default, deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

impl AnyShape {
    /// The kind by its members, for peers that leave out `kind`.
    fn infer(&self) -> Option<ObjectKind> {
        if self.artifact.is_some() {
            return Some(ObjectKind::ArtifactUpdate);
        }
        if self.message_id.is_some() || self.role.is_some() {
            return Some(ObjectKind::Message);
        }
        match (&self.id, &self.task_id, &self.status) {
            (None, Some(_), Some(_)) => Some(ObjectKind::StatusUpdate),
            (Some(_), _, _) | (None, None, Some(_)) => Some(ObjectKind::Task),
            (None, _, None) => None,
        }
    }

    fn into_event(self) -> Option<Event> {
        let kind = match self.kind {
            None | Some(ObjectKind::Other) => {
                if let Some(task) = self.task {
                    return Some(Event::Task(*task));
                }
                if let Some(message) = self.message {
                    return Some(Event::Message(message));
                }
                if let Some(update) = self.status_update {
                    return Some(Event::StatusUpdate(*update));
                }
                if let Some(update) = self.artifact_update {
                    return Some(Event::ArtifactUpdate(*update));
                }
                self.infer()?
            }
            Some(kind) => kind,
        };
        match kind {
            ObjectKind::Task => Some(Event::Task(self.into_task())),
            ObjectKind::Message => Some(Event::Message(Arc::new(self.into_message()))),
            ObjectKind::StatusUpdate => Some(Event::StatusUpdate(TaskStatusUpdateEvent {
                task_id: self.task_id.unwrap_or_default(),
                context_id: self.context_id.unwrap_or_default(),
                status: self.status.unwrap_or_default(),
                metadata: self.metadata,
            })),
            ObjectKind::ArtifactUpdate => Some(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: self.task_id.unwrap_or_default(),
                context_id: self.context_id.unwrap_or_default(),
                artifact: self.artifact.unwrap_or_default(),
                append: self.append,
                last_chunk: self.last_chunk,
                joins: false,
                metadata: self.metadata,
            })),
            ObjectKind::Other => None,
        }
    }

    fn into_task(self) -> Task {
        Task {
            id: self.id.unwrap_or_default(),
            context_id: self.context_id.unwrap_or_default(),
            status: self.status.unwrap_or_default(),
            artifacts: self.artifacts,
            history: self.history,
            metadata: self.metadata,
        }
    }

    fn into_message(self) -> Message {
        settle(Message {
            message_id: self.message_id.unwrap_or_default(),
            context_id: self.context_id,
            task_id: self.task_id,
            role: self.role.unwrap_or_default(),
            parts: self.parts,
            metadata: self.metadata,
            extensions: self.extensions,
            reference_task_ids: self.reference_task_ids,
        })
    }
}

impl<'de> Deserialize<'de> for Up<Event> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = AnyShape::deserialize(deserializer)?.into_event();
        event
            .map(Up)
            .ok_or_else(|| de::Error::custom("neither task, message, status update nor artifact update"))
    }
}

impl<'de> Deserialize<'de> for Up<SendMessageResponse> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Up::<Event>::deserialize(deserializer)?.0 {
            Event::Task(task) => Ok(Up(SendMessageResponse::Task(task))),
            Event::Message(message) => Ok(Up(SendMessageResponse::Message(message))),
            Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => {
                Err(de::Error::custom("an update where a task or a message was expected"))
            }
        }
    }
}
