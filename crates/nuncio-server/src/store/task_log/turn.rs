//! Turns, and the tasks that an owner left behind.

use std::sync::Arc;

use bytes::Bytes;

use super::StoredTask;
use crate::store::Scope;

/// A message that a task is to work on, kept so that it outlives the process. A status that is terminal
/// drops all turns of its task, one that is interrupted those that have begun; that of its own entry, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTurn {
    /// In the order of time. A turn of the task that has the same one is replaced.
    pub id: Arc<str>,
    /// True once the agent may have begun with it.
    pub begun: bool,
    /// For the runtime; the store does not look inside.
    pub body: Bytes,
}

/// A change of a turn that is no entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TurnChange {
    /// It waits behind others.
    Queue(StoredTurn),
    /// It begins.
    Begin(Arc<str>),
    /// It is not to be run after all. One that is gone already is no error.
    Drop(Arc<str>),
}

/// A task that its owner has left behind, now of this owner.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task and the number of its last entry.
    pub stored: StoredTask,
    /// True if it was in progress; else only a turn waits.
    pub busy: bool,
    /// Its turns, oldest first: in the order of their ids.
    pub turns: Vec<StoredTurn>,
}
