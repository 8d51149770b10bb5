//! The PostgreSQL store: shared by any number of hubs.
//!
//! ```text
//! commit ─► queue ─► one writer ─► one connection, a batch is one transaction
//! reads ───────────► two connections, any number of questions on the way at once
//! lists, counts ───► four, each for one question at a time; two for those of operators
//! put_records ─► queue ─► one, what is queued is one statement
//! reserve ─► queue ─► one, likewise
//! webhooks, leases ─► one
//! adopt, prune, erase ─► one more; and one each for the heartbeat and for readiness, which nothing may delay
//! ```
//! A connection that is lost is made again by the next call; calls fail quickly until then.

mod address;
mod columns;
mod deliveries;
mod forget;
mod judge;
mod lease;
mod link;
mod list;
pub mod maintain;
mod names;
mod outbox;
mod owner;
mod pool;
mod read;
mod records;
mod reservations;
mod schema;
mod single;
mod survey;
mod webhooks;
mod write;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_protocol::{Message, PushConfigId, Seq, Task, TaskId, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;

use self::{
    address::Address,
    link::{Link, Params, Session, Setup, persist},
    owner::{Doubt, Heart},
    pool::Pool,
    write::{Job, Writer},
};
use super::{
    AdminTaskPage, AdminTaskQuery, Answer, Backlog, Commit, Delivery, DeliveryQuery, Durability, Expect,
    IdempotencyKey, Lease, Leases, Links, OpenError, Orphan, Projection, Prune, PutRecord, Record,
    RecordQuery, Redrive, Refused, Reservation, Scope, Settled, Store, StoreError, StoredEvent, StoredTask,
    TaskCount, TaskPage, TaskQuery, TurnChange, Webhook, Whose, codec::DEFAULT_LARGE,
};

/// How a [`PostgresStore`] works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// What a commit waits for.
    pub durability: Durability,
    /// Content over this many bytes is kept beside the log.
    pub large: usize,
    /// How long an answer of the database may take before the connection is taken for cut.
    pub patience: Duration,
    /// How long a list, a count or an operator's question may take before it fails, and how long it waits for a
    /// connection.
    pub list_timeout: Duration,
    /// How often this owner says that it is alive.
    pub beat: Duration,
    /// After how long without a beat an owner is gone.
    pub lapse: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            large: DEFAULT_LARGE,
            patience: Duration::from_secs(5),
            list_timeout: Duration::from_secs(5),
            beat: Duration::from_secs(1),
            lapse: Duration::from_secs(6),
        }
    }
}

/// How many batches wait for the writer; then whoever commits waits.
const QUEUE: usize = 64;

/// How many connections are read through.
const READERS: usize = 2;

/// How many lists of callers are made at a time.
const LISTS: usize = 4;

/// How many questions of operators are answered at a time.
const SURVEYS: usize = 2;

/// What a long statement may take: forgetting, adopting.
const LONG: Duration = Duration::from_secs(60);

/// Keeps tasks in PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    /// The owner that this handle is.
    epoch: i64,
    lapse: Duration,
    queue: mpsc::Sender<Job>,
    records: mpsc::Sender<records::Job>,
    reservations: mpsc::Sender<reservations::Job>,
    readers: [Link; READERS],
    next_reader: AtomicUsize,
    /// For callers.
    lists: Pool,
    /// For operators: they see something also while callers keep all of the others busy.
    surveys: Pool,
    readiness: Link,
    outbox: Link,
    side: Link,
    doubt: Doubt,
    heart: Heart,
}

