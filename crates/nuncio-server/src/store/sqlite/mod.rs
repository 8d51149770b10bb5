//! The SQLite store: tasks in a file, for one hub at a time.
//!
//! One thread writes and shares each transaction among all who wait; a few read beside it.
//!
//! ```text
//! commit ─► encode ─► queue ─► writer: BEGIN · all that is queued · COMMIT (one wait for the disk) ─► answers
//! read ───────────► queue ─► readers: one query, most of the time
//! lists ──────────► queue ─► readers of their own, each question with a time limit; one for operators
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
    write::Writer,
};
use super::{Durability, OpenError, Store, StoreError, codec::DEFAULT_LARGE};

/// How a [`SqliteStore`] is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// What a commit waits for.
    pub durability: Durability,
    /// Content over this many bytes is stored once, beside the log.
    pub large_content: usize,
    /// The number of threads that read single tasks and their entries.
    pub readers: usize,
    /// The time that a list, a count or an operator's query may take, with the time it waits for a thread; then it fails
    /// as [`StoreError::busy`].
    pub list_timeout: Duration,
}

/// The number of lists of callers that are made at a time.
const LISTS: usize = 2;

/// The number of operators' queries that are answered at a time: they are answered also while callers keep all of the
/// others busy.
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

/// Keeps tasks in a SQLite database. When it is dropped, what was given to it is still done, and the file
/// is let go a moment later; [`close`](Store::close) waits for that.
pub struct SqliteStore {
    writer: Writer,
    near: NearReaders,
    readers: Readers,
    lists: Readers,
    operator_queries: Readers,
    /// Until it is closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The owner that this handle is.
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
        let mut threads = Vec::new();
        let near = NearReaders::open(path, options.readers)?;
        let readers = Readers::start(path, options.readers, None, &mut threads)?;
        let limit = Some(options.list_timeout);
        let lists = Readers::start(path, LISTS, limit, &mut threads)?;
        let operator_queries = Readers::start(path, OPERATOR_QUERIES, limit, &mut threads)?;
        let started = Writer::start(db, me, lock);
        let (writer, thread) = started.map_err(|error| lock::unopened(path, &error))?;
        // Last to end, so that it finds nobody else at the file.
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
        self.near.close();
        [&self.readers, &self.lists, &self.operator_queries].into_iter().for_each(Readers::close);
        self.writer.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let joined = tokio::task::spawn_blocking(|| threads.into_iter().try_for_each(JoinHandle::join));
        if !matches!(joined.await, Ok(Ok(()))) {
            tracing::error!("a thread of the task store has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
