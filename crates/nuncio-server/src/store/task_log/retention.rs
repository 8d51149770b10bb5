//! Retention: what is forgotten by age.

use std::sync::Arc;

use nuncio_protocol::{TaskState, Timestamp};

/// Tasks or replies that are past their time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prune {
    /// Of this agent.
    pub agent: Arc<str>,
    /// The kind.
    pub what: Pruned,
    /// In this state, or given, since before this moment.
    pub before: Timestamp,
}

/// The kinds that are forgotten by age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruned {
    /// Tasks in this state, with all that belongs to them.
    Tasks(TaskState),
    /// Direct replies under idempotency keys.
    Replies,
}
