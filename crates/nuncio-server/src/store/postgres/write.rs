//! The one writer: all queued batches become one transaction.
//!
//! ```text
//! fast path    BEGIN, all statements, COMMIT    pipelined: one round trip
//! slow path    BEGIN, lock and read, check each write, write the accepted ones, COMMIT
//! ```
//! The fast path assumes that nothing is refused, and fails as a whole otherwise.
//!
//! Several writers serve a database that is far away. Each has its own connection, so that what is under way to the
//! database and back overlaps. The database carries out their transactions one after the other ([`IN_TURN`]):
//! otherwise they would wait for each other's counters, in any order.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use nuncio_protocol::{Seq, TaskId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{
    columns::{Param, Ready, Step, answers, name_scopes, pipeline, records, step, steps},
    judge::{Judge, Judged},
    link::{ATTEMPTS, Link, code, were_others},
    owed, reservations,
};
use crate::store::{
    Commit, Refused, Scope, StoreError,
    codec::{TaskWrite, coalesce},
};

/// One result per entry.
pub(super) type BatchResults = Result<Vec<Result<(), Refused>>, StoreError>;

/// A batch, and the channel for its results.
pub(super) struct BatchJob {
    pub(super) batch: Vec<Commit>,
    pub(super) done: oneshot::Sender<BatchResults>,
}

/// The maximum number of entries in one transaction of joined batches.
const MAX_ENTRIES: usize = 1_024;

/// The approximate maximum size of a statement in bytes; PostgreSQL's own limit is 1 GB.
const MAX_BYTES: usize = 64 << 20;

/// The maximum number of scopes and tasks in the writer's caches; full caches are cleared.
const MAX_CACHED: usize = 100_000;

/// Waits until no other writer of this owner is in a transaction.
const IN_TURN: &str = "SELECT pg_advisory_xact_lock($1)";

/// Begins the numbers of [`IN_TURN`]; it has no meaning.
const IN_TURN_CLASS: i64 = 2_602_002 << 32;

/// Writes batches.
pub(super) struct BatchWriter {
    link: Link,
    shared: Arc<WriterState>,
}

/// The state of all writers of an owner.
pub(super) struct WriterState {
    me: i64,
    /// The size in bytes above which content is stored beside the log.
    large: usize,
    /// True if there are several writers.
    in_turn: bool,
    caches: Mutex<Caches>,
}

#[derive(Default)]
struct Caches {
    /// Scopes known to be in the database; another hub may have erased them since.
    named: HashSet<Uuid>,
    /// The entry of the last stored snapshot of a task.
    snapshots: HashMap<TaskId, Seq>,
}

impl WriterState {
    pub(super) fn new(me: i64, large: usize, writers: usize) -> Arc<Self> {
        Arc::new(Self { me, large, in_turn: writers > 1, caches: Mutex::default() })
    }

    fn caches(&self) -> MutexGuard<'_, Caches> {
        self.caches.lock()
    }

    /// The statement that comes first in each transaction.
    fn turn<'a>(&self) -> Option<Step<'a>> {
        self.in_turn.then(|| step!(IN_TURN, IN_TURN_CLASS | (self.me & 0xffff_ffff)))
    }
}

/// The next jobs, to be one transaction; none if all senders are dropped.
async fn next_jobs(queue: &tokio::sync::Mutex<mpsc::Receiver<BatchJob>>) -> Vec<BatchJob> {
    let mut queue = queue.lock().await;
    let mut jobs: Vec<BatchJob> = queue.recv().await.into_iter().collect();
    let mut entries: usize = jobs.iter().map(|job| job.batch.len()).sum();
    while !jobs.is_empty()
        && entries < MAX_ENTRIES
        && let Ok(job) = queue.try_recv()
    {
        entries += job.batch.len();
        jobs.push(job);
    }
    jobs
}

