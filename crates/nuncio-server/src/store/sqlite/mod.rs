//! The SQLite store: tasks in a file, for one hub at a time.
//!
//! One thread writes and shares each transaction among all who wait; a few read beside it.
//!
//! ```text
//! commit ─► encode ─► queue ─► writer: BEGIN · all that is queued · COMMIT (one wait for the disk) ─► answers
//! read ───────────► queue ─► readers: one query, most of the time
//! lease ──────────► queue ─► readers: what is due ─► in hand, in memory
//! ```

mod append;
mod deliveries;
mod error;
mod forget;
mod lease;
mod list;
mod lock;
pub mod maintain;
mod outbox;
mod read;
mod records;
mod reservations;
mod schema;
mod survey;
mod turns;
mod write;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use async_trait::async_trait;
use nuncio_protocol::{Message, PushConfigId, Seq, Task, TaskId, Timestamp};
use rusqlite::params;

use self::{lease::Hands, lock::Lock, read::Readers, write::Writer};
use super::{
    AdminTaskPage, AdminTaskQuery, Answer, Backlog, Commit, Delivery, DeliveryQuery, Durability, Expect,
    IdempotencyKey, Lease, Leases, Links, OpenError, Orphan, Projection, Prune, PutRecord, Record,
    RecordQuery, Redrive, Refused, Reservation, Scope, Settled, Store, StoreError, StoredEvent, StoredTask,
    TaskCount, TaskPage, TaskQuery, TurnChange, Webhook, Whose,
    codec::{self, DEFAULT_LARGE},
};

/// How a [`SqliteStore`] is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// What a commit waits for.
    pub durability: Durability,
    /// Content over this many bytes is stored once, beside the log.
    pub large_content: usize,
    /// How many threads read.
    pub readers: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { durability: Durability::Full, large_content: DEFAULT_LARGE, readers: cores.clamp(1, 4) }
    }
}

/// Keeps tasks in a SQLite database. When it is dropped, what was given to it is still done, and the file
/// is let go a moment later; [`close`](Store::close) waits for that.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    /// Until it is closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The owner that this handle is.
    me: i64,
    hands: Arc<Hands>,
    large: usize,
    path: PathBuf,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).field("me", &self.me).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens a database, or makes one, and brings its schema up to date.
    ///
    /// # Errors
    /// Says why the file cannot be used, and what to do.
    pub async fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let place = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&place, &options)).await;
        opened.unwrap_or_else(|error| {
            Err(OpenError::Other { place: path.display().to_string(), detail: error.to_string() })
        })
    }

    fn open_now(path: &Path, options: &SqliteOptions) -> Result<Self, OpenError> {
        let lock = Lock::take(path)?;
        let db = schema::open(path, options.durability)?;
        let me = schema::next_epoch(&db).map_err(|error| error::opening(path, &error))?;
        let (readers, mut threads) = Readers::start(path, options.readers)?;
        let started = Writer::start(db, me, lock);
        let (writer, thread) = started.map_err(|error| lock::unopened(path, &error))?;
        // Last to end, so that it finds nobody else at the file.
        threads.push(thread);
        Ok(Self {
            writer,
            readers,
            threads: Mutex::new(threads),
            me,
            hands: Arc::default(),
            large: options.large_content,
            path: path.to_owned(),
        })
    }
}

fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Store for SqliteStore {
    fn is_shared(&self) -> bool {
        false
    }

    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        // Encoded here, so that it overlaps with the disk of the transaction before.
        let entries = batch.len();
        let writes = codec::coalesce(batch, self.large);
        self.writer.shared(move |session| session.append(writes, entries)).await
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        if let Some(told) = self.readers.near(|db| read::task(db, self.me, scope, id.as_str())) {
            return told;
        }
        let (me, scope, id) = (self.me, scope.clone(), id.clone());
        self.readers.ask(move |db| read::task(db, me, &scope, id.as_str())).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        if let Some(told) = self.readers.near(|db| read::shown(db, scope, id.as_str(), shown)) {
            return told;
        }
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.ask(move |db| read::shown(db, &scope, id.as_str(), shown)).await
    }

    async fn moved(&self, _: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError> {
        // The file is ours alone.
        Ok(Vec::new())
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        let (scope, query) = (scope.clone(), query.clone());
        self.readers.ask(move |db| list::tasks(db, &scope, &query)).await
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

    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError> {
        let (me, scope, key) = (self.me, Arc::new(scope.clone()), key.to_owned());
        self.readers.ask(move |db| read::answer(db, me, &scope, &key)).await
    }

    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (scope, reply) = (Arc::clone(scope), reservations::encode_reply(&reply)?);
        self.writer.shared(move |session| session.keep_reply(&scope, &key, &reply, at)).await
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

    async fn turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.shared(move |session| session.turn(&scope, &id, &change)).await
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        let agent = Arc::from(agent);
        self.writer.alone(move |session| session.adopt(&agent, limit)).await
    }

    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.shared(move |session| session.put_webhook(&scope, &id, &webhook, now)).await
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        let (scope, id, webhook) = (scope.clone(), id.clone(), webhook.clone());
        self.readers.ask(move |db| deliveries::webhook(db, &scope, &id, &webhook)).await
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        let (scope, id, after) = (scope.clone(), id.clone(), after.cloned());
        self.readers.ask(move |db| deliveries::webhooks(db, &scope, &id, after.as_ref(), limit)).await
    }

    async fn drop_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        let (scope, id, webhook) = (scope.clone(), id.clone(), webhook.clone());
        self.writer.shared(move |session| session.drop_webhook(&scope, &id, &webhook)).await
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        let (hands, lease) = (Arc::clone(&self.hands), lease.clone());
        self.readers.ask(move |db| lease::lease(db, &hands, &lease)).await
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let settled = self.hands.ours(settled);
        if settled.is_empty() {
            return Ok(());
        }
        let done: Vec<_> = settled.iter().map(|one| (Arc::clone(&one.webhook), one.then)).collect();
        let work = move |session: &mut write::Session| settled.iter().try_for_each(|one| session.settle(one));
        self.writer.shared(work).await?;
        self.hands.let_go(&done);
        Ok(())
    }

    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        let query = query.clone();
        let (mut page, more) = self.readers.ask(move |db| deliveries::deliveries(db, &query)).await?;
        for delivery in page.iter_mut().filter(|delivery| self.hands.hold(&delivery.webhook.uid)) {
            delivery.due = None;
        }
        Ok((page, more))
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.readers.ask(deliveries::backlog).await
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        let what = what.clone();
        self.writer.alone(move |session| session.redrive(&what, now)).await
    }

    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        if let Some(told) = self.readers.near(|db| records::one(db, kind, key)) {
            return told;
        }
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.readers.ask(move |db| records::one(db, &kind, &key)).await
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        let query = query.clone();
        self.readers.ask(move |db| records::list(db, &query)).await
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        self.writer.shared(move |session| session.put_records(&puts)).await
    }

    async fn drop_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.writer.shared(move |session| session.drop_record(&kind, &key, expect)).await
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let kind = kind.to_owned();
        self.writer.alone(move |session| session.prune_records(&kind, before, limit)).await
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        let query = query.clone();
        self.readers.ask(move |db| survey::all_tasks(db, &query)).await
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        let (me, id) = (self.me, id.clone());
        self.readers.ask(move |db| survey::find(db, me, &id)).await
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        self.readers.ask(survey::count).await
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        let what = what.clone();
        self.writer.alone(move |session| session.prune(&what, bounded(limit))).await
    }

    async fn erase(&self, whose: &Whose, limit: usize) -> Result<usize, StoreError> {
        let whose = whose.clone();
        self.writer.alone(move |session| session.erase(&whose, bounded(limit))).await
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let name = format!("secret {name}");
        let work = move |session: &mut write::Session| {
            let made: [u8; 32] = rand::random();
            let keep = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
            session.db.execute(keep, params![name, made])?;
            let find = "SELECT value FROM meta WHERE name = ?1";
            Ok(session.db.query_row(find, [&name], |row| row.get(0))?)
        };
        self.writer.alone(work).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.readers.ask(|db| Ok(db.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?)).await?;
        let work = |session: &mut write::Session| {
            // A real write: a full disk says so here.
            session.db.execute("UPDATE meta SET value = value WHERE name = 'epoch'", [])?;
            Ok(())
        };
        self.writer.shared(work).await
    }

    /// Leaves everything in the one file.
    async fn close(&self) {
        self.readers.close();
        self.writer.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let joined = tokio::task::spawn_blocking(|| threads.into_iter().try_for_each(JoinHandle::join));
        if !matches!(joined.await, Ok(Ok(()))) {
            tracing::error!("a thread of the task store has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
