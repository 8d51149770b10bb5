//! The path to the store. Entries are queued in the order in which they were folded, and committed in batches
//! over all tasks.
//!
//! A store that never waits (memory) needs no queue: it commits under the task's lock. For other stores one
//! loop per runtime takes the queued entries, and those that other tasks are about to write, commits them as
//! one batch, and announces them. While the disk works, the next batch gathers. The queue is bounded in
//! bytes; writers wait when it is full.
//!
//! If the store is far away, several batches are under way at a time (`Store::concurrent_commits`). A task is
//! in one of them at most, so that its entries stay in order.
//!
//! Large writes have a queue and a loop of their own, so that small ones of other tasks neither wait for room nor share
//! a batch with them. The entries of a task stay in order: while a large write of a task is queued, all later writes of
//! that task join the same queue, and a large write waits until those before it are committed.
//!
//! A commit to a store that is down is retried until it succeeds. No folded entry is dropped meanwhile, and
//! new work is refused.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use nuncio_protocol::{Error, ErrorKind, Event, Result, Seq, TaskId, retry::Backoff};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    live::LiveTaskRef,
    observer::{CommitObserver, Committed},
    state::LiveState,
};
use crate::{
    large_work::LARGE,
    push::AgentPush,
    store::{Commit, Refused, Store, StoreError},
};

/// The capacity of the queue of small writes, in units; the queue of large writes has the same.
const CAPACITY: usize = (64 << 20) / UNIT;

/// The unit of the queue's capacity in bytes; the smallest entry takes one.
const UNIT: usize = 1 << 10;

/// The maximum number of writes in one batch.
const MAX_BATCH: usize = 1_024;

/// The longest time that a batch gathers further writes: about as long as a disk takes to commit it.
const GATHER_TIMEOUT: Duration = Duration::from_millis(1);

/// The number of entries below which a failing batch is not split further.
const SMALL_BATCH: usize = 16;

/// The back-off between attempts while the store is down.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(1));

/// Entries of one task that were folded together and wait for their commit.
struct Write {
    live: LiveTaskRef,
    batch: Vec<Commit>,
    /// Released when the entries are committed.
    permit: QueuePermit,
}

/// The right to put some bytes into a queue; `None` where there is none.
pub(super) type QueuePermit = Option<QueueSpace>;

/// Room in a queue.
pub(super) struct QueueSpace {
    is_large: bool,
    _bytes: OwnedSemaphorePermit,
}

/// A way to the store.
struct Queue {
    writes: mpsc::UnboundedSender<Write>,
    /// The free capacity of the queue, in units.
    capacity: Arc<Semaphore>,
}

impl Queue {
    fn new() -> (Self, mpsc::UnboundedReceiver<Write>) {
        let (writes, queued) = mpsc::unbounded_channel();
        (Self { writes, capacity: Arc::new(Semaphore::new(CAPACITY)) }, queued)
    }
}

/// The ways to a store that waits.
struct Queues {
    small: Queue,
    large: Queue,
}

impl Queues {
    fn of(&self, is_large: bool) -> &Queue {
        if is_large { &self.large } else { &self.small }
    }
}

/// The state of entries after they were appended.
pub(super) enum Appended {
    /// They are in the store.
    Committed,
    /// They are in the queue.
    Queued,
}

