//! Queries of operators over all callers, and counts of tasks.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{TaskId, TaskState, Timestamp};

use super::{MemoryInner, MemoryStore, Owner, Stored, index};
use crate::store::{
    AdminTask, AdminTaskPage, AdminTaskQuery, Backlog, Delivery, DeliveryQuery, ErasureTarget, Keyset,
    OperatorQueries, Redrive, Scope, StoreError, StoredTask, TaskCount, TaskQuery,
};

/// The number of tasks in each state, indexed by the state.
pub(super) type States = [u64; TaskState::ALL.len()];

impl MemoryInner {
    /// Counts the change of a task from one state to another; `None` stands for a task that is created or
    /// deleted.
    pub(super) fn count(&mut self, agent: &Arc<str>, from: Option<TaskState>, to: Option<TaskState>) {
        // Looked up first, to clone the name only for a new agent.
        let states = match self.counts.get_mut(agent) {
            Some(states) => states,
            None => self.counts.entry(Arc::clone(agent)).or_default(),
        };
        if let Some(from) = from {
            states[from as usize] -= 1;
        }
        if let Some(to) = to {
            states[to as usize] += 1;
        }
    }

    pub(super) fn counts(&self) -> Vec<TaskCount> {
        let rows = self.counts.iter().flat_map(|(agent, states)| {
            let there = TaskState::ALL.iter().map(|state| (*state, states[*state as usize]));
            let count = |(state, tasks)| TaskCount { agent: Arc::clone(agent), state, tasks };
            there.filter(|(_, tasks)| *tasks > 0).map(count)
        });
        let mut rows: Vec<TaskCount> = rows.collect();
        rows.sort_unstable();
        rows
    }

    pub(super) fn find(&self, me: Owner, id: &TaskId) -> Option<(Scope, StoredTask)> {
        self.tasks.get(id).map(|stored| ((*stored.scope).clone(), stored.read(me)))
    }

    /// The tasks whose ids begin with this and that match, in no order. There is no index of ids: all are compared.
    fn with_prefix<'a>(
        &'a self,
        prefix: &'a str,
        query: &'a TaskQuery,
    ) -> impl Iterator<Item = (Keyset, &'a Stored)> {
        let named = self.tasks.iter().filter(move |(id, _)| id.as_str().starts_with(prefix));
        let places =
            named.map(|(id, stored)| (Keyset { timestamp: stored.status.0, id: id.clone() }, &**stored));
        places.filter(|(place, stored)| {
            query.state.is_none_or(|state| state == stored.status.1)
                && query.since.is_none_or(|since| place.timestamp >= since)
                && query.after.as_ref().is_none_or(|after| index::comes_after(place, after))
                && query.context_id.as_ref().is_none_or(|context| *context == stored.context_id())
        })
    }

    pub(super) fn all_tasks(&self, query: &AdminTaskQuery) -> AdminTaskPage {
        let wanted = |scope: &Scope| {
            query.agent.as_ref().is_none_or(|agent| *agent == scope.agent)
                && query.owner.as_ref().is_none_or(|owner| Some(owner) == scope.owner.as_ref())
        };
        let own = TaskQuery {
            context_id: query.context_id.clone(),
            state: query.state,
            since: query.since,
            after: query.position(),
            limit: query.limit,
            ..TaskQuery::default()
        };
        let mut page: Vec<_> = match &query.id_prefix {
            Some(prefix) => {
                self.with_prefix(prefix, &own).filter(|(_, stored)| wanted(&stored.scope)).collect()
            }
            None => {
                let theirs = self.scopes.iter().filter(|(scope, _)| wanted(scope));
                theirs.flat_map(|(_, tasks)| self.candidates(tasks, &own)).collect()
            }
        };
        page.sort_by(|(a, _), (b, _)| index::order(a, b));
        let more = page.len() > query.limit;
        page.truncate(query.limit);
        let tell = |(place, stored): (Keyset, &Stored)| AdminTask {
            scope: Arc::clone(&stored.scope),
            context_id: stored.context_id(),
            id: place.id,
            state: stored.status.1,
            at: place.timestamp,
            seq: stored.seq(),
        };
        AdminTaskPage { tasks: page.into_iter().map(tell).collect(), more }
    }
}

#[async_trait]
impl OperatorQueries for MemoryStore {
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        Ok(self.lock().deliveries(query))
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        Ok(self.lock().backlog())
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        Ok(self.lock().redrive(what, now))
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        Ok(self.lock().all_tasks(query))
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        Ok(self.lock().find(self.me, id))
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        Ok(self.lock().counts())
    }

    async fn size(&self) -> Result<u64, StoreError> {
        Ok(self.lock().bytes as u64)
    }

    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().erase(whose, limit))
    }
}
