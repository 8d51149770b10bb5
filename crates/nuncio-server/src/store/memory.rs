//! The memory store: fast, bounded, and gone with the process.
//!
//! Finished tasks are kept up to a number and then forgotten, oldest first, in constant time. Others are
//! never forgotten; when there are too many of them, new ones are refused. A task enters the list's index only when it settles, so that the
//! changes before that cost nothing.

mod index;

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
// For ids that we make ourselves: nobody can choose them to collide.
use foldhash::fast::RandomState;
use nuncio_protocol::{Event, Message, Seq, Task, TaskId, TaskState, Timestamp, fold};

use self::index::Index;
use super::{
    Answer, Commit, IdempotencyKey, Keyset, Outcome, Refused, Scope, Store, StoreError, StoredTask, TaskPage,
    TaskQuery,
};

/// How many finished tasks are kept when nobody says otherwise.
pub const DEFAULT_KEEP_FINISHED: usize = 100_000;

/// How many tasks may wait for input, for an authorisation or for their end when nobody says otherwise.
pub const DEFAULT_MOST_UNFINISHED: usize = 100_000;

/// Keeps tasks in memory.
#[derive(Debug)]
pub struct MemoryStore {
    /// Held for the length of one operation, never across an await.
    inner: Mutex<Inner>,
    keep_finished: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Boxed: the table stays small, and growing it moves pointers only.
    tasks: HashMap<TaskId, Box<Stored>, RandomState>,
    /// How many tasks may be kept that have not finished, and so are never forgotten.
    most_unfinished: usize,
    scopes: HashMap<Arc<Scope>, ScopeTasks>,
    /// Finished tasks in the order they finished; the front is forgotten first.
    finished: VecDeque<TaskId>,
    answers: Answers,
    /// Direct replies in the order they were given; forgotten like finished tasks.
    replies: VecDeque<(Arc<Scope>, Arc<str>)>,
}

/// What was answered, by scope and idempotency key.
type Answers = HashMap<(Arc<Scope>, Arc<str>), Answer>;

/// Puts the entry's idempotency key to its task, if it has one that is free.
fn take_key(answers: &mut Answers, commit: &Commit) -> Result<Option<Arc<str>>, Refused> {
    let Some(IdempotencyKey { key, digest }) = &commit.idempotency else { return Ok(None) };
    match answers.entry((Arc::clone(&commit.scope), Arc::clone(key))) {
        Entry::Occupied(_) => Err(Refused::KeyTaken),
        Entry::Vacant(place) => {
            place.insert(Answer { digest: *digest, outcome: Outcome::Task(commit.task_id.clone()) });
            Ok(Some(Arc::clone(key)))
        }
    }
}

#[derive(Debug)]
struct Stored {
    scope: Arc<Scope>,
    /// Entry `n` has the number `n + 1`.
    log: Vec<Arc<Event>>,
    /// The task after the entry of this number.
    snapshot: Option<(Seq, Task)>,
    /// When its status was recorded, and which it is.
    status: (Timestamp, TaskState),
    /// The idempotency keys under which it is found.
    keys: Vec<Arc<str>>,
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
        Self { inner: Mutex::new(Inner { most_unfinished, ..Inner::default() }), keep_finished }
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

    /// The snapshot, or what the log tells since.
    fn task(&self) -> Task {
        let (at, mut task) = match &self.snapshot {
            Some((at, task)) => (*at, task.clone()),
            None => (Seq::ZERO, Task::default()),
        };
        for event in &self.log[at.0 as usize..] {
            if let Event::Task(created) = &**event {
                task = created.clone();
            } else {
                // What was recorded has been folded once already, so it folds again; the time is only
                // for a status without one, which the runtime does not record.
                let _ = fold(&mut task, event, Timestamp::EPOCH);
            }
        }
        task
    }
}

