//! Observers of commits.

use std::sync::Arc;

use nuncio_protocol::{Seq, TaskId, TaskState, Timestamp};

use crate::store::{Commit, Scope};

/// Is told of the entries that a runtime has committed, whoever else reads them.
pub trait CommitObserver: Send + Sync + 'static {
    /// Called after entries of a task were committed, in the order of their numbers. It is called within the write
    /// path, so it must not block.
    fn committed(&self, committed: Committed);
}

/// Entries of one task that were committed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The number of the last entry.
    pub seq: Seq,
    /// The state that these entries have set; `None`: it is as before.
    pub state: Option<TaskState>,
    /// The time at which the last entry was recorded.
    pub at: Timestamp,
}

impl Committed {
    pub(super) fn of(batch: &[Commit]) -> Option<Self> {
        let last = batch.last()?;
        let state = batch.iter().rev().find_map(|commit| commit.event.status()).map(|status| status.state);
        Some(Self {
            scope: Arc::clone(&last.scope),
            task_id: last.task_id.clone(),
            seq: last.expected.next(),
            state,
            at: last.at,
        })
    }
}
