//! The only write path: folds events into a task, commits them, and wakes the readers.
//!
//! Events are folded here, in order, under the task's lock. The [`Journal`](super::journal) commits them, at
//! once or in batches. No event is visible to callers before it is committed.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use nuncio_protocol::{
    ContextId, Error, ErrorKind, Event, Message, MessageId, Refusal, Result, Seq, Task, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp, fold,
};

use super::{
    Core,
    journal::Appended,
    live::LiveTaskRef,
    state::{LiveState, Phase, Progress, Stop, Tracked},
};
use crate::{
    clock::now,
    id::new_id,
    memory::exhausted,
    size,
    store::{Attached, Commit, IdempotencyKey, RecordChange, Scope, StoredTurn, Webhook},
};

/// Bytes of the end of a parked task that is accepted whatever the task's limit.
const MAX_END_BYTES: usize = 4 << 10;

/// The author of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventAuthor {
    /// The agent. While it is being stopped it may only end the task.
    Executor,
    /// The runtime itself.
    Runtime,
}

/// Writes to one task.
#[derive(Clone)]
pub(crate) struct Recorder {
    core: Arc<Core>,
    live: LiveTaskRef,
    /// True if every entry parks the task: it is written to from outside of an execution.
    parks: bool,
}

impl Recorder {
    pub(super) fn new(core: &Arc<Core>, live: &LiveTaskRef) -> Self {
        Self { core: Arc::clone(core), live: live.clone(), parks: false }
    }

    /// A recorder whose every entry parks the task.
    pub(super) fn parking(core: &Arc<Core>, live: &LiveTaskRef) -> Self {
        Self { parks: true, ..Self::new(core, live) }
    }

    pub(crate) fn task_id(&self) -> &TaskId {
        &self.live.id
    }

    pub(super) fn live(&self) -> &LiveTaskRef {
        &self.live
    }

    pub(crate) fn scope(&self) -> &Arc<Scope> {
        &self.live.scope
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.live.context_id
    }

    /// Records an event of the executor.
    pub(crate) fn record(&self, event: Event) -> impl Future<Output = Result<Seq>> + Send {
        self.write(EventAuthor::Executor, [event])
    }

    /// Records an event of the executor together with changes of records and a memo.
    pub(crate) fn record_with(
        &self,
        event: Event,
        records: Vec<RecordChange>,
        memo: Option<Bytes>,
    ) -> impl Future<Output = Result<Seq>> + Send {
        self.write_with(EventAuthor::Executor, [event], records, memo)
    }

    /// Records several events of the executor together, so that no reader sees only a part of them.
    pub(crate) async fn record_all(&self, events: Vec<Event>) -> Result<Seq> {
        self.write(EventAuthor::Executor, events).await
    }

    /// Records the text that waits.
    pub(crate) fn record_pending(&self) -> impl Future<Output = Result<()>> + Send {
        self.write(EventAuthor::Executor, []).map_ok(drop)
    }

    /// Records the text that an execution has left behind when it is over, however it ended.
    pub(super) async fn record_left(&self) -> Result<()> {
        if self.live.lock().pending_text.is_empty() {
            return Ok(());
        }
        self.write(EventAuthor::Runtime, []).await.map(drop)
    }

    /// Refuses an executor's event if nothing more can be recorded.
    pub(super) fn check_running(&self, state: &LiveState) -> Result<()> {
        check_open(state)?;
        self.refuse_while_stopping(state, &[])
    }

    /// Keeps the executor's memo, to be committed with the next entry.
    pub(crate) fn remember(&self, memo: Bytes) -> Result<()> {
        let mut state = self.live.lock();
        check_open(&state)?;
        state.attached.memo = Some(memo.clone());
        state.memo = Some(memo);
        Ok(())
    }

    /// The memo that is stored with the task, or will be with the next entry.
    pub(crate) fn memo(&self) -> Option<Bytes> {
        self.live.lock().memo.clone()
    }

    /// Keeps a change of a record, to be made with the next entry.
    pub(crate) fn change_record(&self, change: RecordChange) -> Result<()> {
        let mut state = self.live.lock();
        check_open(&state)?;
        state.attached.records.push(change);
        Ok(())
    }

