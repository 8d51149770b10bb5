//! An entry to append.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Event, Message, Seq, Task, TaskId, Timestamp};

use super::{IdempotencyKey, StoredTurn};
use crate::store::{RecordChange, Scope, Webhook};

/// An entry to append, and everything stored with it.
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
    /// The time at which it was recorded.
    pub at: Timestamp,
    /// The whole task after this entry, if it is terminal or interrupted. Reads use it instead of the log.
    pub snapshot: Option<Task>,
    /// Takes the task, or its reservation, from its owner.
    pub take: bool,
    /// Creates a delivery of this entry for each webhook of the task.
    pub push: bool,
    /// The data that is stored with the entry.
    pub attached: Attached,
}

/// Data that is stored in one transaction with an entry. A runtime collects it until the next entry comes.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// The idempotency key of the send that caused the entry; a repeated send finds the task by it. `None` for
    /// a reserved task, whose reservation has the key.
    pub idempotency: Option<IdempotencyKey>,
    /// True if the entry creates the task of a [`Reservation`](crate::store::Reservation), which ends with
    /// it.
    pub reserved: bool,
    /// The current or next turn of the task; stored with the entry, replaces the turn with the same id.
    pub turn: Option<StoredTurn>,
    /// A webhook to store with the entry; replaces the one with the same id.
    pub webhook: Option<Webhook>,
    /// The task's new memo.
    pub memo: Option<Bytes>,
    /// Changes of records, made with the entry. If one of them expects another version than the stored one,
    /// the entry is refused ([`Refused::Record`](crate::store::Refused)).
    pub records: Vec<RecordChange>,
    /// Parks the task: it is not in progress after the entry, so no owner holds it and none adopts it. Deletes
    /// its begun turns, as an interrupted status does.
    pub park: bool,
}

impl Attached {
    /// The number of bytes that this adds to an entry.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.records.iter().map(RecordChange::bytes).sum::<usize>();
        self.memo.as_ref().map_or(0, Bytes::len) + records
    }
}

impl Commit {
    /// The entry with a change of what is stored with it.
    #[must_use]
    pub fn attach(mut self, change: impl FnOnce(&mut Attached)) -> Self {
        change(&mut self.attached);
        self
    }

    /// True if the task is in progress after this entry; `None` if the entry does not change that.
    #[must_use]
    pub fn busy_after(&self) -> Option<bool> {
        if self.attached.park { Some(false) } else { busy_after(&self.event) }
    }
}

/// True if a task is in progress after this event, unless it is [parked](Attached::park); `None` if the event does
/// not change that.
#[must_use]
pub fn busy_after(event: &Event) -> Option<bool> {
    match event {
        Event::Task(_) | Event::StatusUpdate(_) => event.status().map(|status| !status.state.is_settled()),
        // The owner that recorded the caller's message works on it.
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
