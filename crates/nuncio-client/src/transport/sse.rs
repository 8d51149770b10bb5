//! Streams that survive their connection.
//!
//! When a connection breaks while the task is in progress, the client subscribes to the task again. An
//! agent that declares [`RESUME_EXTENSION`](crate::RESUME_EXTENSION) sends exactly the events after the
//! last one received. Any other agent begins with a snapshot of the task (spec 3.1.6), which is returned as
//! an event; it includes the missed changes. A message is never sent twice, except to an agent that
//! declares the extension, under the same idempotency key.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use nuncio_protocol::{
    CallContext, Error, ErrorKind, Event, GetTaskRequest, Result, Seq, StreamItem, SubscribeToTaskRequest,
    TaskId, TaskState, TaskStatus,
    op::{Call, Reply},
};
use tokio::time::Instant;

use super::{WireStream, deadline_exceeded, headers::is_send, route::Route};
use crate::failure::{Failure, Reached};

/// A stream has to end after its last event (spec 3.1.2). This is the time to wait for that, since some
/// agents send a last snapshot.
const AFTER_THE_END: Duration = Duration::from_secs(2);

/// A connection that lasted this long counts as progress: its end is not counted as a failed attempt.
const GOOD_CONNECTION: Duration = Duration::from_secs(15);

/// A stream that is being followed.
pub(crate) struct Follow {
    route: Route,
    /// Context of the original call.
    cx: CallContext,
    /// The original call.
    call: Call,
    /// The connection and the time of its beginning; `None` after the last event.
    connection: Option<(WireStream, Instant)>,
    seen: StreamProgress,
    /// The number of reconnects without progress.
    retries: u32,
    /// The message may have been sent.
    sent: bool,
}

/// The result of waiting for the next event.
enum Step {
    Item(StreamItem),
    /// The stream has ended regularly.
    End,
    /// The stream has ended before the task.
    Cut(Failure),
    Fail(Error),
}

impl Follow {
    /// A stream that is not connected yet.
    pub(crate) fn new(route: Route, cx: CallContext, call: Call) -> Self {
        let seen = StreamProgress::new(&call, cx.last_event_id);
        Self { route, cx, call, connection: None, seen, retries: 0, sent: false }
    }