    /// Parks the task with the next entry.
    pub(crate) fn park(&self) -> Result<()> {
        let mut state = self.live.lock();
        check_open(&state)?;
        state.attached.park = true;
        Ok(())
    }

    /// Repeats the current status, for an execution that parks its task with no entry after it.
    pub(super) async fn repeat_status(&self) -> Result<Seq> {
        let status = self.live.lock().task().map(|task| task.status.clone());
        let Some(status) = status else { return self.write(EventAuthor::Runtime, []).await };
        self.write(EventAuthor::Runtime, [self.status(status.state, status.message)]).await
    }

    /// Refuses the message with this error, if there is no task yet.
    pub(crate) fn refuse(&self, error: Error) -> Result<()> {
        let mut state = self.live.lock();
        match &state.phase {
            Phase::Opening(_) => state.phase = Phase::Refused(Arc::new(error)),
            Phase::Task(_) => return Err(error),
            Phase::Replied { .. } => return Err(after_reply()),
            Phase::Refused(_) => return Err(after_refusal()),
            Phase::Lost(_) => return Err(super::unavailable()),
        }
        drop(state);
        self.live.announce();
        Ok(())
    }

    /// Reads the task with all folded events.
    pub(crate) fn with_task<T>(&self, look: impl FnOnce(Option<&Task>) -> T) -> T {
        look(self.live.lock().last_task())
    }

    /// Waits until the task is interrupted.
    pub(crate) async fn until_interrupted(&self) {
        self.live.until_settled(|state| state.state().is_interrupted()).await;
    }

    /// Waits until the task is interrupted and a message is queued.
    pub(crate) async fn until_follow_up(&self) {
        self.live.until_settled(|state| state.state().is_interrupted() && !state.queue.is_empty()).await;
    }

    /// True if the task is stopped for good, by its caller or by a limit.
    pub(crate) fn is_canceled(&self) -> bool {
        self.live.lock().stopping().is_some_and(Stop::is_for_good)
    }

    /// Waits until all recorded events are committed.
    pub(crate) async fn flush(&self) -> Result<()> {
        if !self.live.lock().pending_text.is_empty() {
            self.record_pending().await?;
        }
        self.live.until_committed().await;
        self.live.lock().check_kept()
    }

    /// Makes the task, if there is none yet.
    pub(crate) async fn create(&self) -> Result<Seq> {
        self.write(EventAuthor::Executor, []).await
    }

    /// Makes the task for a caller that will not wait longer, unless there is a reply already.
    pub(super) async fn ensure(&self) -> Result<()> {
        self.write(EventAuthor::Runtime, []).await.map(drop)
    }

    /// Records the whole task as another server has recorded it.
    pub(super) async fn snapshot(&self, task: Task) -> Result<()> {
        self.write(EventAuthor::Runtime, [Event::Task(task)]).await.map(drop)
    }

    /// Records a caller's message to the task.
    pub(super) async fn caller_message(
        &self,
        message: &Arc<Message>,
        key: Option<IdempotencyKey>,
        turn: Option<StoredTurn>,
        webhook: Option<Webhook>,
    ) -> Result<Seq> {
        {
            let attached = &mut self.live.lock().attached;
            (attached.idempotency, attached.turn, attached.webhook) = (key, turn, webhook);
        }
        self.write(EventAuthor::Runtime, [Event::Message(Arc::clone(message))]).await
    }

    /// Records that a message which was held back is to be executed, by this turn.
    pub(super) async fn queue_held(&self, turn: StoredTurn, records: Vec<RecordChange>) -> Result<Seq> {
        {
            let attached = &mut self.live.lock().attached;
            attached.turn = Some(turn);
            attached.records.extend(records);
        }
        self.write(EventAuthor::Runtime, [self.status(TaskState::Submitted, None)]).await
    }

    /// Ends the task in this state, on behalf of the runtime, with a reason for people to read.
    pub(super) async fn end(&self, state: TaskState, reason: Option<&str>) -> Result<Seq> {
        let message = reason.map(|reason| {
            Arc::new(Message {
                context_id: Some(self.live.context_id.clone()),
                task_id: Some(self.live.id.clone()),
                ..Message::agent(new_id::<MessageId>(), nuncio_protocol::Part::text(reason))
            })
        });
        self.write(EventAuthor::Runtime, [self.status(state, message)]).await
    }

