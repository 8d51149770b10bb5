//! The SQLite store: tasks in a file, for one hub at a time.
//!
//! One thread writes, and shares each transaction among all waiting callers; a few threads read concurrently.
//!
//! ```text
//! commit ─► encode ─► queue ─► writer: BEGIN · all queued jobs · COMMIT (one wait for the disk) ─► results
//! read ───────────► queue ─► readers: usually one query
//! lists ──────────► queue ─► readers of their own, with a timeout per query; one for operators
//! lease ──────────► queue ─► readers: due webhooks ─► leased, in memory
//! ```

mod append;
mod deliveries;
mod error;
mod forget;
mod lease;
mod list;
mod lock;
pub mod maintenance;
mod operator_queries;
mod outbox;
mod read;
mod readers;
mod records;
mod reservations;
mod schema;
mod task_log;
mod turns;
mod write;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::params;

use self::{
    lease::HeldLeases,
    lock::Lock,
    readers::{NearReaders, Readers},
    write::WriterQueue,
};
use super::{Durability, OpenError, Store, StoreError, codec::DEFAULT_LARGE};

/// Options of a [`SqliteStore`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The guarantee of a commit.
    pub durability: Durability,
    /// The size in bytes above which content is stored once, beside the log.
    pub large_content: usize,
    /// The number of threads that read single tasks and their entries.
    pub readers: usize,
    /// The timeout of a list, a count or an operator's query, including its wait for a thread; after it, the
    /// query fails as [`StoreError::busy`].
    pub list_timeout: Duration,
}

/// The number of concurrent lists of callers.
const LISTS: usize = 2;

/// The number of concurrent queries of operators; separate, so that busy callers cannot block them.
const OPERATOR_QUERIES: usize = 1;

impl Default for SqliteOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            durability: Durability::Full,
            large_content: DEFAULT_LARGE,
            readers: cores.clamp(1, 4),
            list_timeout: Duration::from_secs(5),
        }
    }
}

/// A store in a SQLite database. When it is dropped, queued work is still done, and the file is released a
/// moment later; [`close`](Store::close) waits for that.
pub struct SqliteStore {
    writer: WriterQueue,
    near: NearReaders,
    readers: Readers,
    lists: Readers,
    operator_queries: Readers,
    /// Taken by `close`.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The owner that this handle represents.
    me: i64,
    held_leases: Arc<HeldLeases>,
    large: usize,
    path: PathBuf,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).field("me", &self.me).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens or creates a database, and migrates its schema to the current version.
    ///
    /// # Errors
    /// The reason for which the file cannot be used, and the remedy.
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
        let mut threads = Vec::new();
        let near = NearReaders::open(path, options.readers)?;
        let readers = Readers::start(path, options.readers, None, &mut threads)?;
        let limit = Some(options.list_timeout);
        let lists = Readers::start(path, LISTS, limit, &mut threads)?;
        let operator_queries = Readers::start(path, OPERATOR_QUERIES, limit, &mut threads)?;
        let started = WriterQueue::start(db, me, lock);
        let (writer, thread) = started.map_err(|error| lock::unopened(path, &error))?;
        // The writer is the last one, so that no reader has the file open when it checkpoints.
        threads.push(thread);
        Ok(Self {
            writer,
            near,
            readers,
            lists,
            operator_queries,
            threads: Mutex::new(threads),
            me,
            held_leases: Arc::default(),
            large: options.large_content,
            path: path.to_owned(),
        })
    }
}

/// Waits for the end of these threads; true if none has panicked.
async fn joined(threads: impl IntoIterator<Item = JoinHandle<()>> + Send + 'static) -> bool {
    let joined = tokio::task::spawn_blocking(|| threads.into_iter().try_for_each(JoinHandle::join));
    matches!(joined.await, Ok(Ok(())))
}

fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl Store for SqliteStore {
    fn is_shared(&self) -> bool {
        false
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        let name = format!("secret {name}");
        let work = move |session: &mut write::WriteSession| {
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
        let work = |session: &mut write::WriteSession| {
            // A real write, which fails on a full disk.
            session.db.execute("UPDATE meta SET value = value WHERE name = 'epoch'", [])?;
            Ok(())
        };
        self.writer.shared(work).await
    }

    /// Ends all threads; the last checkpoint leaves everything in the one file.
    async fn close(&self) {
        self.near.close();
        [&self.readers, &self.lists, &self.operator_queries].into_iter().for_each(Readers::close);
        let mut threads = std::mem::take(&mut *self.threads.lock());
        let writer = threads.pop();
        let readers = joined(threads).await;
        // Only now: a connection that closes while another is open leaves the write-ahead log as a file.
        self.writer.close();
        if !(joined(writer).await && readers) {
            tracing::error!("a thread of the task store has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
