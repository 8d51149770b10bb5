//! Tasks in memory: those that execute, wait for their turn, or are watched.
//!
//! One owner folds. While a task is live its folded state is here, behind a short lock that is never
//! held across an await; emits, follow-up messages, cancels and subscribers meet at this lock, in
//! order. What is folded may be ahead of what is committed; only what is committed is shown. When the last
//! handle goes, the task leaves memory and the store alone knows it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use nuncio_protocol::{ContextId, Error, Message, Result, Seq, StreamItem, Task, TaskId, TaskState};
use tokio::sync::{Notify, futures::Notified};
use tokio_util::sync::CancellationToken;

use super::turn::Turn;
use crate::{
    memory::{MemoryAccount, TaskSize},
    size,
    store::{Commit, IdempotencyKey, Scope, StoredTask, StoredTurn, Webhook},
};

/// How many of a live task's events are kept for subscribers that follow closely; one that lags
/// further behind reads from the store.
const RING: usize = 256;

/// A task in memory.
pub(super) struct Live {
    pub(super) id: TaskId,
    pub(super) context_id: ContextId,
    pub(super) scope: Arc<Scope>,
    /// The key of the send that begins it here.
    pub(super) key: Option<IdempotencyKey>,
    state: Mutex<State>,
    /// Wakes whoever waits for the state to change. The state alone is the truth.
    changed: Notify,
    /// Wakes whoever waits for the task to settle, not with each piece of its work.
    settled: Notify,
    /// How many [`LiveRef`]s there are. Grows only under the registry's lock or from a live handle.
    handles: AtomicUsize,
}

/// The state of a live task, behind its lock.
pub(super) struct State {
    /// What has become of the message that is at work.
    pub(super) phase: Phase,
    /// About how many bytes its log has. What was replaced counts as well, because the log keeps it. Of a task that was
    /// read from the store, the content counts.
    pub(super) bytes: TaskSize,
    /// Another owner works on it.
    pub(super) owned_elsewhere: bool,
    /// Travels with the next entry.
    pub(super) attached: Attached,
    /// What the agent keeps with the task.
    pub(super) memo: Option<Bytes>,
    /// It has webhooks, as far as we know.
    pub(super) pushes: bool,
    /// How many streams follow closely.
    pub(super) followers: usize,
    /// Recent events, in order and without a gap up to what is committed; empty while nobody follows.
    ring: VecDeque<StreamItem>,
    /// The running execution, if one runs.
    pub(super) running: Option<Running>,
    /// Messages that wait for the running execution to end.
    pub(super) queue: VecDeque<Turn>,
}

/// The kinds of a live task.
pub(super) enum Phase {
    /// There is no task yet. Its first event makes one, with this message as its history.
    Opening(Arc<Message>),
    /// A task.
    Task(Tracked),
    /// A direct reply was given instead of a task.
    Replied {
        reply: Arc<Message>,
        /// The reply may be shown: it is in the store, if it was to be kept.
        stored: bool,
    },
    /// The caller gets this error instead of a task.
    Refused(Arc<Error>),
    /// The store refused an entry, or another owner has the task: memory is not the truth any more, and nothing is
    /// written.
    Lost(Lost),
}

/// A task, and how far it has come.
pub(super) struct Tracked {
    /// As it is folded.
    pub(super) task: Task,
    /// How far it is folded.
    pub(super) folded: Progress,
    /// How far it is in the store.
    pub(super) committed: Progress,
}

impl Tracked {
    fn stored(task: Task, seq: Seq) -> Self {
        let progress = Progress { seq, settled: task.status.state.is_settled().then_some(seq) };
        Self { task, folded: progress, committed: progress }
    }

    fn is_committed(&self) -> bool {
        self.folded.seq == self.committed.seq
    }
}

/// What is still known of a task that was lost.
#[derive(Default)]
pub(super) struct Lost {
    /// The task as it was folded last, for the execution that has not noticed yet.
    task: Option<Task>,
    /// The store has a task or a reply of it.
    answered: bool,
}

/// What is stored in one piece with the next entry.
#[derive(Default)]
pub(super) struct Attached {
    /// A repeat of the message finds the task under this key.
    pub(super) idempotency: Option<IdempotencyKey>,
    /// The task is reserved in the store, until its first entry.
    pub(super) reserved: bool,
    /// The turn that the task works on, or is to work on.
    pub(super) turn: Option<StoredTurn>,
    /// Registered with the entry.
    pub(super) webhook: Option<Webhook>,
    /// What the agent keeps with the task from now on.
    pub(super) memo: Option<Bytes>,
}

