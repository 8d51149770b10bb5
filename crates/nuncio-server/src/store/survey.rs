//! What operators see of tasks, whoever owns them: rows without contents, and numbers.

use std::sync::Arc;

use nuncio_protocol::{ContextId, Seq, TaskId, TaskState, Timestamp};

use super::{Keyset, Scope};

/// Which tasks, over all callers. Filters combine by AND.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminTaskQuery {
    /// Only of this agent.
    pub agent: Option<Arc<str>>,
    /// Only of this principal, in whatever tenant.
    pub owner: Option<Arc<str>>,
    /// Only in this state.
    pub state: Option<TaskState>,
    /// Only with a status from this moment or later.
    pub since: Option<Timestamp>,
    /// Only after this one in the order of the list.
    pub after: Option<Keyset>,
    /// At most so many.
    pub limit: usize,
}

/// A page of tasks, newest status first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminTaskPage {
    /// The tasks.
    pub tasks: Vec<AdminTask>,
    /// True if there are more after them.
    pub more: bool,
}

/// A task without its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminTask {
    /// Whose it is.
    pub scope: Arc<Scope>,
    /// The task.
    pub id: TaskId,
    /// Its conversation.
    pub context_id: ContextId,
    /// Its state.
    pub state: TaskState,
    /// When its status was recorded.
    pub at: Timestamp,
    /// The number of its last entry.
    pub seq: Seq,
}

/// How many tasks of an agent are in a state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskCount {
    /// The agent.
    pub agent: Arc<str>,
    /// The state.
    pub state: TaskState,
    /// How many; never 0.
    pub tasks: u64,
}
