//! The one write path: fold the event into the task, commit it, say that there is more.
//!
//! Nothing is visible to anyone before it is committed. Folding is done here, in order, under the task's
//! lock; the [`Journal`](super::journal) commits, at once or in batches.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use nuncio_protocol::{
    ContextId, Error, ErrorKind, Event, Message, MessageId, Refusal, Result, Seq, Task, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp, fold,
};

use super::{
    Shared,
    journal::Write,
    live::{LiveRef, State, Stop},
};
use crate::{
    size,
    store::{Commit, IdempotencyKey, StoredTurn, Webhook},
};

/// The present, to the millisecond, which is what the wire shows.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::EPOCH)
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// The agent: while it is being stopped it may only end the task.
    Executor,
    /// The runtime itself.
    Runtime,
}

/// Writes to one task.
#[derive(Clone)]
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    live: LiveRef,
}

impl Recorder {
    pub(super) fn new(shared: &Arc<Shared>, live: &LiveRef) -> Self {
        Self { shared: Arc::clone(shared), live: live.clone() }
    }

    pub(crate) fn task_id(&self) -> &TaskId {
        &self.live.id
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.live.context_id
    }

    /// Records what the executor says.
    pub(crate) fn record(&self, event: Event) -> impl Future<Output = Result<Seq>> + Send {
        self.write(Writer::Executor, [event])
    }

    /// Records all that the executor says, in one piece: nobody sees a part of it.
    pub(crate) async fn record_all(&self, events: Vec<Event>) -> Result<Seq> {
        self.write(Writer::Executor, events).await
    }

    /// Keeps what the executor remembers until the next entry takes it along.
    pub(crate) fn remember(&self, memo: Bytes) -> Result<()> {
        let mut state = self.live.lock();
        if state.broken {
            return Err(super::unavailable());
        }
        refuse_after_reply(&state)?;
        if state.state().is_terminal() {
            return Err(refusal(Refusal::Terminal(state.state())));
        }
        (state.memo, state.memo_is_new) = (Some(memo), true);
        Ok(())
    }

    /// Gives the caller this error instead of a task, if there is none.
    pub(crate) fn refuse(&self, error: Error) -> Result<()> {
        let mut state = self.live.lock();
        if state.broken {
            return Err(super::unavailable());
        }
        refuse_after_reply(&state)?;
        if state.task.is_some() {
            return Err(error);
        }
        state.refused = Some(Arc::new(error));
        drop(state);
        self.live.announce();
        Ok(())
    }

    /// Looks at the task as it is folded.
    pub(crate) fn look<T>(&self, look: impl FnOnce(Option<&Task>) -> T) -> T {
        look(self.live.lock().task.as_ref())
    }

    /// Waits until the task asks for something.
    pub(crate) async fn asked(&self) {
        self.live.until_settled(|state| state.state().is_interrupted()).await;
    }

    /// Waits until the task asks for something and a message waits for its turn.
    pub(crate) async fn answered(&self) {
        self.live.until_settled(|state| state.state().is_interrupted() && !state.queue.is_empty()).await;
    }

    /// True if it is stopped for good, by its caller or by a limit.
    pub(crate) fn is_canceled(&self) -> bool {
        self.live.lock().stopping().is_some_and(Stop::is_for_good)
    }

