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
mod operator_queries;
mod outbox;
mod owed;
mod owner;
mod pool;
mod read;
mod records;
mod reservations;
mod schema;
mod single;
mod task_log;
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
use tokio::sync::mpsc;
use tokio_postgres::Row;

use self::{
    address::Address,
    link::{Link, Params, Session, Setup},
    owner::{Doubt, Heart},
    pool::Pool,
    write::{Job, Writer},
};
use super::{Durability, OpenError, Store, StoreError, codec::DEFAULT_LARGE};

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
const OPERATOR_QUERIES: usize = 2;

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
    operator_queries: Pool,
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
            operator_queries: pool(OPERATOR_QUERIES),
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
    async fn operator_query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let lent = self.operator_queries.lend().await?;
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