impl Inner {
    fn append(&mut self, commit: Commit) -> Result<(), Refused> {
        if commit.expected == Seq::ZERO {
            return self.create(commit);
        }
        let stored = self.tasks.get_mut(&commit.task_id).filter(|stored| stored.scope == commit.scope);
        let stored = stored.ok_or(Refused::NotFound)?;
        if stored.seq() != commit.expected {
            return Err(Refused::Version(stored.seq()));
        }
        stored.keys.extend(take_key(&mut self.answers, &commit)?);
        stored.log.push(Arc::clone(&commit.event));
        if let Some(status) = commit.event.status() {
            let state = status.state;
            if let Some(snapshot) = commit.snapshot {
                stored.snapshot = Some((stored.seq(), snapshot));
            }
            if state.is_terminal() {
                stored.log.shrink_to_fit();
            }
            self.relist(&commit.task_id, (status.timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    fn create(&mut self, commit: Commit) -> Result<(), Refused> {
        if let Some(stored) = self.tasks.get(&commit.task_id) {
            return Err(Refused::Version(stored.seq()));
        }
        if self.tasks.len() - self.finished.len() >= self.most_unfinished {
            return Err(Refused::Full);
        }
        let key = take_key(&mut self.answers, &commit)?;
        let status = commit.event.status().map(|status| (status.timestamp, status.state));
        let stored = Stored {
            scope: Arc::clone(&commit.scope),
            log: vec![Arc::clone(&commit.event)],
            snapshot: commit.snapshot.map(|task| (Seq(1), task)),
            status: (Timestamp::EPOCH, TaskState::Unspecified),
            keys: key.into_iter().collect(),
        };
        self.tasks.insert(commit.task_id.clone(), Box::new(stored));
        self.scopes.entry(Arc::clone(&commit.scope)).or_default().moving.insert(commit.task_id.clone());
        if let Some((timestamp, state)) = status {
            self.relist(&commit.task_id, (timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    /// Moves a task to its new place in the list.
    fn relist(&mut self, id: &TaskId, (at, state): (Timestamp, TaskState)) {
        let Some(stored) = self.tasks.get_mut(id) else { return };
        let (was_at, before) = std::mem::replace(&mut stored.status, (at, state));
        if !before.is_settled() && !state.is_settled() {
            return;
        }
        let context_id = stored.context_id();
        let scope = self.scopes.entry(Arc::clone(&stored.scope)).or_default();
        if before.is_settled() {
            scope.index.remove(id, &context_id, was_at, before);
        } else {
            scope.moving.remove(id);
        }
        if state.is_settled() {
            scope.index.insert(id, &context_id, at, state);
        } else {
            scope.moving.insert(id.clone());
        }
        if state.is_terminal() {
            self.finished.push_back(id.clone());
        }
    }

    fn forget_surplus(&mut self, keep: usize) {
        while self.finished.len() > keep {
            let Some(id) = self.finished.pop_front() else { return };
            self.forget(&id);
        }
        while self.replies.len() > keep {
            let Some(slot) = self.replies.pop_front() else { return };
            self.answers.remove(&slot);
        }
    }

    fn forget(&mut self, id: &TaskId) {
        let Some(stored) = self.tasks.remove(id) else { return };
        if let Some(scope) = self.scopes.get_mut(&stored.scope) {
            let (at, state) = stored.status;
            scope.index.remove(id, &stored.context_id(), at, state);
            if scope.index.is_empty() && scope.moving.is_empty() {
                self.scopes.remove(&stored.scope);
            }
        }
        for key in stored.keys {
            self.answers.remove(&(Arc::clone(&stored.scope), key));
        }
    }

    fn list(&self, scope: &Scope, query: &TaskQuery) -> TaskPage {
        let Some(own) = self.scopes.get(scope) else {
            return TaskPage { total: query.count.then_some(0), ..TaskPage::default() };
        };
        // Tasks in motion are few: they are looked at one by one and merged with the index.
        let mut moving: Vec<(Keyset, &Stored)> = own
            .moving
            .iter()
            .filter_map(|id| self.tasks.get(id).map(|stored| (id, &**stored)))
            .filter_map(|(id, stored)| {
                let (timestamp, state) = stored.status;
                let wanted = query.state.is_none_or(|wanted| wanted == state)
                    && query.since.is_none_or(|since| timestamp >= since)
                    && query.context_id.as_ref().is_none_or(|context| *context == stored.context_id());
                wanted.then(|| (Keyset { timestamp, id: id.clone() }, stored))
            })
            .collect();
        let total = query.count.then(|| moving.len() + own.index.count(query));
        moving.retain(|(place, _)| query.after.as_ref().is_none_or(|after| index::comes_after(place, after)));
        let settled = own.index.page(query).filter_map(|place| {
            let stored = self.tasks.get(&place.id)?;
            Some((place, &**stored))
        });
        // One more than asked for, to know whether there are more.
        let mut page: Vec<(Keyset, &Stored)> =
            settled.take(query.limit.saturating_add(1)).chain(moving).collect();
        page.sort_by(|(a, _), (b, _)| index::order(a, b));
        let more = page.len() > query.limit;
        page.truncate(query.limit);
        TaskPage { tasks: page.into_iter().map(|(_, stored)| stored.task()).collect(), more, total }
    }
}

impl Stored {
    fn context_id(&self) -> nuncio_protocol::ContextId {
        match self.log.first().map(|event| &**event) {
            Some(Event::Task(created)) => created.context_id.clone(),
            _ => nuncio_protocol::ContextId::default(),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut inner = self.lock();
        let results = batch.into_iter().map(|commit| inner.append(commit)).collect();
        inner.forget_surplus(self.keep_finished);
        Ok(results)
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let inner = self.lock();
        let stored = inner.tasks.get(id).filter(|stored| *stored.scope == *scope);
        Ok(stored.map(|stored| StoredTask { task: stored.task(), seq: stored.seq() }))
    }

    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        Ok(self.lock().list(scope, query))
    }

    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Arc<Event>)>, StoreError> {
        let inner = self.lock();
        let Some(stored) = inner.tasks.get(id).filter(|stored| *stored.scope == *scope) else {
            return Ok(Vec::new());
        };
        // Cut before it is counted: a page costs its own length, however long the log.
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        let Some(rest) = stored.log.get(first..) else { return Ok(Vec::new()) };
        Ok(rest
            .iter()
            .take(limit)
            .zip(after.0 + 1..)
            .map(|(event, seq)| (Seq(seq), Arc::clone(event)))
            .collect())
    }

    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError> {
        let slot = (Arc::new(scope.clone()), Arc::from(key));
        Ok(self.lock().answers.get(&slot).cloned())
    }

    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
    ) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let slot = (Arc::clone(scope), key.key);
        if !inner.answers.contains_key(&slot) {
            inner.replies.push_back(slot.clone());
            inner.answers.insert(slot, Answer { digest: key.digest, outcome: Outcome::Reply(reply) });
            inner.forget_surplus(self.keep_finished);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