    /// Waits until all that was recorded is in the store.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.live.until(|state| state.broken || state.is_committed()).await;
        if self.live.lock().broken { Err(super::unavailable()) } else { Ok(()) }
    }

    /// Makes the task, if it is not there yet.
    pub(crate) async fn create(&self) -> Result<Seq> {
        self.write(Writer::Executor, []).await
    }

    /// Makes the task for a caller that will not wait longer, unless a reply was given meanwhile.
    pub(super) async fn ensure(&self) -> Result<()> {
        self.write(Writer::Runtime, []).await.map(drop)
    }

    /// Records what a caller says to the task.
    pub(super) async fn caller_message(
        &self,
        message: &Arc<Message>,
        key: Option<IdempotencyKey>,
        turn: Option<StoredTurn>,
        webhook: Option<Webhook>,
    ) -> Result<Seq> {
        {
            let mut state = self.live.lock();
            (state.idempotency, state.turn, state.webhook) = (key, turn, webhook);
        }
        self.write(Writer::Runtime, [Event::Message(Arc::clone(message))]).await
    }

    /// Ends the task in this state, in the runtime's name, with a reason for people.
    pub(super) async fn end(&self, state: TaskState, reason: Option<&str>) -> Result<Seq> {
        let message = reason.map(|reason| {
            Arc::new(Message {
                context_id: Some(self.live.context_id.clone()),
                task_id: Some(self.live.id.clone()),
                ..Message::agent(super::new_id::<MessageId>(), nuncio_protocol::Part::text(reason))
            })
        });
        self.write(Writer::Runtime, [self.status(state, message)]).await
    }

    fn status(&self, state: TaskState, message: Option<Arc<Message>>) -> Event {
        Event::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.live.id.clone(),
            context_id: self.live.context_id.clone(),
            status: TaskStatus { state, message, timestamp: None },
            ..TaskStatusUpdateEvent::default()
        })
    }

    /// Gives a direct reply. Where a task exists already (the caller would not wait, or it is a
    /// follow-up) the reply becomes the words of its completion (trap T-50).
    pub(crate) async fn reply(&self, mut message: Message) -> Result<()> {
        let told = {
            let mut state = self.live.lock();
            if state.broken {
                return Err(super::unavailable());
            }
            if state.task.is_some() {
                None
            } else {
                refuse_after_reply(&state)?;
                self.refuse_too_large(&mut state, size::message(&message))?;
                let message = Arc::new(std::mem::take(&mut message));
                state.reply = Some(Arc::clone(&message));
                Some((state.idempotency.take().map(|key| (key, message)), state.reserved))
            }
        };
        let Some((key, reserved)) = told else {
            message.task_id = Some(self.live.id.clone());
            let words = self.status(TaskState::Completed, Some(Arc::new(message)));
            return self.write(Writer::Executor, [words]).await.map(drop);
        };
        if let Some((key, message)) = key {
            let (Shared { journal, store, .. }, at) = (&*self.shared, now());
            let keep = || store.put_reply(&self.live.scope, key.clone(), Arc::clone(&message), at);
            if let Err(error) = journal.insist(keep).await {
                self.live.break_off();
                return Err(error.into());
            }
        } else if reserved {
            Box::pin(self.shared.release(&self.live)).await;
        }
        self.live.lock().replied = true;
        self.live.announce();
        Ok(())
    }

    /// Writes these events, and makes the task if it is not there. If one of them cannot be, it is the last that is
    /// looked at: those before it are written.
    async fn write(
        &self,
        writer: Writer,
        events: impl IntoIterator<Item = Event> + AsRef<[Event]> + Send,
    ) -> Result<Seq> {
        let journal = &self.shared.journal;
        let memo = if journal.is_immediate() { 0 } else { self.live.lock().new_memo() };
        let room = journal.room(events.as_ref(), memo).await;
        let now = now();
        let mut state = self.live.lock();
        if state.broken {
            return Err(super::unavailable());
        }
        match writer {
            Writer::Executor => {
                refuse_after_reply(&state)?;
                self.refuse_while_stopping(&state, events.as_ref())?;
            }
            // The reply was the end: there is no task to make or to end.
            Writer::Runtime if state.reply.is_some() || state.refused.is_some() => {
                return Ok(state.folded.seq);
            }
            Writer::Runtime => {}
        }
        let (batch, refused) = self.fold(&mut state, writer, events, now);
        if batch.is_empty() {
            return refused.map(|()| state.folded.seq);
        }
        state.folded.advance(&batch);
        // In the hands of this owner from now on, or the store says no.
        state.held = false;
        let seq = state.folded.seq;
        // Under the lock: in the order of the numbers.
        let done = if journal.is_immediate() {
            let (mark, items) = (state.folded, state.items(&batch));
            journal.commit_now(batch, state.pushes).map(|()| state.take_in(mark, items))
        } else {
            journal.queue(Write { live: self.live.clone(), batch, room })
        };
        let committed = state.committed;
        drop(state);
        if done.is_err() {
            self.live.break_off();
        } else if journal.is_immediate() {
            self.live.announce_work(committed);
        }
        done.and(refused).map(|()| seq)
    }

    /// Folds events into the task, which it makes if need be, and gives what is to be committed; and why it is not all.
    fn fold(
        &self,
        state: &mut State,
        writer: Writer,
        events: impl IntoIterator<Item = Event> + AsRef<[Event]>,
        now: Timestamp,
    ) -> (Vec<Commit>, Result<()>) {
        let mut batch = Vec::with_capacity(events.as_ref().len() + 1);
        let before = state.bytes.get();
        let mut task = match state.task.take() {
            Some(task) => task,
            None => {
                let task = self.opening_task(state, now);
                state.bytes.set(before + size::task(&task));
                batch.push(self.entry(state.folded.seq, Event::Task(task.clone()), now));
                task
            }
        };
        let is_new = !batch.is_empty();
        let folded = events.into_iter().try_for_each(|mut event| {
            if let Event::StatusUpdate(update) = &mut event {
                update.status.timestamp.get_or_insert(now);
            }
            let bytes = size::event(&event);
            if writer == Writer::Executor {
                self.refuse_too_large(state, bytes)?;
            }
            fold(&mut task, &event, now).map_err(refusal)?;
            state.bytes.set(state.bytes.get() + bytes);
            let settled = event.status().is_some_and(|status| status.state.is_settled());
            let snapshot = settled.then(|| task.clone());
            let expected = Seq(state.folded.seq.0 + batch.len() as u64);
            batch.push(Commit { snapshot, ..self.entry(expected, event, now) });
            Ok(())
        });
        if folded.is_err() && is_new && batch.len() == 1 {
            // Nothing was said: there is no task.
            state.bytes.set(before);
            return (Vec::new(), folded);
        }
        state.task = Some(task);
        if let Some(first) = batch.first_mut() {
            first.reserved = std::mem::take(&mut state.reserved);
            let key = state.idempotency.take();
            first.idempotency = key.filter(|_| !first.reserved);
            first.turn = state.turn.take();
            first.take = state.held;
            first.webhook = state.webhook.take();
            first.memo = state.memo.clone().filter(|_| std::mem::take(&mut state.memo_is_new));
            state.pushes |= first.webhook.is_some();
        }
        // At a store that is shared, somebody else may have registered a webhook.
        if let Some(push) =
            self.shared.push.as_ref().filter(|_| state.pushes || self.shared.store.is_shared())
        {
            batch.iter_mut().for_each(|commit| commit.push = push.tells(&commit.event));
        }
        (batch, folded)
    }

    /// Stops the execution if the event would make the task larger than its limit or than memory allows: what came
    /// before is kept. The runtime's own
    /// entries are few and small, and the reason is one of them.
    fn refuse_too_large(&self, state: &mut State, bytes: usize) -> Result<()> {
        if state.bytes.get().saturating_add(bytes) > self.shared.present.load().max_task_bytes {
            state.stop(Stop::TooLarge);
            return Err(self.shared.too_large());
        }
        if !state.bytes.may_grow(bytes) {
            state.stop(Stop::OutOfMemory);
            return Err(super::out_of_memory());
        }
        Ok(())
    }

    /// An execution that is being stopped may still end the task in its own words, and nothing else. Where the task is
    /// too large, the reason is told by the runtime.
    fn refuse_while_stopping(&self, state: &State, events: &[Event]) -> Result<()> {
        let ends =
            matches!(events, [event] if event.status().is_some_and(|status| status.state.is_terminal()));
        match state.stopping() {
            Some(Stop::TooLarge) => Err(self.shared.too_large()),
            Some(Stop::OutOfMemory) => Err(super::out_of_memory()),
            Some(Stop::Cancel | Stop::Shutdown | Stop::Silence) if !ends => {
                Err(Error::new(ErrorKind::UnsupportedOperation, "the task is being stopped"))
            }
            Some(Stop::Cancel | Stop::Shutdown | Stop::Silence) | None => Ok(()),
        }
    }

    fn opening_task(&self, state: &State, now: Timestamp) -> Task {
        Task {
            id: self.live.id.clone(),
            context_id: self.live.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) },
            history: state.opening.iter().cloned().collect(),
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
            idempotency: None,
            reserved: false,
            turn: None,
            take: false,
            webhook: None,
            push: false,
            memo: None,
        }
    }
}

fn refuse_after_reply(state: &State) -> Result<()> {
    if state.reply.is_some() {
        return Err(Error::new(
            ErrorKind::InvalidAgentResponse,
            "a direct reply was given; nothing can follow it",
        ));
    }
    if state.refused.is_some() {
        return Err(Error::new(
            ErrorKind::InvalidAgentResponse,
            "the message was refused; nothing can follow",
        ));
    }
    Ok(())
}

fn refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Terminal(_) => Error::new(ErrorKind::UnsupportedOperation, refusal.to_string()),
        Refusal::OtherTask | Refusal::OtherContext | Refusal::EmptyArtifact => {
            Error::new(ErrorKind::InvalidAgentResponse, refusal.to_string())
        }
    }
}
