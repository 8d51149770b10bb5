//! Queries and commands of operators, over all callers.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{ContextId, Seq, TaskId, TaskState, Timestamp};

use super::{Backlog, Delivery, DeliveryQuery, Keyset, Redrive, Scope, StoreError, StoredTask};

/// Tasks and deliveries over all callers, for the people who run a server. No method of it serves a caller: it crosses
/// scopes.
///
/// Implementors keep, and [`conformance`](crate::store) proves:
/// - A query sees what the other parts have committed, whoever owns it.
/// - A query that takes long fails alone, as [`StoreError::busy`]; no read or write of a caller waits for it.
/// - Nothing stays of a caller that is erased, in whatever state its tasks are.
#[async_trait]
pub trait OperatorQueries: Send + Sync + 'static {
    /// A page of tasks, newest status first.
    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError>;

    /// A task and its scope.
    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError>;

    /// The number of tasks in each state, by agent, in this order; states without tasks are left out. Cheap enough to be
    /// asked all the time.
    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError>;

    /// A page of deliveries, and whether there are more after them.
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError>;

    /// The number of pending deliveries, over all agents.
    async fn backlog(&self) -> Result<Backlog, StoreError>;

    /// Makes deliveries pending, as if they were owed since now and had not been tried, and their webhooks due; says how
    /// many.
    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError>;

    /// Forgets at most so many tasks, replies and reservations of a caller, whatever their state; says how many.
    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError>;
}

/// A query for tasks over all callers. Filters combine by AND.
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
    /// Its scope.
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
    /// At this agent only; `None`: at all.
    pub agent: Option<Arc<str>>,
    /// In this tenant; `None`: in all, and without one.
    pub tenant: Option<Arc<str>>,
    /// The principal; `None`: the anonymous caller.
    pub owner: Option<Arc<str>>,
}

impl ErasureTarget {
    /// True if what is kept in this scope is theirs.
    #[must_use]
    pub fn is(&self, scope: &Scope) -> bool {
        scope.owner == self.owner
            && (self.agent.is_none() || self.agent.as_ref() == Some(&scope.agent))
            && (self.tenant.is_none() || self.tenant == scope.tenant)
    }
}
