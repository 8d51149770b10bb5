//! The body of a notification, in the version in which its webhook was registered (trap T-43): the event for
//! v1.0, the task as it is at the time of the attempt for v0.3.

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

/// The number of log entries read at a time.
const PAGE: usize = 256;

/// The number of entries read at a time with the wanted one, and the maximum size in bytes of those kept.
const READ_AHEAD: usize = 16;
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;

/// The payload format for v0.3 receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// The bare task, as v0.3 defines it.
    #[default]
    Standard,
    /// A JSON-RPC response around the event, as NeuralPost expects it. Receivers of 1.0 still get the format
    /// of 1.0.
    NeuralPost,
}

/// A body and its content type.
pub(super) struct NotificationBody {
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl NotificationBody {
    /// Encodes an event that is in no store. `None` for an event that v0.3 cannot express: it only has tasks.
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

    /// Encodes an event as the dialect `neuralpost` does: as the result of a JSON-RPC response.
    pub(super) fn in_envelope(delivery: &str, event: &Event) -> Result<Self, StoreError> {
        let mut result = Vec::with_capacity(1_024);
        v03::JsonRpc.encode_event(event, &mut result);
        let result = serde_json::from_slice(&result).map_err(StoreError::broken)?;
        let envelope = JsonRpcEnvelope { jsonrpc: "2.0", id: delivery, result };
        let body = serde_json::to_vec(&envelope).map_err(StoreError::broken)?;
        Ok(Self { content_type: Self::content_type(Version::V0_3), body })
    }

    /// The content type of notifications in a version.
    pub(super) fn content_type(version: Version) -> &'static str {
        match version {
            Version::V1_0 => "application/a2a+json",
            Version::V0_3 => "application/json",
        }
    }
}

/// Entries read ahead of their deliveries. Only small ones, because they are held while requests are in
/// flight.
pub(super) type Ahead = Vec<StoredEvent>;

/// The log entry that a payload is made of.
pub(super) struct PayloadSource<'a> {
    pub(super) store: &'a dyn TaskLog,
    pub(super) scope: &'a Scope,
    pub(super) task_id: &'a TaskId,
    pub(super) seq: Seq,
    /// Sends artifacts in chunks, as they were emitted.
    pub(super) chunks: bool,
}

impl PayloadSource<'_> {
    /// Makes the payload; `None` if the entry or its task is gone.
    pub(super) async fn payload(
        &self,
        version: Version,
        dialect: Dialect,
        delivery: &str,
        ahead: &mut Ahead,
    ) -> Result<Option<NotificationBody>, StoreError> {
        let mut body = Vec::with_capacity(1_024);
        let content_type = match (version, dialect) {
            (Version::V1_0, _) => {
                let Some(event) = self.event(ahead).await? else { return Ok(None) };
                V1.encode_event(&event, &mut body);
                "application/a2a+json"
            }
            (Version::V0_3, Dialect::Standard) => {
                let Some(stored) = self.store.task(self.scope, self.task_id).await? else { return Ok(None) };
                // Writing to memory cannot fail.
                let _ = v03::JsonRpc.encode_reply(Op::GetTask, &Reply::Task(stored.task), &mut body);
                "application/json"
            }
            (Version::V0_3, Dialect::NeuralPost) => {
                let Some(event) = self.event(ahead).await? else { return Ok(None) };
                return NotificationBody::in_envelope(delivery, &event).map(Some);
            }
        };
        Ok(Some(NotificationBody { content_type, body }))
    }

    /// The event; an artifact as a whole, unless chunks are wanted.
    async fn event(&self, ahead: &mut Ahead) -> Result<Option<Arc<Event>>, StoreError> {
        let event = self.entry(ahead).await?;
        match event.as_deref() {
            Some(Event::ArtifactUpdate(update)) if update.append && !self.chunks => {
                Ok(Some(Arc::new(Event::ArtifactUpdate(self.whole(update).await?))))
            }
            _ => Ok(event),
        }
    }

    /// The entry. Also reads the entries after it ahead: entries that a task wrote together are stored
    /// together.
    async fn entry(&self, ahead: &mut Ahead) -> Result<Option<Arc<Event>>, StoreError> {
        if let Some(entry) = ahead.iter().find(|entry| entry.seq == self.seq) {
            return Ok(Some(Arc::clone(&entry.event)));
        }
        let before = Seq(self.seq.0.saturating_sub(1));
        let mut entries = self.store.events(self.scope, self.task_id, before, READ_AHEAD).await?.into_iter();
        let entry = entries.next().filter(|entry| entry.seq == self.seq);
        let mut held = 0;
        *ahead = entries
            .take_while(|entry| {
                held += size::event(&entry.event);
                held <= MAX_READ_AHEAD_BYTES
            })
            .collect();
        Ok(entry.map(|entry| entry.event))
    }

    /// The artifact as it was after the entry: its chunks, folded.
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
                    // The entry was folded when it was recorded, so it folds here too.
                    let _ = fold(&mut scratch, &entry.event, Timestamp::EPOCH);
                }
            }
            at = end;
        }
        let artifact = scratch.artifacts.pop().unwrap_or_else(|| Arc::clone(&last.artifact));
        Ok(TaskArtifactUpdateEvent { artifact, append: false, last_chunk: true, ..last.clone() })
    }
}

/// A JSON-RPC response without a request.
#[derive(Serialize)]
struct JsonRpcEnvelope<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    result: Box<RawValue>,
}
