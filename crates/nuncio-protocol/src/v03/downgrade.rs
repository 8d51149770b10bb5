//! Encodes messages, tasks, artifacts and events in v0.3 (REQ-201 to REQ-204). Nothing is copied: [`Down`]
//! borrows one of our types and encodes it in a [`JsonForm`].

use std::{marker::PhantomData, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{
    files,
    form::{JsonForm, JsonRpc},
    leftover::{DATA_PART_COMPAT, LEFTOVER, Leftover, WireMetadata, is_wrapped},
};
use crate::{
    Artifact, Content, Event, Json, Message, Metadata, Part, Role, SendMessageResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, message::Base64,
};

/// One of our values, encoded in the form `F`.
pub(super) struct Down<'a, F, T: ?Sized>(&'a T, PhantomData<F>);

impl<'a, F, T: ?Sized> Down<'a, F, T> {
    pub(super) fn value(&self) -> &'a T {
        self.0
    }
}

/// Borrows a value to encode it in the form `F`.
pub(super) fn down<F, T: ?Sized>(value: &T) -> Down<'_, F, T> {
    Down(value, PhantomData)
}

/// Writes `kind`, where the form has it (REQ-149, REQ-201).
fn kind<F: JsonForm, S: SerializeStruct>(object: &mut S, kind: &'static str) -> Result<(), S::Error> {
    if F::HAS_KIND { object.serialize_field("kind", kind) } else { Ok(()) }
}

/// Writes a member unless it is unset.
pub(super) fn field_if<S: SerializeStruct>(
    object: &mut S,
    set: bool,
    key: &'static str,
    value: &(impl Serialize + ?Sized),
) -> Result<(), S::Error> {
    if set { object.serialize_field(key, value) } else { Ok(()) }
}

fn metadata<S: SerializeStruct>(object: &mut S, metadata: &Metadata) -> Result<(), S::Error> {
    field_if(object, !metadata.is_empty(), "metadata", metadata)
}

impl<F, T> Serialize for Down<'_, F, Arc<T>>
where
    for<'b> Down<'b, F, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        down::<F, T>(self.0).serialize(serializer)
    }
}

impl<F, T> Serialize for Down<'_, F, [T]>
where
    for<'b> Down<'b, F, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(down::<F, T>))
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let references = message.reference_task_ids.as_slice();
        let mut object = serializer.serialize_struct("Message", 9)?;
        kind::<F, _>(&mut object, "message")?;
        object.serialize_field("messageId", &message.message_id)?;
        field_if(&mut object, message.context_id.is_some(), "contextId", &message.context_id)?;
        field_if(&mut object, message.task_id.is_some(), "taskId", &message.task_id)?;
        // Strict peers know only two roles; a message without a role can only come from a faulty agent.
        let role = F::role(message.role).or_else(|| F::role(Role::Agent));
        object.serialize_field("role", role.unwrap_or_default())?;
        object.serialize_field(F::MESSAGE_PARTS, &down::<F, _>(message.parts.as_slice()))?;
        let has_leftover = F::role(message.role).is_none() || (!F::HAS_REFERENCES && !references.is_empty());
        if has_leftover || message.metadata.contains_key(LEFTOVER) {
            let leftover = Leftover {
                role: F::role(message.role).is_none().then_some(message.role),
                reference_task_ids: if F::HAS_REFERENCES { (&[]).into() } else { references.into() },
                ..Leftover::default()
            };
            object.serialize_field("metadata", &WireMetadata::new(&message.metadata, leftover))?;
        } else {
            metadata(&mut object, &message.metadata)?;
        }
        field_if(&mut object, !message.extensions.is_empty(), "extensions", &message.extensions)?;
        field_if(&mut object, F::HAS_REFERENCES && !references.is_empty(), "referenceTaskIds", references)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = self.0;
        let mut object = serializer.serialize_struct("Part", 3)?;
        match &part.content {
            Content::Text(text) => {
                kind::<F, _>(&mut object, "text")?;
                object.serialize_field("text", text)?;
            }
            Content::Raw(_) | Content::Url(_) => {
                kind::<F, _>(&mut object, "file")?;
                object.serialize_field("file", &SentFile::<F>(part, PhantomData))?;
            }
            Content::Data(value) => {
                kind::<F, _>(&mut object, "data")?;
                object.serialize_field("data", &WrappedData::<F>(value, PhantomData))?;
            }
        }
        match part_leftover::<F>(part) {
            Some(wire) => object.serialize_field("metadata", &wire)?,
            None => metadata(&mut object, &part.metadata)?,
        }
        object.end()
    }
}

