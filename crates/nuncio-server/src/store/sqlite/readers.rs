//! The readers: threads beside the writer, each with a read-only connection.
//!
//! While a row is open, its connection sees the database as of the time when the row was read; everything
//! else that is read meanwhile is from the same snapshot.
//!
//! Slow queries (lists and counts of callers, queries of operators) have readers of their own, so that no
//! other read waits for them, and a timeout: a query that is too slow fails alone.

use std::{
    path::Path,
    sync::{Arc, Weak, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{error, lock, schema};
use crate::store::{OpenError, StoreError};

/// The number of virtual machine steps after which a statement checks whether to stop: some tens of
/// microseconds.
const STEPS_PER_CHECK: i32 = 1_000;

/// A query and its limit.
struct ReadJob {
    limit: Option<Limit>,
    work: Box<dyn FnOnce(&Connection) + Send>,
}

/// The limit of the query that a reader is running.
type CurrentLimit = Arc<Mutex<Option<Limit>>>;

/// The end of a query's time.
#[derive(Clone)]
struct Limit {
    at: Instant,
    /// Dropped when nobody waits for the result any more.
    asker: Weak<()>,
}

impl Limit {
    fn is_over(&self) -> bool {
        self.asker.strong_count() == 0 || Instant::now() >= self.at
    }
}

/// Threads that run queries in the order of arrival, until they are closed.
pub(super) struct Readers {
    jobs: Mutex<Option<mpsc::Sender<ReadJob>>>,
    /// The time that a query may take, including its wait for a thread; `None`: no limit.
    timeout: Option<Duration>,
}

impl Readers {
    /// Starts `count` threads and adds them to `threads`.
    pub(super) fn start(
        path: &Path,
        count: usize,
        timeout: Option<Duration>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<Self, OpenError> {
        let (jobs, queue) = mpsc::channel::<ReadJob>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..count.max(1) {
            let (db, current) = open(path)?;
            let queue = Arc::clone(&queue);
            let name = format!("nuncio-sqlite-reader-{}", threads.len());
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                loop {
                    // The thread that waits for the next job holds the lock; the others wait for the lock.
                    let next = queue.lock().recv();
                    let Ok(ReadJob { limit, work }) = next else { break };
                    current.lock().clone_from(&limit);
                    work(&db);
                }
            });
            threads.push(thread.map_err(|error| lock::unopened(path, &error))?);
        }
        Ok(Self { jobs: Mutex::new(Some(jobs)), timeout })
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        *self.jobs.lock() = None;
    }

    /// Runs a query.
    ///
    /// # Errors
    /// [`StoreError::busy`] if the query exceeds its time.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (waiter, answer) = oneshot::channel();
        let asker = Arc::new(());
        let limit =
            self.timeout.map(|timeout| Limit { at: Instant::now() + timeout, asker: Arc::downgrade(&asker) });
        let waited = limit.clone();
        let work = move |db: &Connection| {
            let in_vain = waited.is_some_and(|limit| limit.is_over());
            let answer =
                if in_vain { Err(StoreError::busy("all readers of lists are in use")) } else { question(db) };
            let _ = waiter.send(answer);
        };
        let ended = || StoreError::broken("the readers have ended");
        let job = ReadJob { limit, work: Box::new(work) };
        self.jobs.lock().as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(ended)?;
        let answer = answer.await.map_err(|_| ended())?;
        drop(asker);
        answer
    }
}

/// Opens a connection; its statements are interrupted when the limit of the current query is over.
fn open(path: &Path) -> Result<(Connection, CurrentLimit), OpenError> {
    let said = |error| error::opening(path, &error);
    let mut db = schema::open_reader(path).map_err(said)?;
    let current: CurrentLimit = Arc::default();
    let limit = Arc::clone(&current);
    let is_over = move || limit.lock().as_ref().is_some_and(Limit::is_over);
    db.progress_handler(STEPS_PER_CHECK, Some(is_over)).map_err(said)?;
    Ok((db, current))
}

/// Connections for queries of one row, which run in the caller's thread: they take less time than waking
/// another.
pub(super) struct NearReaders(Vec<Mutex<Option<Connection>>>);

impl NearReaders {
    /// Opens `count` connections.
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, OpenError> {
        let open = |_| schema::open_reader(path).map(|db| Mutex::new(Some(db)));
        let opened: Result<_, _> = (0..count.max(1)).map(open).collect();
        opened.map(Self).map_err(|error| error::opening(path, &error))
    }

    /// Closes the connections.
    pub(super) fn close(&self) {
        self.0.iter().for_each(|db| *db.lock() = None);
    }

    /// Runs a query in the caller's thread, if a connection is free.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Connection) -> T) -> Option<T> {
        self.0.iter().find_map(Mutex::try_lock)?.as_ref().map(question)
    }
}
