//! Lists of tasks: settled tasks from an index, unsettled ones by a scan.

use std::sync::Arc;

use nuncio_protocol::{ContextId, Event, Task, TaskId, TaskState, Timestamp};

use super::{MemoryInner, ScopeTasks, Stored, index};
use crate::{
    size,
    store::{Keyset, PageBytes, Scope, TaskPage, TaskQuery},
};

impl MemoryInner {
    /// Updates the position of a task in the list.
    pub(super) fn relist(&mut self, id: &TaskId, (at, state): (Timestamp, TaskState)) {
        let Some(stored) = self.tasks.get_mut(id) else { return };
        let (was_at, before) = std::mem::replace(&mut stored.status, (at, state));
        let scope = Arc::clone(&stored.scope);
        self.count(&scope.agent, Some(before), Some(state));
        if !before.is_settled() && !state.is_settled() {
            return;
        }
        let Some(context_id) = self.tasks.get(id).map(|stored| stored.context_id()) else { return };
        let scope = self.scopes.entry(scope).or_default();
        if before.is_settled() {
            scope.index.remove(id, &context_id, was_at, before);
        } else {
            scope.moving.remove(id);
        }
        if state.is_settled() {
            scope.index.insert(id, &context_id, at, state);
        } else {
            scope.moving.insert(id.clone());
        }
        if state.is_terminal() && !before.is_terminal() {
            self.finished.push_back(id.clone());
        }
    }

    pub(super) fn list(&self, scope: &Scope, query: &TaskQuery) -> TaskPage {
        let Some(own) = self.scopes.get(scope) else {
            return TaskPage { total: query.count.then_some(0), ..TaskPage::default() };
        };
        let total = query.count.then(|| self.moving(own, query).count() + own.index.count(query));
        let mut page: Vec<(Keyset, &Stored)> = self.candidates(own, query).collect();
        page.sort_by(|(a, _), (b, _)| index::order(a, b));
        let (found, mut room) = (page.len(), PageBytes::of(query));
        let read = page.into_iter().take(query.limit).map(|(_, stored)| stored.task(query.shown()));
        let tasks: Vec<Task> = read.take_while(|task| room.takes(size::task(task))).collect();
        TaskPage { more: found > tasks.len(), tasks, total, is_estimate: false }
    }

    /// The unsettled tasks that match; the cursor is ignored. They are few: they are scanned, and merged with
    /// those of the index.
    fn moving<'a>(
        &'a self,
        own: &'a ScopeTasks,
        query: &'a TaskQuery,
    ) -> impl Iterator<Item = (Keyset, &'a Stored)> {
        own.moving.iter().filter_map(|id| self.tasks.get(id).map(|stored| (id, &**stored))).filter_map(
            |(id, stored)| {
                let (timestamp, state) = stored.status;
                let wanted = query.state.is_none_or(|wanted| wanted == state)
                    && query.since.is_none_or(|since| timestamp >= since)
                    && query.context_id.as_ref().is_none_or(|context| *context == stored.context_id());
                wanted.then(|| (Keyset { timestamp, id: id.clone() }, stored))
            },
        )
    }

    /// All tasks that may be on the page, unsorted.
    pub(super) fn candidates<'a>(
        &'a self,
        own: &'a ScopeTasks,
        query: &'a TaskQuery,
    ) -> impl Iterator<Item = (Keyset, &'a Stored)> {
        let beyond =
            |place: &Keyset| query.after.as_ref().is_none_or(|after| index::comes_after(place, after));
        let wanted = |place: &Keyset| query.except.as_ref() != Some(&place.id);
        let moving = self.moving(own, query).filter(move |(place, _)| beyond(place) && wanted(place));
        let settled = own.index.page(query).filter(wanted).filter_map(|place| {
            let stored = self.tasks.get(&place.id)?;
            Some((place, &**stored))
        });
        // One more than the limit, to know whether there are more.
        settled.take(query.limit.saturating_add(1)).chain(moving)
    }
}

impl Stored {
    pub(super) fn context_id(&self) -> ContextId {
        match self.log.first().map(|(_, event)| &**event) {
            Some(Event::Task(created)) => created.context_id.clone(),
            _ => ContextId::default(),
        }
    }
}
