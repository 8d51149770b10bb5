//! Follows the remote task until it settles: by a stream while there is one, else by polling.
//!
//! ```text
//!            ┌── stream ──► cut ──┐
//! message ──►┤                    ├──► poll ──► settled
//!            └── answer ──────────┘     │ ▲
//!                  subscribe again ◄────┘ └── after a pause, with back-off
//! ```
//! A task in `auth-required` has not settled: it continues by itself once the agent is authorised. While
//! the agent cannot be reached the task keeps its state, until the time to give up.

use std::{sync::atomic::Ordering, task::Poll, time::Duration};

use futures_util::{StreamExt as _, poll};
use nuncio_protocol::{
    Artifact, Error, ErrorKind, Event, EventStream, GetTaskRequest, Result, SubscribeToTaskRequest, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, retry::Backoff,
};
use nuncio_server::CallerPermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Delegate, Delegation, TaskIds,
    diff::{diff, is_known},
    lacks_operation, refuse,
};
use crate::config::Follow;

/// Timeouts for each event after a terminal status, and for all of them: some agents send events after the
/// terminal status that belong before it.
const END_EVENT_TIMEOUT: Duration = Duration::from_millis(300);
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of events emitted in one batch.
const MAX_BATCH: usize = 64;

/// The pause before the first poll of a new task: most agents that do not stream finish within
/// milliseconds.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum pause between two polls of a task.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of attempts to subscribe to a task.
const MAX_SUBSCRIPTIONS: u32 = 8;

/// Maximum number of artifacts, or of messages, in a snapshot: each is searched for among all known ones.
const MAX_ITEMS: usize = 10_000;

/// Polls that may return the question that the message has answered. After that, it counts as asked again.
const MAX_OLD_QUESTIONS: u32 = 3;

/// The state of the remote task after a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemoteState {
    /// In progress; true if the snapshot had something new.
    Goes(bool),
    /// Interrupted with the same question as before.
    AsksStill,
    /// Terminal, or interrupted with a new question.
    Settled,
}

impl RemoteState {
    pub(super) fn is_settled(self) -> bool {
        self == Self::Settled
    }
}

/// Pauses between polls, and counters of attempts.
struct PollBackoff {
    pause: Duration,
    /// The pause before the last poll.
    paused: Duration,
    /// Time of the agent's last answer.
    contact: Instant,
    subscriptions: u32,
    old_questions: u32,
}

/// Events that are not emitted yet; events that arrive together are emitted in one batch.
#[derive(Default)]
pub(super) struct PendingEvents {
    /// Our task begins as submitted, even if there is no event.
    begins: bool,
    events: Vec<Event>,
}

impl PendingEvents {
    fn is_empty(&self) -> bool {
        !self.begins && self.events.is_empty()
    }
}

