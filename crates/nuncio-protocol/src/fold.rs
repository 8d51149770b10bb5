//! The lifecycle of a task as one pure function: the server records with it, and a client rebuilds a task
//! from a stream with it.
//!
//! Only one rule about states is normative, and only that one is enforced: terminal is terminal
//! (contradiction C-29). History follows the official SDKs (C-19): a message of the caller enters the
//! history at once; a message of the agent in a status enters it when the next status replaces it.

use std::{fmt, sync::Arc};

use crate::{
    Artifact, Content, Event, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent,
    Timestamp,
};

/// The reason why an event does not apply to a task. The task stays unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The task has ended.
    Terminal(TaskState),
    /// The event is of another task.
    OtherTask,
    /// The event is of another context.
    OtherContext,
    /// An artifact without parts (spec 5.7).
    EmptyArtifact,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminal(state) => write!(f, "the task has ended in {state}"),
            Self::OtherTask => f.write_str("the event belongs to another task"),
            Self::OtherContext => f.write_str("the event belongs to another context"),
            Self::EmptyArtifact => f.write_str("an artifact needs at least one part"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Applies an event to a task. `now` is the time of a status without a timestamp.
///
/// # Errors
/// A [`Refusal`]; the task stays unchanged.
pub fn fold(task: &mut Task, event: &Event, now: Timestamp) -> Result<(), Refusal> {
    if task.status.state.is_terminal() {
        return Err(Refusal::Terminal(task.status.state));
    }
    if event.task_id().is_some_and(|id| *id != task.id) {
        return Err(Refusal::OtherTask);
    }
    // Some peers leave out the context; an event with another context is wrong.
    let context = event.context_id().filter(|id| !id.is_empty());
    if context.is_some_and(|id| !task.context_id.is_empty() && *id != task.context_id) {
        return Err(Refusal::OtherContext);
    }
    match event {
        Event::Task(snapshot) => fold_snapshot(task, snapshot, now),
        Event::Message(message) => fold_message(task, message),
        Event::StatusUpdate(update) => fold_status(task, update, now),
        Event::ArtifactUpdate(update) => fold_artifact(task, update)?,
    }
    if let Some(context) = context.filter(|_| task.context_id.is_empty()) {
        task.context_id = context.clone();
    }
    Ok(())
}

fn fold_snapshot(task: &mut Task, snapshot: &Task, now: Timestamp) {
    let before = std::mem::replace(task, snapshot.clone());
    if task.context_id.is_empty() {
        task.context_id = before.context_id;
    }
    task.status.timestamp.get_or_insert(now);
}

fn fold_message(task: &mut Task, message: &Arc<Message>) {
    task.history.extend(task.status.message.take());
    task.history.push(Arc::clone(message));
}

fn fold_status(task: &mut Task, update: &TaskStatusUpdateEvent, now: Timestamp) {
    task.history.extend(task.status.message.take());
    task.status = update.status.clone();
    task.status.timestamp.get_or_insert(now);
    task.metadata.merge(&update.metadata);
}

fn fold_artifact(task: &mut Task, update: &TaskArtifactUpdateEvent) -> Result<(), Refusal> {
    let known = task.artifacts.iter_mut().find(|known| known.artifact_id == update.artifact.artifact_id);
    match known {
        // The last chunk may be empty: it only marks the artifact as complete.
        Some(known) if update.append => append(Arc::make_mut(known), &update.artifact, update.joins),
        _ if update.artifact.parts.is_empty() => return Err(Refusal::EmptyArtifact),
        Some(known) => *known = Arc::clone(&update.artifact),
        // A first chunk with `append` begins the artifact: dropping it would lose content.
        None => task.artifacts.push(Arc::clone(&update.artifact)),
    }
    Ok(())
}

/// Costs the size of the chunk, not of the artifact.
fn append(artifact: &mut Artifact, piece: &Artifact, joins: bool) {
    let parts = match piece.parts.split_first() {
        Some((first, rest)) if joins && join(&mut artifact.parts, first) => rest,
        Some(_) | None => &piece.parts[..],
    };
    artifact.parts.extend_from_slice(parts);
    artifact.metadata.merge(&piece.metadata);
    for uri in &piece.extensions {
        if !artifact.extensions.contains(uri) {
            artifact.extensions.push(uri.clone());
        }
    }
    if !piece.name.is_empty() {
        artifact.name.clone_from(&piece.name);
    }
    if !piece.description.is_empty() {
        artifact.description.clone_from(&piece.description);
    }
}

/// Goes on with the text of the last part; false if `next` is a part of its own.
fn join(parts: &mut [Part], next: &Part) -> bool {
    let Content::Text(more) = &next.content else { return false };
    match parts.last_mut() {
        Some(Part { content: Content::Text(text), metadata, filename, media_type })
            if (&*metadata, &*filename, &*media_type)
                == (&next.metadata, &next.filename, &next.media_type) =>
        {
            text.push_str(more);
            true
        }
        // The end of a text adds no empty part to something else.
        Some(_) | None => more.is_empty(),
    }
}

#[cfg(test)]
mod tests;
