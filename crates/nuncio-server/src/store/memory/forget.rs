//! Deletion: of surplus, by age, and of everything of a caller.

use std::{collections::HashSet, sync::Arc};

use nuncio_protocol::{TaskId, Timestamp};

use super::{MemoryInner, footprint};
use crate::store::{ErasureTarget, Prune, Pruned, Scope};

impl MemoryInner {
    /// Deletes the oldest finished tasks and replies while there are more than `keep`, or while all take too
    /// many bytes.
    pub(super) fn forget_surplus(&mut self, keep: usize) {
        while self.finished.len() > keep || self.bytes > self.max_bytes {
            let Some(id) = self.finished.pop_front() else { break };
            self.forget(&id);
        }
        while self.replies.len() > keep || self.bytes > self.max_bytes {
            let Some((scope, key, _)) = self.replies.pop_front() else { return };
            let forgotten = self.answers.remove(&(scope, key));
            self.bytes -= forgotten.as_ref().map_or(0, footprint::of_answer);
        }
    }

    pub(super) fn prune(&mut self, Prune { agent, what, before }: &Prune, limit: usize) -> usize {
        match what {
            Pruned::Tasks(state) => {
                let own = self.scopes.iter().filter(|(scope, _)| scope.agent == *agent);
                let at_rest = |(_, id): &(Timestamp, &TaskId)| {
                    self.tasks.get(*id).is_some_and(|task| !task.busy && !task.waits())
                };
                // The oldest of each scope, then the oldest of those.
                let old = own
                    .flat_map(|(_, tasks)| tasks.index.oldest(*state, *before).filter(at_rest).take(limit));
                let mut old: Vec<(Timestamp, TaskId)> = old.map(|(at, id)| (at, id.clone())).collect();
                old.sort_unstable();
                old.truncate(limit);
                self.forget_all(old.into_iter().map(|(_, id)| id))
            }
            Pruned::Replies => self.forget_replies(limit, |scope, at| scope.agent == *agent && at < *before),
        }
    }

    pub(super) fn erase(&mut self, whose: &ErasureTarget, limit: usize) -> usize {
        let tasks = self.tasks.iter().filter(|(_, stored)| whose.is(&stored.scope));
        let tasks: Vec<TaskId> = tasks.map(|(id, _)| id.clone()).take(limit).collect();
        let mut erased = self.forget_all(tasks.into_iter());
        erased += self.forget_replies(limit - erased, |scope, _| whose.is(scope));
        erased + self.forget_reservations(limit - erased, whose)
    }

    fn forget_reservations(&mut self, limit: usize, whose: &ErasureTarget) -> usize {
        let theirs = self.reservations.all().filter(|(kept, _)| whose.is(&kept.scope));
        let theirs: Vec<TaskId> = theirs.take(limit).map(|(kept, _)| kept.task_id.clone()).collect();
        theirs.iter().for_each(|id| drop(self.reservations.remove(id)));
        theirs.len()
    }

    fn forget_all(&mut self, ids: impl ExactSizeIterator<Item = TaskId>) -> usize {
        let forgotten = ids.len();
        for id in ids {
            self.forget(&id);
        }
        if forgotten > 0 {
            let tasks = &self.tasks;
            self.finished.retain(|id| tasks.contains_key(id));
        }
        forgotten
    }

    /// Deletes the oldest matching replies. They are stored in the order of insertion, which differs from
    /// that of their times when the clock jumps.
    fn forget_replies(&mut self, limit: usize, wanted: impl Fn(&Scope, Timestamp) -> bool) -> usize {
        let theirs = self.replies.iter().enumerate().filter(|(_, (scope, _, at))| wanted(scope, *at));
        let mut oldest: Vec<(Timestamp, usize)> = theirs.map(|(place, (.., at))| (*at, place)).collect();
        oldest.sort_unstable();
        let gone: HashSet<usize> = oldest.into_iter().take(limit).map(|(_, place)| place).collect();
        if gone.is_empty() {
            return 0;
        }
        let (answers, total, mut places) = (&mut self.answers, &mut self.bytes, 0..);
        self.replies.retain(|(scope, key, _)| {
            let forget = places.next().is_some_and(|place| gone.contains(&place));
            if forget {
                let forgotten = answers.remove(&(Arc::clone(scope), Arc::clone(key)));
                *total -= forgotten.as_ref().map_or(0, footprint::of_answer);
            }
            !forget
        });
        gone.len()
    }

    fn forget(&mut self, id: &TaskId) {
        let Some(stored) = self.tasks.remove(id) else { return };
        self.bytes -= stored.bytes;
        self.count(&stored.scope.agent, Some(stored.status.1), None);
        if let Some(scope) = self.scopes.get_mut(&stored.scope) {
            let (at, state) = stored.status;
            if state.is_settled() {
                scope.index.remove(id, &stored.context_id(), at, state);
            } else {
                scope.moving.remove(id);
            }
            if scope.index.is_empty() && scope.moving.is_empty() {
                self.scopes.remove(&stored.scope);
            }
        }
        for parent in stored.parents() {
            if let Some(children) = self.children.get_mut(parent) {
                children.remove(id);
                if children.is_empty() {
                    self.children.remove(parent);
                }
            }
        }
        stored.webhooks.values().for_each(|uid| self.outbox.forget(uid));
        for key in stored.keys {
            self.answers.remove(&(Arc::clone(&stored.scope), key));
        }
    }
}
