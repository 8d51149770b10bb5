//! Live tasks: tasks in memory, because they run, wait for a turn, or are followed.
//!
//! A live task's state (`state`) is behind a short lock that is never held across an await. Emits,
//! follow-ups, cancels and subscribers are ordered by this lock. Waiters are woken by a notification and then
//! read the state.
//!
//! Only the owner of a task folds its events. The folded state may be ahead of the committed one; callers see
//! the committed one only. When the last handle is dropped, the task leaves memory and only the store has it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::fast::RandomState;
use nuncio_protocol::{ContextId, Message, Result, Seq, TaskId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, futures::Notified};

use super::state::{LiveState, Phase, Progress};
use crate::{
    memory::MemoryAccount,
    store::{Commit, IdempotencyKey, Moved, Scope, StoredEvent, StoredTask},
};

/// A task in memory.
pub(super) struct LiveTask {
    pub(super) id: TaskId,
    pub(super) context_id: ContextId,
    pub(super) scope: Arc<Scope>,
    /// The idempotency key of the send that began the task in this process.
    pub(super) key: Option<IdempotencyKey>,
    state: Mutex<LiveState>,
    /// Wakes waiters for any change of the state. It carries no data: they read the state again.
    changed: Notify,
    /// Wakes waiters for a settled task only, not at each event.
    settled: Notify,
    /// The number of [`LiveTaskRef`]s. It grows only under the registry's lock, or by a clone of a live
    /// handle.
    handles: AtomicUsize,
}

impl LiveTask {
    pub(super) fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }

    /// The number of the last committed entry, and whether the task ended with it.
    ///
    /// # Errors
    /// The task is lost.
    pub(super) fn standing(&self) -> Result<(Seq, bool)> {
        let state = self.lock();
        state.check_kept()?;
        Ok((state.committed().seq, state.has_ended()))
    }

    /// Marks the entries of a write of the journal as committed and wakes the waiters; true if the task has webhooks.
    pub(super) fn committed(&self, batch: &[Commit]) -> bool {
        let mut state = self.lock();
        state.queued_writes = state.queued_writes.saturating_sub(1);
        let advance = state.advance(batch);
        state.take_in(advance);
        let (progress, pushes) = (state.committed(), state.pushes);
        drop(state);
        self.announce_progress(progress);
        pushes
    }

    /// Ends a write of the journal that was not committed; `in_doubt` if the store may have it nevertheless.
    pub(super) fn not_committed(&self, in_doubt: bool) {
        let mut state = self.lock();
        state.queued_writes = state.queued_writes.saturating_sub(1);
        state.in_doubt |= in_doubt;
        drop(state);
        self.announce();
    }

    /// Replaces the state by the stored task, if another owner writes to the task or wrote to it.
    pub(super) fn follow(&self, stored: StoredTask) {
        if self.lock().follow(stored) {
            self.announce();
        }
    }

    /// Folds entries of another owner; false if they do not follow the last known one.
    pub(super) fn follow_entries(&self, entries: &[StoredEvent], moved: &Moved) -> bool {
        let followed = self.lock().follow_entries(entries, moved);
        if followed {
            self.announce();
        }
        followed
    }

    /// Wakes all waiters. Call it after the lock is released.
    pub(super) fn announce(&self) {
        self.changed.notify_waiters();
        self.settled.notify_waiters();
    }

    /// Wakes the waiters after a commit, if nothing else has changed.
    pub(super) fn announce_progress(&self, committed: Progress) {
        self.changed.notify_waiters();
        if committed.settled.is_some() {
            self.settled.notify_waiters();
        }
    }

    /// A notification of the next change after this call, even if it is not awaited yet. To miss no change,
    /// call this first, then read the state, then await.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the state meets the condition.
    pub(super) async fn until(&self, wanted: impl Fn(&LiveState) -> bool) {
        self.until_by(&self.changed, wanted).await;
    }

    /// As [`Self::until`], for conditions that change only when the task settles, is lost or gets a queued
    /// message. The waiter is not woken at each event.
    pub(super) async fn until_settled(&self, wanted: impl Fn(&LiveState) -> bool) {
        self.until_by(&self.settled, wanted).await;
    }

    /// Waits until all folded entries are committed, or the task is lost.
    pub(super) async fn until_committed(&self) {
        self.until(LiveState::is_committed).await;
    }

    async fn until_by(&self, notify: &Notify, wanted: impl Fn(&LiveState) -> bool) {
        loop {
            let changed = notify.notified();
            if wanted(&self.lock()) {
                return;
            }
            changed.await;
        }
    }
}

/// A handle that keeps a task live.
pub(super) struct LiveTaskRef {
    live: Arc<LiveTask>,
    registry: Weak<Registry>,
}

impl LiveTaskRef {
    fn new(live: &Arc<LiveTask>, registry: &Arc<Registry>) -> Self {
        live.handles.fetch_add(1, Ordering::Relaxed);
        Self { live: Arc::clone(live), registry: Arc::downgrade(registry) }
    }

    /// True if both are handles of the same live task.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    /// Evicts the task, because memory and store differ. Nothing more is written, the execution is cancelled,
    /// and later calls read the store.
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

impl Deref for LiveTaskRef {
    type Target = LiveTask;

