//! Lists of tasks, and projections of a task.

use nuncio_protocol::{ContextId, Task, TaskId, TaskState, Timestamp};

/// A query for tasks. Filters combine by AND.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Only tasks of this context.
    pub context_id: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks with a status from this time or later.
    pub since: Option<Timestamp>,
    /// Only tasks after this position in the list.
    pub after: Option<Keyset>,
    /// Not this one; it counts nevertheless.
    pub except: Option<TaskId>,
    /// The maximum number of tasks.
    pub limit: usize,
    /// The approximate maximum size of the page in bytes. It may shorten the page, but not below one task.
    /// `None`: no limit.
    pub max_bytes: Option<usize>,
    /// Not even one task that is larger than `max_bytes`: the page ends before it, and it is not read.
    pub strict_bytes: bool,
    /// Leaves the artifacts out.
    pub without_artifacts: bool,
    /// The maximum number of history messages, the newest; `None`: all.
    pub history: Option<usize>,
    /// Also counts all matches.
    pub count: bool,
    /// The number of tasks that are counted one by one; beyond it the total may be an estimate. `None`: no limit.
    pub max_counted: Option<usize>,
}

impl TaskQuery {
    /// The projection of each task.
    #[must_use]
    pub fn shown(&self) -> Projection {
        Projection { artifacts: !self.without_artifacts, history: self.history }
    }
}

/// The parts of a task to return. A store avoids loading the rest where it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Projection {
    /// Includes the artifacts.
    pub artifacts: bool,
    /// The maximum number of history messages, the newest; `None`: all.
    pub history: Option<usize>,
}

impl Projection {
    /// The whole task.
    pub const WHOLE: Self = Self { artifacts: true, history: None };

    /// Removes the parts that are not included.
    pub fn apply(self, task: &mut Task) {
        if !self.artifacts {
            task.artifacts = Vec::new();
        }
        if let Some(length) = self.history {
            let surplus = task.history.len().saturating_sub(length);
            task.history.drain(..surplus);
        }
    }
}

/// The bytes left on a page.
pub(crate) struct PageBytes {
    left: Option<usize>,
    /// The first task goes on the page whatever its size.
    takes_any: bool,
}

impl PageBytes {
    pub(crate) fn of(query: &TaskQuery) -> Self {
        Self { left: query.max_bytes, takes_any: !query.strict_bytes }
    }

    /// True if a task of so many bytes would go on the page.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.takes_any || self.left.is_none_or(|left| bytes <= left)
    }

    /// True if a task of so many bytes goes on the page. The first one always does, unless the bytes are strict.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.fits(bytes);
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        self.takes_any = false;
        fits
    }
}

/// A position in the list: newest status first, then by id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyset {
    /// The time at which the status was recorded.
    pub timestamp: Timestamp,
    /// The task.
    pub id: TaskId,
}

/// A page of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// True if there are more after them.
    pub more: bool,
    /// The number of all matches, if requested.
    pub total: Option<usize>,
    /// True if the total is an estimate, because there are more than [`TaskQuery::max_counted`].
    pub is_estimate: bool,
}
