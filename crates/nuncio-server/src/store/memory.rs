//! The memory store: fast, bounded, and gone with the process.
//!
//! Finished tasks are kept up to a number and then forgotten, oldest first, in constant time. Others are
//! never forgotten; when there are too many of them, new ones are refused. A task enters the list's index
//! only when it settles, so that the changes before that cost nothing.

mod footprint;
mod forget;
mod index;
mod outbox;
mod records;
mod reservations;
mod survey;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
// For ids that we make ourselves: nobody can choose them to collide.
use foldhash::fast::RandomState;
use nuncio_protocol::{Event, Message, PushConfigId, Seq, Task, TaskId, TaskState, Timestamp, fold};

use self::{index::Index, outbox::Outbox, records::Records, reservations::Reservations, survey::States};
use super::{
    AdminTaskPage, AdminTaskQuery, Answer, Backlog, Commit, Delivery, DeliveryQuery, Expect, IdempotencyKey,
    Keyset, Lease, Leases, Links, MOST_CHILDREN, Orphan, Outcome, PageBytes, Projection, Prune, PutRecord,
    Record, RecordQuery, Redrive, Refused, Reservation, Scope, Settled, Store, StoreError, StoredEvent,
    StoredTask, StoredTurn, TaskCount, TaskPage, TaskQuery, TurnChange, Webhook, Whose, busy_after,
    references,
};
use crate::size;

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
    outbox: Outbox,
    records: Records,
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
    if reservations.of_key(&commit.scope, key).is_some() {
        return Err(Refused::KeyTaken);
    }
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

    /// True if this owner may not write to it.
    fn is_held(&self, me: Owner) -> bool {
        self.owner != me && (self.busy || self.waits())
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
            held: self.is_held(me),
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
    fn drop_turns(&mut self, state: TaskState) {
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
        let stored = self.tasks.get_mut(&commit.task_id).filter(|stored| stored.scope == commit.scope);
        let stored = stored.ok_or(Refused::NotFound)?;
        if stored.is_held(me) && !commit.take {
            return Err(Refused::Held);
        }
        if stored.seq() != commit.expected || stored.status.1.is_terminal() {
            return Err(Refused::Version(stored.seq()));
        }
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
            stored.drop_turns(state);
            self.relist(&commit.task_id, (status.timestamp.unwrap_or(Timestamp::EPOCH), state));
        }
        Ok(())
    }

    fn create(&mut self, me: Owner, commit: &Commit) -> Result<(), Refused> {
        if let Some(stored) = self.tasks.get(&commit.task_id) {
            return Err(Refused::Version(stored.seq()));
        }
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
            stored.drop_turns(state);
        }
        for parent in references(&commit.event) {
            self.children.entry(parent.clone()).or_default().insert(commit.task_id.clone());
        }
        self.tasks.insert(commit.task_id.clone(), Box::new(stored));
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
            self.keep_webhook(&commit.task_id, webhook.clone(), commit.at);
        }
        if let Some(stored) = self.tasks.get(&commit.task_id).filter(|_| commit.push) {
            self.outbox.owe(stored.webhooks.values(), commit.expected.next(), commit.at);
        }
    }

    /// Moves a task to its new place in the list.
    fn relist(&mut self, id: &TaskId, (at, state): (Timestamp, TaskState)) {
        let Some(stored) = self.tasks.get_mut(id) else { return };
        let (was_at, before) = std::mem::replace(&mut stored.status, (at, state));
        let scope = Arc::clone(&stored.scope);
        self.count(&scope.agent, Some(before), Some(state));
        if !before.is_settled() && !state.is_settled() {
            return;
        }
        let Some(context_id) = self.tasks.get(id).map(|stored| stored.context_id()) else { return };
        let scope = self.scopes.entry(scope).or_default();
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
        if state.is_terminal() && !before.is_terminal() {
            self.finished.push_back(id.clone());
        }
    }

    fn list(&self, scope: &Scope, query: &TaskQuery) -> TaskPage {
        let Some(own) = self.scopes.get(scope) else {
            return TaskPage { total: query.count.then_some(0), ..TaskPage::default() };
        };
        let total = query.count.then(|| self.moving(own, query).count() + own.index.count(query));
        let mut page: Vec<(Keyset, &Stored)> = self.candidates(own, query).collect();
        page.sort_by(|(a, _), (b, _)| index::order(a, b));
        let (found, mut room) = (page.len(), PageBytes::new(query.max_bytes));
        let read = page.into_iter().take(query.limit).map(|(_, stored)| stored.task(query.shown()));
        let tasks: Vec<Task> = read.take_while(|task| room.takes(size::task(task))).collect();
        TaskPage { more: found > tasks.len(), tasks, total }
    }

    /// The tasks in motion that match, wherever the page begins. They are few: they are looked at one by one
    /// and merged with the index.
    fn moving<'a>(
        &'a self,
        own: &'a ScopeTasks,
        query: &'a TaskQuery,
    ) -> impl Iterator<Item = (Keyset, &'a Stored)> {
        own.moving.iter().filter_map(|id| self.tasks.get(id).map(|stored| (id, &**stored))).filter_map(
            |(id, stored)| {
                let (timestamp, state) = stored.status;
                let wanted = query.state.is_none_or(|wanted| wanted == state)
                    && query.since.is_none_or(|since| timestamp >= since)
                    && query.context_id.as_ref().is_none_or(|context| *context == stored.context_id());
                wanted.then(|| (Keyset { timestamp, id: id.clone() }, stored))
            },
        )
    }

    /// All that may be on the page, in no order.
    fn candidates<'a>(
        &'a self,
        own: &'a ScopeTasks,
        query: &'a TaskQuery,
    ) -> impl Iterator<Item = (Keyset, &'a Stored)> {
        let beyond =
            |place: &Keyset| query.after.as_ref().is_none_or(|after| index::comes_after(place, after));
        let moving = self.moving(own, query).filter(move |(place, _)| beyond(place));
        let settled = own.index.page(query).filter_map(|place| {
            let stored = self.tasks.get(&place.id)?;
            Some((place, &**stored))
        });
        // One more than asked for, to know whether there are more.
        settled.take(query.limit.saturating_add(1)).chain(moving)
    }

    fn links(&self, scope: &Scope, id: &TaskId) -> Links {
        let known = |id: &TaskId| self.tasks.get(id).filter(|stored| *stored.scope == *scope);
        let Some(stored) = known(id) else { return Links::default() };
        let parents: BTreeSet<&TaskId> = stored.parents().filter(|id| known(id).is_some()).collect();
        let children = self.children.get(id).into_iter().flatten().filter(|id| known(id).is_some());
        Links {
            parents: parents.into_iter().cloned().collect(),
            children: children.take(MOST_CHILDREN).cloned().collect(),
        }
    }
}

