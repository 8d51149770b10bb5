//! Tasks and entries as reads return them.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Event, Seq, Task, TaskId, Timestamp};

/// A task and the number of its last entry.
#[derive(Clone, Debug)]
pub struct StoredTask {
    /// The task.
    pub task: Task,
    /// The number of its last entry.
    pub seq: Seq,
    /// True if another owner, which may have stopped, holds the task: no one else may write to it before it
    /// is adopted or taken.
    pub held: bool,
    /// True if it is in progress and not parked, or has a turn that waits to begin.
    pub in_hand: bool,
    /// True if it has webhooks.
    pub pushes: bool,
    /// The memo that the executor stored.
    pub memo: Option<Bytes>,
}

/// A task that has entries after a given number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moved {
    /// The task.
    pub id: TaskId,
    /// The number of its last entry.
    pub seq: Seq,
    /// As [`StoredTask::held`].
    pub held: bool,
    /// As [`StoredTask::in_hand`].
    pub in_hand: bool,
}

/// An entry of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredEvent {
    /// Its number.
    pub seq: Seq,
    /// The time at which it was recorded.
    pub at: Timestamp,
    /// The event.
    pub event: Arc<Event>,
}

/// References between tasks, from `referenceTaskIds` of callers' messages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Links {
    /// The tasks that this one refers to, in the order of their ids.
    pub parents: Vec<TaskId>,
    /// The tasks that refer to this one, in the order of their ids; at most [`MAX_CHILDREN`].
    pub children: Vec<TaskId>,
}

/// The maximum number of children returned.
pub const MAX_CHILDREN: usize = 1_000;