    /// The next event; there are no more after an error.
    pub(crate) async fn next(&mut self) -> Option<Result<StreamItem>> {
        loop {
            match self.step().await? {
                Step::Item(item) if self.seen.is_repetition(&item) => {}
                Step::Item(item) => {
                    if self.seen.note(&item) {
                        self.retries = 0;
                    }
                    return Some(Ok(item));
                }
                Step::End => {
                    self.connection = None;
                    return None;
                }
                Step::Fail(error) => {
                    self.connection = None;
                    return Some(Err(error));
                }
                // Boxed to keep this future small: few streams break.
                Step::Cut(failure) => match Box::pin(self.take_up(failure)).await {
                    Ok(None) => {}
                    Ok(Some(last)) => return Some(Ok(last)),
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    /// Waits for the next step; `None` if the stream is over.
    async fn step(&mut self) -> Option<Step> {
        let (stream, since) = self.connection.as_mut()?;
        if self.seen.is_ours_to_end() {
            return Some(Step::End);
        }
        let patience = self.seen.is_over().then(|| Instant::now() + AFTER_THE_END);
        let deadline = self.cx.deadline.map(Instant::from);
        let limit = [patience, deadline].into_iter().flatten().min();
        let next = match limit {
            None => stream.next().await,
            Some(limit) => match tokio::time::timeout_at(limit, stream.next()).await {
                Ok(next) => next,
                Err(_) if self.seen.is_over() => return Some(Step::End),
                Err(_) => return Some(Step::Fail(deadline_exceeded())),
            },
        };
        if since.elapsed() >= GOOD_CONNECTION {
            self.retries = 0;
        }
        Some(match next {
            Some(Ok(item)) => Step::Item(item),
            Some(Err(_)) if self.seen.may_end(true) => Step::End,
            Some(Err(failure)) if failure.reached == Reached::Answered => Step::Fail(failure.error),
            Some(Err(failure)) => Step::Cut(failure),
            None if self.seen.may_end(false) => Step::End,
            // The caller asked for events after the task's last one: the agent has nothing to send, and
            // ends the stream.
            None if self.seen.may_be_over() && Box::pin(self.final_snapshot()).await.is_some() => Step::End,
            None => Step::Cut(Failure::perhaps(ended_early())),
        })
    }

    /// Resumes a broken stream. If the task has ended meanwhile, it cannot be subscribed to any more, and
    /// its final snapshot is the last event. Some agents also refuse to subscribe while they wait for
    /// input, which ends a send as well.
    async fn take_up(&mut self, cut: Failure) -> Result<Option<StreamItem>> {
        self.connection = None;
        if cut.reached == Reached::Nobody {
            // Detected late, because the stream counted as open meanwhile: another transport may reach the
            // agent.
            self.route.pass_on();
        } else if self.seen.task.is_none() && !self.route.resumes() {
            return Err(unknown_outcome(cut));
        }
        self.sent |= cut.reached == Reached::Perhaps;
        self.pause(cut).await?;
        let Err(failure) = self.connect().await else { return Ok(None) };
        if failure.reached == Reached::Answered
            && let Some(task) = self.final_snapshot().await
        {
            return Ok(Some(task));
        }
        Err(failure.into())
    }

    /// Connects, with retries where they are allowed.
    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        loop {
            let again = self.subscription();
            let (cx, call) = again.as_deref().map_or((&self.cx, &self.call), |(cx, call)| (cx, call));
            let is_send = is_send(call.op());
            let failure = match self.route.stream_once(cx, call).await {
                Ok(stream) => {
                    self.connection = Some((stream, Instant::now()));
                    return Ok(());
                }
                Err(failure) => failure,
            };
            let failure = if self.sent && is_send { failure.and_perhaps_before() } else { failure };
            self.sent |= is_send && failure.reached == Reached::Perhaps;
            if is_send && failure.reached != Reached::Nobody && !self.route.resumes() {
                return Err(failure);
            }
            self.pause(failure).await?;
        }
    }

    /// The call that replaces the original one once the task is known: a subscribe.
    fn subscription(&mut self) -> Option<Box<(CallContext, Call)>> {
        let id = self.seen.task.clone()?;
        let resume_after = self.seen.seq.filter(|_| self.route.resumes() || self.seen.by_request());
        let cx = CallContext { last_event_id: resume_after, ..self.cx.clone() };
        self.seen.expect_after(resume_after);
        let tenant = self.call.tenant().map(str::to_owned);
        Some(Box::new((cx, Call::SubscribeToTask(Box::new(SubscribeToTaskRequest { tenant, id })))))
    }

    /// Waits before the next attempt; returns the failure if there is none.
    async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        let pause = self.route.policy().stream(self.retries, &failure, rand::random());
        if !self.route.wait(self.cx.deadline, self.retries, pause, &failure).await {
            return Err(failure);
        }
        self.retries += 1;
        Ok(())
    }

    async fn final_snapshot(&mut self) -> Option<StreamItem> {
        let id = self.seen.task.clone()?;
        let call = Call::GetTask(Box::new(GetTaskRequest { id, ..GetTaskRequest::default() }));
        match self.route.call_once(&self.cx, &call).await {
            Ok(Reply::Task(task)) if self.seen.is_last(task.status.state) => {
                Some(StreamItem::new(None, Arc::new(Event::Task(task))))
            }
            _ => None,
        }
    }
}

/// The state of a stream, derived from its events so far. Pure.
#[derive(Debug, Default)]
struct StreamProgress {
    /// The original call is a send.
    is_send: bool,
    /// The original call continues an existing task.
    is_follow_up: bool,
    /// The status of a follow-up's task when the stream began.
    before: Option<TaskStatus>,
    /// The followed task.
    task: Option<TaskId>,
    /// Its last known state.
    state: Option<TaskState>,
    /// The state is a question, and not the one that the message of a follow-up answers.
    asks: bool,
    /// A direct reply was received; it is the only event.
    replied: bool,
    /// The sequence number of the last event.
    seq: Option<Seq>,
    /// The number of events so far.
    events: usize,
    /// The connection is a subscription, whether or not the original call was one.
    subscribed: bool,
    /// Events up to this one were received before the connection was made.
    resumed_after: Option<Seq>,
    /// The connection continues a task, so a snapshot at its beginning is no progress.
    snapshot_due: bool,
}

impl StreamProgress {
    fn new(call: &Call, last_event_id: Option<Seq>) -> Self {
        let seen = Self { seq: last_event_id, is_send: is_send(call.op()), ..Self::default() };
        match call {
            Call::SubscribeToTask(req) => Self { task: Some(req.id.clone()), ..seen },
            Call::SendStreamingMessage(req) => Self { is_follow_up: req.message.task_id.is_some(), ..seen },
            _ => seen,
        }
    }

    /// True if there was no event yet. A sequence number then comes from the caller and has to be sent.
    fn by_request(&self) -> bool {
        self.events == 0
    }

    /// Records that a subscription is being made.
    fn expect_after(&mut self, seq: Option<Seq>) {
        self.subscribed = true;
        self.resumed_after = seq;
        self.snapshot_due = self.events > 0;
    }

    /// True for an event that an agent repeats because it resumes too early.
    fn is_repetition(&self, item: &StreamItem) -> bool {
        matches!((item.seq(), self.resumed_after), (Some(seq), Some(after)) if seq <= after)
    }

    /// Records an event; true if it is progress.
    fn note(&mut self, item: &StreamItem) -> bool {
        let event = item.event();
        let repeated = std::mem::take(&mut self.snapshot_due) && matches!(&**event, Event::Task(_));
        self.replied |= matches!(&**event, Event::Message(_));
        if let Some(id) = event.task_id().filter(|id| !id.is_empty() && self.task.as_ref() != Some(*id)) {
            self.task = Some(id.clone());
        }
        if let Some(status) = event.status() {
            self.state = Some(status.state);
            self.asks = status.state == TaskState::InputRequired && !self.is_old(event);
        }
        self.seq = item.seq().or(self.seq);
        self.events += 1;
        !repeated
    }

    /// True for a snapshot with the status from before the follow-up. The stream of a follow-up begins with
    /// the task as the message finds it, still with the question that it answers.
    fn is_old(&mut self, event: &Event) -> bool {
        let Event::Task(task) = event else { return false };
        if self.is_follow_up && self.events == 0 {
            self.before = Some(task.status.clone());
        }
        self.before.as_ref() == Some(&task.status)
    }

    /// True if the last event was received.
    fn is_over(&self) -> bool {
        self.replied || self.state.is_some_and(TaskState::is_terminal)
    }

    /// True if the specification allows the stream to end now. The stream of a send also ends when the
    /// agent needs input (trap T-02); a subscription that breaks then continues.
    fn may_end(&self, broken: bool) -> bool {
        self.is_over() || self.asks && (self.is_send || !broken)
    }

    /// True if the caller asked for the events after a given one, and there were none.
    fn may_be_over(&self) -> bool {
        self.seq.is_some() && self.by_request()
    }

    /// True if the client has to end the stream. A send ends with a question, but agents end a subscription
    /// only with the task, so a resumed send has to be ended here.
    fn is_ours_to_end(&self) -> bool {
        self.asks && self.is_send && self.subscribed
    }

    /// True if no event follows this state of a task that cannot be subscribed to.
    fn is_last(&self, state: TaskState) -> bool {
        state.is_terminal() || self.is_send && state == TaskState::InputRequired
    }
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Unavailable, "the agent ended the stream before the task was done")
}

fn unknown_outcome(cut: Failure) -> Error {
    let message = format!(
        "{}; no event had come, so it is not known whether the agent received the message, and it is not sent again",
        cut.error.message()
    );
    Error::new(ErrorKind::Unavailable, message).with_source(cut.error)
}

#[cfg(test)]
mod tests;
