//! A task that is being read: decoded, but without its large content. Parts that are not shown are removed
//! first, so that their content is never loaded.

use std::sync::Arc;

use nuncio_protocol::{Artifact, Event, Seq, Task};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Blobs, Digest,
    content::{self, ContentRef, Parts},
    damaged, fold_in, joined,
};
use crate::store::{Projection, StoreError};

/// The beginning of the JSON of an artifact update.
const ARTIFACT: &str = r#"{"artifactUpdate""#;

/// A decoded value, and the references to its large content.
struct Lean<T> {
    value: T,
    places: Vec<ContentRef>,
}

impl<T: Parts> Lean<T> {
    fn decode(json: &[u8], refs: &[u8]) -> Result<Self, StoreError> {
        let value = serde_json::from_slice(json).map_err(damaged)?;
        Ok(Self { value, places: content::refs(refs).collect() })
    }

    fn fill(mut self, blobs: &Blobs) -> Result<T, StoreError> {
        for place in &self.places {
            self.value.fill(place, blobs)?;
        }
        Ok(self.value)
    }
}

impl Lean<Task> {
    /// Keeps the last `length` messages of history.
    fn trim(&mut self, length: usize) {
        let surplus = self.value.history.len().saturating_sub(length);
        let gone: Vec<_> = self.value.history.drain(..surplus).collect();
        // Places are numbered through the messages, the oldest first.
        self.places.retain_mut(|place| place.move_forward(&gone));
    }
}

/// A task under construction.
pub(in crate::store) struct Draft {
    shown: Projection,
    snapshot: Option<Lean<Task>>,
    artifacts: Option<Lean<Vec<Arc<Artifact>>>>,
    /// The entries after the snapshot.
    entries: Vec<Lean<Event>>,
    bytes: usize,
}

impl Draft {
    /// Starts a draft of a task with this projection.
    pub(in crate::store) fn new(shown: Projection) -> Self {
        Self { shown, snapshot: None, artifacts: None, entries: Vec::new(), bytes: 0 }
    }

    /// Adds the snapshot.
    pub(in crate::store) fn snapshot(&mut self, json: &[u8], refs: &[u8]) -> Result<(), StoreError> {
        self.bytes += json.len();
        let mut snapshot = Lean::<Task>::decode(json, refs)?;
        if let Some(length) = self.shown.history {
            // Later messages are appended, so no older ones than these can be needed.
            snapshot.trim(length);
        }
        self.snapshot = Some(snapshot);
        Ok(())
    }

    /// Adds the artifacts of the snapshot.
    pub(in crate::store) fn artifacts(&mut self, json: &[u8], refs: &[u8]) -> Result<(), StoreError> {
        if self.shown.artifacts {
            self.bytes += json.len();
            self.artifacts = Some(Lean::decode(json, refs)?);
        }
        Ok(())
    }

    /// Adds the entries of a segment after `after`. Segments come in order.
    pub(in crate::store) fn segment(
        &mut self,
        json: &[u8],
        refs: &[u8],
        after: Seq,
    ) -> Result<(), StoreError> {
        #[derive(Deserialize)]
        struct DraftEntry<'a> {
            seq: u64,
            #[serde(borrow)]
            event: &'a RawValue,
            #[serde(default)]
            joins: bool,
        }
        self.bytes += json.len();
        let entries: Vec<DraftEntry<'_>> = serde_json::from_slice(json).map_err(damaged)?;
        let mut places: Vec<Vec<ContentRef>> = Vec::new();
        places.resize_with(entries.len(), Vec::new);
        for place in content::refs(refs) {
            let of_entry = places.get_mut(place.entry as usize);
            of_entry.ok_or_else(|| damaged("large content refers to a missing entry"))?.push(place);
        }
        for (DraftEntry { seq, event, joins }, places) in entries.into_iter().zip(places) {
            let is_shown = self.shown.artifacts || !event.get().starts_with(ARTIFACT);
            if seq > after.0 && is_shown {
                let event = serde_json::from_str(event.get()).map_err(damaged)?;
                self.entries.push(Lean { value: joined(event, joins), places });
            }
        }
        Ok(())
    }

    /// Ends the input, and drops the references of messages that are too old to be shown.
    pub(in crate::store) fn end(&mut self) {
        // The newest message may belong to the status, which is not history.
        let Some(mut left) = self.shown.history.map(|length| length.saturating_add(1)) else { return };
        for entry in self.entries.iter_mut().rev() {
            if left == 0 && !has_artifacts(&entry.value) {
                entry.places.clear();
            }
            left = left.saturating_sub(messages(&entry.value));
        }
    }

    /// The number of bytes read, without large content.
    pub(in crate::store) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The digests of the large content to load; may contain duplicates.
    pub(in crate::store) fn wants(&self) -> impl Iterator<Item = Digest> + '_ {
        let snapshot = self.snapshot.iter().flat_map(|lean| &lean.places);
        let artifacts = self.artifacts.iter().flat_map(|lean| &lean.places);
        let entries = self.entries.iter().flat_map(|lean| &lean.places);
        snapshot.chain(artifacts).chain(entries).map(|place| place.digest)
    }

    /// The task, with its large content.
    pub(in crate::store) fn finish(self, blobs: &Blobs) -> Result<Task, StoreError> {
        let mut task = match self.snapshot {
            Some(snapshot) => snapshot.fill(blobs)?,
            None => Task::default(),
        };
        if let Some(artifacts) = self.artifacts {
            task.artifacts = artifacts.fill(blobs)?;
        }
        for entry in self.entries {
            fold_in(&mut task, entry.fill(blobs)?);
        }
        self.shown.apply(&mut task);
        Ok(task)
    }
}

/// The number of messages that an entry adds to a task.
fn messages(event: &Event) -> usize {
    match event {
        Event::Task(task) => task.history.len() + usize::from(task.status.message.is_some()),
        Event::Message(_) => 1,
        Event::StatusUpdate(update) => usize::from(update.status.message.is_some()),
        Event::ArtifactUpdate(_) => 0,
    }
}

fn has_artifacts(event: &Event) -> bool {
    match event {
        Event::Task(task) => !task.artifacts.is_empty(),
        Event::ArtifactUpdate(_) => true,
        Event::Message(_) | Event::StatusUpdate(_) => false,
    }
}