impl Attached {
    /// How many bytes it adds to an entry.
    pub(super) fn bytes(&self) -> usize {
        self.memo.as_ref().map_or(0, Bytes::len)
    }

    /// Puts all of it on an entry.
    pub(super) fn put_on(self, commit: &mut Commit) {
        let Self { idempotency, reserved, turn, webhook, memo } = self;
        // A task that is reserved has the key of its reservation.
        commit.idempotency = idempotency.filter(|_| !reserved);
        (commit.reserved, commit.turn, commit.webhook, commit.memo) = (reserved, turn, webhook, memo);
    }
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// The number of the last entry.
    pub(super) seq: Seq,
    /// The number of the status that is terminal or interrupted, if the present one is.
    pub(super) settled: Option<Seq>,
}

impl Progress {
    /// Takes in the next entries.
    pub(super) fn advance(&mut self, batch: &[Commit]) {
        for commit in batch {
            self.seq = commit.expected.next();
            if let Some(status) = commit.event.status() {
                self.settled = status.state.is_settled().then_some(self.seq);
            }
        }
    }
}

/// A step of a task, when the store has its entries.
pub(super) struct Advance {
    committed: Progress,
    items: Vec<StreamItem>,
}

/// What becomes of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReservationEnd {
    /// It has ended already, with the task or the reply.
    Answered,
    /// Its task is to be made, as failed.
    Failed,
    /// It is given back.
    Released,
}

/// A running execution.
pub(super) struct Running {
    /// Stops it.
    pub(super) token: CancellationToken,
    /// Why it is being stopped, once it is; emits fail from then on.
    pub(super) stop: Option<Stop>,
}

/// Why an execution is being stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The caller asked for it.
    Cancel,
    /// The server ends.
    Shutdown,
    /// The executor has said nothing for too long.
    Silence,
    /// The task has grown to its limit of bytes. Nothing more is recorded but its end.
    TooLarge,
    /// The server has no memory for more of it. Nothing more is recorded but its end.
    OutOfMemory,
}

impl Stop {
    /// True if nobody wants the work any more, here or elsewhere. (After a shutdown it may go on.)
    pub(super) fn is_for_good(self) -> bool {
        match self {
            Self::Cancel | Self::TooLarge | Self::OutOfMemory => true,
            Self::Shutdown | Self::Silence => false,
        }
    }
}

impl Live {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Folding does not panic half-way; a poisoned lock holds good data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last entry in the store, and whether the task ended with it.
    ///
    /// # Errors
    /// The task is lost.
    pub(super) fn standing(&self) -> Result<(Seq, bool)> {
        let state = self.lock();
        state.check_kept()?;
        Ok((state.committed().seq, state.has_ended()))
    }

    /// Takes in entries that are in the store now, and tells whoever waits; says whether webhooks may be due.
    pub(super) fn committed(&self, batch: &[Commit]) -> bool {
        let mut state = self.lock();
        let advance = state.advance(batch);
        state.take_in(advance);
        let (progress, pushes) = (state.committed(), state.pushes);
        drop(state);
        self.announce_progress(progress);
        pushes
    }

    /// Takes in what the store has, where another owner writes, or wrote.
    pub(super) fn follow(&self, stored: StoredTask) {
        let mut state = self.lock();
        let known = match &state.phase {
            Phase::Opening(_) => Seq::ZERO,
            Phase::Task(tracked) if tracked.is_committed() => tracked.committed.seq,
            // Ours meanwhile.
            Phase::Task(_) => return,
            // Nothing follows.
            Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => return,
        };
        if stored.seq > known {
            state.bytes.set(size::task(&stored.task));
            state.phase = Phase::Task(Tracked::stored(stored.task, stored.seq));
            state.memo = stored.memo;
            // What others wrote is in the store only, and what is here does not reach up to it.
            state.ring.clear();
        }
        state.owned_elsewhere = stored.held;
        state.pushes |= stored.pushes;
        drop(state);
        self.announce();
    }

    /// Says that the state has changed. Call it after the lock is released.
    pub(super) fn announce(&self) {
        self.changed.notify_waiters();
        self.settled.notify_waiters();
    }

    /// The same if nothing else has changed than how far the task has come.
    pub(super) fn announce_progress(&self, committed: Progress) {
        self.changed.notify_waiters();
        if committed.settled.is_some() {
            self.settled.notify_waiters();
        }
    }

    /// Done at the next change after this call, waited for or not: take it, look at the state, then
    /// wait, and nothing is missed.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the state is as wanted.
    pub(super) async fn until(&self, wanted: impl Fn(&State) -> bool) {
        self.until_by(&self.changed, wanted).await;
    }