pub(super) struct Journal {
    store: Arc<dyn Store>,
    /// `None` if the store never waits. Outside of the journal the difference shows only in
    /// [`Self::is_durable`], for data that is stored only if it outlives the process.
    queues: Option<Queues>,
    health: Arc<Health>,
    push: Option<Arc<AgentPush>>,
    observer: Option<Arc<dyn CommitObserver>>,
    /// The number of executions that have begun.
    begun: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Health {
    /// True while the store is down and being retried.
    down: watch::Sender<bool>,
    /// Cancelled when the server no longer waits for a store that is down.
    abandoned: CancellationToken,
}

impl Health {
    /// Sets the state and wakes the waiters; true if it has changed.
    fn set_down(&self, down: bool) -> bool {
        self.down.send_if_modified(|now| std::mem::replace(now, down) != down)
    }
}

impl Journal {
    /// Creates the journal. For a store that waits this spawns the loop, so it must be called within Tokio.
    pub(super) fn new(
        store: Arc<dyn Store>,
        push: Option<Arc<AgentPush>>,
        observer: Option<Arc<dyn CommitObserver>>,
    ) -> Self {
        let (health, begun): (Arc<Health>, Arc<AtomicUsize>) = Default::default();
        let queues = (!store.is_immediate()).then(|| {
            let ((small, queued), (large, large_queued)) = (Queue::new(), Queue::new());
            let committer = Committer {
                store: Arc::clone(&store),
                health: Arc::clone(&health),
                push: push.clone(),
                observer: observer.clone(),
                begun: Arc::clone(&begun),
            };
            match store.concurrent_commits() {
                0 | 1 => drop(tokio::spawn(committer.clone().run(queued))),
                most => drop(tokio::spawn(committer.clone().run_several(queued, most))),
            }
            tokio::spawn(committer.run_large(large_queued));
            Queues { small, large }
        });
        Self { store, queues, health, push, observer, begun }
    }

    /// True if the store outlives the process.
    pub(super) fn is_durable(&self) -> bool {
        self.queues.is_some()
    }

    /// Counts an execution that begins and will soon write.
    pub(super) fn begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses new work while the store is down.
    pub(super) fn check(&self) -> Result<()> {
        if *self.health.down.borrow() {
            return Err(super::unavailable());
        }
        Ok(())
    }

    /// Returns when the store has been down for longer than callers wait for it.
    pub(super) async fn stays_down(&self) {
        let mut down = self.health.down.subscribe();
        loop {
            // The sender is in `self`, so the channel is open.
            let _ = down.wait_for(|down| *down).await;
            if timeout(super::COMMIT_TIMEOUT, down.wait_for(|down| !down)).await.is_err() {
                return;
            }
        }
    }

    /// Stops waiting for a store that is down: the server ends.
    pub(super) fn abandon(&self) {
        self.health.abandoned.cancel();
    }

    /// Waits until the queue has room for so many bytes, and reserves it.
    pub(super) async fn permit(&self, bytes: impl FnOnce() -> usize) -> QueuePermit {
        let (queues, bytes) = (self.queues.as_ref()?, bytes());
        let (is_large, units) = (bytes >= LARGE, (bytes / UNIT + 1).min(CAPACITY));
        let capacity = Arc::clone(&queues.of(is_large).capacity);
        // The semaphore is in `self` and never closed.
        let bytes = capacity.acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()?;
        Some(QueueSpace { is_large, _bytes: bytes })
    }

    /// Waits until all entries that are queued now are committed or given up.
    pub(super) async fn quiet(&self) {
        for queue in self.queues.iter().flat_map(|queues| [&queues.large, &queues.small]) {
            // The whole capacity is free only when the queue is empty.
            let _ = queue.capacity.acquire_many(CAPACITY as u32).await;
        }
    }

    /// Appends folded entries of a task: to the store if that never waits, else to the queue. Called under
    /// the task's lock, so that entries come in the order of their numbers.
    pub(super) fn append(
        &self,
        live: &LiveTaskRef,
        state: &mut LiveState,
        batch: Vec<Commit>,
        permit: QueuePermit,
    ) -> Result<Appended> {
        let Some(queues) = &self.queues else {
            let advance = state.advance(&batch);
            self.commit_now(batch, state.pushes)?;
            state.take_in(advance);
            return Ok(Appended::Committed);
        };
        let is_large = state.large_writes > 0 || permit.as_ref().is_some_and(|room| room.is_large);
        state.large_writes += usize::from(is_large);
        state.queued_writes += 1;
        // Sending fails only if the loop has panicked; then nothing can be stored any more.
        let sent = queues.of(is_large).writes.send(Write { live: live.clone(), batch, permit });
        sent.map(|()| Appended::Queued).map_err(|_| super::unavailable())
    }