    fn status(&self, state: TaskState, message: Option<Arc<Message>>) -> Event {
        Event::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.live.id.clone(),
            context_id: self.live.context_id.clone(),
            status: TaskStatus { state, message, timestamp: None },
            ..TaskStatusUpdateEvent::default()
        })
    }

    /// Gives a direct reply. If there is a task already (a follow-up, or a caller that did not wait), the
    /// reply becomes the message of its completed status (trap T-50).
    pub(crate) async fn reply(&self, mut message: Message) -> Result<()> {
        let told = {
            let mut state = self.live.lock();
            match &state.phase {
                Phase::Task(_) => None,
                // The first entry makes the task.
                Phase::Opening(_) if !state.pending_text.is_empty() => None,
                Phase::Opening(_) => {
                    self.refuse_too_large(&mut state, size::message(&message))?;
                    let reply = Arc::new(std::mem::take(&mut message));
                    let key = state.attached.idempotency.take().map(|key| (key, Arc::clone(&reply)));
                    state.phase = Phase::Replied { reply, stored: false };
                    Some((key, state.attached.reserved))
                }
                Phase::Replied { .. } => return Err(after_reply()),
                Phase::Refused(_) => return Err(after_refusal()),
                Phase::Lost(_) => return Err(super::unavailable()),
            }
        };
        let Some((key, reserved)) = told else {
            message.task_id = Some(self.live.id.clone());
            let words = self.status(TaskState::Completed, Some(Arc::new(message)));
            return self.write(EventAuthor::Executor, [words]).await.map(drop);
        };
        if let Some((key, message)) = key {
            let (Core { journal, store, .. }, at) = (&*self.core, now());
            let keep = || store.put_reply(&self.live.scope, key.clone(), Arc::clone(&message), at);
            if let Err(error) = journal.retry_while_down(keep).await {
                self.live.evict();
                return Err(error.into());
            }
        } else if reserved {
            Box::pin(self.core.release(&self.live)).await;
        }
        if let Phase::Replied { stored, .. } = &mut self.live.lock().phase {
            *stored = true;
        }
        self.live.announce();
        Ok(())
    }

    /// Writes these events, and makes the task if there is none. Stops at the first event that is refused;
    /// the events before it are written.
    fn write(
        &self,
        writer: EventAuthor,
        events: impl IntoIterator<Item = Event> + AsRef<[Event]> + Send,
    ) -> impl Future<Output = Result<Seq>> + Send {
        self.write_with(writer, events, Vec::new(), None)
    }

    /// Writes as [`Self::write`], and attaches changes of records and a memo under the same lock.
    async fn write_with(
        &self,
        writer: EventAuthor,
        events: impl IntoIterator<Item = Event> + AsRef<[Event]> + Send,
        records: Vec<RecordChange>,
        memo: Option<Bytes>,
    ) -> Result<Seq> {
        let (journal, said) = (&self.core.journal, events.as_ref());
        let bytes = || {
            let state = self.live.lock();
            // A status that settles the task comes with a snapshot of all of it.
            let settles = said.iter().any(|event| event.status().is_some_and(|said| said.state.is_settled()));
            let snapshot = if settles { state.bytes.get() } else { 0 };
            let before = state.opening_bytes() + state.pending_text.bytes();
            let own =
                records.iter().map(RecordChange::bytes).sum::<usize>() + memo.as_ref().map_or(0, Bytes::len);
            said.iter().map(size::event).sum::<usize>() + state.attached.bytes() + own + before + snapshot
        };
        let permit = journal.permit(bytes).await;
        let mut state = self.live.lock();
        let (count, memo_before) = (records.len(), state.memo.clone());
        let has_memo = memo.is_some();
        state.attached.records.extend(records);
        if has_memo {
            state.attached.memo.clone_from(&memo);
            state.memo = memo;
        }
        let (batch, refused) = self.fold(&mut state, writer, events, now());
        if batch.is_empty() {
            // An event that is refused takes nothing along, and neither does the one after it.
            let left = state.attached.records.len().saturating_sub(count);
            state.attached.records.truncate(left);
            if has_memo {
                (state.attached.memo, state.memo) = (None, memo_before);
            }
            return refused.map(|()| state.folded().seq);
        }
        // From now on this server owns the task, or the store refuses the commit.
        state.owned_elsewhere = false;
        let seq = state.folded().seq;
        // Under the lock, so that entries are appended in the order of their numbers.
        let appended = journal.append(&self.live, &mut state, batch, permit);
        let committed = state.committed();
        drop(state);
        match &appended {
            Ok(Appended::Committed) => self.live.announce_progress(committed),
            Ok(Appended::Queued) => {}
            Err(_) => self.live.evict(),
        }
        appended.and(refused).map(|()| seq)
    }

    /// Folds events into the task, which it makes if there is none. Returns the entries to commit, and the
    /// reason if an event was refused.
    fn fold(
        &self,
        state: &mut LiveState,
        writer: EventAuthor,
        events: impl IntoIterator<Item = Event> + AsRef<[Event]>,
        now: Timestamp,
    ) -> (Vec<Commit>, Result<()>) {
        if writer == EventAuthor::Executor
            && matches!(state.phase, Phase::Opening(_) | Phase::Task(_))
            && let Err(stopping) = self.refuse_while_stopping(state, events.as_ref())
        {
            return (Vec::new(), Err(stopping));
        }
        let mut batch = Vec::with_capacity(events.as_ref().len() + 1);
        let before = state.bytes.get();
        let (mut task, mut folded, committed) = match &mut state.phase {
            Phase::Task(tracked) => (std::mem::take(&mut tracked.task), tracked.folded, tracked.committed),
            Phase::Opening(message) => {
                let task = self.opening_task(message.clone(), now);
                state.bytes.set(before + size::task(&task));
                batch.push(self.entry(Seq::ZERO, Event::Task(task.clone()), now));
                (task, Progress::default(), Progress::default())
            }
            Phase::Lost(_) => return (batch, Err(super::unavailable())),
            // The reply or refusal was the end: there is no task to make or to end.
            Phase::Replied { .. } | Phase::Refused(_) if writer == EventAuthor::Runtime => {
                return (batch, Ok(()));
            }
            Phase::Replied { .. } => return (batch, Err(after_reply())),
            Phase::Refused(_) => return (batch, Err(after_refusal())),
        };
        let is_new = !batch.is_empty();
        let pieces = state.pending_text.take(&self.live);
        let mut record = |writer: EventAuthor, mut event: Event| {
            if let Event::StatusUpdate(update) = &mut event {
                update.status.timestamp.get_or_insert(now);
            }
            let bytes = size::event(&event);
            if writer == EventAuthor::Executor && !self.ends_parked(&event, bytes) {
                self.refuse_too_large(state, bytes)?;
            }
            fold(&mut task, &event, now).map_err(refusal)?;
            state.bytes.set(state.bytes.get() + bytes);
            let settled = event.status().is_some_and(|status| status.state.is_settled());
            let snapshot = settled.then(|| task.clone());
            let expected = Seq(folded.seq.0 + batch.len() as u64);
            batch.push(Commit { snapshot, ..self.entry(expected, event, now) });
            Ok(())
        };
        // The text that waited comes first, and is the executor's, whoever writes.
        let mut refused = pieces.into_iter().try_for_each(|piece| record(EventAuthor::Executor, piece));
        if refused.is_ok() || writer == EventAuthor::Runtime {
            refused = events.into_iter().try_for_each(|event| record(writer, event));
        }
        if refused.is_err() && is_new && batch.len() == 1 {
            // No event was accepted, so no task is made.
            state.bytes.set(before);
            return (Vec::new(), refused);
        }
        folded.advance(&batch);
        state.phase = Phase::Task(Tracked { task, folded, committed });
        if let Some(first) = batch.first_mut() {
            let mut attached = std::mem::take(&mut state.attached);
            let park = (self.parks || attached.park) && !state.state().is_settled();
            if attached.reserved {
                attached.idempotency = None;
            }
            state.pushes |= attached.webhook.is_some();
            state.parked = park;
            (first.take, first.attached) = (state.owned_elsewhere, attached);
            batch.iter_mut().for_each(|commit| commit.attached.park = park);
        }
        // In a shared store another server may have registered a webhook.
        if let Some(push) = self.core.push.as_ref().filter(|_| state.pushes || self.core.store.is_shared()) {
            batch.iter_mut().for_each(|commit| commit.push = push.tells(&commit.event));
        }
        (batch, refused)
    }

    /// True for the short end of a parked task. It is never too large: without it the task would have no end.
    fn ends_parked(&self, event: &Event, bytes: usize) -> bool {
        let ends = || event.status().is_some_and(|status| status.state.is_terminal());
        self.parks && bytes <= MAX_END_BYTES && ends()
    }

    /// Stops the execution if an event of this size would exceed the task's limit or the memory account.
    /// Earlier events are kept. The runtime's own entries are not limited: they are few and small, and one of
    /// them holds the reason. A parked task has no execution: its writer is refused, and may write less or the end.
    fn refuse_too_large(&self, state: &mut LiveState, bytes: usize) -> Result<()> {
        if state.bytes.get().saturating_add(bytes) > self.core.agent.rules().max_task_bytes {
            if self.parks {
                return Err(self.core.agent.over_limit());
            }
            state.stop(Stop::TooLarge);
            return Err(self.core.agent.too_large());
        }
        if !state.bytes.may_grow(bytes) {
            if self.parks {
                return Err(exhausted());
            }
            state.stop(Stop::OutOfMemory);
            return Err(super::out_of_memory());
        }
        Ok(())
    }

    /// Refuses events of an execution that is being stopped, except one that ends the task. If the task is
    /// too large, the runtime records the end, with the reason.
    fn refuse_while_stopping(&self, state: &LiveState, events: &[Event]) -> Result<()> {
        let ends =
            matches!(events, [event] if event.status().is_some_and(|status| status.state.is_terminal()));
        match state.stopping() {
            Some(Stop::TooLarge) => Err(self.core.agent.too_large()),
            Some(Stop::OutOfMemory) => Err(super::out_of_memory()),
            Some(Stop::Cancel | Stop::Shutdown | Stop::Silence) if !ends => {
                Err(Error::new(ErrorKind::UnsupportedOperation, "the task is being stopped"))
            }
            Some(Stop::Cancel | Stop::Shutdown | Stop::Silence) | None => Ok(()),
        }
    }

    fn opening_task(&self, message: Option<Arc<Message>>, now: Timestamp) -> Task {
        Task {
            id: self.live.id.clone(),
            context_id: self.live.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) },
            history: message.into_iter().collect(),
            ..Task::default()
        }
    }

    fn entry(&self, expected: Seq, event: Event, at: Timestamp) -> Commit {
        Commit {
            scope: Arc::clone(&self.live.scope),
            task_id: self.live.id.clone(),
            expected,
            event: Arc::new(event),
            at,
            snapshot: None,
            take: false,
            push: false,
            attached: Attached::default(),
        }
    }
}

/// Refuses events after the end.
fn check_open(state: &LiveState) -> Result<()> {
    match &state.phase {
        Phase::Opening(_) => Ok(()),
        Phase::Task(tracked) if !tracked.task.status.state.is_terminal() => Ok(()),
        Phase::Task(tracked) => Err(refusal(Refusal::Terminal(tracked.task.status.state))),
        Phase::Replied { .. } => Err(after_reply()),
        Phase::Refused(_) => Err(after_refusal()),
        Phase::Lost(_) => Err(super::unavailable()),
    }
}

fn after_reply() -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, "a direct reply was given; nothing can follow it")
}

fn after_refusal() -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, "the message was refused; nothing can follow")
}

fn refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Terminal(_) => Error::new(ErrorKind::UnsupportedOperation, refusal.to_string()),
        Refusal::OtherTask | Refusal::OtherContext | Refusal::EmptyArtifact => {
            Error::new(ErrorKind::InvalidAgentResponse, refusal.to_string())
        }
    }
}
