//! One entry to append.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Event, Message, Seq, Task, TaskId, Timestamp};

use super::{IdempotencyKey, StoredTurn};
use crate::store::{PutRecord, Scope, Webhook};

/// One entry to append.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The number of the last entry; [`Seq::ZERO`] creates the task.
    pub expected: Seq,
    /// The entry.
    pub event: Arc<Event>,
    /// When it was recorded.
    pub at: Timestamp,
    /// The whole task after this entry, when it is terminal or interrupted: read instead of the log.
    pub snapshot: Option<Task>,
    /// A repeat of the send that caused this entry finds the task under this key. A task that is reserved has the key
    /// of its reservation.
    pub idempotency: Option<IdempotencyKey>,
    /// The entry creates the task of a [`Reservation`](crate::store::Reservation), which ends with it.
    pub reserved: bool,
    /// The turn that the task is to work on, or works on: kept with the entry, in place of what is kept
    /// under its id.
    pub turn: Option<StoredTurn>,
    /// Take the task, or its reservation, from its owner.
    pub take: bool,
    /// Kept with the entry, in place of one of the same id.
    pub webhook: Option<Webhook>,
    /// The webhooks of the task are owed this entry.
    pub push: bool,
    /// Kept with the task from this entry on, in place of what it had.
    pub memo: Option<Bytes>,
    /// Written with the entry, in place of the record that is there: its `expect` does not count.
    pub record: Option<Box<PutRecord>>,
}

/// Whether a task is in progress after this entry; `None`: as before.
#[must_use]
pub fn busy_after(event: &Event) -> Option<bool> {
    match event {
        Event::Task(_) | Event::StatusUpdate(_) => event.status().map(|status| !status.state.is_settled()),
        // The caller has said something: the owner that recorded it works on it.
        Event::Message(_) => Some(true),
        Event::ArtifactUpdate(_) => None,
    }
}

/// The tasks that an entry refers to.
pub(crate) fn references(event: &Event) -> impl Iterator<Item = &TaskId> {
    let said: &[Arc<Message>] = match event {
        Event::Task(task) => &task.history,
        Event::Message(message) => std::slice::from_ref(message),
        Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => &[],
    };
    said.iter().flat_map(|message| &message.reference_task_ids)
}
