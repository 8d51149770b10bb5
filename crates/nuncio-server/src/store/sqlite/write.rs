//! The only writer: a thread that commits all queued jobs as one transaction, without waiting for more.
//!
//! Large jobs have transactions of their own. They, and checkpoints, take turns with the others: a small job waits for one
//! of them at most.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::{error, lock::Lock};
use crate::store::{Scope, StoreError};

/// The maximum number of jobs in a transaction, so that the first does not wait for too many others.
const MAX_JOBS: usize = 512;

/// The approximate number of bytes after which the write-ahead log is checkpointed.
const CHECKPOINT_AFTER: usize = 8 << 20;

/// The estimated bytes of a transaction besides the bodies; only affects the time of the checkpoint.
const OVERHEAD: usize = 16 << 10;

/// The maximum number of cached scopes.
const MAX_CACHED_SCOPES: usize = 50_000;

/// The company of a job in its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// It may share its transaction with others.
    Shared,
    /// It has a transaction of its own, in its turn.
    Alone,
    /// The same, and small jobs may go before it.
    Large,
}

/// A unit of work in a transaction.
trait WriteJob: Send {
    fn company(&self) -> Company;

    fn run(&mut self, session: &mut WriteSession) -> Result<(), StoreError>;

    /// Notifies the waiter when the transaction has been committed or has failed.
    fn settle(self: Box<Self>, failure: Option<&StoreError>);
}

struct Work<T, F> {
    company: Company,
    work: Option<F>,
    done: Option<T>,
    waiter: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> WriteJob for Work<T, F>
where
    T: Send,
    F: FnOnce(&mut WriteSession) -> Result<T, StoreError> + Send,
{
    fn company(&self) -> Company {
        self.company
    }

    fn run(&mut self, session: &mut WriteSession) -> Result<(), StoreError> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(session)?);
        }
        Ok(())
    }

    fn settle(self: Box<Self>, failure: Option<&StoreError>) {
        let result = match (failure, self.done) {
            (None, Some(done)) => Ok(done),
            (Some(failure), _) => Err(error::again(failure)),
            (None, None) => Err(StoreError::broken("the transaction ended early")),
        };
        // The waiter may be gone.
        let _ = self.waiter.send(result);
    }
}

/// The queue of the writer. Closing it ends the thread.
pub(super) struct WriterQueue(Mutex<Option<mpsc::Sender<Box<dyn WriteJob>>>>);

impl WriterQueue {
    /// Starts the thread.
    pub(super) fn start(db: Connection, me: i64, lock: Lock) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (jobs, queue) = mpsc::channel();
        let session = WriteSession {
            db,
            me,
            scopes: HashMap::new(),
            deltas: HashMap::new(),
            adopted: HashSet::new(),
            written: 0,
        };
        let name = std::thread::Builder::new().name("nuncio-sqlite-writer".to_owned());
        let thread = name.spawn(move || {
            run(session, &queue);
            // The lock is released last.
            drop(lock);
        })?;
        Ok((Self(Mutex::new(Some(jobs))), thread))
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        *self.jobs() = None;
    }

    fn jobs(&self) -> MutexGuard<'_, Option<mpsc::Sender<Box<dyn WriteJob>>>> {
        self.0.lock()
    }

    /// Runs small work, possibly in a transaction with others.
    pub(super) async fn shared<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteSession) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.submit(Company::Shared, work).await
    }

    /// Runs work in a transaction of its own: if it fails, it fails alone.
    pub(super) async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteSession) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.submit(Company::Alone, work).await
    }

    /// Writes much in a transaction of its own. Jobs that are queued later may be done before it.
    pub(super) async fn large<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteSession) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.submit(Company::Large, work).await
    }

    async fn submit<T: Send + 'static>(
        &self,
        company: Company,
        work: impl FnOnce(&mut WriteSession) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (waiter, done) = oneshot::channel();
        let ended = || StoreError::broken("the writer has ended");
        let job = Box::new(Work { company, work: Some(work), done: None, waiter });
        self.jobs().as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(ended)?;
        done.await.map_err(|_| ended())?
    }
}

/// The context of the writer's jobs.
pub(super) struct WriteSession {
    pub(super) db: Connection,
    /// The epoch of this handle.
    pub(super) me: i64,
    /// The cached keys of scopes.
    scopes: HashMap<Arc<Scope>, i64>,
    /// The changes of the counters in this transaction, by scope and state.
    deltas: HashMap<(i64, i64), i64>,
    /// The agents whose orphans have all been adopted. There will be no new ones: only this handle writes.
    pub(super) adopted: HashSet<Arc<str>>,
    /// The approximate number of bytes written since the last checkpoint.
    pub(super) written: usize,
}

/// Jobs that wait for their transaction.
#[derive(Default)]
struct QueuedJobs {
    small: VecDeque<Box<dyn WriteJob>>,
    large: VecDeque<Box<dyn WriteJob>>,
    /// The last turn was that of a large job, or of a checkpoint.
    was_large: bool,
}

impl QueuedJobs {
    fn push(&mut self, job: Box<dyn WriteJob>) {
        match job.company() {
            Company::Shared | Company::Alone => self.small.push_back(job),
            Company::Large => self.large.push_back(job),
        }
    }

    /// Takes the turn of a large job for something else; false if small jobs come first.
    fn takes_turn(&mut self) -> bool {
        let is_free = self.small.is_empty() || !self.was_large;
        self.was_large |= is_free;
        is_free
    }

    /// Takes the jobs of the next transaction; none if nothing waits.
    fn next(&mut self) -> Vec<Box<dyn WriteJob>> {
        self.was_large = !self.large.is_empty() && (self.small.is_empty() || !self.was_large);
        if self.was_large {
            return self.large.pop_front().into_iter().collect();
        }
        let sharing = self.small.iter().take(MAX_JOBS).take_while(|job| job.company() == Company::Shared);
        let jobs = sharing.count().max(1).min(self.small.len());
        self.small.drain(..jobs).collect()
    }
}