impl BatchWriter {
    pub(super) fn new(link: Link, shared: Arc<WriterState>) -> Self {
        Self { link, shared }
    }

    /// Writes until all senders are dropped.
    pub(super) async fn run(mut self, queue: Arc<tokio::sync::Mutex<mpsc::Receiver<BatchJob>>>) {
        loop {
            let jobs = next_jobs(&queue).await;
            if jobs.is_empty() {
                return;
            }
            let lengths: Vec<usize> = jobs.iter().map(|job| job.batch.len()).collect();
            let (batches, tell): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.batch, job.done)).unzip();
            let results = self.commit(batches.into_iter().flatten().collect()).await;
            answer(results, lengths, tell);
        }
    }

    async fn commit(&mut self, batch: Vec<Commit>) -> BatchResults {
        let entries = batch.len();
        let mut writes: Vec<Ready> =
            coalesce(batch, self.shared.large).into_iter().map(|write| self.ready(write)).collect();
        if self.together(&writes).await? {
            writes.iter().for_each(|write| self.remember(write));
            return Ok(vec![Ok(()); entries]);
        }
        for _ in 0..ATTEMPTS {
            let (judged, done) = self.one_by_one(writes).await?;
            if !done {
                writes = judged.into_iter().map(|(_, write)| write).collect();
                continue;
            }
            let mut results = vec![Ok(()); entries];
            for (verdict, write) in judged {
                write.write.places().for_each(|place| results[place] = verdict.clone());
                if verdict.is_ok() {
                    self.remember(&write);
                }
            }
            return Ok(results);
        }
        Err(StoreError::down("too many conflicts with concurrent transactions"))
    }

    fn ready(&self, mut write: TaskWrite) -> Ready {
        let kept = self.shared.caches().snapshots.get(&write.id).copied().unwrap_or(Seq::ZERO);
        let snapshot = write.due_snapshot(kept);
        Ready { write, snapshot }
    }

    /// The fast path. False if a write is to be refused.
    async fn together(&mut self, writes: &[Ready]) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let session = self.link.session().await?;
            let steps = self.all_steps(&writes.iter().collect::<Vec<_>>());
            match pipeline(&session, Some("BEGIN"), &steps, Some("COMMIT")).await {
                Ok(()) => return Ok(true),
                Err(error) => match Obstacle::of(&error) {
                    Some(Obstacle::Refusal) => return Ok(false),
                    Some(Obstacle::Erased) => self.shared.caches().named.clear(),
                    Some(Obstacle::Others) => {}
                    None => return Err(error),
                },
            }
        }
        Ok(false)
    }

    /// The slow path: reads first, then writes the accepted ones. False after a conflict with another
    /// transaction: nothing is written.
    async fn one_by_one(&mut self, writes: Vec<Ready>) -> Result<(Vec<Judged>, bool), StoreError> {
        // A cached scope that was erased would make it fail for certain.
        self.shared.caches().named.clear();
        let mut transaction = self.link.begin().await?;
        let turn: Vec<Step<'_>> = self.shared.turn().into_iter().collect();
        pipeline(&transaction.session, None, &turn, None).await?;
        let judge = Judge::look(&transaction.session, &writes, self.shared.me).await?;
        let judged = judge.judge(writes, |write| self.ready(write));
        let accepted = judged.iter().filter(|(verdict, _)| verdict.is_ok()).map(|(_, write)| write);
        let steps = self.all_steps(&accepted.collect::<Vec<_>>());
        let done = pipeline(&transaction.session, None, &steps, Some("COMMIT")).await;
        // Any error with a code shows that the server has ended the transaction.
        transaction.ended(done.as_ref().err().is_none_or(|error| code(error).is_some()));
        drop(steps);
        match done {
            Err(error) if Obstacle::of(&error).is_none() => Err(error),
            done => Ok((judged, done.is_ok())),
        }
    }

    /// The statements of a whole batch.
    fn all_steps<'a>(&self, writes: &[&'a Ready]) -> Vec<Step<'a>> {
        let mut all: Vec<Step<'a>> = self.shared.turn().into_iter().collect();
        let me = self.shared.me;
        let creating = writes.iter().filter(|write| write.creates());
        let scopes: BTreeMap<Uuid, &Scope> = {
            let named = &self.shared.caches().named;
            let scopes = creating.map(|write| (write.scope(), &*write.write.scope));
            scopes.filter(|(id, _)| !named.contains(id)).collect()
        };
        if !scopes.is_empty() {
            all.push(name_scopes(&scopes));
        }
        for wave in waves(writes) {
            all.extend(steps(&wave, me));
        }
        all.extend(owed::steps(writes));
        all.extend(reservations::end(writes, me));
        all.extend(answers(writes));
        all.extend(records(writes));
        all
    }

    /// Updates the caches for the next batch.
    fn remember(&mut self, written: &Ready) {
        let mut caches = self.shared.caches();
        if caches.named.len() > MAX_CACHED {
            caches.named.clear();
        }
        if caches.snapshots.len() > MAX_CACHED {
            caches.snapshots.clear();
        }
        if written.creates() {
            caches.named.insert(written.scope());
        }
        let Ready { write, snapshot } = written;
        if write.status.is_some_and(|(state, _)| state.is_terminal()) {
            caches.snapshots.remove(&write.id);
        } else if let Some(snapshot) = snapshot {
            caches.snapshots.insert(write.id.clone(), snapshot.seq);
        }
    }
}

