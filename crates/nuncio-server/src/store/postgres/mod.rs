//! The PostgreSQL store, which any number of hubs can share.
//!
//! ```text
//! commit ─► queue ─► one writer ─► one connection; a batch is one transaction (`?commits=4`: four of them)
//! reads ───────────► two connections, pipelined
//! lists, counts ───► a pool of four, one query per connection; a pool of two for operators
//! put_records ─► queue ─► one connection; queued records are one statement
//! reserve ─► queue ─► one connection, likewise
//! webhooks, leases ─► one connection
//! adopt, prune, erase ─► one connection; heartbeat, readiness and signals have one each, so that nothing delays them
//! ```
//! The next call replaces a lost connection; until that succeeds, calls fail quickly.

mod address;
mod columns;
mod deliveries;
mod forget;
mod handed;
mod judge;
mod lease;
mod link;
mod list;
pub mod maintenance;
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
mod signals;
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
    link::{Link, Params, PgSession, Setup},
    owner::{Doubt, Heart},
    pool::Pool,
    signals::PgSignals,
    write::{BatchJob, BatchWriter, WriterState},
};
use super::{Durability, OpenError, Signals, Store, StoreError, Topic, codec::DEFAULT_LARGE};

/// Options of a [`PostgresStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The guarantee of a commit.
    pub durability: Durability,
    /// The size in bytes above which content is stored beside the log.
    pub large: usize,
    /// The timeout of a response from the database; after it, the connection is closed.
    pub patience: Duration,
    /// The timeout of a list, a count or an operator's query, and that of waiting for a connection for it.
    pub list_timeout: Duration,
    /// Sends and receives signals by LISTEN and NOTIFY. Off behind a proxy that drops notifications: other
    /// owners are then polled.
    pub signals: bool,
    /// The number of commits under way at a time, for a database that is far away. The database still carries
    /// out those of one owner one after the other.
    pub commits: usize,
    /// The interval of this owner's heartbeat.
    pub beat: Duration,
    /// The time without a heartbeat after which an owner counts as stopped.
    pub lapse: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            large: DEFAULT_LARGE,
            patience: Duration::from_secs(5),
            list_timeout: Duration::from_secs(5),
            signals: true,
            commits: 1,
            beat: Duration::from_secs(1),
            lapse: Duration::from_secs(6),
        }
    }
}

/// The number of batches in the writer's queue; callers of `commit` wait while it is full.
const QUEUE: usize = 64;

/// The maximum of [`PostgresOptions::commits`], each of which has a connection.
pub(super) const MAX_COMMITS: usize = 16;

/// The number of connections for reads.
const READERS: usize = 2;

/// The number of concurrent lists of callers.
const LISTS: usize = 4;

/// The number of concurrent queries of operators.
const OPERATOR_QUERIES: usize = 2;

/// The timeout of long statements: deletion, adoption.
const LONG: Duration = Duration::from_secs(60);

/// A store in PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    /// The owner that this handle represents.
    epoch: i64,
    lapse: Duration,
    queue: mpsc::Sender<BatchJob>,
    commits: usize,
    records: mpsc::Sender<records::RecordsJob>,
    reservations: mpsc::Sender<reservations::ReservationJob>,
    readers: [Link; READERS],
    next_reader: AtomicUsize,
    /// Connections for the lists of callers.
    lists: Pool,
    /// Connections for operators, separate so that busy callers cannot block them.
    operator_queries: Pool,
    readiness: Link,
    outbox: Link,
    side: Link,
    doubt: Doubt,
    heart: Heart,
    signals: Arc<PgSignals>,
    _signals: signals::Connection,
}

impl PostgresStore {
    /// Opens the database of a URL such as `postgres://user:password@host:5432/database?sslmode=require`, and
    /// creates or migrates its tables.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let address = Arc::new(Address::parse(url)?);
        let session = open(&address, LONG, options.durability).await?;
        check_pooler(&session, &address, options.durability).await?;
        schema::migrate(&session, &address).await?;
        let epoch = owner::enter(&session).await.map_err(|error| schema::refused(&error, &address))?;
        drop(session);
        let link = |patience| Link::new(Arc::clone(&address), Setup::within(options.durability, patience));
        let pool = |connections| Pool::new(&address, options.durability, connections, options.list_timeout);
        let (signals, connection) = PgSignals::start(&address, epoch, options.signals && address.signals);
        let (queue, jobs) = mpsc::channel(QUEUE);
        let commits = address.commits.unwrap_or(options.commits).clamp(1, MAX_COMMITS);
        let jobs = Arc::new(tokio::sync::Mutex::new(jobs));
        let shared = WriterState::new(epoch, options.large, commits);
        for _ in 0..commits {
            let writer = BatchWriter::new(link(options.patience), Arc::clone(&shared));
            tokio::spawn(writer.run(Arc::clone(&jobs)));
        }
        let (records, puts) = mpsc::channel(QUEUE);
        tokio::spawn(records::keep(link(options.patience), puts));
        let (reservations, wanted) = mpsc::channel(QUEUE);
        tokio::spawn(reservations::run(link(options.patience), epoch, wanted));
        Ok(Self {
            epoch,
            lapse: options.lapse,
            queue,
            commits,
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
            heart: Heart::start(link(options.patience), epoch, &options, &signals),
            signals,
            _signals: connection,
        })
    }

    /// Stops the heartbeat, as if the process had ended.
    #[cfg(any(test, feature = "test-util"))]
    pub fn fall_silent(&self) {
        self.heart.stop();
    }

    /// Runs a query of an operator.
    async fn operator_query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let lent = self.operator_queries.lend().await?;
        let rows = lent.link().query(sql, params).await;
        lent.end(rows)
    }

    /// The next connection for a read.
    fn reads(&self) -> &Link {
        &self.readers[self.next_reader.fetch_add(1, Ordering::Relaxed) % READERS]
    }
}

/// Refuses a pooler that gives statements of one connection to several sessions: prepared statements and the
/// settings of a session would be lost at random. Two open connections then meet in the same session.
async fn check_pooler(
    session: &PgSession,
    address: &Address,
    durability: Durability,
) -> Result<(), OpenError> {
    const PID: &str = "SELECT pg_catalog.pg_backend_pid()";
    let refused = |error: StoreError| schema::refused(&error, address);
    let second = open(address, LONG, durability).await?;
    let mut pids = Vec::new();
    for session in [session, &second, session, &second] {
        pids.push(session.query_opt(PID, &[]).await.map_err(refused)?.map(|row| row.get::<_, i32>(0)));
    }
    if pids[0] == pids[1] || pids[1] == pids[2] || pids[0] != pids[2] {
        return Err(schema::shared_session(address));
    }
    Ok(())
}

/// Opens a separate connection.
async fn open(address: &Address, patience: Duration, durability: Durability) -> Result<PgSession, OpenError> {
    let opened = PgSession::open(address, Setup::within(durability, patience)).await;
    opened.map_err(|error| schema::refused(&link::failed(error), address))
}

#[async_trait]
impl Store for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn concurrent_commits(&self) -> usize {
        self.commits
    }

    fn signals(&self) -> Arc<dyn Signals> {
        Arc::clone(&self.signals) as Arc<dyn Signals>
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        single::secret(self, name).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        owner::beat(self).await
    }

    async fn close(&self) {
        self.heart.rest().await;
        // Others need not wait for their next look.
        self.signals.send(Topic::Deliveries, "");
    }
}

#[cfg(test)]
mod tests;
