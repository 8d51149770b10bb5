//! The log of the PostgreSQL store.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Seq, Task, TaskId, Timestamp};
use tokio::sync::oneshot;

use super::{
    PostgresStore, forget, handed, link::persist, list, owner, read, reservations, single, write::BatchJob,
};
use crate::store::{
    Commit, HandIn, IdempotencyKey, IdempotentAnswer, Links, Moved, Orphan, Projection, Prune, Refused,
    Reservation, Scope, Signals as _, StoreError, StoredEvent, StoredTask, TaskLog, TaskPage, TaskQuery,
    Topic, TurnChange, WaitingQuery, WaitingTurn,
};

impl PostgresStore {
    /// Signals a change of a task.
    pub(super) fn tell(&self, scope: &Scope, id: &TaskId) {
        self.signals.send(Topic::Tasks(Arc::clone(&scope.agent)), id.as_str());
    }
}

#[async_trait]
impl TaskLog for PostgresStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (done, results) = oneshot::channel();
        let stopped = || StoreError::down("the writer has stopped");
        // Collected only where somebody may listen.
        let about: Vec<_> = match self.signals.has_others() {
            true => batch.iter().map(|commit| (Arc::clone(&commit.scope), commit.task_id.clone())).collect(),
            false => Vec::new(),
        };
        self.queue.send(BatchJob { batch, done }).await.map_err(|_| stopped())?;
        let results = results.await.map_err(|_| stopped())??;
        for ((scope, id), _) in about.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            self.tell(scope, id);
        }
        Ok(results)
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        read::task(self, scope, id).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        read::shown(self, scope, id, shown).await
    }

    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<Moved>, StoreError> {
        read::changed_since(self, known).await
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        list::tasks(self, scope, query).await
    }

    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        read::events(self, scope, id, after, limit).await
    }

    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
        read::links(self, scope, id).await
    }

    async fn idempotent_outcome(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        read::idempotent_outcome(self, scope, key).await
    }

    async fn put_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if let Some(id) = single::put_reply(self, scope, &key, &reply, at).await? {
            self.tell(scope, &id);
        }
        Ok(())
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        reservations::reserve(self, reservation).await
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        reservations::release(self, scope, id).await?;
        self.tell(scope, id);
        Ok(())
    }

    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError> {
        reservations::abandoned(self, agent, limit).await
    }

    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        single::update_turn(self, scope, id, change).await
    }

    async fn hand_in(
        &self,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<Result<(), Refused>, StoreError> {
        let done = handed::hand_in(self, scope, id, &handed).await?;
        if done.is_ok() {
            self.signals.send(Topic::Turns(Arc::clone(&scope.agent)), id.as_str());
        }
        Ok(done)
    }

    async fn waiting_turns(&self, query: &WaitingQuery) -> Result<Vec<WaitingTurn>, StoreError> {
        handed::waiting(self, query).await
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        owner::adopt(self, agent, limit).await
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        persist(|| forget::prune(self, what, limit)).await
    }
}