impl PostgresStore {
    /// Opens the database of a URL such as `postgres://user:password@host:5432/database?sslmode=require`;
    /// makes or brings forward its tables.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Arc::new(Address::parse(url)?);
        let session = open(&address, LONG, options.durability).await?;
        schema::migrate(&session, &address).await?;
        let epoch = owner::enter(&session).await.map_err(|error| schema::refused(&error, &address))?;
        drop(session);
        let link = |patience| Link::new(Arc::clone(&address), Setup::within(options.durability, patience));
        let pool = |connections| Pool::new(&address, options.durability, connections, options.list_timeout);
        let (queue, jobs) = mpsc::channel(QUEUE);
        tokio::spawn(Writer::new(link(options.patience), epoch, options.large).run(jobs));
        let (records, puts) = mpsc::channel(QUEUE);
        tokio::spawn(records::keep(link(options.patience), puts));
        let (reservations, wanted) = mpsc::channel(QUEUE);
        tokio::spawn(reservations::run(link(options.patience), epoch, wanted));
        Ok(Self {
            epoch,
            lapse: options.lapse,
            queue,
            records,
            reservations,
            readers: std::array::from_fn(|_| link(options.patience)),
            next_reader: AtomicUsize::new(0),
            lists: pool(LISTS),
            surveys: pool(SURVEYS),
            readiness: link(options.patience),
            outbox: link(options.patience),
            side: link(LONG.max(options.patience)),
            doubt: Doubt::default(),
            heart: Heart::start(link(options.patience), epoch, options.beat, options.lapse),
        })
    }

    /// This owner says no more that it is alive, as if its process had ended.
    #[cfg(any(test, feature = "test-util"))]
    pub fn fall_silent(&self) {
        self.heart.stop();
    }

    /// Answers a question of an operator.
    async fn survey(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let lent = self.surveys.lend().await?;
        let rows = lent.link().query(sql, params).await;
        lent.end(rows)
    }

    /// The next connection to read through.
    fn reads(&self) -> &Link {
        &self.readers[self.next_reader.fetch_add(1, Ordering::Relaxed) % READERS]
    }
}

/// A connection of its own.
async fn open(address: &Address, patience: Duration, durability: Durability) -> Result<Session, OpenError> {
    let opened = Session::open(address, Setup::within(durability, patience)).await;
    opened.map_err(|error| schema::refused(&link::failed(error), address))
}

#[async_trait]
impl Store for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (done, results) = oneshot::channel();
        let stopped = || StoreError::down("the writer has stopped");
        self.queue.send(Job { batch, done }).await.map_err(|_| stopped())?;
        results.await.map_err(|_| stopped())?
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        read::task(self, scope, id).await
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        read::shown(self, scope, id, shown).await
    }

    async fn moved(&self, known: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError> {
        read::moved(self, known).await
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

    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError> {
        read::answer(self, scope, key).await
    }

    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        single::keep_reply(self, scope, &key, &reply, at).await
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

    async fn turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        single::turn(self, scope, id, change).await
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        owner::adopt(self, agent, limit).await
    }

    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        webhooks::put(self, scope, id, &webhook, now).await
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        webhooks::one(self, scope, id, webhook).await
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        webhooks::list(self, scope, id, after, limit).await
    }

    async fn drop_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        webhooks::forget(self, scope, id, webhook).await
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        lease::lease(self, lease).await
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        lease::settle(self, &settled).await
    }

    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        deliveries::list(self, query).await
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        deliveries::backlog(self).await
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        deliveries::redrive(self, what, now).await
    }

    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        records::one(self, kind, key).await
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        records::list(self, query).await
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        records::put(self, puts).await
    }

    async fn drop_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        records::forget(self, kind, key, expect).await
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        records::prune(self, kind, before, limit).await
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        survey::all_tasks(self, query).await
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        survey::find(self, id).await
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        survey::count(self).await
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        persist(|| forget::prune(self, what, limit)).await
    }

    async fn erase(&self, whose: &Whose, limit: usize) -> Result<usize, StoreError> {
        persist(|| forget::erase(self, whose, limit)).await
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        single::secret(self, name).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        owner::beat(self).await
    }

    async fn close(&self) {
        self.heart.rest().await;
    }
}

#[cfg(test)]
mod tests;
