//! Large content: removed from values before encoding, restored after decoding.
//!
//! A part keeps an empty content of the same kind, from which the type of the restored bytes is known.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{Artifact, Content, Event, Message, Part, Task};
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
pub(super) struct Place {
    pub(super) entry: u32,
    part: u32,
    pub(super) digest: Digest,
}

impl Place {
    /// Renumbers the part after the first `gone` parts were removed; false if it was one of them.
    pub(super) fn move_forward(&mut self, gone: usize) -> bool {
        let moved = u32::try_from(gone).ok().and_then(|gone| self.part.checked_sub(gone));
        self.part = moved.unwrap_or_default();
        moved.is_some()
    }
}

/// The length in bytes of an encoded reference.
pub(super) const REF_LENGTH: usize = 40;

/// Decodes references.
pub(super) fn refs(refs: &[u8]) -> impl Iterator<Item = Place> + '_ {
    refs.chunks_exact(REF_LENGTH).map(|place| {
        let number = |at: usize| place[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut digest = [0; 32];
        digest.copy_from_slice(&place[8..]);
        Place { entry: number(0), part: number(4), digest: Digest(digest) }
    })
}

/// A value with parts, in an order that never changes: part numbers are stored in databases.
pub(super) trait Parts: Clone + Serialize + DeserializeOwned {
    /// True if a part has content over this many bytes.
    fn has_large(&self, large: usize) -> bool;

    /// Calls `see` with every part.
    fn each(&mut self, see: &mut dyn FnMut(&mut Part));

    /// Restores the content of a part.
    fn fill(&mut self, place: &Place, blobs: &Blobs) -> Result<(), StoreError> {
        let bytes = blobs.get(&place.digest).ok_or_else(|| damaged("large content is missing"))?;
        let (mut number, mut done) = (0, Err(damaged("large content refers to a missing part")));
        self.each(&mut |part| {
            if number == place.part {
                done = put_back(&mut part.content, bytes);
            }
            number += 1;
        });
        done
    }
}

impl Parts for Event {
    fn has_large(&self, large: usize) -> bool {
        match self {
            Self::Task(task) => task.has_large(large),
            Self::Message(message) => any_large(&message.parts, large),
            Self::StatusUpdate(update) => {
                update.status.message.as_ref().is_some_and(|message| any_large(&message.parts, large))
            }
            Self::ArtifactUpdate(update) => any_large(&update.artifact.parts, large),
        }
    }

    fn each(&mut self, see: &mut dyn FnMut(&mut Part)) {
        match self {
            Self::Task(task) => task.each(see),
            Self::Message(message) => each_of_message(message, see),
            Self::StatusUpdate(update) => {
                update.status.message.iter_mut().for_each(|message| each_of_message(message, see));
            }
            Self::ArtifactUpdate(update) => {
                Arc::make_mut(&mut update.artifact).parts.iter_mut().for_each(see)
            }
        }
    }
}

impl Parts for Task {
    fn has_large(&self, large: usize) -> bool {
        let mut messages = self.history.iter().chain(&self.status.message);
        messages.any(|message| any_large(&message.parts, large)) || self.artifacts.has_large(large)
    }

    fn each(&mut self, see: &mut dyn FnMut(&mut Part)) {
        let messages = self.history.iter_mut().chain(&mut self.status.message);
        messages.for_each(|message| each_of_message(message, see));
        self.artifacts.each(see);
    }
}

impl Parts for Vec<Arc<Artifact>> {
    fn has_large(&self, large: usize) -> bool {
        self.iter().any(|artifact| any_large(&artifact.parts, large))
    }

    fn each(&mut self, see: &mut dyn FnMut(&mut Part)) {
        for artifact in self {
            Arc::make_mut(artifact).parts.iter_mut().for_each(&mut *see);
        }
    }
}

fn each_of_message(message: &mut Arc<Message>, see: &mut dyn FnMut(&mut Part)) {
    Arc::make_mut(message).parts.iter_mut().for_each(see);
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
    let (mut lean, mut number) = (value.clone(), 0_u32);
    lean.each(&mut |part| {
        if is_large(part, large) {
            let bytes = take_out(&mut part.content);
            let digest = Digest(Sha256::digest(&bytes).into());
            refs.extend_from_slice(&entry.to_be_bytes());
            refs.extend_from_slice(&number.to_be_bytes());
            refs.extend_from_slice(&digest.0);
            if blobs.iter().all(|known| known.digest != digest) {
                blobs.push(Blob { digest, bytes });
            }
        }
        number += 1;
    });
    let _ = serde_json::to_writer(json, &lean);
}

fn any_large(parts: &[Part], large: usize) -> bool {
    parts.iter().any(|part| is_large(part, large))
}

fn is_large(part: &Part, large: usize) -> bool {
    match &part.content {
        Content::Text(text) => text.len() > large,
        Content::Raw(bytes) => bytes.len() > large,
        Content::Url(_) => false,
        Content::Data(json) => json.as_str().len() > large,
    }
}

fn take_out(content: &mut Content) -> Bytes {
    match content {
        Content::Text(text) => std::mem::take(text).into(),
        Content::Raw(bytes) => std::mem::take(bytes),
        // URLs are never large.
        Content::Url(_) => Bytes::new(),
        // Shared, not copied.
        Content::Data(json) => Bytes::from_owner(std::mem::take(json)),
    }
}

fn put_back(content: &mut Content, bytes: &Bytes) -> Result<(), StoreError> {
    match content {
        Content::Text(text) => *text = String::from_utf8(bytes.to_vec()).map_err(damaged)?,
        Content::Raw(raw) => *raw = bytes.clone(),
        Content::Url(_) => return Err(damaged("a part with a URL has large content")),
        Content::Data(json) => *json = serde_json::from_slice(bytes).map_err(damaged)?,
    }
    Ok(())
}
