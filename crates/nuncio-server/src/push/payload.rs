//! The body of a notification, in the version that its webhook was registered in (trap T-43): the event for
//! v1.0, the task as it is at the attempt for v0.3.

use std::sync::Arc;

use nuncio_protocol::{
    Event, Seq, Task, TaskArtifactUpdateEvent, TaskId, Timestamp, Version, fold,
    op::{Op, Reply},
    v03,
    wire::{Dialect as _, V1},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    size,
    store::{Scope, StoreError, StoredEvent, TaskLog},
};

/// How many entries of a log are read at a time.
const PAGE: usize = 256;

/// How many are read with the one that is wanted, and up to which weight the others are kept.
const AHEAD: usize = 16;
const MOST_AHEAD: usize = 64 << 10;

/// What v0.3 receivers get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// The bare task, as v0.3 has it.
    #[default]
    Standard,
    /// A JSON-RPC response around the event, as NeuralPost has it. Receivers of 1.0 get what 1.0 says.
    NeuralPost,
}

/// A body, and what it is.
pub(super) struct Payload {
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl Payload {
    /// An event that is in no store. The older version knows tasks only: `None` for whatever else.
    pub(super) fn of(version: Version, event: Event) -> Option<Self> {
        let mut body = Vec::with_capacity(1_024);
        match (version, event) {
            (Version::V1_0, event) => V1.encode_event(&event, &mut body),
            (Version::V0_3, Event::Task(task)) => {
                v03::JsonRpc.encode_reply(Op::GetTask, &Reply::Task(task), &mut body).ok()?;
            }
            (Version::V0_3, _) => return None,
        }
        Some(Self { content_type: Self::content_type(version), body })
    }

    /// What bodies of a version are.
    pub(super) fn content_type(version: Version) -> &'static str {
        match version {
            Version::V1_0 => "application/a2a+json",
            Version::V0_3 => "application/json",
        }
    }
}

/// Entries that were read with one before them: small ones, since they are held while others are on their way.
pub(super) type Ahead = Vec<StoredEvent>;

/// What a payload is about.
pub(super) struct Entry<'a> {
    pub(super) store: &'a dyn TaskLog,
    pub(super) scope: &'a Scope,
    pub(super) task_id: &'a TaskId,
    pub(super) seq: Seq,
    /// Artifacts piece by piece, as they were made.
    pub(super) chunks: bool,
}

impl Entry<'_> {
    /// The payload; `None` if there is no such entry any more.
    pub(super) async fn payload(
        &self,
        version: Version,
        dialect: Dialect,
        delivery: &str,
        ahead: &mut Ahead,
    ) -> Result<Option<Payload>, StoreError> {
        let mut body = Vec::with_capacity(1_024);
        let content_type = match (version, dialect) {
            (Version::V1_0, _) => {
                let Some(event) = self.event(ahead).await? else { return Ok(None) };
                V1.encode_event(&event, &mut body);
                "application/a2a+json"
            }
            (Version::V0_3, Dialect::Standard) => {
                let Some(stored) = self.store.task(self.scope, self.task_id).await? else { return Ok(None) };
                // Writing to memory does not fail.
                let _ = v03::JsonRpc.encode_reply(Op::GetTask, &Reply::Task(stored.task), &mut body);
                "application/json"
            }
            (Version::V0_3, Dialect::NeuralPost) => {
                let Some(event) = self.event(ahead).await? else { return Ok(None) };
                let mut result = Vec::with_capacity(1_024);
                v03::JsonRpc.encode_event(&event, &mut result);
                let result = serde_json::from_slice(&result).map_err(StoreError::broken)?;
                let envelope = Envelope { jsonrpc: "2.0", id: delivery, result };
                serde_json::to_writer(&mut body, &envelope).map_err(StoreError::broken)?;
                "application/json"
            }
        };
        Ok(Some(Payload { content_type, body }))
    }

    /// What happened; an artifact as a whole, unless it is wanted in pieces.
    async fn event(&self, ahead: &mut Ahead) -> Result<Option<Arc<Event>>, StoreError> {
        let event = self.entry(ahead).await?;
        match event.as_deref() {
            Some(Event::ArtifactUpdate(update)) if update.append && !self.chunks => {
                Ok(Some(Arc::new(Event::ArtifactUpdate(self.whole(update).await?))))
            }
            _ => Ok(event),
        }
    }

    /// The entry, and those behind it for the next time: what a task does at once is kept in one place.
    async fn entry(&self, ahead: &mut Ahead) -> Result<Option<Arc<Event>>, StoreError> {
        if let Some(entry) = ahead.iter().find(|entry| entry.seq == self.seq) {
            return Ok(Some(Arc::clone(&entry.event)));
        }
        let before = Seq(self.seq.0.saturating_sub(1));
        let mut entries = self.store.events(self.scope, self.task_id, before, AHEAD).await?.into_iter();
        let entry = entries.next().filter(|entry| entry.seq == self.seq);
        let mut held = 0;
        *ahead = entries
            .take_while(|entry| {
                held += size::event(&entry.event);
                held <= MOST_AHEAD
            })
            .collect();
        Ok(entry.map(|entry| entry.event))
    }

    /// The artifact as it was after the entry: its pieces, put together.
    async fn whole(&self, last: &TaskArtifactUpdateEvent) -> Result<TaskArtifactUpdateEvent, StoreError> {
        let mut scratch = Task { id: self.task_id.clone(), ..Task::default() };
        let mut at = Seq::ZERO;
        while at < self.seq {
            let page = self.store.events(self.scope, self.task_id, at, PAGE).await?;
            let Some(end) = page.last().map(|entry| entry.seq) else { break };
            for entry in page.iter().filter(|entry| entry.seq <= self.seq) {
                if let Event::ArtifactUpdate(update) = &*entry.event
                    && update.artifact.artifact_id == last.artifact.artifact_id
                {
                    // What was recorded has been folded once already, so it folds again.
                    let _ = fold(&mut scratch, &entry.event, Timestamp::EPOCH);
                }
            }
            at = end;
        }
        let artifact = scratch.artifacts.pop().unwrap_or_else(|| Arc::clone(&last.artifact));
        Ok(TaskArtifactUpdateEvent { artifact, append: false, last_chunk: true, ..last.clone() })
    }
}

/// The answer to a call that nobody made.
#[derive(Serialize)]
struct Envelope<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    result: Box<RawValue>,
}
