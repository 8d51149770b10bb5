//! The log of the PostgreSQL store.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Seq, Task, TaskId, Timestamp};
use tokio::sync::oneshot;

use super::{PostgresStore, forget, link::persist, list, owner, read, reservations, single, write::BatchJob};
use crate::store::{
    Commit, IdempotencyKey, IdempotentAnswer, Links, Orphan, Projection, Prune, Refused, Reservation, Scope,
    StoreError, StoredEvent, StoredTask, TaskLog, TaskPage, TaskQuery, TurnChange,
};

#[async_trait]
impl TaskLog for PostgresStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (done, results) = oneshot::channel();
        let stopped = || StoreError::down("the writer has stopped");
        self.queue.send(BatchJob { batch, done }).await.map_err(|_| stopped())?;
        results.await.map_err(|_| stopped())?
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        read::task(self, scope, id).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        read::shown(self, scope, id, shown).await
    }

    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError> {
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
        single::put_reply(self, scope, &key, &reply, at).await
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        reservations::reserve(self, reservation).await
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        reservations::release(self, scope, id).await
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

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        owner::adopt(self, agent, limit).await
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        persist(|| forget::prune(self, what, limit)).await
    }
}