    /// Repeats a call to the store for as long as the store is down.
    pub(super) async fn retry_while_down<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = RETRY_BACKOFF.base;
        loop {
            match ask().await {
                Err(error) if error.is_down() && !self.health.abandoned.is_cancelled() => {
                    tokio::time::sleep(pause).await;
                    pause = RETRY_BACKOFF.after(pause);
                }
                answer => return answer,
            }
        }
    }

    /// Commits to a store that never waits; `pushes` if webhooks may be due then.
    fn commit_now(&self, batch: Vec<Commit>, pushes: bool) -> Result<()> {
        let observed = self.observer.as_ref().and_then(|observer| Some((observer, Committed::of(&batch)?)));
        let answer = self.store.commit(batch).now_or_never();
        let late =
            || Err(StoreError::broken("the store claims never to wait, but it did not answer at once"));
        answer
            .unwrap_or_else(late)?
            .into_iter()
            .try_for_each(|result| result.map_err(|refused| refusal(&refused)))?;
        if let Some((observer, committed)) = observed {
            observer.committed(committed);
        }
        if let Some(push) = self.push.as_ref().filter(|_| pushes) {
            push.wake();
        }
        Ok(())
    }
}

fn refusal(refused: &Refused) -> Error {
    match refused {
        Refused::Version(_)
        | Refused::NotFound
        | Refused::Held
        | Refused::NotHeld
        | Refused::Record
        | Refused::KeyTaken => {
            Error::new(ErrorKind::Unavailable, "the task was changed elsewhere; try again")
        }
        Refused::Full => Error::new(ErrorKind::ResourceExhausted, "the store has too many unfinished tasks"),
    }
}

/// The loops.
#[derive(Clone)]
struct Committer {
    store: Arc<dyn Store>,
    health: Arc<Health>,
    push: Option<Arc<AgentPush>>,
    observer: Option<Arc<dyn CommitObserver>>,
    begun: Arc<AtomicUsize>,
}

impl Committer {
    async fn run(self, mut queued: mpsc::UnboundedReceiver<Write>) {
        let mut writes = Vec::new();
        while queued.recv_many(&mut writes, MAX_BATCH).await > 0 {
            self.gather(&mut writes, &mut queued).await;
            self.commit(std::mem::take(&mut writes)).await;
        }
    }

    /// Commits up to `most` batches at a time.
    async fn run_several(self, mut queued: mpsc::UnboundedReceiver<Write>, most: usize) {
        let mut under_way: JoinSet<Vec<TaskId>> = JoinSet::new();
        // Writes that have no batch yet, in order, and the tasks that have a batch under way.
        let (mut waiting, mut busy, mut is_open) = (Vec::new(), HashSet::new(), true);
        while is_open || !under_way.is_empty() {
            let has_room = under_way.len() < most;
            tokio::select! {
                Some(done) = under_way.join_next() => {
                    // One that has panicked: its tasks can never be written to again.
                    let Ok(done) = done else { return };
                    busy.retain(|id| !done.contains(id));
                }
                taken = queued.recv_many(&mut waiting, MAX_BATCH), if is_open && has_room => is_open = taken > 0,
            }
            if under_way.len() == most || waiting.is_empty() {
                continue;
            }
            self.gather(&mut waiting, &mut queued).await;
            let batch = take_free(&mut waiting, &busy);
            if batch.is_empty() {
                continue;
            }
            let tasks: HashSet<TaskId> = batch.iter().map(|write| write.live.id.clone()).collect();
            busy.extend(tasks.iter().cloned());
            let committer = self.clone();
            under_way.spawn(async move {
                committer.commit(batch).await;
                tasks.into_iter().collect()
            });
        }
    }

