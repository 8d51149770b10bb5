//! The one writer: whatever is queued becomes one transaction.
//!
//! ```text
//! usual      BEGIN, all statements, COMMIT      sent at once: one way there and back
//! else       BEGIN, lock and look, judge each, write what may be written, COMMIT
//! ```
//! The usual way expects that nothing will be refused, and fails as a whole if something is.

use std::collections::{BTreeMap, HashMap, HashSet};

use nuncio_protocol::{Seq, TaskId};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{
    columns::{Ready, Step, answers, name_scopes, pipeline, records, steps},
    judge::{Judge, Judged},
    link::{ATTEMPTS, Link, code, were_others},
    owed, reservations,
};
use crate::store::{
    Commit, Refused, Scope, StoreError,
    codec::{TaskWrite, coalesce},
};

/// One result per entry.
pub(super) type Results = Result<Vec<Result<(), Refused>>, StoreError>;

/// A batch, and whom to tell.
pub(super) struct Job {
    pub(super) batch: Vec<Commit>,
    pub(super) done: oneshot::Sender<Results>,
}

/// Batches are joined up to so many entries.
const MOST_ENTRIES: usize = 1_024;

/// A statement carries about so many bytes; PostgreSQL's own limit is 1 GB.
const MOST_BYTES: usize = 64 << 20;

/// What is remembered about so many scopes and tasks; then anew.
const MOST_REMEMBERED: usize = 100_000;

/// Writes batches.
pub(super) struct Writer {
    link: Link,
    me: i64,
    /// Content over this many bytes is kept beside the log.
    large: usize,
    /// Scopes that are in the database, unless somebody has erased them.
    named: HashSet<Uuid>,
    /// At which entry the snapshot of a conversation was kept last.
    snapshots: HashMap<TaskId, Seq>,
}

impl Writer {
    pub(super) fn new(link: Link, me: i64, large: usize) -> Self {
        Self { link, me, large, named: HashSet::new(), snapshots: HashMap::new() }
    }

    /// Writes until nobody can ask any more.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let mut jobs = vec![first];
            let mut entries = jobs[0].batch.len();
            while entries < MOST_ENTRIES
                && let Ok(job) = queue.try_recv()
            {
                entries += job.batch.len();
                jobs.push(job);
            }
            let lengths: Vec<usize> = jobs.iter().map(|job| job.batch.len()).collect();
            let (batches, tell): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.batch, job.done)).unzip();
            let results = self.commit(batches.into_iter().flatten().collect()).await;
            answer(results, lengths, tell);
        }
    }

    async fn commit(&mut self, batch: Vec<Commit>) -> Results {
        let entries = batch.len();
        let mut writes: Vec<Ready> =
            coalesce(batch, self.large).into_iter().map(|write| self.ready(write)).collect();
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
        Err(StoreError::down("others were in the way too often"))
    }

    fn ready(&self, mut write: TaskWrite) -> Ready {
        let kept = self.snapshots.get(&write.id).copied().unwrap_or(Seq::ZERO);
        let snapshot = write.due_snapshot(kept);
        Ready { write, snapshot }
    }

    /// The usual way. False if something is to be refused.
    async fn together(&mut self, writes: &[Ready]) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let session = self.link.session().await?;
            let steps = self.all_steps(&writes.iter().collect::<Vec<_>>());
            match pipeline(&session, Some("BEGIN"), &steps, Some("COMMIT")).await {
                Ok(()) => return Ok(true),
                Err(error) => match Obstacle::of(&error) {
                    Some(Obstacle::Refusal) => return Ok(false),
                    Some(Obstacle::Erased) => self.named.clear(),
                    Some(Obstacle::Others) => {}
                    None => return Err(error),
                },
            }
        }
        Ok(false)
    }

    /// Looks first, then writes what may be written. False if somebody came in between: nothing is written.
    async fn one_by_one(&mut self, writes: Vec<Ready>) -> Result<(Vec<Judged>, bool), StoreError> {
        // Whoever erased a scope would be in the way for certain.
        self.named.clear();
        let mut transaction = self.link.begin().await?;
        let judge = Judge::look(&transaction.session, &writes, self.me).await?;
        let judged = judge.judge(writes, |write| self.ready(write));
        let accepted = judged.iter().filter(|(verdict, _)| verdict.is_ok()).map(|(_, write)| write);
        let steps = self.all_steps(&accepted.collect::<Vec<_>>());
        let done = pipeline(&transaction.session, None, &steps, Some("COMMIT")).await;
        // Whatever it said, the server has ended the transaction, if it has said something.
        transaction.ended(done.as_ref().err().is_none_or(|error| code(error).is_some()));
        drop(steps);
        match done {
            Err(error) if Obstacle::of(&error).is_none() => Err(error),
            done => Ok((judged, done.is_ok())),
        }
    }

    /// The statements of a whole batch.
    fn all_steps<'a>(&self, writes: &[&'a Ready]) -> Vec<Step<'a>> {
        let mut all = Vec::new();
        let creating = writes.iter().filter(|write| write.creates());
        let scopes: BTreeMap<Uuid, &Scope> = creating
            .map(|write| (write.scope(), &*write.write.scope))
            .filter(|(id, _)| !self.named.contains(id))
            .collect();
        if !scopes.is_empty() {
            all.push(name_scopes(&scopes));
        }
        for wave in waves(writes) {
            all.extend(steps(&wave, self.me));
        }
        all.extend(owed::steps(writes));
        all.extend(reservations::end(writes, self.me));
        all.extend(answers(writes));
        all.extend(records(writes));
        all
    }

    /// What the next batch need not ask.
    fn remember(&mut self, written: &Ready) {
        if self.named.len() > MOST_REMEMBERED {
            self.named.clear();
        }
        if self.snapshots.len() > MOST_REMEMBERED {
            self.snapshots.clear();
        }
        if written.creates() {
            self.named.insert(written.scope());
        }
        let Ready { write, snapshot } = written;
        if write.status.is_some_and(|(state, _)| state.is_terminal()) {
            self.snapshots.remove(&write.id);
        } else if let Some(snapshot) = snapshot {
            self.snapshots.insert(write.id.clone(), snapshot.seq);
        }
    }
}

/// What stood in the way of a transaction.
enum Obstacle {
    /// Something is to be refused.
    Refusal,
    /// A scope was erased since it was named.
    Erased,
    /// Others, at the same time.
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

/// Groups of writes of different tasks, each sorted and of a size that a statement can carry. Later writes
/// of a task are in later groups.
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
            let fits = bytes <= MOST_BYTES;
            bytes = if fits { bytes } else { 0 };
            fits
        });
        sized.extend(cut.map(<[&Ready]>::to_vec));
    }
    sized
}

/// Gives each batch its part of the results.
fn answer(results: Results, lengths: Vec<usize>, tell: Vec<oneshot::Sender<Results>>) {
    match results {
        Ok(results) => {
            let mut rest = results.into_iter();
            for (length, done) in lengths.into_iter().zip(tell) {
                // Nobody may be waiting any more.
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
