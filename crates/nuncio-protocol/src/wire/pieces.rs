//! Large answers of version 1.0 in pieces: part by part, so that nobody has to hold a second copy of all of them, nor
//! write much of them at a time.
//!
//! Together the pieces are what [`Serialize`] writes of the whole. An object is written with its list empty and cut
//! there; the items come in between. Large data and metadata are text already: that piece is shared with the task. A
//! large text, or large bytes, are encoded a piece at a time.

use std::{iter, sync::Arc};

use bytes::Bytes;
use serde::Serialize;

use super::Pieces;
use crate::{Artifact, Content, Json, ListTasksResponse, Message, Metadata, Part, Task, message::Base64};

/// Content from this size on is not copied whole.
const MIN_STREAMED_BYTES: usize = 64 * 1024;

/// So many bytes of a text are encoded at a time. Of bytes it is a multiple of 3, so that base64 needs no padding within.
const PIECE_BYTES: usize = 48 * 1024;

/// A page of tasks.
pub(super) fn page(mut page: ListTasksResponse) -> Pieces {
    let tasks = std::mem::take(&mut page.tasks);
    Box::new(with_items(json(&page), "tasks", tasks.into_iter().map(task), Metadata::new()))
}

/// A task.
pub(super) fn task(task: Task) -> impl Iterator<Item = Bytes> + Send {
    let Task { id, context_id, status, artifacts, history, metadata } = task;
    let head = json(&Task { id, context_id, status, ..Task::default() });
    // Removes the closing brace: further members follow.
    let head = head.slice(..head.len() - 1);
    iter::once(head)
        .chain(member(r#","artifacts":["#, artifacts, artifact))
        .chain(member(r#","history":["#, history, message))
        .chain(metadata_member(metadata))
        .chain(iter::once(Bytes::from_static(b"}")))
}

/// A list of a task, if it is not empty.
fn member<T: Send, I: Iterator<Item = Bytes> + Send>(
    name: &'static str,
    items: Vec<T>,
    pieces: fn(T) -> I,
) -> impl Iterator<Item = Bytes> + Send {
    let is_there = !items.is_empty();
    let around = |text: &'static str| is_there.then_some(Bytes::from_static(text.as_bytes()));
    let (head, tail) = (around(name), around("]"));
    head.into_iter().chain(separated(items.into_iter().map(pieces))).chain(tail)
}

/// The metadata behind another member, if there is any: its text, shared.
fn metadata_member(metadata: Metadata) -> impl Iterator<Item = Bytes> + Send {
    let name = Bytes::from_static(br#","metadata":"#);
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    metadata.into_iter().flat_map(move |metadata| [name.clone(), Bytes::from_owner(metadata.to_json())])
}

fn artifact(artifact: Arc<Artifact>) -> Box<dyn Iterator<Item = Bytes> + Send> {
    let Artifact { artifact_id, name, description, parts: _, metadata: _, extensions } = &*artifact;
    let (artifact_id, name, description) = (artifact_id.clone(), name.clone(), description.clone());
    let (metadata, extensions) = (Metadata::new(), extensions.clone());
    let lean = Artifact { artifact_id, name, description, parts: Vec::new(), metadata, extensions };
    let (metadata, count) = (artifact.metadata.clone(), artifact.parts.len());
    let parts = (0..count).map(move |number| part(&artifact, number));
    Box::new(with_items(json(&lean), "parts", parts, metadata))
}

fn message(message: Arc<Message>) -> Box<dyn Iterator<Item = Bytes> + Send> {
    let Message {
        message_id,
        context_id,
        task_id,
        role,
        parts: _,
        metadata: _,
        extensions,
        reference_task_ids,
    } = &*message;
    let lean = Message {
        message_id: message_id.clone(),
        context_id: context_id.clone(),
        task_id: task_id.clone(),
        role: *role,
        parts: Vec::new(),
        metadata: Metadata::new(),
        extensions: extensions.clone(),
        reference_task_ids: reference_task_ids.clone(),
    };
    let (metadata, count) = (message.metadata.clone(), message.parts.len());
    let parts = (0..count).map(move |number| part(&message, number));
    Box::new(with_items(json(&lean), "parts", parts, metadata))
}

/// A message or an artifact.
trait HasParts: Send + Sync + 'static {
    fn parts(&self) -> &[Part];
}

impl HasParts for Message {
    fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl HasParts for Artifact {
    fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// A part. The content is its first member: a large one takes the place of an empty one.
fn part<H: HasParts>(holder: &Arc<H>, number: usize) -> Box<dyn Iterator<Item = Bytes> + Send> {
    let part = &holder.parts()[number];
    let with = |content| {
        let (metadata, filename) = (part.metadata.clone(), part.filename.clone());
        json(&Part { content, metadata, filename, media_type: part.media_type.clone() })
    };
    match &part.content {
        Content::Data(data) if data.as_str().len() >= MIN_STREAMED_BYTES => {
            let (head, null) = (r#"{"data":"#.len(), "null".len());
            let (lean, data) = (with(Content::Data(Json::default())), Bytes::from_owner(data.clone()));
            Box::new([lean.slice(..head), data, lean.slice(head + null..)].into_iter())
        }
        Content::Text(text) if text.len() >= MIN_STREAMED_BYTES => {
            around(with(Content::Text(String::new())), r#"{"text":""#.len(), encoded(holder, number))
        }
        Content::Raw(bytes) if bytes.len() >= MIN_STREAMED_BYTES => {
            around(with(Content::Raw(Bytes::new())), r#"{"raw":""#.len(), encoded(holder, number))
        }
        Content::Data(_) | Content::Text(_) | Content::Raw(_) | Content::Url(_) => {
            Box::new(iter::once(json(part)))
        }
    }
}

/// An object that is cut here, with pieces in between.
fn around(
    mut object: Bytes,
    at: usize,
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
) -> Box<dyn Iterator<Item = Bytes> + Send> {
    let head = object.split_to(at);
    Box::new(iter::once(head).chain(pieces).chain(iter::once(object)))
}

/// The inside of a string: the text of a part, or its bytes, encoded when it is asked for.
fn encoded<H: HasParts>(holder: &Arc<H>, number: usize) -> impl Iterator<Item = Bytes> + Send + 'static {
    let (holder, mut at) = (Arc::clone(holder), 0);
    iter::from_fn(move || {
        let string = match &holder.parts()[number].content {
            Content::Text(text) => {
                let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
                let end = (0..=PIECE_BYTES.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end))?;
                at += end;
                json(&&rest[..end])
            }
            Content::Raw(bytes) => {
                let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
                let end = PIECE_BYTES.min(rest.len());
                at += end;
                json(&Base64(&rest[..end]))
            }
            Content::Url(_) | Content::Data(_) => return None,
        };
        // Without its quotes.
        Some(string.slice(1..string.len() - 1))
    })
}

/// An object whose list of this name is empty, with these items in it, and with this metadata behind the list.
fn with_items<I: Iterator<Item = Bytes> + Send>(
    mut object: Bytes,
    list: &'static str,
    items: impl Iterator<Item = I> + Send,
    metadata: Metadata,
) -> impl Iterator<Item = Bytes> + Send {
    // Quotes within a text are escaped, and no member before the list contains an object, so this is its
    // name.
    let mark = format!("\"{list}\":[");
    let at = memchr::memmem::find(&object, mark.as_bytes()).map_or(object.len(), |at| at + mark.len());
    let head = object.split_to(at);
    let close = object.split_to(object.len().min(1));
    let last = iter::once(close).chain(metadata_member(metadata)).chain(iter::once(object));
    iter::once(head).chain(separated(items)).chain(last)
}

fn separated<I: Iterator<Item = Bytes> + Send>(
    items: impl Iterator<Item = I> + Send,
) -> impl Iterator<Item = Bytes> + Send {
    let comma = |number: usize| (number > 0).then_some(Bytes::from_static(b","));
    items.enumerate().flat_map(move |(number, item)| comma(number).into_iter().chain(item))
}

fn json(value: &impl Serialize) -> Bytes {
    // Our types have only string keys and finite numbers, so serializing to memory cannot fail.
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    fn parts() -> Vec<Part> {
        let lists = vec![value!({"n": 1}); MIN_STREAMED_BYTES];
        let mut named = Part::text("é\"\\\n".repeat(MIN_STREAMED_BYTES));
        named.metadata.insert("k", "v");
        named.filename = Some("f".to_owned());
        named.media_type = Some("text/plain".to_owned());
        vec![
            named,
            Part::text("short"),
            Part::raw(vec![7; 2 * PIECE_BYTES + 1]),
            Part::data(value!(lists)),
            Part::data(value!({"small": true})),
            Part::url("https://example.com/"),
        ]
    }

    fn large_task() -> Task {
        let mut said = Message::user("m", parts());
        said.metadata.insert("list", value!(vec![0; MIN_STREAMED_BYTES]));
        said.extensions = vec!["\"parts\":[".to_owned()];
        said.reference_task_ids = vec!["t-0".into()];
        let mut made = Artifact::new("a", parts()).with_name("\"parts\":[");
        made.metadata.insert("k", "v");
        made.extensions = vec!["x".to_owned()];
        let mut task = Task { id: "t".into(), context_id: "c".into(), ..Task::default() };
        task.history = vec![Arc::new(said), Arc::new(Message::user("n", Part::text("x")))];
        task.artifacts = vec![Arc::new(made), Arc::new(Artifact::new("b", Vec::new()))];
        task.metadata.insert("k", "v");
        task
    }

    #[test]
    fn the_pieces_are_the_whole() {
        let whole = serde_json::to_vec(&large_task()).unwrap();
        assert!(task(large_task()).collect::<Vec<_>>().concat() == whole);
        let tasks = vec![large_task(), Task::default(), large_task()];
        let list = ListTasksResponse { tasks, total_size: 3, ..ListTasksResponse::default() };
        let whole = serde_json::to_vec(&list).unwrap();
        assert!(page(list).collect::<Vec<_>>().concat() == whole);
    }

    #[test]
    fn no_piece_is_a_large_copy() {
        let task_now = large_task();
        let shared = [
            task_now.history[0].metadata.as_str().as_ptr(),
            match &task_now.history[0].parts[3].content {
                Content::Data(data) => data.as_str().as_ptr(),
                other => panic!("{other:?}"),
            },
        ];
        let pieces: Vec<Bytes> = task(task_now).collect();
        for shared in shared {
            assert_eq!(pieces.iter().filter(|piece| piece.as_ptr() == shared).count(), 1);
        }
        let data = |piece: &&Bytes| piece.starts_with(b"[{\"n\"") || piece.starts_with(b"{\"list\"");
        let copied = pieces.iter().filter(|piece| !data(piece)).map(Bytes::len).max();
        // An escaped character takes twice its size here.
        assert!(copied.is_some_and(|bytes| bytes <= 2 * PIECE_BYTES), "{copied:?}");
    }
}