/// The metadata of a part with members that v0.3 cannot express; `None` if there are none.
fn part_leftover<F: JsonForm>(part: &Part) -> Option<WireMetadata<'_>> {
    let base64 = match &part.content {
        Content::Raw(content) if !F::HAS_KIND => {
            files::mark(content, part.media_type.as_deref(), files::current().unwrap_or_default())
        }
        Content::Raw(_) | Content::Text(_) | Content::Url(_) | Content::Data(_) => None,
    };
    // Only files have a name and a type in v0.3.
    let is_file = matches!(part.content, Content::Raw(_) | Content::Url(_));
    let fits = is_file || (part.filename.is_none() && part.media_type.is_none());
    let data = match &part.content {
        Content::Data(value) => Some(value),
        Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
    };
    let wrapped = data.is_some_and(|value| !value.is_object());
    let looks_wrapped = wrapped || data.is_some_and(|value| is_wrapped(&part.metadata, value));
    if fits && !looks_wrapped && base64.is_none() && !part.metadata.contains_key(LEFTOVER) {
        return None;
    }
    let mut leftover = Leftover { base64, ..Leftover::default() };
    if !is_file {
        leftover.filename = part.filename.as_deref().map(Into::into);
        leftover.media_type = part.media_type.as_deref().map(Into::into);
    }
    if looks_wrapped {
        leftover.set_aside(DATA_PART_COMPAT, &part.metadata);
    }
    Some(WireMetadata { wrapped, ..WireMetadata::new(&part.metadata, leftover) })
}

/// The file of a file part.
struct SentFile<'a, F>(&'a Part, PhantomData<F>);

impl<F: JsonForm> Serialize for SentFile<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = self.0;
        let mut object = serializer.serialize_struct("File", 3)?;
        match &part.content {
            Content::Raw(bytes) if F::HAS_KIND => object.serialize_field(F::FILE_BYTES, &Base64(bytes))?,
            Content::Raw(bytes) => {
                let written = files::write(bytes, files::current().unwrap_or_default());
                object.serialize_field(F::FILE_BYTES, &Base64(&written))?;
            }
            Content::Url(url) => object.serialize_field(F::FILE_URI, url)?,
            Content::Text(_) | Content::Data(_) => {}
        }
        field_if(&mut object, part.media_type.is_some(), "mimeType", &part.media_type)?;
        field_if(&mut object, part.filename.is_some(), "name", &part.filename)?;
        object.end()
    }
}

/// The data of a data part: an object in v0.3, so any other value is wrapped (REQ-204).
struct WrappedData<'a, F>(&'a Json, PhantomData<F>);

