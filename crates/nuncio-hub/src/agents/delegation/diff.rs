//! Computes the events that are new in a snapshot of the remote task. Pure: two tasks in, events out.
//!
//! Stream events are forwarded as they arrive. Snapshots (the first event of a stream, the result of
//! GetTask) repeat earlier content, and only the new part may enter our log.

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, Event, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};

/// The events that bring `known` to the state of `seen`, which has our ids already: messages, then
/// artifacts, then the status. `known` is `None` before the first event.
pub(super) fn diff(known: Option<&Task>, seen: &Task) -> Vec<Event> {
    let nothing = Task::default();
    let known = known.unwrap_or(&nothing);
    let mut events: Vec<_> = words(known, seen).map(said).collect();
    let complete = seen.status.state.is_terminal();
    events.extend(seen.artifacts.iter().filter_map(|artifact| grown(known, artifact, complete)));
    events.extend(status(known, seen));
    events
}

/// True if `known` already has this status and its message.
pub(super) fn is_known(known: &Task, status: &TaskStatus) -> bool {
    let message = status.message.as_ref();
    known.status.state == status.state && message.is_none_or(|message| has_said(known, message))
}

/// New messages of the agent, except the one of the current status, which is emitted with that status.
fn words<'a>(known: &'a Task, seen: &'a Task) -> impl Iterator<Item = &'a Arc<Message>> {
    let present = seen.status.message.as_ref();
    seen.history.iter().filter(move |message| {
        message.role == Role::Agent
            && !message.parts.is_empty()
            && !present.is_some_and(|present| is_same(present, message))
            && !has_said(known, message)
    })
}

/// A message without a status of its own: the next status moves it to history (C-19).
fn said(message: &Arc<Message>) -> Event {
    update(TaskStatus { state: TaskState::Working, message: Some(Arc::clone(message)), timestamp: None })
}

fn has_said(task: &Task, message: &Message) -> bool {
    task.status.message.iter().chain(&task.history).any(|known| is_same(known, message))
}

/// Compares by id or by content: some agents give the same message a new id in each answer, and some give
/// none.
fn is_same(known: &Message, message: &Message) -> bool {
    let by_id = !message.message_id.is_empty() && known.message_id == message.message_id;
    known.role == message.role && (by_id || known.parts == message.parts)
}

fn grown(known: &Task, artifact: &Arc<Artifact>, complete: bool) -> Option<Event> {
    let whole = |append, artifact| {
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact,
            append,
            last_chunk: complete,
            ..TaskArtifactUpdateEvent::default()
        })
    };
    if artifact.parts.is_empty() {
        return None;
    }
    let Some(old) = known.artifacts.iter().find(|old| old.artifact_id == artifact.artifact_id) else {
        return Some(whole(false, Arc::clone(artifact)));
    };
    let label = |artifact: &Artifact| {
        (
            artifact.name.clone(),
            artifact.description.clone(),
            artifact.metadata.clone(),
            artifact.extensions.clone(),
        )
    };
    if label(old) != label(artifact) {
        return Some(whole(false, Arc::clone(artifact)));
    }
    match rest(&old.parts, &artifact.parts) {
        Some(rest) if rest.is_empty() => None,
        Some(parts) => {
            let artifact_id = artifact.artifact_id.clone();
            Some(whole(true, Arc::new(Artifact { artifact_id, parts, ..Artifact::default() })))
        }
        None => Some(whole(false, Arc::clone(artifact))),
    }
}

/// The parts after the old ones; `None` if the new parts do not begin with the old ones. Text is compared
/// joined, because some agents keep chunks separate and some join them.
fn rest(old: &[Part], new: &[Part]) -> Option<Vec<Part>> {
    if let Some(rest) = new.strip_prefix(old) {
        return Some(rest.to_vec());
    }
    let (before, after) = (plain(old)?, plain(new)?);
    let rest = after.strip_prefix(&*before)?;
    Some(if rest.is_empty() { Vec::new() } else { vec![Part::text(rest)] })
}

/// The joined text, if all parts are plain text.
fn plain(parts: &[Part]) -> Option<String> {
    let plain = |part: &Part| *part == Part::text(part.as_text().unwrap_or_default());
    parts.iter().all(plain).then(|| parts.iter().filter_map(Part::as_text).collect())
}

fn status(known: &Task, seen: &Task) -> Option<Event> {
    if is_known(known, &seen.status) {
        return None;
    }
    let mut event = update(seen.status.clone());
    *event.metadata_mut() = seen.metadata.difference(&known.metadata);
    Some(event)
}

fn update(status: TaskStatus) -> Event {
    Event::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() })
}

#[cfg(test)]
mod tests;
