//! The encoding of tasks in a database: batches as few writes, log segments and snapshots as JSON, and large
//! content in rows of its own.
//!
//! ```text
//! batch     t-1 #1   t-1 #2   t-2 #7   t-1 #3        entries of a commit
//!            └────────┴───────────────── ┘
//! writes    t-1 #1..3         t-2 #7                 one per task where possible
//! segments  [#1,#2,#3]        [#7]                   one row of the log each
//! ```

mod batch;
mod content;
mod draft;

use std::{collections::HashMap, io::Write as _, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{Artifact, Event, Seq, Task, TaskState, Timestamp, fold};
use serde::Deserialize;

use self::content::Parts;
use super::{StoreError, StoredEvent};

pub(super) use self::{
    batch::{Drops, TaskWrite, coalesce},
    content::{Blob, Digest},
    draft::Draft,
};

/// The size in bytes above which content is stored beside the log, by default.
pub(super) const DEFAULT_LARGE: usize = 64 * 1024;

/// The maximum number of entries of a segment: reading a few entries never decodes many.
const MAX_SEGMENT_ENTRIES: usize = 128;

/// The size in bytes from which a segment takes no further entry.
const MAX_SEGMENT_BYTES: usize = 256 * 1024;

/// JSON without its large content, and references to that content. A reference has the number of the entry
/// within the body, the number of the part within the entry, and the digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) json: Vec<u8>,
    pub(super) refs: Vec<u8>,
}

/// Consecutive entries of one log.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) body: Body,
}

/// The whole task after the entry `seq`. Artifacts are separate, so that a list without them does not read
/// them.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) seq: Seq,
    pub(super) task: Body,
    /// `None` without artifacts.
    pub(super) artifacts: Option<Body>,
}

/// The large content that bodies refer to.
pub(super) type Blobs = HashMap<Digest, Bytes>;

/// The error for stored data that cannot be decoded.
pub(super) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::broken(format!("stored data is damaged: {what}"))
}

/// True if a snapshot of a task in this state at `seq` is to be stored, when the last one was stored at
/// `kept`. Doubling the distance keeps the total work for a conversation linear in its length.
pub(super) fn is_snapshot_due(state: TaskState, seq: Seq, kept: Seq) -> bool {
    state.is_terminal() || (state.is_interrupted() && seq.0 >= kept.0.saturating_mul(2))
}

/// The number of a state in a database: that of protobuf.
pub(super) fn state_code(state: TaskState) -> i16 {
    state as i16
}

/// Decodes the number of a state.
pub(super) fn state_of(code: i64) -> Result<TaskState, StoreError> {
    let known = TaskState::ALL.iter().find(|state| i64::from(state_code(**state)) == code);
    known.copied().ok_or_else(|| damaged(format_args!("{code} is not a task state")))
}

/// Milliseconds for the lower bound of a range, rounded up: a time that is earlier by less than a millisecond
/// must not match.
pub(super) fn millis_from(at: Timestamp) -> i64 {
    let millis = at.as_millis();
    if Timestamp::from_millis(millis) == Some(at) { millis } else { millis + 1 }
}

/// Decodes a time in milliseconds.
pub(super) fn moment(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millis(millis).ok_or_else(|| damaged(format_args!("{millis} is not a valid time")))
}

impl Body {
    fn encode<T: Parts>(value: &T, large: usize, blobs: &mut Vec<Blob>) -> Self {
        let mut body = Self::default();
        content::encode(value, 0, large, blobs, &mut body.json, &mut body.refs);
        body
    }
}

impl Segment {
    fn begin(first: Seq) -> Self {
        Self { first, last: first, body: Body { json: vec![b'['], refs: Vec::new() } }
    }

    fn is_full(&self) -> bool {
        self.last.0 - self.first.0 + 1 >= MAX_SEGMENT_ENTRIES as u64
            || self.body.json.len() >= MAX_SEGMENT_BYTES
    }

