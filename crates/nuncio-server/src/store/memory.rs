//! The memory store: fast, bounded, and lost with the process.
//!
//! Finished tasks are kept up to a maximum number and then deleted, oldest first, in constant time.
//! Unfinished tasks are never deleted; when there are too many of them, new ones are refused. A task enters
//! the index of the list only when it settles, so that earlier changes cost nothing.

mod footprint;
mod forget;
mod index;
mod list;
mod operator_queries;
mod outbox;
mod records;
mod reservations;
mod task_log;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
// For ids that the server generates: callers cannot choose them to collide.
use foldhash::fast::RandomState;
use nuncio_protocol::{Event, PushConfigId, Seq, Task, TaskId, TaskState, Timestamp, fold};
use parking_lot::{Mutex, MutexGuard};

use self::{
    index::Index, operator_queries::States, outbox::WebhookTable, records::RecordTable,
    reservations::Reservations,
};
use super::{
    Commit, IdempotencyKey, IdempotentAnswer, Outcome, Projection, Refused, Scope, Store, StoreError,
    StoredTask, StoredTurn,
    judge::{self, TaskFacts},
    references,
};

/// The default number of finished tasks that are kept.
pub const DEFAULT_KEEP_FINISHED: usize = 100_000;

/// The default maximum number of tasks that have not finished: in progress, or waiting for input or
/// authorization.
pub const DEFAULT_MAX_UNFINISHED: usize = 100_000;

/// The default maximum size of tasks and replies, in bytes.
pub const DEFAULT_MAX_BYTES: usize = 1 << 30;

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    /// Held for the length of one operation, never across an await.
    inner: Arc<Mutex<MemoryInner>>,
    keep_finished: usize,
    /// The owner that this handle represents.
    me: Owner,
}

/// The number of a handle.
type Owner = u32;

#[derive(Debug, Default)]
struct MemoryInner {
    /// Boxed: the table stays small, and growing it moves pointers only.
    tasks: HashMap<TaskId, Box<Stored>, RandomState>,
    /// The maximum number of unfinished tasks, which are never deleted.
    max_unfinished: usize,
    /// The maximum size of tasks and replies in bytes, estimated.
    max_bytes: usize,
    /// Their current size in bytes.
    bytes: usize,
    scopes: HashMap<Arc<Scope>, ScopeTasks>,
    /// Finished tasks in the order in which they finished; the first is deleted first.
    finished: VecDeque<TaskId>,
    answers: Answers,
    reservations: Reservations,
    /// Direct replies in the order in which they were stored; deleted like finished tasks.
    replies: VecDeque<Reply>,
    /// The tasks that refer to a task.
    children: HashMap<TaskId, BTreeSet<TaskId>, RandomState>,
    outbox: WebhookTable,
    records: RecordTable,
    counts: HashMap<Arc<str>, States, RandomState>,
    /// The number of handles created, besides the first.
    #[cfg(any(test, feature = "test-util"))]
    owners: Owner,
    /// The handles that have stopped.
    gone: HashSet<Owner>,
    secrets: HashMap<String, [u8; 32]>,
}

/// The scope and key of a direct reply, and its time.
type Reply = (Arc<Scope>, Arc<str>, Timestamp);

/// Answers by scope and idempotency key.
type Answers = HashMap<(Arc<Scope>, Arc<str>), IdempotentAnswer>;

/// Assigns the entry's idempotency key, if it has one, to its task; refused if the key is taken.
fn take_key(
    answers: &mut Answers,
    reservations: &Reservations,
    commit: &Commit,
) -> Result<Option<Arc<str>>, Refused> {
    let Some(IdempotencyKey { key, digest }) = &commit.attached.idempotency else { return Ok(None) };
    let slot = (Arc::clone(&commit.scope), Arc::clone(key));
    judge::key(answers.contains_key(&slot) || reservations.of_key(&slot.0, &slot.1).is_some())?;
    answers
        .insert(slot, IdempotentAnswer { digest: *digest, outcome: Outcome::Task(commit.task_id.clone()) });
    Ok(Some(Arc::clone(key)))
}

#[derive(Debug)]
struct Stored {
    scope: Arc<Scope>,
    /// Index `n` has the sequence number `n + 1`.
    log: Vec<(Timestamp, Arc<Event>)>,
    /// The task after the entry of this number.
    snapshot: Option<(Seq, Task)>,
    /// The time and state of the status.
    status: (Timestamp, TaskState),
    /// The idempotency keys under which it is found.
    keys: Vec<Arc<str>>,
    /// The owner, which alone may write while the task is held.
    owner: Owner,
    /// True while the task is in progress.
    busy: bool,
    turns: Vec<StoredTurn>,
    /// The uids of its webhooks.
    webhooks: BTreeMap<PushConfigId, Arc<str>>,
    memo: Option<Bytes>,
    /// The size in memory, estimated.
    bytes: usize,
}

