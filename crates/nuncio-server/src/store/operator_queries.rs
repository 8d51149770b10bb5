//! Queries and commands of operators, over all callers.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{ContextId, Seq, TaskId, TaskState, Timestamp};

use super::{
    Backlog, Delivery, DeliveryQuery, Keyset, Redrive, Scope, StoreError, StoredTask, records::end_of,
};

/// Tasks and deliveries over all callers, for operators. No method serves a caller, because it crosses
/// scopes.
///
/// Implementors guarantee, and [`conformance`](crate::store) tests:
/// - A query sees everything that the other parts have committed, of any owner.
/// - A query that takes too long fails alone, as [`StoreError::busy`]; no read or write of a caller waits for
///   it.
/// - Erasing a caller deletes everything of it, in any state of its tasks.
#[async_trait]
pub trait OperatorQueries: Send + Sync + 'static {
    /// A page of tasks, newest status first.
    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError>;

    /// A task and its scope.
    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError>;

    /// The number of tasks in each state by agent, sorted by agent and state; states without tasks are left
    /// out. Cheap enough for frequent calls.
    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError>;

    /// The size of the stored data, in bytes; of a database what it takes on its disk.
    async fn size(&self) -> Result<u64, StoreError>;

    /// A page of deliveries, and whether there are more after them.
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError>;

    /// The number of pending deliveries, over all agents.
    async fn backlog(&self) -> Result<Backlog, StoreError>;

    /// Makes deliveries pending again, as if they were new, and their webhooks due; returns the number of
    /// deliveries.
    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError>;

    /// Deletes at most `limit` tasks, replies and reservations of a caller, in any state; returns their
    /// number.
    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError>;
}

/// A query for tasks over all callers. Filters combine by AND.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminTaskQuery {
    /// Only tasks of this agent.
    pub agent: Option<Arc<str>>,
    /// Only tasks of this principal, in any tenant.
    pub owner: Option<Arc<str>>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks of this context.
    pub context_id: Option<ContextId>,
    /// Only tasks whose id begins with this.
    pub id_prefix: Option<String>,
    /// Only tasks with a status from this time or later.
    pub since: Option<Timestamp>,
    /// Only tasks with a status before this time.
    pub before: Option<Timestamp>,
    /// Only tasks after this position in the list.
    pub after: Option<Keyset>,
    /// The maximum number of tasks.
    pub limit: usize,
}

impl AdminTaskQuery {
    /// The position in the list after which the page begins: that of [`Self::after`], or that of the newest
    /// task before [`Self::before`].
    pub(super) fn position(&self) -> Option<Keyset> {
        let before = self.before.map(|before| Keyset { timestamp: before, id: TaskId::default() });
        let place = |keyset: &Keyset| (keyset.timestamp, keyset.id.clone());
        self.after.iter().cloned().chain(before).min_by_key(place)
    }

    /// The range of ids that begin with [`Self::id_prefix`]: the first one, and the one after the last.
    pub(super) fn ids(&self) -> Option<(String, Option<String>)> {
        let prefix = self.id_prefix.as_ref().filter(|prefix| !prefix.is_empty())?;
        Some((prefix.clone(), end_of(prefix)))
    }
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
    /// Its scope.
    pub scope: Arc<Scope>,
    /// The task.
    pub id: TaskId,
    /// Its context.
    pub context_id: ContextId,
    /// Its state.
    pub state: TaskState,
    /// The time at which its status was recorded.
    pub at: Timestamp,
    /// The number of its last entry.
    pub seq: Seq,
}

/// The number of tasks of an agent in a state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskCount {
    /// The agent.
    pub agent: Arc<str>,
    /// The state.
    pub state: TaskState,
    /// The number; never 0.
    pub tasks: u64,
}

/// A caller, for the deletion of its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErasureTarget {
    /// Only at this agent; `None`: at all agents.
    pub agent: Option<Arc<str>>,
    /// Only in this tenant; `None`: in all tenants, and without one.
    pub tenant: Option<Arc<str>>,
    /// The principal; `None`: the anonymous caller.
    pub owner: Option<Arc<str>>,
}

impl ErasureTarget {
    /// True if data of this scope belongs to the caller.
    #[must_use]
    pub fn is(&self, scope: &Scope) -> bool {
        scope.owner == self.owner
            && (self.agent.is_none() || self.agent.as_ref() == Some(&scope.agent))
            && (self.tenant.is_none() || self.tenant == scope.tenant)
    }
}
