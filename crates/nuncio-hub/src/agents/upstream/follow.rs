//! Following the agent's task until it settles: by a stream as long as there is one, else by looking at it.
//!
//! ```text
//!            ┌── stream ──► cut ──┐
//! message ──►┤                    ├──► look ──► settled
//!            └── answer ──────────┘     │ ▲
//!                  subscribe again ◄────┘ └── after a pause, longer and longer
//! ```
//! A task that waits for an authorisation has not settled: it goes on by itself when the agent gets it.
//! What cannot be reached is tried until it is given up; the task stays as it is meanwhile.

use std::{sync::atomic::Ordering, task::Poll, time::Duration};

use futures_util::{StreamExt as _, poll};
use nuncio_protocol::{
    Artifact, Error, ErrorKind, Event, EventStream, GetTaskRequest, Result, SubscribeToTaskRequest, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, retry::Backoff,
};
use nuncio_server::CallerPermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    difference::{difference, is_known},
    executor::{Memo, Turn, turn_away},
    refusal::lacks_operation,
};
use crate::config::Follow;

/// A terminal status is the end, but some agents still send what belongs before it; a stream that does not end by
/// itself is given so long for each event, and so long in all.
const AFTER_THE_END: Duration = Duration::from_millis(300);
const LONG_AFTER_THE_END: Duration = Duration::from_secs(5);

/// So many events are told in one piece at most.
const AT_ONCE: usize = 64;

/// The first pause before a poll of a task that has just begun: most agents that do not stream are done in
/// milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two looks at a task.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So often a task is subscribed to again whose stream breaks without a settled task.
const SUBSCRIPTIONS: u32 = 8;

/// More artifacts, or messages, than any task has: each of a snapshot is looked for among all that are known.
const MOST: usize = 10_000;

/// So many looks may find the question that the message answers before it counts as asked again.
const OLD_QUESTIONS: u32 = 3;

/// Where the agent's task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It goes on; true if there was something new.
    Goes(bool),
    /// It waits for an answer to what it has asked before.
    AsksStill,
    /// It has ended, or asks for an answer.
    Settled,
}

impl Standing {
    pub(super) fn is_settled(self) -> bool {
        self == Self::Settled
    }
}

/// How patient we are still.
struct Patience {
    pause: Duration,
    /// The pause before the last poll.
    paused: Duration,
    /// When the agent last answered.
    contact: Instant,
    subscriptions: u32,
    old_questions: u32,
}

/// What the agent has said and callers have not been told yet: what comes together is told in one piece.
#[derive(Default)]
pub(super) struct News {
    /// There is a task, whether or not there is more to say.
    begins: bool,
    events: Vec<Event>,
}

impl News {
    fn is_empty(&self) -> bool {
        !self.begins && self.events.is_empty()
    }
}

