//! The estimated size of tasks and direct replies in memory.

use super::{Commit, IdempotentAnswer, Outcome, Stored};
use crate::size;

/// The indexes, ids and allocations of a task or reply, besides its content, in bytes. Measured with tasks of
/// one short message: each takes about 2 KB, of which 600 bytes are content.
pub(super) const OVERHEAD: usize = 1400;

/// The content of an entry: the event, and the snapshot.
pub(super) fn of_commit(commit: &Commit) -> usize {
    size::event(&commit.event) + commit.snapshot.as_ref().map_or(0, size::task)
}

/// The size of a direct reply; other answers are counted with their task.
pub(super) fn of_answer(answer: &IdempotentAnswer) -> usize {
    match &answer.outcome {
        Outcome::Reply(reply) => OVERHEAD + size::message(reply),
        Outcome::Task(_) | Outcome::Reserved { .. } => 0,
    }
}

impl Stored {
    /// Adds an entry to the size of the task; returns the added bytes.
    pub(super) fn add_bytes(&mut self, commit: &Commit) -> usize {
        // A new snapshot replaces the one before.
        let replaced = match (&commit.snapshot, &self.snapshot) {
            (Some(_), Some((_, before))) => size::task(before),
            _ => 0,
        };
        let added = of_commit(commit).saturating_sub(replaced);
        self.bytes += added;
        added
    }
}