impl<D: Delegate> Delegation<'_, D> {
    /// Follows the task until it settles. `permit` is held while the first stream is open.
    pub(in crate::agents) async fn follow(
        &self,
        mut events: Option<EventStream>,
        permit: Option<CallerPermit>,
    ) -> Result<()> {
        let mut backoff = PollBackoff {
            // A resumed task is polled at once.
            pause: if self.cx.resumed {
                Duration::ZERO
            } else {
                FIRST_POLL_INTERVAL.min(self.pace.poll_interval)
            },
            paused: Duration::ZERO,
            contact: Instant::now(),
            subscriptions: 0,
            old_questions: if self.cx.resumed { MAX_OLD_QUESTIONS } else { 0 },
        };
        let mut permit = permit;
        loop {
            if let Some(events) = events.take() {
                let settled = self.read(events, &mut permit).await?;
                drop(permit.take());
                if settled {
                    return Ok(());
                }
                backoff.pause = Duration::ZERO;
            }
            let remote = self.remote().ok_or_else(|| {
                Error::new(ErrorKind::InvalidAgentResponse, "the agent closed the stream without a task id")
            })?;
            // Boxed to keep this future small: most streams last until their task has settled.
            if Box::pin(self.poll(&remote, &mut backoff)).await? {
                return Ok(());
            }
            events = Box::pin(self.subscribe(&remote, &mut backoff)).await;
        }
    }

    /// Emits the events of a stream; true if the task has settled.
    async fn read(&self, mut events: EventStream, permit: &mut Option<CallerPermit>) -> Result<bool> {
        let (mut end, mut latest, mut pending) = (None, None, PendingEvents::default());
        loop {
            let next = match poll!(events.next()) {
                Poll::Ready(next) => next,
                Poll::Pending if !pending.is_empty() => {
                    self.flush(&mut pending).await?;
                    continue;
                }
                Poll::Pending if end.is_none() => events.next().await,
                Poll::Pending => {
                    let now = Instant::now();
                    let latest = *latest.get_or_insert(now + END_TIMEOUT);
                    timeout_at(latest.min(now + END_EVENT_TIMEOUT), events.next()).await.ok().flatten()
                }
            };
            match next {
                Some(Ok(item)) => {
                    let settled = self.handle_event(item.into_event(), &mut end, &mut pending).await?;
                    if settled || pending.events.len() >= MAX_BATCH {
                        self.flush(&mut pending).await?;
                    }
                    if settled {
                        return Ok(true);
                    }
                    if self.auth_required.load(Ordering::Relaxed) {
                        // The agent is idle until it is authorised, which may take long: the permit goes to
                        // other tasks.
                        drop(permit.take());
                    }
                }
                Some(Err(error)) if end.is_none() => {
                    tracing::info!(task = %self.cx.task_id, %error, "a stream broke; polling the task");
                    self.to.record_outcome(Some(&error));
                    self.flush(&mut pending).await?;
                    return Ok(false);
                }
                Some(Err(_)) | None => break,
            }
        }
        let ended = end.is_some();
        pending.events.extend(end);
        self.flush(&mut pending).await?;
        Ok(ended)
    }

    /// Emits the pending events.
    async fn flush(&self, pending: &mut PendingEvents) -> Result<()> {
        let PendingEvents { begins, mut events } = std::mem::take(pending);
        if begins && events.is_empty() {
            return self.out.submitted().await;
        }
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(MAX_BATCH));
            self.out.emit_all(std::mem::replace(&mut events, rest)).await?;
        }
        Ok(())
    }

    /// Handles one event; true if the task has settled. A terminal status is held back, to be emitted last.
    async fn handle_event(
        &self,
        event: Event,
        end: &mut Option<Event>,
        pending: &mut PendingEvents,
    ) -> Result<bool> {
        match event {
            Event::Message(message) if self.remote_slot().is_none() => {
                self.flush(pending).await?;
                Box::pin(self.reply(message)).await?;
                return Ok(true);
            }
            Event::Message(message) => {
                // A message within a task becomes the message of its status.
                let message = Some(self.local.message(message));
                let status = TaskStatus { state: TaskState::Working, message, timestamp: None };
                let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
                pending.events.push(Event::StatusUpdate(update));
            }
            Event::Task(task) => {
                if self.accept(&task.id, &task.context_id).await? {
                    // The snapshot is compared with our task, so pending events have to be emitted first.
                    self.flush(pending).await?;
                    return Ok(self.snapshot(task, pending)?.is_settled());
                }
            }
            Event::StatusUpdate(update) => {
                if self.accept(&update.task_id, &update.context_id).await? {
                    return Ok(self.handle_status(update, end, pending));
                }
            }
            Event::ArtifactUpdate(update) => {
                if self.accept(&update.task_id, &update.context_id).await?
                    && self.has_content(&update, pending)
                {
                    pending.events.push(Event::ArtifactUpdate(update));
                }
            }
        }
        Ok(false)
    }

    fn handle_status(
        &self,
        update: TaskStatusUpdateEvent,
        end: &mut Option<Event>,
        pending: &mut PendingEvents,
    ) -> bool {
        let state = update.status.state;
        let event = self.local.status_update(update);
        if state.is_terminal() {
            end.get_or_insert(event);
            return false;
        }
        if end.is_some() {
            tracing::warn!(task = %self.cx.task_id, %state, "the agent sent a status after a terminal one; ignored");
            return false;
        }
        pending.events.push(event);
        self.mark_auth_required(state);
        state == TaskState::InputRequired
    }

    fn mark_auth_required(&self, state: TaskState) {
        if state == TaskState::AuthRequired {
            self.auth_required.store(true, Ordering::Relaxed);
        }
    }

    /// True if the update has parts, or marks a known artifact as complete.
    fn has_content(&self, update: &TaskArtifactUpdateEvent, pending: &PendingEvents) -> bool {
        let is_it = |known: &Artifact| known.artifact_id == update.artifact.artifact_id;
        let told = |task: &Task| task.artifacts.iter().any(|known| is_it(known));
        let is_new =
            |event: &Event| matches!(event, Event::ArtifactUpdate(update) if is_it(&update.artifact));
        !update.artifact.parts.is_empty()
            || update.append
                && (pending.events.iter().any(is_new) || self.out.with_task(|task| task.is_some_and(told)))
    }

    /// Adds the changes in a snapshot to `pending`, which must be empty: the snapshot is compared with our
    /// task.
    fn snapshot(&self, task: Task, pending: &mut PendingEvents) -> Result<RemoteState> {
        if task.artifacts.len().max(task.history.len()) > MAX_ITEMS {
            let why = format!("the agent's task has more than {MAX_ITEMS} artifacts, or messages");
            return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
        }
        let seen = self.local.task(task);
        let (status, known) = (&seen.status, self.out.task());
        let is_old = |known: &Task| status.state.is_interrupted() && is_known(known, status);
        let asks_still = known.as_ref().is_some_and(is_old);
        // Our own task begins in the same state.
        pending.begins = known.is_none() && status.state == TaskState::Submitted && status.message.is_none();
        let begun = pending.begins.then(|| Task { status: status.clone(), ..Task::default() });
        pending.events = diff(known.or(begun).as_ref(), &seen);
        let is_news = !pending.events.is_empty();
        Ok(match seen.status.state {
            _ if asks_still => RemoteState::AsksStill,
            state if state.is_terminal() || state == TaskState::InputRequired => RemoteState::Settled,
            state => {
                self.mark_auth_required(state);
                RemoteState::Goes(is_news)
            }
        })
    }

    /// Emits the changes in a snapshot of the task.
    pub(super) async fn emit_snapshot(&self, task: Task) -> Result<RemoteState> {
        let mut pending = PendingEvents::default();
        let state = self.snapshot(task, &mut pending)?;
        self.flush(&mut pending).await?;
        Ok(state)
    }

    /// Polls the task, after a pause, until the agent answers; true if the task has settled.
    async fn poll(&self, remote: &TaskIds, backoff: &mut PollBackoff) -> Result<bool> {
        let pace = &self.pace;
        loop {
            tokio::time::sleep(backoff.pause).await;
            backoff.paused = backoff.pause;
            backoff.pause = next_pause(backoff.pause, pace.poll_interval);
            let error = match self.poll_once(remote).await {
                Ok(task) => {
                    backoff.contact = Instant::now();
                    return self.apply_poll(remote.check(task)?, backoff).await;
                }
                Err(error) => error,
            };
            // Short pauses are only for an agent that answers.
            backoff.pause = backoff.pause.max(pace.poll_interval);
            if error.kind() == ErrorKind::TaskNotFound {
                let why = "the agent does not know the task any more; it may have been restarted";
                return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
            }
            if lacks_operation(&error) {
                let waits = |task: &Task| task.status.state == TaskState::AuthRequired;
                if self.out.with_task(|task| task.is_some_and(waits)) {
                    // The task stays in this state until the caller sends a message.
                    return Ok(true);
                }
                let why = "the agent answered before the task was done, and does not support GetTask";
                return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
            }
            if backoff.contact.elapsed() >= pace.give_up {
                let hours = pace.give_up.as_secs_f64() / 3600.0;
                let why =
                    format!("the agent could not be asked about the task for {hours:.1} hours; given up");
                return Err(Error::new(ErrorKind::Unavailable, why).with_source(error));
            }
        }
    }

    pub(super) async fn poll_once(&self, remote: &TaskIds) -> Result<Task> {
        let req = GetTaskRequest { id: remote.task.clone(), ..GetTaskRequest::default() };
        let outcome = self.to.service().get_task(&self.context(Some(self.pace.timeout)), req).await;
        self.to.record_outcome(outcome.as_ref().err());
        outcome
    }

    async fn apply_poll(&self, task: Task, backoff: &mut PollBackoff) -> Result<bool> {
        let status = self.local.status(task.status.clone());
        match self.emit_snapshot(task).await? {
            RemoteState::Settled => return Ok(true),
            RemoteState::Goes(true) => backoff.pause = backoff.pause.min(self.pace.poll_interval),
            RemoteState::Goes(false) => {}
            RemoteState::AsksStill if self.auth_required.load(Ordering::Relaxed) => {}
            RemoteState::AsksStill if backoff.old_questions < MAX_OLD_QUESTIONS => {
                // A short pause may end before the agent has read the answer.
                let is_quick = backoff.paused < self.pace.poll_interval;
                backoff.old_questions += u32::from(!is_quick);
            }
            RemoteState::AsksStill if self.cx.resumed && status.state != TaskState::AuthRequired => {
                // With an explanation: the caller has answered, and would take the question for a new one.
                let why = "the hub stopped before it was known whether the agent took the last message, and the agent \
                           asks as before; the message was not sent again";
                refuse(self.cx, self.out, Error::new(ErrorKind::Unavailable, why)).await?;
                return Ok(true);
            }
            RemoteState::AsksStill => {
                let state = status.state;
                let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
                self.out.emit(Event::StatusUpdate(update)).await?;
                self.mark_auth_required(state);
                return Ok(state != TaskState::AuthRequired);
            }
        }
        Ok(false)
    }

    /// Subscribes to the task, if the agent streams and the limit of subscriptions is not reached.
    async fn subscribe(&self, remote: &TaskIds, backoff: &mut PollBackoff) -> Option<EventStream> {
        let by_stream = match self.pace.follow {
            Follow::Auto | Follow::Stream => self.to.streams(),
            Follow::Poll | Follow::Block => false,
        };
        if !by_stream || backoff.subscriptions == MAX_SUBSCRIPTIONS {
            return None;
        }
        backoff.subscriptions += 1;
        let (service, cx) = (self.to.service(), self.context(None));
        let req = SubscribeToTaskRequest { id: remote.task.clone(), tenant: None };
        match timeout(self.pace.timeout, service.subscribe_to_task(&cx, req)).await {
            Ok(Ok(events)) => Some(events),
            Ok(Err(error)) if lacks_operation(&error) => {
                // Agents return this error for an ended task, too; the next poll shows it.
                backoff.subscriptions = MAX_SUBSCRIPTIONS;
                None
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// The pause after this one: doubled up to `poll_interval`, then times 1.5 up to [`MAX_POLL_INTERVAL`].
fn next_pause(pause: Duration, poll_interval: Duration) -> Duration {
    if pause.is_zero() {
        poll_interval
    } else if pause < poll_interval {
        Backoff::doubling(pause, poll_interval).after(pause)
    } else {
        Backoff { base: poll_interval, factor: 1.5, cap: MAX_POLL_INTERVAL.max(poll_interval) }.after(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_setting_and_grow_slowly_after_it() {
        for (first, poll_interval, expected) in [
            (1, 1000, &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1500, 2250][..]),
            (1, 5, &[2, 4, 5, 7, 11]),
            (1, 1, &[1, 2, 3]),
            (20_000, 1000, &[30_000, 30_000]),
            (1000, 60_000, &[2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
            // A task that was left behind, or whose stream broke.
            (0, 1000, &[1000, 1500]),
        ] {
            let mut pause = Duration::from_millis(first);
            let poll_interval = Duration::from_millis(poll_interval);
            let pauses: Vec<_> = expected
                .iter()
                .map(|_| {
                    pause = next_pause(pause, poll_interval);
                    pause.as_millis()
                })
                .collect();
            assert_eq!(pauses, expected, "{first} {poll_interval:?}");
        }
    }
}