    /// Commits large writes one by one; those that follow each other in one task together.
    async fn run_large(self, mut queued: mpsc::UnboundedReceiver<Write>) {
        let mut next = None;
        while let Some(first) = match next.take() {
            Some(write) => Some(write),
            None => queued.recv().await,
        } {
            let live = first.live.clone();
            let mut writes = vec![first];
            while next.is_none()
                && let Ok(write) = queued.try_recv()
            {
                if write.live.is(&live) { writes.push(write) } else { next = Some(write) }
            }
            let (taken, before) = (writes.len(), expected(&writes));
            // What its task said before is on its way in the other queue.
            live.until(|state| state.is_lost() || state.committed().seq >= before).await;
            self.commit(writes).await;
            live.lock().large_writes -= taken;
        }
    }

    /// Yields to other tasks for as long as they write, or begin executions that will write, so that they
    /// share the commit. It does not wait for tasks that are not ready to run.
    async fn gather(&self, writes: &mut Vec<Write>, queued: &mut mpsc::UnboundedReceiver<Write>) {
        let since = Instant::now();
        // Differs from any real count, so there is always a second round, for requests that arrived during
        // the first.
        let mut before = (0, 0);
        loop {
            tokio::task::yield_now().await;
            while writes.len() < MAX_BATCH
                && let Ok(write) = queued.try_recv()
            {
                writes.push(write);
            }
            let now = (writes.len(), self.begun.load(Ordering::Relaxed));
            if now == before || writes.len() == MAX_BATCH || since.elapsed() >= GATHER_TIMEOUT {
                return;
            }
            before = now;
        }
    }

    async fn commit(&self, writes: Vec<Write>) {
        let Err((writes, error)) = self.attempt(writes, false).await else { return };
        if error.is_down() || writes.len() < 2 {
            return give_up(writes, &error);
        }
        // A single entry may be the cause; the others must not fail with it.
        tracing::error!(%error, "a batch could not be committed; its entries are tried one by one");
        for write in writes {
            if let Err((writes, error)) = self.attempt(vec![write], true).await {
                give_up(writes, &error);
            }
        }
    }

    /// Commits these writes as one batch and updates their tasks. `again` if an earlier attempt may have
    /// stored them.
    async fn attempt(&self, mut writes: Vec<Write>, again: bool) -> Result<(), (Vec<Write>, StoreError)> {
        // A lost task has an earlier entry that was refused; its later ones are not tried.
        writes.retain(|write| {
            let is_lost = write.live.lock().is_lost();
            if is_lost {
                write.live.not_committed(false);
            }
            !is_lost
        });
        if writes.is_empty() {
            return Ok(());
        }
        let mut results = match self.until_answered(&writes, again).await {
            Ok(results) => results.into_iter(),
            Err(error) => return Err((writes, error)),
        };
        let mut pushes = false;
        for Write { live, batch, permit } in writes {
            // `last` consumes all results of this write.
            let refused = results.by_ref().take(batch.len()).filter_map(Result::err).last();
            match refused {
                None => {
                    pushes |= live.committed(&batch);
                    if let Some(observer) = &self.observer {
                        Committed::of(&batch).into_iter().for_each(|committed| observer.committed(committed));
                    }
                }
                Some(refused) => {
                    tracing::warn!(task = %live.id, %refused, "the store refused an entry: another server wrote to the task");
                    live.evict();
                    live.not_committed(false);
                }
            }
            drop(permit);
        }
        if let Some(push) = self.push.as_ref().filter(|_| pushes) {
            push.wake();
        }
        Ok(())
    }

    /// Retries until the store answers. An attempt without an answer may have been applied; then the log is
    /// compared.
    async fn until_answered(
        &self,
        writes: &[Write],
        again: bool,
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        // Cloned for each attempt: a second one is rare.
        let batch = || writes.iter().flat_map(|write| &write.batch).cloned().collect::<Vec<Commit>>();
        let (mut pause, mut most) =
            (RETRY_BACKOFF.base, writes.iter().map(|write| write.batch.len()).sum::<usize>());
        let mut answer =
            if again { self.again(&batch(), most).await } else { self.store.commit(batch()).await };
        while let Err(error) = &answer {
            if !error.is_down() || self.health.abandoned.is_cancelled() {
                break;
            }
            if self.health.set_down(true) {
                tracing::error!(%error, "the task store is down; new work is refused until it answers again");
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.health.abandoned.cancelled() => break,
            }
            pause = RETRY_BACKOFF.after(pause);
            // The batch may only be too large for the store's time limit, so try it in smaller chunks.
            most = (most / 2).max(SMALL_BATCH);
            answer = self.again(&batch(), most).await;
        }
        // Also after another kind of error: while new work is refused, no write would show that the store is
        // up again.
        let down = answer.as_ref().err().is_some_and(StoreError::is_down);
        if !down && self.health.set_down(false) {
            tracing::info!("the task store answers again");
        }
        answer
    }

