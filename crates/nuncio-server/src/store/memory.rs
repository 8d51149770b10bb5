//! The memory store: fast, bounded, and gone with the process.
//!
//! Finished tasks are kept up to a number and then forgotten, oldest first, in constant time. Others are
//! never forgotten; when there are too many of them, new ones are refused. A task enters the list's index
//! only when it settles, so that the changes before that cost nothing.

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
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
// For ids that we make ourselves: nobody can choose them to collide.
use foldhash::fast::RandomState;
use nuncio_protocol::{Event, PushConfigId, Seq, Task, TaskId, TaskState, Timestamp, fold};

use self::{
    index::Index, operator_queries::States, outbox::WebhookTable, records::RecordTable,
    reservations::Reservations,
};
use super::{
    Answer, Commit, IdempotencyKey, Outcome, Projection, Refused, Scope, Store, StoreError, StoredTask,
    StoredTurn, busy_after,
    judge::{self, TaskFacts},
    references,
};

/// How many finished tasks are kept when nobody says otherwise.
pub const DEFAULT_KEEP_FINISHED: usize = 100_000;

/// How many tasks may wait for input, for an authorisation or for their end when nobody says otherwise.
pub const DEFAULT_MOST_UNFINISHED: usize = 100_000;

/// The default bound on bytes of tasks and replies.
pub const DEFAULT_MAX_BYTES: usize = 1 << 30;

/// Keeps tasks in memory.
#[derive(Debug)]
pub struct MemoryStore {
    /// Held for the length of one operation, never across an await.
    inner: Arc<Mutex<Inner>>,
    keep_finished: usize,
    /// The owner that this handle is.
    me: Owner,
}

/// Who owns tasks: a handle, by its number.
type Owner = u32;

#[derive(Debug, Default)]
struct Inner {
    /// Boxed: the table stays small, and growing it moves pointers only.
    tasks: HashMap<TaskId, Box<Stored>, RandomState>,
    /// How many tasks may be kept that have not finished, and so are never forgotten.
    most_unfinished: usize,
    /// The most bytes of tasks and replies, by estimate.
    max_bytes: usize,
    /// The bytes that they take now.
    bytes: usize,
    scopes: HashMap<Arc<Scope>, ScopeTasks>,
    /// Finished tasks in the order they finished; the front is forgotten first.
    finished: VecDeque<TaskId>,
    answers: Answers,
    reservations: Reservations,
    /// Direct replies in the order they were given; forgotten like finished tasks.
    replies: VecDeque<Reply>,
    /// The tasks that refer to a task.
    children: HashMap<TaskId, BTreeSet<TaskId>, RandomState>,
    outbox: WebhookTable,
    records: RecordTable,
    counts: HashMap<Arc<str>, States, RandomState>,
    /// How many handles there have been, besides the first.
    #[cfg(any(test, feature = "test-util"))]
    owners: Owner,
    /// The handles that are gone.
    gone: HashSet<Owner>,
    secrets: HashMap<String, [u8; 32]>,
}

/// Where a direct reply is found, and when it was given.
type Reply = (Arc<Scope>, Arc<str>, Timestamp);

/// What was answered, by scope and idempotency key.
type Answers = HashMap<(Arc<Scope>, Arc<str>), Answer>;

/// Puts the entry's idempotency key to its task, if it has one that is free.
fn take_key(
    answers: &mut Answers,
    reservations: &Reservations,
    commit: &Commit,
) -> Result<Option<Arc<str>>, Refused> {
    let Some(IdempotencyKey { key, digest }) = &commit.idempotency else { return Ok(None) };
    let slot = (Arc::clone(&commit.scope), Arc::clone(key));
    judge::key(answers.contains_key(&slot) || reservations.of_key(&slot.0, &slot.1).is_some())?;
    answers.insert(slot, Answer { digest: *digest, outcome: Outcome::Task(commit.task_id.clone()) });
    Ok(Some(Arc::clone(key)))
}

#[derive(Debug)]
struct Stored {
    scope: Arc<Scope>,
    /// Entry `n` has the number `n + 1`.
    log: Vec<(Timestamp, Arc<Event>)>,
    /// The task after the entry of this number.
    snapshot: Option<(Seq, Task)>,
    /// When its status was recorded, and which it is.
    status: (Timestamp, TaskState),
    /// The idempotency keys under which it is found.
    keys: Vec<Arc<str>>,
    /// Who may write to it while it is in progress.
    owner: Owner,
    /// It is in progress.
    busy: bool,
    turns: Vec<StoredTurn>,
    /// The uids of its webhooks.
    webhooks: BTreeMap<PushConfigId, Arc<str>>,
    memo: Option<Bytes>,
    /// Its size in memory, by estimate.
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
    /// A store that keeps so many finished tasks.
    #[must_use]
    pub fn new(keep_finished: usize) -> Self {
        Self::bounded(keep_finished, DEFAULT_MOST_UNFINISHED)
    }

