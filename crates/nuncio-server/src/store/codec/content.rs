//! Large content: taken out of what is encoded, put back into what is decoded. It is the content of parts, and metadata.
//!
//! A part keeps an empty content of the same kind, from which the type of the restored bytes is known.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{Artifact, Content, Event, Message, Metadata, Part, Task};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::{Blobs, damaged};
use crate::store::StoreError;

/// The SHA-256 of large content: its name within the task.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store) struct Digest(pub(in crate::store) [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Large content of a task.
#[derive(Clone, Debug)]
pub(in crate::store) struct Blob {
    pub(in crate::store) digest: Digest,
    pub(in crate::store) bytes: Bytes,
}

/// A reference from a part to its large content.
pub(super) struct ContentRef {
    pub(super) entry: u32,
    slot: ContentSlot,
    pub(super) digest: Digest,
}

/// A place within a value: the content of a part or a metadata, each numbered through the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentSlot {
    Part(u32),
    Metadata(u32),
}

impl ContentSlot {
    /// The numbers of metadata have this bit in databases.
    const METADATA: u32 = 1 << 31;

    fn of(number: u32) -> Self {
        match number & Self::METADATA {
            0 => Self::Part(number),
            _ => Self::Metadata(number & !Self::METADATA),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Part(number) => number,
            Self::Metadata(number) => number | Self::METADATA,
        }
    }
}

impl ContentRef {
    /// Counts without the first messages, which are gone; false if it is a place in one of them.
    pub(super) fn move_forward(&mut self, gone: &[Arc<Message>]) -> bool {
        let parts: usize = gone.iter().map(|message| message.parts.len()).sum();
        let minus =
            |number: u32, gone: usize| u32::try_from(gone).ok().and_then(|gone| number.checked_sub(gone));
        let moved = match self.slot {
            ContentSlot::Part(number) => minus(number, parts).map(ContentSlot::Part),
            // A message has one, and so does each of its parts.
            ContentSlot::Metadata(number) => minus(number, parts + gone.len()).map(ContentSlot::Metadata),
        };
        self.slot = moved.unwrap_or(self.slot);
        moved.is_some()
    }
}

/// The length in bytes of an encoded reference.
pub(super) const REF_LENGTH: usize = 40;

/// Decodes references.
pub(super) fn refs(refs: &[u8]) -> impl Iterator<Item = ContentRef> + '_ {
    refs.chunks_exact(REF_LENGTH).map(|place| {
        let number = |at: usize| place[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut digest = [0; 32];
        digest.copy_from_slice(&place[8..]);
        ContentRef { entry: number(0), slot: ContentSlot::of(number(4)), digest: Digest(digest) }
    })
}