    /// Appends an entry; large content goes to `blobs`.
    fn push(&mut self, seq: Seq, at: Timestamp, event: &Event, large: usize, blobs: &mut Vec<Blob>) {
        self.last = seq;
        let Body { json, refs } = &mut self.body;
        if json.len() > 1 {
            json.push(b',');
        }
        // Writing to memory cannot fail.
        let _ = write!(json, r#"{{"seq":{seq},"at":{},"event":"#, at.as_millis());
        content::encode(event, (seq.0 - self.first.0) as u32, large, blobs, json, refs);
        if matches!(event, Event::ArtifactUpdate(update) if update.joins) {
            json.extend_from_slice(br#","joins":true"#);
        }
        json.push(b'}');
    }

    fn end(&mut self) {
        self.body.json.push(b']');
    }
}

impl Snapshot {
    /// Encodes a task; large content goes to `blobs`.
    pub(super) fn encode(seq: Seq, task: &Task, large: usize, blobs: &mut Vec<Blob>) -> Self {
        let lean = Task {
            id: task.id.clone(),
            context_id: task.context_id.clone(),
            status: task.status.clone(),
            artifacts: Vec::new(),
            history: task.history.clone(),
            metadata: task.metadata.clone(),
        };
        let body = Body::encode(&lean, large, blobs);
        let artifacts = (!task.artifacts.is_empty()).then(|| Body::encode(&task.artifacts, large, blobs));
        Self { seq, task: body, artifacts }
    }
}

/// The digests of the large content that a body refers to.
pub(super) fn digests(refs: &[u8]) -> impl Iterator<Item = Digest> + '_ {
    content::refs(refs).map(|place| place.digest)
}

/// Decodes the entries of a segment.
pub(super) fn decode_segment(
    json: &[u8],
    refs: &[u8],
    blobs: &Blobs,
) -> Result<Vec<StoredEvent>, StoreError> {
    #[derive(Deserialize)]
    struct Entry {
        seq: u64,
        at: i64,
        event: Event,
        #[serde(default)]
        joins: bool,
    }
    let mut entries: Vec<Entry> = serde_json::from_slice(json).map_err(damaged)?;
    for place in content::refs(refs) {
        let entry = entries.get_mut(place.entry as usize);
        let entry = entry.ok_or_else(|| damaged("large content refers to a missing entry"))?;
        entry.event.fill(&place, blobs)?;
    }
    let entry = |Entry { seq, at, event, joins }| {
        Ok(StoredEvent { seq: Seq(seq), at: moment(at)?, event: Arc::new(joined(event, joins)) })
    };
    entries.into_iter().map(entry).collect()
}

/// The event of an entry. Whether its text joins stands beside it: the event has the form that it has on the wire.
fn joined(mut event: Event, joins: bool) -> Event {
    if let Event::ArtifactUpdate(update) = &mut event {
        update.joins = joins;
    }
    event
}

/// Decodes the task of a snapshot, without artifacts.
pub(super) fn decode_task(json: &[u8], refs: &[u8], blobs: &Blobs) -> Result<Task, StoreError> {
    decode(json, refs, blobs)
}

/// Decodes the artifacts of a snapshot.
pub(super) fn decode_artifacts(
    json: &[u8],
    refs: &[u8],
    blobs: &Blobs,
) -> Result<Vec<Arc<Artifact>>, StoreError> {
    decode(json, refs, blobs)
}

fn decode<T: Parts>(json: &[u8], refs: &[u8], blobs: &Blobs) -> Result<T, StoreError> {
    let mut value: T = serde_json::from_slice(json).map_err(damaged)?;
    for place in content::refs(refs) {
        value.fill(&place, blobs)?;
    }
    Ok(value)
}

/// Folds the entries after the snapshot at `seq` into the task.
pub(super) fn replay(task: &mut Task, seq: Seq, entries: Vec<StoredEvent>) {
    for StoredEvent { event, .. } in entries.into_iter().filter(|entry| entry.seq > seq) {
        fold_in(task, Arc::unwrap_or_clone(event));
    }
}

/// Folds one entry into the task.
fn fold_in(task: &mut Task, event: Event) {
    match event {
        Event::Task(created) => *task = created,
        // The entry was folded when it was recorded, so it folds here too. The time is only for a status
        // without one, which the runtime does not record.
        event => drop(fold(task, &event, Timestamp::EPOCH)),
    }
}

#[cfg(test)]
mod tests;
