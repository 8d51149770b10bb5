//! The log of the SQLite store.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Seq, Task, TaskId, Timestamp};

use super::{SqliteStore, bounded, list, read, reservations, turns};
use crate::{
    large_work::{self, LARGE},
    size,
    store::{
        Commit, HandIn, IdempotencyKey, IdempotentAnswer, Links, Moved, Orphan, Projection, Prune, Refused,
        Reservation, Scope, StoreError, StoredEvent, StoredTask, TaskLog, TaskPage, TaskQuery, TurnChange,
        WaitingQuery, WaitingTurn, codec,
    },
};

#[async_trait]
impl TaskLog for SqliteStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        // Encoded here, so that it overlaps with the disk write of the transaction before.
        let (entries, large) = (batch.len(), self.large);
        let snapshot = |commit: &Commit| commit.snapshot.as_ref().map_or(0, size::task);
        let bytes = |commit: &Commit| size::event(&commit.event) + snapshot(commit);
        if batch.iter().map(bytes).sum::<usize>() < LARGE {
            let writes = codec::coalesce(batch, large);
            return self.writer.shared(move |session| session.append(writes, entries)).await;
        }
        let encoded = large_work::run(move || codec::coalesce(batch, large)).await;
        let writes = encoded.map_err(StoreError::broken)?;
        self.writer.large(move |session| session.append(writes, entries)).await
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        if let Some(told) = self.near.ask(|db| read::task(db, self.me, scope, id.as_str())) {
            return told;
        }
        let (me, scope, id) = (self.me, scope.clone(), id.clone());
        self.readers.ask(move |db| read::task(db, me, &scope, id.as_str())).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        if let Some(told) = self.near.ask(|db| read::shown(db, scope, id.as_str(), shown)) {
            return told;
        }
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.ask(move |db| read::shown(db, &scope, id.as_str(), shown)).await
    }

    async fn changed_since(&self, _: &[(TaskId, Seq)]) -> Result<Vec<Moved>, StoreError> {
        // No other owner has the file open.
        Ok(Vec::new())
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        let (scope, query) = (scope.clone(), query.clone());
        self.lists.ask(move |db| list::tasks(db, &scope, &query)).await
    }

    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.ask(move |db| read::events(db, &scope, &id, after, limit)).await
    }

    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.ask(move |db| read::links(db, &scope, &id)).await
    }

    async fn idempotent_outcome(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        let (me, scope, key) = (self.me, Arc::new(scope.clone()), key.to_owned());
        self.readers.ask(move |db| read::idempotent_outcome(db, me, &scope, &key)).await
    }

    async fn put_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (scope, reply) = (Arc::clone(scope), reservations::encode_reply(&reply)?);
        self.writer.shared(move |session| session.put_reply(&scope, &key, &reply, at)).await
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        self.writer.shared(move |session| session.reserve(&reservation)).await
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        let (scope, id) = (Arc::new(scope.clone()), id.clone());
        self.writer.shared(move |session| session.release_reservation(&scope, &id)).await
    }

    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError> {
        let (me, agent) = (self.me, Arc::from(agent));
        self.readers.ask(move |db| reservations::abandoned(db, me, &agent, bounded(limit))).await
    }

    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.shared(move |session| session.update_turn(&scope, &id, &change)).await
    }

    async fn hand_in(
        &self,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<Result<(), Refused>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.shared(move |session| session.hand_in(&scope, &id, &handed)).await
    }

    async fn waiting_turns(&self, query: &WaitingQuery) -> Result<Vec<WaitingTurn>, StoreError> {
        let (me, query) = (self.me, query.clone());
        self.readers.ask(move |db| turns::waiting(db, me, &query)).await
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        let agent = Arc::from(agent);
        self.writer.alone(move |session| session.adopt(&agent, limit)).await
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        let what = what.clone();
        self.writer.alone(move |session| session.prune(&what, bounded(limit))).await
    }
}