    /// Commits once more, in chunks of at most `most` entries. An entry that is refused because it is stored
    /// already counts as committed if it is ours.
    async fn again(&self, batch: &[Commit], most: usize) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut results = Vec::with_capacity(batch.len());
        for some in batch.chunks(most.max(1)) {
            results.extend(self.store.commit(some.to_vec()).await?);
        }
        for (commit, result) in batch.iter().zip(&mut results) {
            if matches!(result, Err(Refused::Version(at)) if *at > commit.expected)
                && self.is_there(commit).await?
            {
                *result = Ok(());
            }
        }
        Ok(results)
    }

    async fn is_there(&self, commit: &Commit) -> Result<bool, StoreError> {
        let entries = self.store.events(&commit.scope, &commit.task_id, commit.expected, 1).await?;
        Ok(entries.first().is_some_and(|entry| entry.at == commit.at && is_same(&entry.event, &commit.event)))
    }
}

/// The number of the entry before the first of these.
fn expected(writes: &[Write]) -> Seq {
    writes.first().and_then(|write| write.batch.first()).map_or(Seq::ZERO, |commit| commit.expected)
}

/// Evicts tasks whose entries could not be committed; later calls read the store.
fn give_up(writes: Vec<Write>, error: &StoreError) {
    tracing::error!(%error, tasks = writes.len(), "entries could not be committed and are lost");
    for write in writes {
        write.live.evict();
        write.live.not_committed(true);
    }
}

/// Takes the next batch: writes of tasks that have none under way. All of a task stay in order.
fn take_free(waiting: &mut Vec<Write>, busy: &HashSet<TaskId>) -> Vec<Write> {
    let mut batch = Vec::new();
    let free = waiting.extract_if(.., |write| !busy.contains(&write.live.id));
    batch.extend(free.take(MAX_BATCH));
    batch
}

/// True if the stored event is ours. A database stores an event as JSON, which loses some details: times are
/// cut to milliseconds, and an empty name becomes none.
fn is_same(stored: &Event, ours: &Event) -> bool {
    let kept = || serde_json::from_slice::<Event>(&serde_json::to_vec(ours).ok()?).ok();
    stored == ours || kept().as_ref() == Some(stored)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nuncio_protocol::{
        ContextId, Message, Part, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
    };

    use super::*;

    #[test]
    fn an_event_that_a_database_has_kept_is_known_again() {
        // Regression: the stored event counted as another owner's, and the task was given up and stuck.
        let status = |timestamp: &str| {
            let status = TaskStatus {
                state: TaskState::Working,
                message: Some(Arc::new(Message {
                    context_id: Some(ContextId::from("")),
                    ..Message::agent("m-1", Part::text("x"))
                })),
                timestamp: Timestamp::parse(timestamp).ok(),
            };
            assert!(status.timestamp.is_some());
            let (task_id, context_id) = ("t-1".into(), "c-1".into());
            Event::StatusUpdate(TaskStatusUpdateEvent {
                task_id,
                context_id,
                status,
                ..TaskStatusUpdateEvent::default()
            })
        };
        let ours = status("2026-01-02T03:04:05.678901Z");
        let stored: Event = serde_json::from_slice(&serde_json::to_vec(&ours).unwrap()).unwrap();
        assert_ne!(stored, ours);
        assert!(is_same(&stored, &ours));
        assert!(!is_same(&stored, &status("2026-01-02T03:04:05.679Z")));
    }
}
