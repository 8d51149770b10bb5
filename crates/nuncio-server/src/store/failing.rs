//! A memory store that fails on command, for tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_protocol::{Event, Message, PushConfigId, Seq, Task, TaskId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{
    AdminTaskPage, AdminTaskQuery, Backlog, Commit, Delivery, DeliveryQuery, ErasureTarget, Expect, HandIn,
    IdempotencyKey, IdempotentAnswer, Lease, Leases, Links, MemoryStore, Moved, OperatorQueries, Orphan,
    Outbox, Polling, Projection, Prune, PutRecord, Record, RecordQuery, Records, Redrive, Refused,
    Reservation, Scope, Settled, Signals, Store, StoreError, StoredEvent, StoredTask, TaskCount, TaskLog,
    TaskPage, TaskQuery, TurnChange, WaitingQuery, WaitingTurn, Webhook,
};

use crate::{large_work::LARGE, size};

/// The interval at which its owners look for writes of others.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A real [`MemoryStore`] that fails, refuses or waits on command.
#[derive(Debug, Default)]
pub struct FailingStore {
    inner: MemoryStore,
    /// Commits yield, as those of a database do.
    waits: bool,
    /// No other owner has it open.
    alone: bool,
    /// The number of commits that it takes at a time.
    concurrent_commits: usize,
    /// The number of commits that it works on.
    commits_under_way: AtomicUsize,
    fail_writes: AtomicBool,
    /// Writes fail as those of a store that will recover.
    down: AtomicBool,
    /// The store goes down after the next commit.
    last: AtomicBool,
    /// The next commit is applied, but reports an error.
    lose_answer: AtomicBool,
    /// The number of reservations made.
    reservations: AtomicUsize,
    /// The store goes down after the next reservation.
    last_reservation: AtomicBool,
    /// The next reservation is made, but reports an error.
    lose_reservation: AtomicBool,
    /// The number of settlements that are applied, but report an error.
    lose_settlements: AtomicUsize,
    /// Settling this webhook fails.
    unsettled: Mutex<Option<String>>,
    /// True while commits have to wait.
    held_writes: watch::Sender<bool>,
    /// True while large commits have to wait.
    held_large: watch::Sender<bool>,
    commits: AtomicUsize,
    fail_reads: AtomicBool,
    /// Batches with more entries time out; 0: none does.
    max_entries: AtomicUsize,
    /// A task with this first message cannot be stored.
    chokes_on: Mutex<Option<&'static str>>,
    /// The refusal of the next batch, which is not applied.
    refusal: Mutex<Option<Refused>>,
    /// True while readers have to wait.
    held: watch::Sender<bool>,
    reads: AtomicUsize,
    /// The number of reads until further ones have to wait; 0: no limit.
    free_reads: AtomicUsize,
}

impl From<MemoryStore> for FailingStore {
    fn from(inner: MemoryStore) -> Self {
        Self::new(inner)
    }
}

/// The error text of the failing store; no caller may ever see it (invariant 10 of ARCHITECTURE.md).
pub const STORE_SECRET: &str = "disk 7 at /var/lib is on fire";

impl FailingStore {
    /// Wraps a store. With `NUNCIO_TEST_STORE=waits` in the environment it is as [`Self::waiting`], so that
    /// the same tests run over both ways of committing.
    #[must_use]
    pub fn new(inner: MemoryStore) -> Self {
        let waits = std::env::var("NUNCIO_TEST_STORE").is_ok_and(|store| store == "waits");
        Self { inner, waits, ..Self::default() }
    }

    /// Wraps a store; commits yield, as those of a database do.
    #[must_use]
    pub fn waiting(inner: MemoryStore) -> Self {
        Self { inner, waits: true, ..Self::default() }
    }

    /// As [`Self::waiting`], but no other owner has it open, as with SQLite.
    #[must_use]
    pub fn alone(inner: MemoryStore) -> Self {
        Self { alone: true, ..Self::waiting(inner) }
    }

    /// A store that takes several commits at a time.
    #[must_use]
    pub fn with_concurrent_commits(self, commits: usize) -> Self {
        Self { concurrent_commits: commits, ..self }
    }

    /// The number of commits that it works on.
    #[must_use]
    pub fn commits_under_way(&self) -> usize {
        self.commits_under_way.load(Ordering::SeqCst)
    }

    /// Takes the store down, or brings it back: writes fail as those of a store that will recover.
    pub fn take_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Takes the store down after the next commit.
    pub fn take_down_after_commit(&self) {
        self.last.store(true, Ordering::SeqCst);
    }

    /// Applies the next commit, but reports an error.
    pub fn lose_next_answer(&self) {
        self.lose_answer.store(true, Ordering::SeqCst);
    }

    /// Takes the store down after the next reservation.
    pub fn take_down_after_reservation(&self) {
        self.last_reservation.store(true, Ordering::SeqCst);
    }

