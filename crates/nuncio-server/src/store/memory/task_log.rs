//! The log of the memory store.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{Event, Message, Seq, Task, TaskId, Timestamp};

use super::{MemoryInner, MemoryStore, footprint};
use crate::store::{
    Commit, HandIn, IdempotencyKey, IdempotentAnswer, Links, MAX_CHILDREN, Moved, Orphan, Outcome,
    Projection, Prune, Refused, Reservation, Scope, StoreError, StoredEvent, StoredTask, TaskLog, TaskPage,
    TaskQuery, TurnChange, WaitingQuery, WaitingTurn,
};

#[async_trait]
impl TaskLog for MemoryStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut inner = self.lock();
        let results = batch.into_iter().map(|commit| inner.append(self.me, commit)).collect();
        inner.forget_surplus(self.keep_finished);
        Ok(results)
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let inner = self.lock();
        let stored = inner.tasks.get(id).filter(|stored| *stored.scope == *scope);
        Ok(stored.map(|stored| stored.read(self.me)))
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        let inner = self.lock();
        let stored = inner.tasks.get(id).filter(|stored| *stored.scope == *scope);
        Ok(stored.map(|stored| stored.task(shown)))
    }

    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<Moved>, StoreError> {
        let inner = self.lock();
        let moved = |(id, seq): &(TaskId, Seq)| {
            let stored = inner.tasks.get(id).filter(|stored| stored.seq() > *seq)?;
            let facts = stored.facts(self.me, &stored.scope);
            Some(Moved { id: id.clone(), seq: stored.seq(), held: facts.is_held(), in_hand: facts.in_hand })
        };
        Ok(known.iter().filter_map(moved).collect())
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        Ok(self.lock().list(scope, query))
    }

    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let inner = self.lock();
        let Some(stored) = inner.tasks.get(id).filter(|stored| *stored.scope == *scope) else {
            return Ok(Vec::new());
        };
        // A slice, so that a page costs its own length, however long the log is.
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        let Some(rest) = stored.log.get(first..) else { return Ok(Vec::new()) };
        let entry = |((at, event), seq): (&(Timestamp, Arc<Event>), u64)| StoredEvent {
            seq: Seq(seq),
            at: *at,
            event: Arc::clone(event),
        };
        Ok(rest.iter().take(limit).zip(after.0 + 1..).map(entry).collect())
    }

    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
        Ok(self.lock().links(scope, id))
    }

    async fn idempotent_outcome(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        let (slot, inner) = ((Arc::new(scope.clone()), Arc::from(key)), self.lock());
        Ok(inner.answers.get(&slot).cloned().or_else(|| inner.reserved(&slot.0, &slot.1)))
    }

    async fn put_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let slot = (Arc::clone(scope), key.key);
        let reserved = inner.reservations.of_key(&slot.0, &slot.1);
        let reserved = reserved.map(|(kept, owner)| (kept.task_id.clone(), *owner == self.me));
        if reserved.as_ref().is_some_and(|(_, mine)| !mine) {
            return Ok(());
        }
        if let Some((id, _)) = reserved {
            inner.reservations.remove(&id);
        }
        if !inner.answers.contains_key(&slot) {
            inner.replies.push_back((Arc::clone(&slot.0), Arc::clone(&slot.1), at));
            let answer = IdempotentAnswer { digest: key.digest, outcome: Outcome::Reply(reply) };
            inner.bytes += footprint::of_answer(&answer);
            inner.answers.insert(slot, answer);
            inner.forget_surplus(self.keep_finished);
        }
        Ok(())
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().reserve(self.me, reservation))
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        self.lock().release(self.me, scope, id);
        Ok(())
    }

    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError> {
        Ok(self.lock().abandoned(agent, limit))
    }

    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().update_turn(self.me, scope, id, change))
    }

    async fn hand_in(
        &self,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().hand_in(self.me, scope, id, handed))
    }

    async fn waiting_turns(&self, query: &WaitingQuery) -> Result<Vec<WaitingTurn>, StoreError> {
        Ok(self.lock().waiting_turns(self.me, query))
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        Ok(self.lock().adopt(self.me, agent, limit))
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().prune(what, limit))
    }
}

impl MemoryInner {
    fn links(&self, scope: &Scope, id: &TaskId) -> Links {
        let known = |id: &TaskId| self.tasks.get(id).filter(|stored| *stored.scope == *scope);
        let Some(stored) = known(id) else { return Links::default() };
        let parents: BTreeSet<&TaskId> = stored.parents().filter(|id| known(id).is_some()).collect();
        let children = self.children.get(id).into_iter().flatten().filter(|id| known(id).is_some());
        Links {
            parents: parents.into_iter().cloned().collect(),
            children: children.take(MAX_CHILDREN).cloned().collect(),
        }
    }
}