impl<F: JsonForm> Serialize for WrappedData<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !F::HAS_KIND {
            // ProtoJSON: a message `DataPart` with one field, also called `data`.
            let mut object = serializer.serialize_struct("DataPart", 1)?;
            object.serialize_field("data", &WrappedData::<JsonRpc>(self.0, PhantomData))?;
            return object.end();
        }
        if self.0.is_object() {
            return self.0.serialize(serializer);
        }
        let mut object = serializer.serialize_struct("Value", 1)?;
        object.serialize_field("value", self.0)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let artifact = self.0;
        let mut object = serializer.serialize_struct("Artifact", 6)?;
        object.serialize_field("artifactId", &artifact.artifact_id)?;
        field_if(&mut object, !artifact.name.is_empty(), "name", &artifact.name)?;
        field_if(&mut object, !artifact.description.is_empty(), "description", &artifact.description)?;
        object.serialize_field("parts", &down::<F, _>(artifact.parts.as_slice()))?;
        metadata(&mut object, &artifact.metadata)?;
        field_if(&mut object, !artifact.extensions.is_empty(), "extensions", &artifact.extensions)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = self.0;
        let mut object = serializer.serialize_struct("TaskStatus", 3)?;
        object.serialize_field("state", F::state(status.state))?;
        if let Some(message) = &status.message {
            object.serialize_field("message", &down::<F, _>(message))?;
        }
        field_if(&mut object, status.timestamp.is_some(), "timestamp", &status.timestamp)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut object = serializer.serialize_struct("Task", 7)?;
        kind::<F, _>(&mut object, "task")?;
        object.serialize_field("id", &task.id)?;
        // REQUIRED in v0.3, so it is written even if an agent left it empty.
        object.serialize_field("contextId", &task.context_id)?;
        object.serialize_field("status", &down::<F, _>(&task.status))?;
        if !task.artifacts.is_empty() {
            object.serialize_field("artifacts", &down::<F, _>(task.artifacts.as_slice()))?;
        }
        if !task.history.is_empty() {
            object.serialize_field("history", &down::<F, _>(task.history.as_slice()))?;
        }
        metadata(&mut object, &task.metadata)?;
        object.end()
    }
}

/// True for the last update of an interaction (REQ-147): no event follows unless the caller sends a
/// message. In AUTH_REQUIRED the stream stays open, so that update is not the last.
pub(super) fn is_final(state: TaskState) -> bool {
    state.is_terminal() || state == TaskState::InputRequired
}

impl<F: JsonForm> Serialize for Down<'_, F, TaskStatusUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let update = self.0;
        let mut object = serializer.serialize_struct("TaskStatusUpdateEvent", 6)?;
        kind::<F, _>(&mut object, "status-update")?;
        object.serialize_field("taskId", &update.task_id)?;
        object.serialize_field("contextId", &update.context_id)?;
        object.serialize_field("status", &down::<F, _>(&update.status))?;
        object.serialize_field("final", &is_final(update.status.state))?;
        metadata(&mut object, &update.metadata)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, TaskArtifactUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let update = self.0;
        let mut object = serializer.serialize_struct("TaskArtifactUpdateEvent", 7)?;
        kind::<F, _>(&mut object, "artifact-update")?;
        object.serialize_field("taskId", &update.task_id)?;
        object.serialize_field("contextId", &update.context_id)?;
        object.serialize_field("artifact", &down::<F, _>(&update.artifact))?;
        field_if(&mut object, update.append, "append", &true)?;
        field_if(&mut object, update.last_chunk, "lastChunk", &true)?;
        metadata(&mut object, &update.metadata)?;
        object.end()
    }
}

/// With `kind`, an object is written bare; otherwise inside of a member that names its type.
fn tagged<F: JsonForm, S: Serializer>(
    serializer: S,
    member: &'static str,
    value: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    if F::HAS_KIND {
        return value.serialize(serializer);
    }
    let mut object = serializer.serialize_struct("StreamResponse", 1)?;
    object.serialize_field(member, value)?;
    object.end()
}

impl<F: JsonForm> Serialize for Down<'_, F, Event> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Event::Task(task) => tagged::<F, S>(serializer, "task", &down::<F, _>(task)),
            Event::Message(message) => tagged::<F, S>(serializer, "message", &down::<F, _>(message)),
            Event::StatusUpdate(update) => tagged::<F, S>(serializer, "statusUpdate", &down::<F, _>(update)),
            Event::ArtifactUpdate(update) => {
                tagged::<F, S>(serializer, "artifactUpdate", &down::<F, _>(update))
            }
        }
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, SendMessageResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            SendMessageResponse::Task(task) => tagged::<F, S>(serializer, "task", &down::<F, _>(task)),
            SendMessageResponse::Message(message) => {
                tagged::<F, S>(serializer, "message", &down::<F, _>(message))
            }
        }
    }
}