    /// The same for what is wanted of a task that has settled, of one that is lost, or of messages that wait: whoever
    /// waits for that is not woken by pieces of work.
    pub(super) async fn until_settled(&self, wanted: impl Fn(&State) -> bool) {
        self.until_by(&self.settled, wanted).await;
    }

    /// Waits until all that is folded is in the store, or lost.
    pub(super) async fn until_committed(&self) {
        self.until(State::is_committed).await;
    }

    async fn until_by(&self, notify: &Notify, wanted: impl Fn(&State) -> bool) {
        loop {
            let changed = notify.notified();
            if wanted(&self.lock()) {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn new(phase: Phase, memory: &MemoryAccount) -> Self {
        let bytes = match &phase {
            Phase::Task(tracked) => size::task(&tracked.task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => 0,
        };
        Self {
            phase,
            bytes: memory.task_size(bytes),
            owned_elsewhere: false,
            attached: Attached::default(),
            memo: None,
            pushes: false,
            followers: 0,
            ring: VecDeque::new(),
            running: None,
            queue: VecDeque::new(),
        }
    }

    /// True if memory is not the truth any more.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost(_))
    }

    /// Refuses what is about a task that is lost: whoever comes next reads the store.
    pub(super) fn check_kept(&self) -> Result<()> {
        if self.is_lost() { Err(super::unavailable()) } else { Ok(()) }
    }

    /// The task, if there is one.
    pub(super) fn task(&self) -> Option<&Task> {
        match &self.phase {
            Phase::Task(tracked) => Some(&tracked.task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => None,
        }
    }

    /// The task as its execution sees it, which may not know yet that it is lost.
    pub(super) fn last_task(&self) -> Option<&Task> {
        match &self.phase {
            Phase::Task(Tracked { task, .. }) | Phase::Lost(Lost { task: Some(task), .. }) => Some(task),
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => None,
        }
    }

    /// How far the task is folded.
    pub(super) fn folded(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.folded,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// How far the task is in the store.
    pub(super) fn committed(&self) -> Progress {
        match &self.phase {
            Phase::Task(tracked) => tracked.committed,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) | Phase::Lost(_) => {
                Progress::default()
            }
        }
    }

    /// Gives up what is in memory.
    fn lose(&mut self) {
        self.phase = Phase::Lost(match std::mem::replace(&mut self.phase, Phase::Lost(Lost::default())) {
            Phase::Opening(_) | Phase::Refused(_) => Lost::default(),
            Phase::Task(Tracked { task, committed, .. }) => {
                Lost { task: Some(task), answered: committed.seq > Seq::ZERO }
            }
            Phase::Replied { stored, .. } => Lost { task: None, answered: stored },
            Phase::Lost(lost) => lost,
        });
    }

    /// What is to become of the reservation of an execution that is over.
    pub(super) fn reservation_end(&self) -> ReservationEnd {
        match &self.phase {
            Phase::Task(tracked) if tracked.committed.seq > Seq::ZERO => ReservationEnd::Answered,
            Phase::Replied { stored: true, .. } | Phase::Lost(Lost { answered: true, .. }) => {
                ReservationEnd::Answered
            }
            Phase::Lost(_) => ReservationEnd::Failed,
            // The executor has refused the message, and has done nothing.
            Phase::Opening(_) | Phase::Task(_) | Phase::Replied { .. } | Phase::Refused(_) => {
                ReservationEnd::Released
            }
        }
    }

    /// Asks the running execution to stop; the first reason stands. False if none runs.
    pub(super) fn stop(&mut self, why: Stop) -> bool {
        let Some(running) = &mut self.running else { return false };
        running.stop.get_or_insert(why);
        running.token.cancel();
        true
    }

    /// Why the running execution is being stopped, if it is.
    pub(super) fn stopping(&self) -> Option<Stop> {
        self.running.as_ref().and_then(|running| running.stop)
    }

    /// Where the task stands; unspecified before its first event.
    pub(super) fn state(&self) -> TaskState {
        self.last_task().map_or(TaskState::Unspecified, |task| task.status.state)
    }

    /// True if nothing that is folded is on its way to the store.
    pub(super) fn is_committed(&self) -> bool {
        self.folded().seq == self.committed().seq
    }

    /// True if something that was said is still on its way to the store.
    pub(super) fn awaits_store(&self) -> bool {
        !self.is_committed() || matches!(self.phase, Phase::Replied { stored: false, .. })
    }

    /// True if the task has ended and its end is in the store.
    pub(super) fn has_ended(&self) -> bool {
        self.is_committed() && self.task().is_some_and(|task| task.status.state.is_terminal())
    }

    /// True if what was asked at this entry has been answered, and the answer is in the store: a reply, or
    /// a status after it that is terminal or interrupted. Also if there will be no answer.
    pub(super) fn answers(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.committed())
    }

    /// As [`Self::answers`], also if the answer is still on its way to the store.
    pub(super) fn will_answer(&self, turn: Seq) -> bool {
        self.is_answered(turn, self.folded())
    }

    fn is_answered(&self, turn: Seq, progress: Progress) -> bool {
        match &self.phase {
            Phase::Opening(_) => false,
            Phase::Task(_) => progress.settled.is_some_and(|settled| settled > turn),
            Phase::Replied { stored, .. } => *stored,
            Phase::Refused(_) | Phase::Lost(_) => true,
        }
    }

    /// The step that these entries are, once they are in the store; with the entries as streams show them, if one
    /// follows.
    pub(super) fn advance(&self, batch: &[Commit]) -> Advance {
        let mut committed = self.committed();
        committed.advance(batch);
        let item = |commit: &Commit| StreamItem::new(Some(commit.expected.next()), Arc::clone(&commit.event));
        let items = if self.followers == 0 { Vec::new() } else { batch.iter().map(item).collect() };
        Advance { committed, items }
    }

    /// Takes in entries that are in the store now.
    pub(super) fn take_in(&mut self, Advance { committed, items }: Advance) {
        match &mut self.phase {
            Phase::Task(tracked) => tracked.committed = committed,
            Phase::Lost(lost) => lost.answered = true,
            Phase::Opening(_) | Phase::Replied { .. } | Phase::Refused(_) => {}
        }
        if items.is_empty() {
            self.ring.clear();
        }
        for item in items {
            if self.ring.len() == RING {
                self.ring.pop_front();
            }
            self.ring.push_back(item);
        }
    }

    /// The events after `cursor`; `None` if the ring no longer reaches back so far.
    pub(super) fn after(&self, cursor: Seq) -> Option<impl Iterator<Item = &StreamItem>> {
        let missing = self.committed().seq.0.saturating_sub(cursor.0) as usize;
        let skip = self.ring.len().checked_sub(missing)?;
        Some(self.ring.iter().skip(skip))
    }
}

/// A handle that keeps a task live.
pub(super) struct LiveRef {
    live: Arc<Live>,
    registry: Weak<Registry>,
}

impl LiveRef {
    fn new(live: &Arc<Live>, registry: &Arc<Registry>) -> Self {
        live.handles.fetch_add(1, Ordering::Relaxed);
        Self { live: Arc::clone(live), registry: Arc::downgrade(registry) }
    }

    /// Takes the task out of memory, which is not what is stored: nothing more is written, the execution ends, and
    /// whoever comes next reads the store.
    pub(super) fn evict(&self) {
        let mut state = self.lock();
        state.lose();
        if let Some(running) = &state.running {
            running.token.cancel();
        }
        drop(state);
        if let Some(registry) = self.registry.upgrade() {
            registry.evict(self);
        }
        self.announce();
    }
}

impl Deref for LiveRef {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Clone for LiveRef {
    fn clone(&self) -> Self {
        self.live.handles.fetch_add(1, Ordering::Relaxed);
        Self { live: Arc::clone(&self.live), registry: Weak::clone(&self.registry) }
    }
}

impl fmt::Debug for LiveRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveRef").field(&self.live.id).finish()
    }
}

impl Drop for LiveRef {
    fn drop(&mut self) {
        if self.live.handles.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(registry) = self.registry.upgrade()
        {
            registry.release(&self.live);
        }
    }
}

/// The live tasks of a runtime.
#[derive(Default)]
pub(super) struct Registry {
    /// The account that tasks count in.
    pub(super) memory: MemoryAccount,
    tasks: Mutex<HashMap<TaskId, Arc<Live>, RandomState>>,
}

impl Registry {
    /// No tasks yet; those to come count in this account.
    pub(super) fn new(memory: MemoryAccount) -> Self {
        Self { memory, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Live>, RandomState>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that does not exist yet.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: TaskId,
        context_id: ContextId,
        scope: Arc<Scope>,
        opening: Arc<Message>,
        idempotency: Option<IdempotencyKey>,
    ) -> LiveRef {
        let begun = self.begin_apart(id, context_id, scope, opening, idempotency);
        self.lock().insert(begun.id.clone(), Arc::clone(&begun.live));
        begun
    }

    /// A task that does not exist yet and is not found here. Callers read the store, which has it once it is made:
    /// several may try to make it, and the store takes one of them.
    pub(super) fn begin_apart(
        self: &Arc<Self>,
        id: TaskId,
        context_id: ContextId,
        scope: Arc<Scope>,
        opening: Arc<Message>,
        idempotency: Option<IdempotencyKey>,
    ) -> LiveRef {
        let mut state = State::new(Phase::Opening(opening), &self.memory);
        state.attached.idempotency.clone_from(&idempotency);
        let live = Arc::new(Live {
            id,
            context_id,
            scope,
            key: idempotency,
            state: Mutex::new(state),
            changed: Notify::new(),
            settled: Notify::new(),
            handles: AtomicUsize::new(0),
        });
        LiveRef::new(&live, self)
    }

    /// The live task, if it is in this scope.
    pub(super) fn get(self: &Arc<Self>, scope: &Scope, id: &TaskId) -> Option<LiveRef> {
        let tasks = self.lock();
        tasks.get(id).filter(|live| *live.scope == *scope).map(|live| LiveRef::new(live, self))
    }

    /// Makes a stored task live, unless somebody has meanwhile.
    pub(super) fn revive(self: &Arc<Self>, scope: &Arc<Scope>, stored: StoredTask) -> LiveRef {
        let mut tasks = self.lock();
        let live = tasks.entry(stored.task.id.clone()).or_insert_with(|| {
            Arc::new(Live {
                id: stored.task.id.clone(),
                context_id: stored.task.context_id.clone(),
                scope: Arc::clone(scope),
                key: None,
                state: Mutex::new(State {
                    owned_elsewhere: stored.held,
                    pushes: stored.pushes,
                    memo: stored.memo,
                    ..State::new(Phase::Task(Tracked::stored(stored.task, stored.seq)), &self.memory)
                }),
                changed: Notify::new(),
                settled: Notify::new(),
                handles: AtomicUsize::new(0),
            })
        });
        LiveRef::new(live, self)
    }

    /// Forgets a task without handles, unless somebody has taken one since.
    fn release(&self, live: &Arc<Live>) {
        let mut tasks = self.lock();
        if live.handles.load(Ordering::Acquire) == 0
            && tasks.get(&live.id).is_some_and(|known| Arc::ptr_eq(known, live))
        {
            tasks.remove(&live.id);
        }
    }

    /// Forgets a task whose memory is not the truth any more; the next caller reads the store.
    fn evict(&self, live: &Live) {
        let mut tasks = self.lock();
        if tasks.get(&live.id).is_some_and(|known| std::ptr::eq(&raw const **known, live)) {
            tasks.remove(&live.id);
        }
    }

    /// How many tasks are live.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Every live task, for the shutdown.
    pub(super) fn all(self: &Arc<Self>) -> Vec<LiveRef> {
        self.lock().values().map(|live| LiveRef::new(live, self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{Event, TaskStatus, Timestamp};

    use super::*;

    #[test]
    fn what_was_recent_is_not_shown_in_place_of_what_others_wrote() {
        let stored = |seq| {
            let status =
                TaskStatus { state: TaskState::Working, message: None, timestamp: Some(Timestamp::EPOCH) };
            let task = Task { id: "t-1".into(), context_id: "c-1".into(), status, ..Task::default() };
            StoredTask { task, seq: Seq(seq), held: false, pushes: false, memo: None }
        };
        let registry: Arc<Registry> = Arc::default();
        let live = registry.revive(&Arc::default(), stored(2));
        let entry = |seq| Commit {
            scope: Arc::default(),
            task_id: "t-1".into(),
            expected: Seq(seq),
            event: Arc::new(Event::Message(Arc::default())),
            at: Timestamp::EPOCH,
            snapshot: None,
            idempotency: None,
            reserved: false,
            turn: None,
            take: false,
            webhook: None,
            push: false,
            memo: None,
        };
        {
            let mut state = live.lock();
            state.followers = 1;
            let advance = state.advance(&[entry(2), entry(3)]);
            state.take_in(advance);
            let Phase::Task(tracked) = &mut state.phase else { panic!("it is a task") };
            tracked.folded = tracked.committed;
        }
        let shown = |cursor| live.lock().after(Seq(cursor)).map(Iterator::count);
        assert_eq!(shown(3), Some(1));
        live.follow(stored(6));
        assert_eq!(shown(4), None, "the store has 5 and 6");
    }
}