    /// As [`Self::new`], with room for so many tasks that have not finished.
    #[must_use]
    pub fn bounded(keep_finished: usize, most_unfinished: usize) -> Self {
        let inner = Inner { most_unfinished, max_bytes: DEFAULT_MAX_BYTES, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)), keep_finished, me: 0 }
    }

    /// Forgets finished tasks, oldest first, when all tasks take more than this many bytes.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.lock().max_bytes = bytes;
        self
    }

    /// Another owner of the same tasks, as another process would be.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn another(&self) -> Self {
        let mut inner = self.lock();
        inner.owners += 1;
        Self { inner: Arc::clone(&self.inner), keep_finished: self.keep_finished, me: inner.owners }
    }

    /// This owner is gone, as if its process had ended: what it leaves in progress may be adopted.
    #[cfg(any(test, feature = "test-util"))]
    pub fn retire(&self) {
        self.lock().gone.insert(self.me);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half-way through a change; a poisoned lock holds good data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn seq(&self) -> Seq {
        Seq(self.log.len() as u64)
    }

    /// The snapshot, or what the log tells since, as far as it is shown.
    fn task(&self, shown: Projection) -> Task {
        let (at, mut task) = match &self.snapshot {
            Some((at, task)) => (*at, task.clone()),
            None => (Seq::ZERO, Task::default()),
        };
        for (seq, (_, event)) in self.log.iter().enumerate().skip(at.0 as usize) {
            match &**event {
                Event::Task(created) if seq == 0 => task = created.clone(),
                // To put an artifact together is to copy it.
                Event::ArtifactUpdate(_) if !shown.artifacts => {}
                // What was recorded has been folded once already, so it folds again; the time is only
                // for a status without one, which the runtime does not record.
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
        StoredTask {
            task: self.task(Projection::WHOLE),
            seq: self.seq(),
            held: self.facts(me, &self.scope).is_held(),
            pushes,
            memo,
        }
    }

    /// Keeps a turn; one of the same id makes room.
    fn keep(&mut self, turn: StoredTurn) {
        match self.turns.iter_mut().find(|known| known.id == turn.id) {
            Some(known) => *known = turn,
            None => self.turns.push(turn),
        }
        self.turns.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// Drops the turns that a status of this state ends.
    fn delete_turns(&mut self, state: TaskState) {
        if state.is_terminal() {
            self.turns = Vec::new();
        } else if state.is_interrupted() {
            self.turns.retain(|turn| !turn.begun);
        }
    }

    /// The tasks that what was said in it refers to.
    fn parents(&self) -> impl Iterator<Item = &TaskId> {
        self.log.iter().flat_map(|(_, event)| references(event))
    }
}

impl Inner {
    fn append(&mut self, me: Owner, commit: Commit) -> Result<(), Refused> {
        if commit.expected == Seq::ZERO {
            return self.create(me, &commit);
        }
        let stored = self.tasks.get_mut(&commit.task_id);
        let facts = stored.as_ref().map(|stored| stored.facts(me, &commit.scope));
        judge::entry(facts, commit.expected, commit.take)?;
        let stored = stored.ok_or(Refused::NotFound)?;
        stored.keys.extend(take_key(&mut self.answers, &self.reservations, &commit)?);
        stored.owner = me;
        stored.busy = busy_after(&commit.event).unwrap_or(stored.busy);
        commit.turn.iter().for_each(|turn| stored.keep(turn.clone()));
        if let Some(memo) = &commit.memo {
            stored.memo = Some(memo.clone());
        }
        for parent in references(&commit.event) {
            self.children.entry(parent.clone()).or_default().insert(commit.task_id.clone());
        }
        if let Some(record) = &commit.record {
            self.records.replace(record);
        }
        self.bytes += stored.add_bytes(&commit);
        stored.log.push((commit.at, Arc::clone(&commit.event)));
        self.push(&commit);
        let Some(stored) = self.tasks.get_mut(&commit.task_id) else { return Ok(()) };
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
        let unfinished = self.tasks.len() - self.finished.len();
        // Finished tasks are forgotten for it; unfinished ones never are.
        let is_full = self.bytes > self.max_bytes && self.finished.is_empty() && self.replies.is_empty();
        if unfinished >= self.most_unfinished || is_full {
            return Err(Refused::Full);
        }
        let key = if commit.reserved {
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
            busy: busy_after(&commit.event).unwrap_or(true),
            turns: commit.turn.iter().cloned().collect(),
            webhooks: BTreeMap::new(),
            memo: commit.memo.clone(),
            bytes: footprint::OVERHEAD + footprint::of_commit(commit),
        };
        self.bytes += stored.bytes;
        if let Some((_, state)) = status {
            stored.delete_turns(state);
        }
        for parent in references(&commit.event) {
            self.children.entry(parent.clone()).or_default().insert(commit.task_id.clone());
        }
        self.tasks.insert(commit.task_id.clone(), Box::new(stored));
        if let Some(record) = &commit.record {
            self.records.replace(record);
        }
        self.push(commit);
        self.scopes.entry(Arc::clone(&commit.scope)).or_default().moving.insert(commit.task_id.clone());
        self.count(&commit.scope.agent, None, Some(TaskState::Unspecified));
        if let Some((timestamp, state)) = status {
            self.relist(&commit.task_id, (timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    /// Keeps the webhook of an entry, and writes down who is owed the entry.
    fn push(&mut self, commit: &Commit) {
        if let Some(webhook) = &commit.webhook {
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
