//! Retention: deletion by age.

use std::sync::Arc;

use nuncio_protocol::{TaskState, Timestamp};

/// Selects expired tasks or replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prune {
    /// The agent.
    pub agent: Arc<str>,
    /// The kind of data.
    pub what: Pruned,
    /// The time before which a task got its last status, or a reply was stored.
    pub before: Timestamp,
}

/// The kinds of data that are deleted by age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruned {
    /// Tasks in this state, with everything that belongs to them.
    Tasks(TaskState),
    /// Direct replies under idempotency keys.
    Replies,
}