    fn deref(&self) -> &LiveTask {
        &self.live
    }
}

impl Clone for LiveTaskRef {
    fn clone(&self) -> Self {
        self.live.handles.fetch_add(1, Ordering::Relaxed);
        Self { live: Arc::clone(&self.live), registry: Weak::clone(&self.registry) }
    }
}

impl fmt::Debug for LiveTaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveTaskRef").field(&self.live.id).finish()
    }
}

impl Drop for LiveTaskRef {
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
    /// The memory account of the tasks.
    pub(super) memory: MemoryAccount,
    tasks: Mutex<HashMap<TaskId, Arc<LiveTask>, RandomState>>,
}

impl Registry {
    /// An empty registry whose tasks count in this account.
    pub(super) fn new(memory: MemoryAccount) -> Self {
        Self { memory, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<LiveTask>, RandomState>> {
        self.tasks.lock()
    }

    /// Adds a task that does not exist yet.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: TaskId,
        context_id: ContextId,
        scope: Arc<Scope>,
        opening: impl Into<Option<Arc<Message>>>,
        idempotency: Option<IdempotencyKey>,
    ) -> LiveTaskRef {
        let begun = self.begin_apart(id, context_id, scope, opening, idempotency);
        self.lock().insert(begun.id.clone(), Arc::clone(&begun.live));
        begun
    }

    /// Makes a handle for a task that does not exist yet, without adding it to the registry. Callers read the
    /// store, which has the task once it is committed. Several servers may try that, and the store accepts
    /// one.
    pub(super) fn begin_apart(
        self: &Arc<Self>,
        id: TaskId,
        context_id: ContextId,
        scope: Arc<Scope>,
        opening: impl Into<Option<Arc<Message>>>,
        idempotency: Option<IdempotencyKey>,
    ) -> LiveTaskRef {
        let mut state = LiveState::new(Phase::Opening(opening.into()), &self.memory);
        state.attached.idempotency.clone_from(&idempotency);
        let live = Arc::new(LiveTask {
            id,
            context_id,
            scope,
            key: idempotency,
            state: Mutex::new(state),
            changed: Notify::new(),
            settled: Notify::new(),
            handles: AtomicUsize::new(0),
        });
        LiveTaskRef::new(&live, self)
    }

    /// The live task, if it is in this scope.
    pub(super) fn get(self: &Arc<Self>, scope: &Scope, id: &TaskId) -> Option<LiveTaskRef> {
        let tasks = self.lock();
        tasks.get(id).filter(|live| *live.scope == *scope).map(|live| LiveTaskRef::new(live, self))
    }

    /// Makes a stored task live, unless it is live already.
    pub(super) fn revive(self: &Arc<Self>, scope: &Arc<Scope>, stored: StoredTask) -> LiveTaskRef {
        let mut tasks = self.lock();
        let live = tasks.entry(stored.task.id.clone()).or_insert_with(|| {
            Arc::new(LiveTask {
                id: stored.task.id.clone(),
                context_id: stored.task.context_id.clone(),
                scope: Arc::clone(scope),
                key: None,
                state: Mutex::new(LiveState::stored(stored, &self.memory)),
                changed: Notify::new(),
                settled: Notify::new(),
                handles: AtomicUsize::new(0),
            })
        });
        LiveTaskRef::new(live, self)
    }

    /// Removes a task without handles, unless a handle was made meanwhile.
    fn release(&self, live: &Arc<LiveTask>) {
        let mut tasks = self.lock();
        if live.handles.load(Ordering::Acquire) == 0
            && tasks.get(&live.id).is_some_and(|known| Arc::ptr_eq(known, live))
        {
            tasks.remove(&live.id);
        }
    }

    /// Removes a task whose memory and store differ; later calls read the store.
    fn evict(&self, live: &LiveTask) {
        let mut tasks = self.lock();
        if tasks.get(&live.id).is_some_and(|known| std::ptr::eq(&raw const **known, live)) {
            tasks.remove(&live.id);
        }
    }

    /// The number of live tasks.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The live tasks with these ids.
    pub(super) fn among(self: &Arc<Self>, ids: &HashSet<String>) -> Vec<LiveTaskRef> {
        let tasks = self.lock();
        let live = ids.iter().filter_map(|id| tasks.get(&TaskId::from(id.as_str())));
        live.map(|live| LiveTaskRef::new(live, self)).collect()
    }

    /// All live tasks.
    pub(super) fn all(self: &Arc<Self>) -> Vec<LiveTaskRef> {
        self.lock().values().map(|live| LiveTaskRef::new(live, self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{Event, Task, TaskState, TaskStatus, Timestamp};

    use super::*;

    #[test]
    fn what_was_recent_is_not_shown_in_place_of_what_others_wrote() {
        let stored = |seq| {
            let status =
                TaskStatus { state: TaskState::Working, message: None, timestamp: Some(Timestamp::EPOCH) };
            let task = Task { id: "t-1".into(), context_id: "c-1".into(), status, ..Task::default() };
            StoredTask { task, seq: Seq(seq), held: false, in_hand: true, pushes: false, memo: None }
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
            take: false,
            push: false,
            attached: crate::store::Attached::default(),
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