    /// Makes the next reservation, but reports an error.
    pub fn lose_next_reservation(&self) {
        self.lose_reservation.store(true, Ordering::SeqCst);
    }

    /// The number of reservations made.
    #[must_use]
    pub fn reservations(&self) -> usize {
        self.reservations.load(Ordering::SeqCst)
    }

    /// Applies the next `lose` settlements, but reports errors.
    pub fn lose_settlements(&self, lose: usize) {
        self.lose_settlements.store(lose, Ordering::SeqCst);
    }

    /// Makes settling this webhook fail, and every batch with it.
    pub fn choke_on_settling(&self, webhook: &str) {
        *self.unsettled.lock() = Some(webhook.to_owned());
    }

    /// Makes commits and replies wait until they are released, and so the results of leases, adoptions and
    /// turn changes.
    pub fn hold_writes(&self, hold: bool) {
        self.held_writes.send_replace(hold);
    }

    /// From now on, commits of large content wait until they are held no more.
    pub fn hold_large(&self, hold: bool) {
        self.held_large.send_replace(hold);
    }

    /// Marks its owner as stopped, as if its process had ended.
    pub fn retire(&self) {
        self.inner.retire();
    }

    /// The number of committed batches.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Makes commits and other writes fail, or work again.
    pub fn fail_writes(&self, fail: bool) {
        self.fail_writes.store(fail, Ordering::SeqCst);
    }

    /// Makes batches with more entries time out, as if the store were down.
    pub fn take_at_most(&self, entries: usize) {
        self.max_entries.store(entries, Ordering::SeqCst);
    }

    /// Makes batches fail that contain a task with this first message.
    pub fn choke_on(&self, words: &'static str) {
        *self.chokes_on.lock() = Some(words);
    }

    fn chokes(&self, batch: &[Commit]) -> bool {
        let words = *self.chokes_on.lock();
        let begins = |commit: &Commit| match &*commit.event {
            Event::Task(task) => task.history.first().is_some_and(|said| words == Some(&*said.text())),
            _ => false,
        };
        batch.iter().any(begins)
    }

    /// Makes reads fail, or work again.
    pub fn fail_reads(&self, fail: bool) {
        self.fail_reads.store(fail, Ordering::SeqCst);
    }

    /// Refuses the next batch for this reason, as if another process had written.
    pub fn refuse_next(&self, refused: Refused) {
        *self.refusal() = Some(refused);
    }

    /// Makes reads wait until they are released.
    pub fn hold_reads(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Answers this many reads; further ones wait, as with [`Self::hold_reads`].
    pub fn hold_reads_after(&self, reads: usize) {
        self.free_reads.store(reads, Ordering::SeqCst);
    }

    /// The number of reads.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn refusal(&self) -> MutexGuard<'_, Option<Refused>> {
        self.refusal.lock()
    }

    fn write(&self) -> Result<(), StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StoreError::down(STORE_SECRET));
        }
        if self.fail_writes.load(Ordering::SeqCst) { Err(StoreError::broken(STORE_SECRET)) } else { Ok(()) }
    }

    async fn wait(&self) {
        if self.waits {
            tokio::task::yield_now().await;
            // The sender is ours, so the channel stays open.
            let _ = self.held_writes.subscribe().wait_for(|held| !held).await;
        }
    }

    /// Delays the result of a call that is already done.
    async fn tell_later(&self) {
        // The sender is ours, so the channel stays open.
        let _ = self.held_writes.subscribe().wait_for(|held| !held).await;
    }

    async fn read(&self) -> Result<(), StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        // The sender is ours, so the channel stays open.
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        if self.free_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            == Ok(1)
        {
            self.hold_reads(true);
        }
        if self.fail_reads.load(Ordering::SeqCst) { Err(StoreError::broken(STORE_SECRET)) } else { Ok(()) }
    }
}