impl Turn<'_> {
    /// Follows the task until it settles. `place` is held as long as the first stream lasts.
    pub(super) async fn follow(
        &self,
        mut events: Option<EventStream>,
        place: Option<CallerPermit>,
    ) -> Result<()> {
        let mut patience = Patience {
            // What was left behind is looked at right away.
            pause: if self.cx.again {
                Duration::ZERO
            } else {
                FIRST_PAUSE.min(self.link.settings.poll_every)
            },
            paused: Duration::ZERO,
            contact: Instant::now(),
            subscriptions: 0,
            old_questions: if self.cx.again { OLD_QUESTIONS } else { 0 },
        };
        let mut place = place;
        loop {
            if let Some(events) = events.take() {
                let settled = self.read(events, &mut place).await?;
                drop(place.take());
                if settled {
                    return Ok(());
                }
                patience.pause = Duration::ZERO;
            }
            let memo = self.theirs().clone();
            let memo = memo.ok_or_else(|| {
                Error::new(ErrorKind::InvalidAgentResponse, "the agent broke off and gave the task no name")
            })?;
            // Boxed: most streams last until their task has settled.
            if Box::pin(self.look(&memo, &mut patience)).await? {
                return Ok(());
            }
            events = Box::pin(self.subscribe(&memo, &mut patience)).await;
        }
    }

    /// Tells what a stream brings; true if the task has settled with it.
    async fn read(&self, mut events: EventStream, place: &mut Option<CallerPermit>) -> Result<bool> {
        let (mut end, mut latest, mut news) = (None, None, News::default());
        loop {
            let next = match poll!(events.next()) {
                Poll::Ready(next) => next,
                Poll::Pending if !news.is_empty() => {
                    self.tell(&mut news).await?;
                    continue;
                }
                Poll::Pending if end.is_none() => events.next().await,
                Poll::Pending => {
                    let now = Instant::now();
                    let latest = *latest.get_or_insert(now + LONG_AFTER_THE_END);
                    timeout_at(latest.min(now + AFTER_THE_END), events.next()).await.ok().flatten()
                }
            };
            match next {
                Some(Ok(item)) => {
                    let settled = self.take(item.into_event(), &mut end, &mut news).await?;
                    if settled || news.events.len() >= AT_ONCE {
                        self.tell(&mut news).await?;
                    }
                    if settled {
                        return Ok(true);
                    }
                    if self.told_to_authorise.load(Ordering::Relaxed) {
                        // Nothing is done meanwhile, and it may be long: others may have the place.
                        drop(place.take());
                    }
                }
                Some(Err(error)) if end.is_none() => {
                    tracing::info!(task = %self.cx.task_id, %error, "a stream broke; looking at the task");
                    self.link.learn(&Err::<(), _>(error));
                    self.tell(&mut news).await?;
                    return Ok(false);
                }
                Some(Err(_)) | None => break,
            }
        }
        let ended = end.is_some();
        news.events.extend(end);
        self.tell(&mut news).await?;
        Ok(ended)
    }

    /// Tells callers what is new.
    async fn tell(&self, news: &mut News) -> Result<()> {
        let News { begins, mut events } = std::mem::take(news);
        if begins && events.is_empty() {
            return self.out.submitted().await;
        }
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(AT_ONCE));
            self.out.emit_all(std::mem::replace(&mut events, rest)).await?;
        }
        Ok(())
    }

    /// Takes one event in; true if the task has settled with it. The end of a task is put aside, to be told last.
    async fn take(&self, event: Event, end: &mut Option<Event>, news: &mut News) -> Result<bool> {
        match event {
            Event::Message(message) if self.theirs().is_none() => {
                self.tell(news).await?;
                Box::pin(self.reply(message)).await?;
                return Ok(true);
            }
            Event::Message(message) => {
                // Words in the middle of a task: they belong to its status.
                let message = Some(self.ours.message(message));
                let status = TaskStatus { state: TaskState::Working, message, timestamp: None };
                let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
                news.events.push(Event::StatusUpdate(update));
            }
            Event::Task(task) => {
                if self.is_ours(&task.id, &task.context_id).await? {
                    // What is new in it is seen beside all that was told.
                    self.tell(news).await?;
                    return Ok(self.snapshot(task, news)?.is_settled());
                }
            }
            Event::StatusUpdate(update) => {
                if self.is_ours(&update.task_id, &update.context_id).await? {
                    return Ok(self.take_status(update, end, news));
                }
            }
            Event::ArtifactUpdate(update) => {
                if self.is_ours(&update.task_id, &update.context_id).await? && self.has_content(&update, news)
                {
                    news.events.push(Event::ArtifactUpdate(update));
                }
            }
        }
        Ok(false)
    }

    fn take_status(&self, update: TaskStatusUpdateEvent, end: &mut Option<Event>, news: &mut News) -> bool {
        let state = update.status.state;
        let event = self.ours.status_update(update);
        if state.is_terminal() {
            end.get_or_insert(event);
            return false;
        }
        if end.is_some() {
            tracing::warn!(task = %self.cx.task_id, %state, "the agent told of a status after the end; ignored");
            return false;
        }
        news.events.push(event);
        self.note(state);
        state == TaskState::InputRequired
    }

    fn note(&self, state: TaskState) {
        if state == TaskState::AuthRequired {
            self.told_to_authorise.store(true, Ordering::Relaxed);
        }
    }

    /// A piece without parts says at most that its artifact is complete.
    fn has_content(&self, update: &TaskArtifactUpdateEvent, news: &News) -> bool {
        let is_it = |known: &Artifact| known.artifact_id == update.artifact.artifact_id;
        let told = |task: &Task| task.artifacts.iter().any(|known| is_it(known));
        let is_new =
            |event: &Event| matches!(event, Event::ArtifactUpdate(update) if is_it(&update.artifact));
        !update.artifact.parts.is_empty()
            || update.append
                && (news.events.iter().any(is_new) || self.out.look(|task| task.is_some_and(told)))
    }

    /// Takes in what is new in a snapshot of the task, when all that was new before is told.
    fn snapshot(&self, task: Task, news: &mut News) -> Result<Standing> {
        if task.artifacts.len().max(task.history.len()) > MOST {
            let why = format!("the agent's task has more than {MOST} artifacts, or messages");
            return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
        }
        let seen = self.ours.task(task);
        let (status, known) = (&seen.status, self.out.task());
        let is_old = |known: &Task| status.state.is_interrupted() && is_known(known, status);
        let asks_still = known.as_ref().is_some_and(is_old);
        // That is how our own task begins.
        news.begins = known.is_none() && status.state == TaskState::Submitted && status.message.is_none();
        let begun = news.begins.then(|| Task { status: status.clone(), ..Task::default() });
        news.events = difference(known.or(begun).as_ref(), &seen);
        let is_news = !news.events.is_empty();
        Ok(match seen.status.state {
            _ if asks_still => Standing::AsksStill,
            state if state.is_terminal() || state == TaskState::InputRequired => Standing::Settled,
            state => {
                self.note(state);
                Standing::Goes(is_news)
            }
        })
    }

    /// Tells what is new in a snapshot of the task.
    pub(super) async fn told(&self, task: Task) -> Result<Standing> {
        let mut news = News::default();
        let standing = self.snapshot(task, &mut news)?;
        self.tell(&mut news).await?;
        Ok(standing)
    }

    /// Looks at the task, after a pause, until the agent answers; true if the task has settled.
    async fn look(&self, memo: &Memo, patience: &mut Patience) -> Result<bool> {
        let settings = &self.link.settings;
        loop {
            tokio::time::sleep(patience.pause).await;
            patience.paused = patience.pause;
            patience.pause = next_pause(patience.pause, settings.poll_every);
            let error = match self.look_once(memo).await {
                Ok(task) => {
                    patience.contact = Instant::now();
                    return self.looked(memo.check(task)?, patience).await;
                }
                Err(error) => error,
            };
            // Quick polls are for an agent that answers.
            patience.pause = patience.pause.max(settings.poll_every);
            if error.kind() == ErrorKind::TaskNotFound {
                let why = "the agent does not know the task any more; it may have been restarted";
                return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
            }
            if lacks_operation(&error) {
                let waits = |task: &Task| task.status.state == TaskState::AuthRequired;
                if self.out.look(|task| task.is_some_and(waits)) {
                    // It stays so until the caller says something.
                    return Ok(true);
                }
                let why = "the agent answered before the task was done, and cannot be asked how it stands";
                return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
            }
            if patience.contact.elapsed() >= settings.give_up {
                let hours = settings.give_up.as_secs_f64() / 3600.0;
                let why =
                    format!("the agent could not be asked about the task for {hours:.1} hours; given up");
                return Err(Error::new(ErrorKind::Unavailable, why).with_source(error));
            }
        }
    }

    pub(super) async fn look_once(&self, memo: &Memo) -> Result<Task> {
        let req = GetTaskRequest { id: memo.task.clone(), ..GetTaskRequest::default() };
        let outcome = self.service().get_task(&self.call(Some(self.link.settings.timeout)), req).await;
        self.link.learn(&outcome);
        outcome
    }

    async fn looked(&self, task: Task, patience: &mut Patience) -> Result<bool> {
        let status = self.ours.status(task.status.clone());
        match self.told(task).await? {
            Standing::Settled => return Ok(true),
            Standing::Goes(true) => patience.pause = patience.pause.min(self.link.settings.poll_every),
            Standing::Goes(false) => {}
            Standing::AsksStill if self.told_to_authorise.load(Ordering::Relaxed) => {}
            Standing::AsksStill if patience.old_questions < OLD_QUESTIONS => {
                // Quick polls come before an agent has looked at the answer.
                let is_quick = patience.paused < self.link.settings.poll_every;
                patience.old_questions += u32::from(!is_quick);
            }
            Standing::AsksStill if self.cx.again && status.state != TaskState::AuthRequired => {
                // Not without a word: the caller has answered, and would take the question for a new one.
                let why = "the hub stopped before it was known whether the agent took the last message, and the agent \
                           asks as before; the message was not sent again";
                turn_away(self.cx, self.out, Error::new(ErrorKind::Unavailable, why)).await?;
                return Ok(true);
            }
            Standing::AsksStill => {
                let state = status.state;
                let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
                self.out.emit(Event::StatusUpdate(update)).await?;
                self.note(state);
                return Ok(state != TaskState::AuthRequired);
            }
        }
        Ok(false)
    }

    /// Subscribes to the task, if the agent streams and it is worth it.
    async fn subscribe(&self, memo: &Memo, patience: &mut Patience) -> Option<EventStream> {
        let by_stream = match self.link.settings.follow {
            Follow::Auto | Follow::Stream => self.link.streams(self.connected),
            Follow::Poll | Follow::Block => false,
        };
        if !by_stream || patience.subscriptions == SUBSCRIPTIONS {
            return None;
        }
        patience.subscriptions += 1;
        let (service, cx) = (self.service(), self.call(None));
        let req = SubscribeToTaskRequest { id: memo.task.clone(), tenant: None };
        match timeout(self.link.settings.timeout, service.subscribe_to_task(&cx, req)).await {
            Ok(Ok(events)) => Some(events),
            Ok(Err(error)) if lacks_operation(&error) => {
                // Also what an agent says of a task that has ended: the next look tells.
                patience.subscriptions = SUBSCRIPTIONS;
                None
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// The pause after this one: doubled up to `poll_every`, then half as long again up to [`LONGEST_PAUSE`].
fn next_pause(pause: Duration, poll_every: Duration) -> Duration {
    if pause.is_zero() {
        poll_every
    } else if pause < poll_every {
        Backoff::doubling(pause, poll_every).after(pause)
    } else {
        Backoff { base: poll_every, factor: 1.5, cap: LONGEST_PAUSE.max(poll_every) }.after(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_setting_and_grow_slowly_after_it() {
        for (first, poll_every, expected) in [
            (1, 1000, &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1500, 2250][..]),
            (1, 5, &[2, 4, 5, 7, 11]),
            (1, 1, &[1, 2, 3]),
            (20_000, 1000, &[30_000, 30_000]),
            (1000, 60_000, &[2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
            // A task that was left behind, or whose stream broke.
            (0, 1000, &[1000, 1500]),
        ] {
            let mut pause = Duration::from_millis(first);
            let poll_every = Duration::from_millis(poll_every);
            let pauses: Vec<_> = expected
                .iter()
                .map(|_| {
                    pause = next_pause(pause, poll_every);
                    pause.as_millis()
                })
                .collect();
            assert_eq!(pauses, expected, "{first} {poll_every:?}");
        }
    }
}