/// The tasks of one scope, for the list.
#[derive(Debug, Default)]
struct ScopeTasks {
    moving: HashSet<TaskId, RandomState>,
    index: Index,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(DEFAULT_KEEP_FINISHED)
    }
}

impl MemoryStore {
    /// A store that keeps this many finished tasks.
    #[must_use]
    pub fn new(keep_finished: usize) -> Self {
        Self::bounded(keep_finished, DEFAULT_MAX_UNFINISHED)
    }

    /// As [`Self::new`], with a maximum number of unfinished tasks.
    #[must_use]
    pub fn bounded(keep_finished: usize, max_unfinished: usize) -> Self {
        let inner = MemoryInner { max_unfinished, max_bytes: DEFAULT_MAX_BYTES, ..MemoryInner::default() };
        Self { inner: Arc::new(Mutex::new(inner)), keep_finished, me: 0 }
    }

    /// Sets the size in bytes above which finished tasks are deleted, oldest first.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.lock().max_bytes = bytes;
        self
    }

    /// Another owner of the same tasks, like another process.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn another(&self) -> Self {
        let mut inner = self.lock();
        inner.owners += 1;
        Self { inner: Arc::clone(&self.inner), keep_finished: self.keep_finished, me: inner.owners }
    }

    /// Marks this owner as stopped, as if its process had ended: its tasks in progress can be adopted.
    #[cfg(any(test, feature = "test-util"))]
    pub fn retire(&self) {
        self.lock().gone.insert(self.me);
    }

    fn lock(&self) -> MutexGuard<'_, MemoryInner> {
        self.inner.lock()
    }
}

impl Stored {
    fn seq(&self) -> Seq {
        Seq(self.log.len() as u64)
    }

    /// The task, folded from its snapshot and the entries after it, with this projection.
    fn task(&self, shown: Projection) -> Task {
        let (at, mut task) = match &self.snapshot {
            Some((at, task)) => (*at, task.clone()),
            None => (Seq::ZERO, Task::default()),
        };
        for (seq, (_, event)) in self.log.iter().enumerate().skip(at.0 as usize) {
            match &**event {
                Event::Task(created) if seq == 0 => task = created.clone(),
                // Skipped, because assembling an artifact copies it.
                Event::ArtifactUpdate(_) if !shown.artifacts => {}
                // The entry was folded when it was recorded, so it folds here too. The time is only for a
                // status without one, which the runtime does not record.
                event => {
                    let _ = fold(&mut task, event, Timestamp::EPOCH);
                }
            }
        }
        shown.apply(&mut task);
        task
    }

    fn facts(&self, me: Owner, scope: &Scope) -> TaskFacts {
        TaskFacts {
            seq: self.seq(),
            in_scope: *self.scope == *scope,
            is_mine: self.owner == me,
            in_hand: self.busy || self.waits(),
            has_ended: self.status.1.is_terminal(),
        }
    }

    /// True if a turn waits to begin.
    fn waits(&self) -> bool {
        self.turns.iter().any(|turn| !turn.begun)
    }

    fn read(&self, me: Owner) -> StoredTask {
        let pushes = !self.webhooks.is_empty();
        let memo = self.memo.clone();
        let facts = self.facts(me, &self.scope);
        StoredTask {
            task: self.task(Projection::WHOLE),
            seq: self.seq(),
            held: facts.is_held(),
            in_hand: facts.in_hand,
            pushes,
            memo,
        }
    }