#[async_trait]
impl TaskLog for FailingStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        self.commits_under_way.fetch_add(1, Ordering::SeqCst);
        self.wait().await;
        self.commits_under_way.fetch_sub(1, Ordering::SeqCst);
        if batch.iter().any(|commit| size::event(&commit.event) >= LARGE) {
            // The sender is ours, so the channel stays open.
            let _ = self.held_large.subscribe().wait_for(|held| !held).await;
        }
        self.write()?;
        if (1..batch.len()).contains(&self.max_entries.load(Ordering::SeqCst)) {
            return Err(StoreError::down("no answer in time"));
        }
        if self.chokes(&batch) {
            return Err(StoreError::broken(STORE_SECRET));
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
        if self.last.swap(false, Ordering::SeqCst) {
            self.take_down(true);
        }
        if self.lose_answer.swap(false, Ordering::SeqCst) {
            self.inner.commit(batch).await?;
            return Err(StoreError::down("the answer was lost"));
        }
        let refused = self.refusal().take();
        match refused {
            Some(refused) => Ok(batch.iter().map(|_| Err(refused.clone())).collect()),
            None => self.inner.commit(batch).await,
        }
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        self.read().await?;
        self.inner.task(scope, id).await
    }

    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<Moved>, StoreError> {
        self.inner.changed_since(known).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        self.read().await?;
        self.inner.shown(scope, id, shown).await
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        self.read().await?;
        self.inner.tasks(scope, query).await
    }

    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.read().await?;
        self.inner.events(scope, id, after, limit).await
    }

    async fn idempotent_outcome(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        self.read().await?;
        self.inner.idempotent_outcome(scope, key).await
    }

    async fn put_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.wait().await;
        self.write()?;
        self.inner.put_reply(scope, key, reply, at).await
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        self.wait().await;
        self.write()?;
        self.reservations.fetch_add(1, Ordering::SeqCst);
        if self.last_reservation.swap(false, Ordering::SeqCst) {
            self.take_down(true);
        }
        let reserved = self.inner.reserve(reservation).await;
        if self.lose_reservation.swap(false, Ordering::SeqCst) {
            return Err(StoreError::down("the answer was lost"));
        }
        reserved
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        self.write()?;
        self.inner.release(scope, id).await
    }

    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError> {
        self.write()?;
        self.inner.abandoned(agent, limit).await
    }

    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
        self.read().await?;
        self.inner.links(scope, id).await
    }

    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        self.write()?;
        let changed = self.inner.update_turn(scope, id, change).await;
        self.tell_later().await;
        changed
    }

    async fn hand_in(
        &self,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<Result<(), Refused>, StoreError> {
        self.wait().await;
        self.write()?;
        if self.lose_answer.swap(false, Ordering::SeqCst) {
            let _ = self.inner.hand_in(scope, id, handed).await?;
            return Err(StoreError::down("the answer was lost"));
        }
        self.inner.hand_in(scope, id, handed).await
    }

    async fn waiting_turns(&self, query: &WaitingQuery) -> Result<Vec<WaitingTurn>, StoreError> {
        self.write()?;
        self.inner.waiting_turns(query).await
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        self.write()?;
        let adopted = self.inner.adopt(agent, limit).await;
        self.tell_later().await;
        adopted
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        self.write()?;
        self.inner.prune(what, limit).await
    }
}

#[async_trait]
impl Outbox for FailingStore {
    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        self.write()?;
        self.inner.put_webhook(scope, id, webhook, now).await
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        self.read().await?;
        self.inner.webhook(scope, id, webhook).await
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        self.read().await?;
        self.inner.webhooks(scope, id, after, limit).await
    }

    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        self.write()?;
        self.inner.delete_webhook(scope, id, webhook).await
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        self.write()?;
        let leases = self.inner.lease(lease).await;
        self.tell_later().await;
        leases
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        self.write()?;
        let unsettled = self.unsettled.lock().clone();
        if settled.iter().any(|one| unsettled.as_deref() == Some(&*one.webhook)) {
            return Err(StoreError::broken(STORE_SECRET));
        }
        self.inner.settle(settled).await?;
        let lost = |left: usize| left.checked_sub(1);
        match self.lose_settlements.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost) {
            Ok(_) => Err(StoreError::down("the answer was lost")),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Records for FailingStore {
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.read().await?;
        self.inner.record(kind, key).await
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        self.read().await?;
        self.inner.records(query).await
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        self.wait().await;
        self.write()?;
        self.inner.put_records(puts).await
    }

    async fn delete_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        self.write()?;
        self.inner.delete_record(kind, key, expect).await
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.write()?;
        self.inner.prune_records(kind, before, limit).await
    }
}

#[async_trait]
impl OperatorQueries for FailingStore {
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        self.read().await?;
        self.inner.deliveries(query).await
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.read().await?;
        self.inner.backlog().await
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        self.write()?;
        self.inner.redrive(what, now).await
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        self.read().await?;
        self.inner.all_tasks(query).await
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        self.read().await?;
        self.inner.find_task(id).await
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        self.read().await?;
        self.inner.count_tasks().await
    }

    async fn size(&self) -> Result<u64, StoreError> {
        self.read().await?;
        self.inner.size().await
    }

    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError> {
        self.write()?;
        self.inner.erase(whose, limit).await
    }
}

#[async_trait]
impl Store for FailingStore {
    fn is_immediate(&self) -> bool {
        !self.waits
    }

    fn is_shared(&self) -> bool {
        self.waits && !self.alone
    }

    fn concurrent_commits(&self) -> usize {
        self.concurrent_commits
    }

    fn signals(&self) -> Arc<dyn Signals> {
        Arc::new(Polling::every(SIGNAL_INTERVAL))
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        self.inner.secret(name).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.write()
    }
}