fn run(mut session: WriteSession, queue: &mpsc::Receiver<Box<dyn WriteJob>>) {
    let mut waiting = QueuedJobs::default();
    loop {
        queue.try_iter().for_each(|job| waiting.push(job));
        if session.written > CHECKPOINT_AFTER && waiting.takes_turn() {
            session.checkpoint("PASSIVE");
            continue;
        }
        let mut jobs = waiting.next();
        if jobs.is_empty() {
            let Ok(job) = queue.recv() else { break };
            waiting.push(job);
            continue;
        }
        let failure = session.transact(&mut jobs).err();
        jobs.into_iter().for_each(|job| job.settle(failure.as_ref()));
    }
    session.checkpoint("TRUNCATE");
}

impl WriteSession {
    fn transact(&mut self, jobs: &mut [Box<dyn WriteJob>]) -> Result<(), StoreError> {
        let done = self.attempt(jobs);
        self.deltas.clear();
        if done.is_err() {
            // The caches may hold changes that were rolled back.
            self.scopes.clear();
            self.adopted.clear();
            if !self.db.is_autocommit() {
                let _ = self.db.execute_batch("ROLLBACK");
            }
        }
        done
    }

    fn attempt(&mut self, jobs: &mut [Box<dyn WriteJob>]) -> Result<(), StoreError> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for job in jobs {
            job.run(self)?;
        }
        self.count_tasks()?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        self.written += OVERHEAD;
        Ok(())
    }

    /// Writes the write-ahead log back into the database. If it fails, the next one does more.
    fn checkpoint(&mut self, mode: &str) {
        let done = self.db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "cannot checkpoint the write-ahead log of the task store; trying again later");
        }
        self.written = 0;
    }

    /// The key of an existing scope.
    pub(super) fn known_scope(&mut self, scope: &Arc<Scope>) -> Result<Option<i64>, StoreError> {
        if let Some(key) = self.scopes.get(scope) {
            return Ok(Some(*key));
        }
        let find = "SELECT key FROM scopes WHERE agent = ?1 AND tenant IS ?2 AND owner IS ?3";
        let mut find = self.db.prepare_cached(find)?;
        let found = find.query_row(params![scope.agent, scope.tenant, scope.owner], |row| row.get(0));
        let found = found.optional()?;
        if let Some(key) = found {
            if self.scopes.len() >= MAX_CACHED_SCOPES {
                self.scopes.clear();
            }
            self.scopes.insert(Arc::clone(scope), key);
        }
        Ok(found)
    }

    /// The key of a scope, which is created if necessary.
    pub(super) fn scope(&mut self, scope: &Arc<Scope>) -> Result<i64, StoreError> {
        if let Some(key) = self.known_scope(scope)? {
            return Ok(key);
        }
        let mut insert =
            self.db.prepare_cached("INSERT INTO scopes (agent, tenant, owner) VALUES (?1, ?2, ?3)")?;
        let key = insert.insert(params![scope.agent, scope.tenant, scope.owner])?;
        self.scopes.insert(Arc::clone(scope), key);
        Ok(key)
    }

    /// Clears the cache after scopes may have been deleted.
    pub(super) fn forget_scopes(&mut self) {
        self.scopes.clear();
    }

    /// Counts a task that enters a state (1) or leaves it (-1).
    pub(super) fn count(&mut self, scope: i64, state: i64, change: i64) {
        *self.deltas.entry((scope, state)).or_default() += change;
    }

    pub(super) fn count_tasks(&mut self) -> Result<(), StoreError> {
        let mut add = self.db.prepare_cached(
            "INSERT INTO counters (scope, state, tasks) VALUES (?1, ?2, ?3)
             ON CONFLICT (scope, state) DO UPDATE SET tasks = tasks + excluded.tasks",
        )?;
        for ((scope, state), change) in self.deltas.drain().filter(|(_, change)| *change != 0) {
            add.execute([scope, state, change])?;
            if change < 0 {
                let none = "DELETE FROM counters WHERE scope = ?1 AND state = ?2 AND tasks = 0";
                self.db.prepare_cached(none)?.execute([scope, state])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that does nothing.
    fn job(company: Company) -> Box<dyn WriteJob> {
        let (waiter, _) = oneshot::channel::<Result<(), StoreError>>();
        Box::new(Work { company, work: Some(|_: &mut WriteSession| Ok(())), done: None, waiter })
    }

    #[test]
    fn small_jobs_wait_for_one_large_turn_at_most() {
        use Company::{Alone, Large, Shared};
        let mut waiting = QueuedJobs::default();
        [Large, Large, Shared, Shared, Alone, Shared]
            .into_iter()
            .for_each(|company| waiting.push(job(company)));
        let mut turns = Vec::new();
        loop {
            // A checkpoint is always due.
            if waiting.takes_turn() {
                turns.push("checkpoint".to_owned());
            }
            let jobs = waiting.next();
            let Some(first) = jobs.first() else { break };
            turns.push(match first.company() {
                Shared => format!("{} shared", jobs.len()),
                Alone => "alone".to_owned(),
                Large => "large".to_owned(),
            });
            if jobs.len() == 2 {
                waiting.push(job(Shared));
            }
        }
        let expected = [
            "checkpoint",
            "2 shared",
            "checkpoint",
            "alone",
            "checkpoint",
            "2 shared",
            "checkpoint",
            "1 shared",
            "checkpoint",
            "large",
            "checkpoint",
            "large",
            "checkpoint",
        ];
        assert_eq!(turns, expected);
    }
}