    /// Stores a turn; replaces the one with the same id.
    fn keep(&mut self, turn: StoredTurn) {
        match self.turns.iter_mut().find(|known| known.id == turn.id) {
            Some(known) => *known = turn,
            None => self.turns.push(turn),
        }
        self.turns.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// Deletes the turns that a status of this state ends.
    fn delete_turns(&mut self, state: TaskState) {
        if state.is_terminal() {
            self.turns = Vec::new();
        } else if state.is_interrupted() {
            self.delete_begun_turns();
        }
    }

    /// Deletes the turns that have begun.
    fn delete_begun_turns(&mut self) {
        self.turns.retain(|turn| !turn.begun);
    }

    /// The tasks that its messages refer to.
    fn parents(&self) -> impl Iterator<Item = &TaskId> {
        self.log.iter().flat_map(|(_, event)| references(event))
    }
}

impl MemoryInner {
    fn append(&mut self, me: Owner, commit: Commit) -> Result<(), Refused> {
        if commit.expected == Seq::ZERO {
            return self.create(me, &commit);
        }
        let stored = self.tasks.get_mut(&commit.task_id);
        let facts = stored.as_ref().map(|stored| stored.facts(me, &commit.scope));
        judge::entry(facts, commit.expected, commit.take)?;
        let stored = stored.ok_or(Refused::NotFound)?;
        self.records.check(&commit.attached.records)?;
        stored.keys.extend(take_key(&mut self.answers, &self.reservations, &commit)?);
        stored.owner = me;
        stored.busy = commit.busy_after().unwrap_or(stored.busy);
        commit.attached.turn.iter().for_each(|turn| stored.keep(turn.clone()));
        if let Some(memo) = &commit.attached.memo {
            stored.memo = Some(memo.clone());
        }
        for parent in references(&commit.event) {
            self.children.entry(parent.clone()).or_default().insert(commit.task_id.clone());
        }
        self.records.apply(&commit.attached.records);
        self.bytes += stored.add_bytes(&commit);
        stored.log.push((commit.at, Arc::clone(&commit.event)));
        self.push(&commit);
        let Some(stored) = self.tasks.get_mut(&commit.task_id) else { return Ok(()) };
        if commit.attached.park {
            stored.delete_begun_turns();
        }
        if let Some(status) = commit.event.status() {
            let state = status.state;
            if let Some(snapshot) = commit.snapshot {
                stored.snapshot = Some((stored.seq(), snapshot));
            }
            if state.is_terminal() {
                stored.log.shrink_to_fit();
            }
            stored.delete_turns(state);
            self.relist(&commit.task_id, (status.timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    fn create(&mut self, me: Owner, commit: &Commit) -> Result<(), Refused> {
        judge::creation(self.tasks.get(&commit.task_id).map(|stored| stored.seq()))?;
        self.records.check(&commit.attached.records)?;
        let unfinished = self.tasks.len() - self.finished.len();
        // Finished tasks would be deleted to make room; unfinished ones never are.
        let is_full = self.bytes > self.max_bytes && self.finished.is_empty() && self.replies.is_empty();
        if unfinished >= self.max_unfinished || is_full {
            return Err(Refused::Full);
        }
        let key = if commit.attached.reserved {
            self.check_reservation(me, commit)?;
            self.end_reservation(&commit.task_id)
        } else {
            take_key(&mut self.answers, &self.reservations, commit)?
        };
        let status = commit.event.status().map(|status| (status.timestamp, status.state));
        let mut stored = Stored {
            scope: Arc::clone(&commit.scope),
            log: vec![(commit.at, Arc::clone(&commit.event))],
            snapshot: commit.snapshot.clone().map(|task| (Seq(1), task)),
            status: (Timestamp::EPOCH, TaskState::Unspecified),
            keys: key.into_iter().collect(),
            owner: me,
            busy: commit.busy_after().unwrap_or(true),
            turns: commit.attached.turn.iter().cloned().collect(),
            webhooks: BTreeMap::new(),
            memo: commit.attached.memo.clone(),
            bytes: footprint::OVERHEAD + footprint::of_commit(commit),
        };
        self.bytes += stored.bytes;
        if let Some((_, state)) = status {
            stored.delete_turns(state);
        }
        if commit.attached.park {
            stored.delete_begun_turns();
        }
        for parent in references(&commit.event) {
            self.children.entry(parent.clone()).or_default().insert(commit.task_id.clone());
        }
        self.tasks.insert(commit.task_id.clone(), Box::new(stored));
        self.records.apply(&commit.attached.records);
        self.push(commit);
        self.scopes.entry(Arc::clone(&commit.scope)).or_default().moving.insert(commit.task_id.clone());
        self.count(&commit.scope.agent, None, Some(TaskState::Unspecified));
        if let Some((timestamp, state)) = status {
            self.relist(&commit.task_id, (timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    /// Stores the webhook of an entry, and creates the entry's deliveries.
    fn push(&mut self, commit: &Commit) {
        if let Some(webhook) = &commit.attached.webhook {
            self.upsert_webhook(&commit.task_id, webhook.clone(), commit.at);
        }
        if let Some(stored) = self.tasks.get(&commit.task_id).filter(|_| commit.push) {
            self.outbox.owe(stored.webhooks.values(), commit.expected.next(), commit.at);
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn is_shared(&self) -> bool {
        false
    }

    fn is_immediate(&self) -> bool {
        true
    }

    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError> {
        Ok(*self.lock().secrets.entry(name.to_owned()).or_insert_with(rand::random))
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
