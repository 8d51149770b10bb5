//! Large answers of version 1.0 in pieces, part by part, so that no second copy of the whole answer is in
//! memory.
//!
//! Together the pieces equal the output of [`Serialize`] for the whole. An object is encoded with its list
//! empty and split there; the items go in between.

use std::{iter, sync::Arc};

use serde::Serialize;

use super::Pieces;
use crate::{Artifact, ListTasksResponse, Message, Part, Task};

/// A page of tasks.
pub(super) fn page(mut page: ListTasksResponse) -> Pieces {
    let tasks = std::mem::take(&mut page.tasks);
    Box::new(with_items(json(&page), "tasks", tasks.into_iter().map(task)))
}

/// A task.
pub(super) fn task(task: Task) -> impl Iterator<Item = Vec<u8>> + Send {
    let Task { id, context_id, status, artifacts, history, metadata } = task;
    let mut head = json(&Task { id, context_id, status, ..Task::default() });
    // Removes the closing brace: further members follow.
    head.pop();
    let last = move || {
        let mut last = Vec::new();
        if !metadata.is_empty() {
            last.extend_from_slice(br#","metadata":"#);
            last.append(&mut json(&metadata));
        }
        last.push(b'}');
        last
    };
    iter::once(head)
        .chain(member(r#","artifacts":["#, artifacts, artifact))
        .chain(member(r#","history":["#, history, message))
        .chain(iter::once_with(last))
}

/// A list of a task, if it is not empty.
fn member<T: Send, I: Iterator<Item = Vec<u8>> + Send>(
    name: &'static str,
    items: Vec<T>,
    pieces: fn(T) -> I,
) -> impl Iterator<Item = Vec<u8>> + Send {
    let is_there = !items.is_empty();
    let around = |text: &str| is_there.then(|| text.as_bytes().to_vec());
    let (head, tail) = (around(name), around("]"));
    head.into_iter().chain(separated(items.into_iter().map(pieces))).chain(tail)
}

fn artifact(artifact: Arc<Artifact>) -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    let Artifact { artifact_id, name, description, parts: _, metadata, extensions } = &*artifact;
    let (artifact_id, name, description) = (artifact_id.clone(), name.clone(), description.clone());
    let (metadata, extensions) = (metadata.clone(), extensions.clone());
    let lean = Artifact { artifact_id, name, description, parts: Vec::new(), metadata, extensions };
    let count = artifact.parts.len();
    Box::new(with_items(json(&lean), "parts", (0..count).map(move |number| part(&artifact.parts[number]))))
}

fn message(message: Arc<Message>) -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    let Message { message_id, context_id, task_id, role, parts: _, metadata, extensions, reference_task_ids } =
        &*message;
    let lean = Message {
        message_id: message_id.clone(),
        context_id: context_id.clone(),
        task_id: task_id.clone(),
        role: *role,
        parts: Vec::new(),
        metadata: metadata.clone(),
        extensions: extensions.clone(),
        reference_task_ids: reference_task_ids.clone(),
    };
    let count = message.parts.len();
    Box::new(with_items(json(&lean), "parts", (0..count).map(move |number| part(&message.parts[number]))))
}

fn part(part: &Part) -> iter::Once<Vec<u8>> {
    iter::once(json(part))
}

/// Inserts items into an object with an empty list of this name.
fn with_items<I: Iterator<Item = Vec<u8>> + Send>(
    mut head: Vec<u8>,
    list: &'static str,
    items: impl Iterator<Item = I> + Send,
) -> impl Iterator<Item = Vec<u8>> + Send {
    // Quotes within a text are escaped, and no member before the list contains an object, so this is its
    // name.
    let mark = format!("\"{list}\":[");
    let at = head.windows(mark.len()).position(|window| window == mark.as_bytes());
    let tail = head.split_off(at.map_or(head.len(), |at| at + mark.len()));
    iter::once(head).chain(separated(items)).chain(iter::once(tail))
}

fn separated<I: Iterator<Item = Vec<u8>> + Send>(
    items: impl Iterator<Item = I> + Send,
) -> impl Iterator<Item = Vec<u8>> + Send {
    items.enumerate().flat_map(|(number, item)| (number > 0).then(|| vec![b',']).into_iter().chain(item))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Our types have only string keys and finite numbers, so serializing to memory cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}