/// The cause of a failed transaction.
enum Obstacle {
    /// A write is to be refused.
    Refusal,
    /// A cached scope has been erased.
    Erased,
    /// A conflict with another transaction.
    Others,
}

impl Obstacle {
    fn of(error: &StoreError) -> Option<Self> {
        match code(error)? {
            code if *code == SqlState::UNIQUE_VIOLATION || *code == SqlState::DIVISION_BY_ZERO => {
                Some(Self::Refusal)
            }
            code if *code == SqlState::FOREIGN_KEY_VIOLATION => Some(Self::Erased),
            _ if were_others(error) => Some(Self::Others),
            _ => None,
        }
    }
}

/// Groups writes so that a group has each task once. Groups are sorted, and small enough for a statement.
/// Later writes of a task are in later groups.
fn waves<'a>(writes: &[&'a Ready]) -> Vec<Vec<&'a Ready>> {
    let mut waves: Vec<Vec<&Ready>> = Vec::new();
    let mut seen: HashMap<&TaskId, usize> = HashMap::new();
    for write in writes {
        let wave = seen.entry(&write.write.id).or_default();
        if *wave == waves.len() {
            waves.push(Vec::new());
        }
        waves[*wave].push(write);
        *wave += 1;
    }
    let mut sized = Vec::new();
    for mut wave in waves {
        wave.sort_by(|a, b| a.write.id.cmp(&b.write.id));
        let mut bytes = 0;
        let cut = wave.chunk_by(|_, next| {
            bytes += next.size();
            let fits = bytes <= MAX_BYTES;
            bytes = if fits { bytes } else { 0 };
            fits
        });
        sized.extend(cut.map(<[&Ready]>::to_vec));
    }
    sized
}

/// Sends each batch its part of the results.
fn answer(results: BatchResults, lengths: Vec<usize>, tell: Vec<oneshot::Sender<BatchResults>>) {
    match results {
        Ok(results) => {
            let mut rest = results.into_iter();
            for (length, done) in lengths.into_iter().zip(tell) {
                // The caller may be gone.
                let _ = done.send(Ok(rest.by_ref().take(length).collect()));
            }
        }
        Err(error) => {
            let words = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
            for done in tell {
                let again = if error.is_down() { StoreError::down } else { StoreError::broken };
                let _ = done.send(Err(again(words.clone())));
            }
        }
    }
}
