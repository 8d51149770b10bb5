//! Turns, and tasks left behind by a stopped owner.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{TaskId, Timestamp};

use super::{IdempotencyKey, StoredTask};
use crate::store::Scope;

/// A message for a task to work on, stored so that it outlives the process. A terminal status deletes all
/// turns of its task, an interrupted one those that have begun; this includes the turn stored with the status
/// itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTurn {
    /// Ids sort by time. A turn with the same id is replaced.
    pub id: Arc<str>,
    /// True once the executor may have started with it.
    pub begun: bool,
    /// Data of the runtime; opaque to the store.
    pub body: Bytes,
}

/// A change of a turn without an entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TurnChange {
    /// Adds a turn that waits behind others.
    Queue(StoredTurn),
    /// Marks a turn as begun.
    Begin(Arc<str>),
    /// Deletes a turn that will not run. A missing turn is no error.
    Drop(Arc<str>),
}

/// A turn for the owner of a task, stored by another owner. It is stored together with an answer under its key,
/// which is the task: the same hand-in again finds that answer and changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandIn {
    /// The turn, which waits.
    pub turn: StoredTurn,
    /// The caller's key, or one that no other send has.
    pub key: IdempotencyKey,
    /// The time of the answer under the key.
    pub at: Timestamp,
    /// The number of waiting turns from which on the task takes no more.
    pub max_waiting: usize,
}

/// A query for the turns that wait at tasks of this owner.
#[derive(Clone, Debug)]
pub struct WaitingQuery {
    /// The agent of the tasks.
    pub agent: Arc<str>,
    /// Only turns of these tasks; `None`: of all.
    pub tasks: Option<Vec<TaskId>>,
    /// The ids of turns to leave out.
    pub except: Vec<Arc<str>>,
    /// The maximum number of turns.
    pub limit: usize,
}

/// A turn that waits, and its task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingTurn {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The turn.
    pub turn: StoredTurn,
}

/// A task of a stopped owner, adopted by this owner.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task and the number of its last entry.
    pub stored: StoredTask,
    /// True if it was in progress; otherwise it only has a waiting turn.
    pub busy: bool,
    /// Its turns, oldest first: in the order of their ids.
    pub turns: Vec<StoredTurn>,
}