/// Large content in its place.
pub(super) enum Holder<'a> {
    Content(&'a mut Content),
    Metadata(&'a mut Metadata),
}

/// The values with parts and metadata. Their order never changes, because databases contain it.
pub(super) trait Parts: Clone + Serialize + DeserializeOwned {
    /// True if a part or a metadata has over this many bytes.
    fn has_large(&self, large: usize) -> bool;

    /// Shows the content of every part, and every metadata.
    fn each(&mut self, see: &mut dyn FnMut(Holder<'_>));

    /// Restores the content of a part.
    fn fill(&mut self, place: &ContentRef, blobs: &Blobs) -> Result<(), StoreError> {
        let bytes = blobs.get(&place.digest).ok_or_else(|| damaged("large content is missing"))?;
        let (mut count, mut done) = (Count::default(), Err(damaged("content without its place")));
        self.each(&mut |holder| {
            if count.next(&holder) == place.slot {
                done = put_back(holder, bytes);
            }
        });
        done
    }
}

/// Numbers the places of a value.
#[derive(Default)]
struct Count {
    parts: u32,
    metadata: u32,
}

impl Count {
    fn next(&mut self, holder: &Holder<'_>) -> ContentSlot {
        match holder {
            Holder::Content(_) => {
                self.parts += 1;
                ContentSlot::Part(self.parts - 1)
            }
            Holder::Metadata(_) => {
                self.metadata += 1;
                ContentSlot::Metadata(self.metadata - 1)
            }
        }
    }
}

impl Parts for Event {
    fn has_large(&self, large: usize) -> bool {
        match self {
            Self::Task(task) => task.has_large(large),
            Self::Message(message) => is_large_message(message, large),
            Self::StatusUpdate(update) => {
                let mut message = update.status.message.iter();
                is_large_metadata(&update.metadata, large)
                    || message.any(|message| is_large_message(message, large))
            }
            Self::ArtifactUpdate(update) => {
                is_large_metadata(&update.metadata, large) || is_large_artifact(&update.artifact, large)
            }
        }
    }

    fn each(&mut self, see: &mut dyn FnMut(Holder<'_>)) {
        match self {
            Self::Task(task) => task.each(see),
            Self::Message(message) => each_of_message(message, see),
            Self::StatusUpdate(update) => {
                see(Holder::Metadata(&mut update.metadata));
                update.status.message.iter_mut().for_each(|message| each_of_message(message, see));
            }
            Self::ArtifactUpdate(update) => {
                see(Holder::Metadata(&mut update.metadata));
                each_of_artifact(&mut update.artifact, see);
            }
        }
    }
}

impl Parts for Task {
    fn has_large(&self, large: usize) -> bool {
        let mut messages = self.history.iter().chain(&self.status.message);
        messages.any(|message| is_large_message(message, large))
            || self.artifacts.has_large(large)
            || is_large_metadata(&self.metadata, large)
    }

    fn each(&mut self, see: &mut dyn FnMut(Holder<'_>)) {
        let messages = self.history.iter_mut().chain(&mut self.status.message);
        messages.for_each(|message| each_of_message(message, see));
        self.artifacts.each(see);
        see(Holder::Metadata(&mut self.metadata));
    }
}

impl Parts for Vec<Arc<Artifact>> {
    fn has_large(&self, large: usize) -> bool {
        self.iter().any(|artifact| is_large_artifact(artifact, large))
    }

    fn each(&mut self, see: &mut dyn FnMut(Holder<'_>)) {
        self.iter_mut().for_each(|artifact| each_of_artifact(artifact, see));
    }
}

fn each_of_message(message: &mut Arc<Message>, see: &mut dyn FnMut(Holder<'_>)) {
    let message = Arc::make_mut(message);
    see(Holder::Metadata(&mut message.metadata));
    each_of_parts(&mut message.parts, see);
}

fn each_of_artifact(artifact: &mut Arc<Artifact>, see: &mut dyn FnMut(Holder<'_>)) {
    let artifact = Arc::make_mut(artifact);
    see(Holder::Metadata(&mut artifact.metadata));
    each_of_parts(&mut artifact.parts, see);
}

fn each_of_parts(parts: &mut [Part], see: &mut dyn FnMut(Holder<'_>)) {
    for part in parts {
        see(Holder::Content(&mut part.content));
        see(Holder::Metadata(&mut part.metadata));
    }
}

/// Encodes a value as JSON, with its large content in `blobs`, and references to it in `refs`.
pub(super) fn encode<T: Parts>(
    value: &T,
    entry: u32,
    large: usize,
    blobs: &mut Vec<Blob>,
    json: &mut Vec<u8>,
    refs: &mut Vec<u8>,
) {
    // Our types always serialize, and writing to memory cannot fail.
    if !value.has_large(large) {
        let _ = serde_json::to_writer(json, value);
        return;
    }
    let (mut lean, mut count) = (value.clone(), Count::default());
    lean.each(&mut |holder| {
        let slot = count.next(&holder);
        if holder.is_large(large) {
            let bytes = holder.take_out();
            let digest = Digest(Sha256::digest(&bytes).into());
            refs.extend_from_slice(&entry.to_be_bytes());
            refs.extend_from_slice(&slot.number().to_be_bytes());
            refs.extend_from_slice(&digest.0);
            if blobs.iter().all(|known| known.digest != digest) {
                blobs.push(Blob { digest, bytes });
            }
        }
    });
    let _ = serde_json::to_writer(json, &lean);
}

fn is_large_message(message: &Message, large: usize) -> bool {
    is_large_metadata(&message.metadata, large) || any_large(&message.parts, large)
}

fn is_large_artifact(artifact: &Artifact, large: usize) -> bool {
    is_large_metadata(&artifact.metadata, large) || any_large(&artifact.parts, large)
}

fn any_large(parts: &[Part], large: usize) -> bool {
    parts.iter().any(|part| is_large(&part.content, large) || is_large_metadata(&part.metadata, large))
}

fn is_large_metadata(metadata: &Metadata, large: usize) -> bool {
    metadata.as_str().len() > large
}

fn is_large(content: &Content, large: usize) -> bool {
    match content {
        Content::Text(text) => text.len() > large,
        Content::Raw(bytes) => bytes.len() > large,
        Content::Url(_) => false,
        Content::Data(json) => json.as_str().len() > large,
    }
}

impl Holder<'_> {
    fn is_large(&self, large: usize) -> bool {
        match self {
            Self::Content(content) => is_large(content, large),
            Self::Metadata(metadata) => is_large_metadata(metadata, large),
        }
    }

    fn take_out(self) -> Bytes {
        match self {
            Self::Content(Content::Text(text)) => std::mem::take(text).into(),
            Self::Content(Content::Raw(bytes)) => std::mem::take(bytes),
            // Addresses are never large.
            Self::Content(Content::Url(_)) => Bytes::new(),
            // Shared, not copied.
            Self::Content(Content::Data(json)) => Bytes::from_owner(std::mem::take(json)),
            Self::Metadata(metadata) => Bytes::from_owner(std::mem::take(metadata).to_json()),
        }
    }
}

fn put_back(holder: Holder<'_>, bytes: &Bytes) -> Result<(), StoreError> {
    match holder {
        Holder::Content(Content::Text(text)) => {
            *text = String::from_utf8(bytes.to_vec()).map_err(damaged)?;
        }
        Holder::Content(Content::Raw(raw)) => *raw = bytes.clone(),
        Holder::Content(Content::Url(_)) => return Err(damaged("an address has no large content")),
        Holder::Content(Content::Data(json)) => *json = serde_json::from_slice(bytes).map_err(damaged)?,
        Holder::Metadata(metadata) => *metadata = serde_json::from_slice(bytes).map_err(damaged)?,
    }
    Ok(())
}