impl Stored {
    fn context_id(&self) -> nuncio_protocol::ContextId {
        match self.log.first().map(|(_, event)| &**event) {
            Some(Event::Task(created)) => created.context_id.clone(),
            _ => nuncio_protocol::ContextId::default(),
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

    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut inner = self.lock();
        let results = batch.into_iter().map(|commit| inner.append(self.me, commit)).collect();
        inner.forget_surplus(self.keep_finished);
        Ok(results)
    }

    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let inner = self.lock();
        let stored = inner.tasks.get(id).filter(|stored| *stored.scope == *scope);
        Ok(stored.map(|stored| stored.read(self.me)))
    }

    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError> {
        let inner = self.lock();
        let stored = inner.tasks.get(id).filter(|stored| *stored.scope == *scope);
        Ok(stored.map(|stored| stored.task(shown)))
    }

    async fn moved(&self, known: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError> {
        let inner = self.lock();
        let has_moved =
            |(id, seq): &&(TaskId, Seq)| inner.tasks.get(id).is_some_and(|stored| stored.seq() > *seq);
        Ok(known.iter().filter(has_moved).map(|(id, _)| id.clone()).collect())
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
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let inner = self.lock();
        let Some(stored) = inner.tasks.get(id).filter(|stored| *stored.scope == *scope) else {
            return Ok(Vec::new());
        };
        // Cut before it is counted: a page costs its own length, however long the log.
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        let Some(rest) = stored.log.get(first..) else { return Ok(Vec::new()) };
        let entry = |((at, event), seq): (&(Timestamp, Arc<Event>), u64)| StoredEvent {
            seq: Seq(seq),
            at: *at,
            event: Arc::clone(event),
        };
        Ok(rest.iter().take(limit).zip(after.0 + 1..).map(entry).collect())
    }

    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
        Ok(self.lock().links(scope, id))
    }

    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError> {
        let (slot, inner) = ((Arc::new(scope.clone()), Arc::from(key)), self.lock());
        Ok(inner.answers.get(&slot).cloned().or_else(|| inner.reserved(&slot.0, &slot.1)))
    }

    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let slot = (Arc::clone(scope), key.key);
        let reserved = inner.reservations.of_key(&slot.0, &slot.1);
        let reserved = reserved.map(|(kept, owner)| (kept.task_id.clone(), *owner == self.me));
        if reserved.as_ref().is_some_and(|(_, mine)| !mine) {
            return Ok(());
        }
        if let Some((id, _)) = reserved {
            inner.reservations.remove(&id);
        }
        if !inner.answers.contains_key(&slot) {
            inner.replies.push_back((Arc::clone(&slot.0), Arc::clone(&slot.1), at));
            let answer = Answer { digest: key.digest, outcome: Outcome::Reply(reply) };
            inner.bytes += footprint::of_answer(&answer);
            inner.answers.insert(slot, answer);
            inner.forget_surplus(self.keep_finished);
        }
        Ok(())
    }

    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().reserve(self.me, reservation))
    }

    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
        self.lock().release(self.me, scope, id);
        Ok(())
    }

    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError> {
        Ok(self.lock().abandoned(agent, limit))
    }

    async fn turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().turn(self.me, scope, id, change))
    }

    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        Ok(self.lock().adopt(self.me, agent, limit))
    }

    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        Ok(self.lock().put_webhook(scope, id, webhook, now))
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        Ok(self.lock().webhook(scope, id, webhook))
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        Ok(self.lock().webhooks(scope, id, after, limit))
    }

    async fn drop_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        Ok(self.lock().drop_webhook(scope, id, webhook))
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        Ok(self.lock().lease(self.me, lease))
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let mut inner = self.lock();
        settled.into_iter().for_each(|settled| inner.settle(self.me, settled));
        Ok(())
    }

    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        Ok(self.lock().deliveries(query))
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        Ok(self.lock().backlog())
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        Ok(self.lock().redrive(what, now))
    }

    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.lock().records.one(kind, key))
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        Ok(self.lock().records.list(query))
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        let mut inner = self.lock();
        Ok(puts.into_iter().map(|put| inner.records.put(put)).collect())
    }

    async fn drop_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        Ok(self.lock().records.forget(kind, key, expect))
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().records.prune(kind, before, limit))
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        Ok(self.lock().survey(query))
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        Ok(self.lock().find(self.me, id))
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        Ok(self.lock().counts())
    }

    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().prune(what, limit))
    }

    async fn erase(&self, whose: &Whose, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().erase(whose, limit))
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
