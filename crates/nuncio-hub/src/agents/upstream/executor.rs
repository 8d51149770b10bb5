//! An upstream agent as an executor: the message goes out once, and whatever becomes of it is told as our task.
//!
//! | turn | what is done |
//! |---|---|
//! | a message | sent, by a stream if the agent streams, else so that it answers at once |
//! | taken up after a crash, the agent's task is known | followed, not sent |
//! | taken up after a crash, it is not | failed, unless a repeat does no harm |
//! | the agent waits for an authorisation | followed: it may come by another way; a message ends the turn |
//! | canceled before it was sent | not sent |
//! | canceled | the agent is asked to cancel, now or later (`withdraw`) |
//!
//! A cancel that comes too late, because the agent's task has ended meanwhile, shows that end, provided that all the
//! agent made had been told before; otherwise the task is canceled, as its caller wanted.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use futures_util::future::OptionFuture;
use nuncio_client::was_not_sent;
use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, ContextId, Error, ErrorKind, Event, Message, MessageId, Part,
    Result, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, retry::Backoff,
};
use nuncio_server::{CallerPermit, Emitter, ExecContext};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::{
    Shared,
    ask::Answer,
    claim::{self, Claim},
    hops,
    link::{Connected, Link},
    refusal::{Fate, fate, shown, words},
    translate::Ours,
    withdraw::{CANCEL, is_unheard},
};

/// How often a message is repeated that may be; the pauses begin as those between two looks at a task.
const REPEATS: u32 = 4;

/// How long a cancel waits to learn which task there is to cancel, of the time that there is for all.
const LEARN: Duration = Duration::from_secs(2);

/// About so many bytes are a memo.
const MEMO: usize = 256;

/// What is kept with our task: which of the agent's it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Memo {
    pub(super) task: TaskId,
    pub(super) context: ContextId,
    /// Where it was begun; for whoever looks into it.
    interface: String,
}

impl Memo {
    pub(super) fn read(memo: Option<&[u8]>) -> Option<Self> {
        memo.and_then(|memo| serde_json::from_slice(memo).ok())
    }

    /// The task, if it is the one that was asked for. Some leave out its id.
    pub(super) fn check(&self, task: Task) -> Result<Task> {
        if task.id.is_empty() || task.id == self.task {
            return Ok(task);
        }
        Err(Error::new(ErrorKind::InvalidAgentResponse, "the agent answered with another task"))
    }
}

/// One message, and what becomes of it.
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) link: &'a Link,
    pub(super) connected: &'a Connected,
    pub(super) cx: &'a ExecContext,
    pub(super) out: &'a Emitter,
    pub(super) ours: Ours,
    /// Through which hubs it has come.
    hops: Vec<String>,
    /// The agent's task of this turn, once it is known.
    theirs: Mutex<Option<Memo>>,
    /// The caller was told in this turn that the agent waits for an authorisation.
    pub(super) told_to_authorise: AtomicBool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        link: &'a Link,
        connected: &'a Connected,
        cx: &'a ExecContext,
        out: &'a Emitter,
        hops: Vec<String>,
    ) -> Self {
        let ours = Ours { task_id: cx.task_id.clone(), context_id: cx.context_id.clone() };
        let (theirs, told_to_authorise) = Default::default();
        Self { shared, link, connected, cx, out, ours, hops, theirs, told_to_authorise }
    }

    /// Does the turn, unless it is stopped.
    pub(super) async fn run(&self) -> Result<()> {
        if self.cx.cancellation.is_cancelled() && !self.cx.again && self.out.is_canceled() {
            return Box::pin(self.cancel(Instant::now() + CANCEL)).await;
        }
        let mut work = std::pin::pin!(self.work());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.cx.cancellation.cancelled() => {}
            () = self.is_left() => return Ok(()),
        }
        if !self.out.is_canceled() {
            // The server ends. The agent goes on, and so will we, if there is a store to take it up from.
            return Ok(());
        }
        let until = Instant::now() + CANCEL;
        if self.theirs().is_none() {
            // The message is on its way. What it begins can be canceled once it has a name.
            let _ = timeout(LEARN, work).await;
        }
        Box::pin(self.cancel(until)).await
    }

    /// Done when the task was authorised by a message, or not at all: the question stays asked, and the next turn goes
    /// on with it.
    async fn is_left(&self) {
        self.out.asked().await;
        // Boxed: few agents ask.
        Box::pin(async {
            tokio::select! {
                () = self.out.answered() => {}
                () = self.is_left_alone() => {}
            }
        })
        .await;
    }

    /// Done when nobody has authorised the task for as long as we are patient.
    async fn is_left_alone(&self) {
        let mut before = None;
        loop {
            tokio::time::sleep(self.link.settings.give_up).await;
            let now = self.out.look(|task| task.map(|task| task.status.clone()));
            let now = now.filter(|status| status.state == TaskState::AuthRequired);
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }

    async fn work(&self) -> Result<()> {
        let before = Memo::read(self.cx.memo.as_deref());
        if !self.cx.again {
            return self.send(before).await;
        }
        match before {
            Some(memo) => {
                self.claim_task(&memo.task)?;
                *self.theirs() = Some(memo);
                self.follow(None, None).await
            }
            None if self.may_repeat() => self.send(None).await,
            None => Err(claim::was_left()),
        }
    }

    fn may_repeat(&self) -> bool {
        self.link.settings.idempotent || self.connected.knows_repeats()
    }

    pub(super) fn theirs(&self) -> MutexGuard<'_, Option<Memo>> {
        self.theirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn service(&self) -> Arc<dyn A2aService> {
        let service = self.connected.client().service();
        self.shared.telemetry.leaving(&self.shared.name, self.cx.call.trace.as_ref(), service)
    }

    /// The context of a call upstream, with this long to answer.
    pub(super) fn call(&self, patience: Option<Duration>) -> CallContext {
        let declared = |uri: &&String| self.connected.client().card().extension(uri).is_some();
        let call = &self.cx.call;
        CallContext {
            extensions: call.extensions.iter().filter(declared).cloned().collect(),
            trace: Some(self.shared.hop.trace(call.trace.as_ref(), &self.hops)),
            hops: self.hops.clone(),
            headers: call.received.clone(),
            deadline: patience.map(|patience| (Instant::now() + patience).into_std()),
            ..self.connected.client().context()
        }
    }

    /// Sends the message and follows what becomes of it.
    async fn send(&self, before: Option<Memo>) -> Result<()> {
        let place = match self.link.admit(&self.cx.call.caller).await {
            Ok(place) => place,
            Err(error) => return Box::pin(turn_away(self.cx, self.out, error)).await,
        };
        let claim = match self.claim().await {
            Ok(None) => return self.send_under(place, before).await,
            Ok(Some(claim)) => claim,
            // Nothing was sent now, and it is not settled what becomes of it: no task begins that says so.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return Box::pin(turn_away(self.cx, self.out, error)).await;
            }
            Err(error) => return Err(error),
        };
        let done = self.send_under(place, before).await;
        // Of an error nobody knows in what state the agent is; that it was asked is to be known for as long.
        if done.is_ok() && self.out.flush().await.is_ok() {
            claim.give_back().await;
        }
        done
    }

    /// Makes sure that the message goes out once where nothing else would: it has a name by which the caller may
    /// repeat it, the agent would not know the repeat, and we have no task yet that would tell.
    async fn claim(&self) -> Result<Option<Claim<'_>>> {
        let begins = || self.out.look(|task| task.is_none());
        let name = self.cx.name.as_ref().filter(|_| begins() && !self.may_repeat());
        let at_most = self.link.settings.send_timeout.saturating_mul(2);
        let claim = name.map(|name| Claim::take(&*self.shared.store, &self.shared.name, name, at_most));
        OptionFuture::from(claim).await.transpose()
    }

    async fn send_under(&self, place: Option<CallerPermit>, before: Option<Memo>) -> Result<()> {
        let theirs = self.theirs_of(before.as_ref()).await;
        let (mut repeats, mut may_have_it) = (0, false);
        let error = loop {
            let answer = self.ask(&theirs).await;
            self.link.learn(&answer);
            let error = match answer {
                // Boxed, as all that is not done for most messages: agents that stream have no such answers.
                Ok(Answer::Reply(message)) => return Box::pin(self.reply(message)).await,
                Ok(Answer::Task(task)) => {
                    drop(place);
                    return Box::pin(self.answered(task)).await;
                }
                // Boxed as well: there is no need for its room while the agent has not said a word.
                Ok(Answer::Events(_, events)) => return Box::pin(self.follow(Some(events), place)).await,
                Err(error) => error,
            };
            tracing::info!(task = %self.cx.task_id, %error, "the agent did not take a message");
            // That nobody was reached this time says nothing of the time before.
            may_have_it &= was_not_sent(&error);
            may_have_it |= fate(&error) == Fate::Unknown;
            if !may_have_it || !self.may_repeat() || repeats == REPEATS {
                break error;
            }
            let pauses = Backoff::doubling(self.link.settings.poll_every, Duration::MAX);
            tokio::time::sleep(pauses.pause(repeats)).await;
            repeats += 1;
        };
        let told = shown(&error, self.as_caller());
        if !may_have_it {
            return Box::pin(turn_away(self.cx, self.out, told)).await;
        }
        let why =
            format!("{}; whether it took the message is not known, and it is not sent again", words(&told));
        Err(Error::new(told.kind(), why).with_source(error))
    }

    /// True if the agent sees the caller's credentials, and not only the hub's.
    fn as_caller(&self) -> bool {
        self.cx.call.received.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// A reply without a task.
    pub(super) async fn reply(&self, message: Arc<Message>) -> Result<()> {
        let theirs = message.context_id.clone().unwrap_or_default();
        self.rename(&theirs).await;
        let mut message = Arc::unwrap_or_clone(message);
        message.reference_task_ids.clear();
        self.out.emit(Event::Message(Arc::new(message))).await
    }

    async fn answered(&self, task: Task) -> Result<()> {
        if !self.is_ours(&task.id, &task.context_id).await? || !self.told(task).await?.is_settled() {
            return self.follow(None, None).await;
        }
        Ok(())
    }

    /// Learns from an event which task of the agent's this is; false if it is about another one.
    pub(super) async fn is_ours(&self, task: &TaskId, context: &ContextId) -> Result<bool> {
        if let Some(memo) = &*self.theirs() {
            let ours = task.is_empty() || memo.task == *task;
            if !ours {
                tracing::warn!(task = %self.cx.task_id, theirs = %task, "the agent told of another task; ignored");
            }
            return Ok(ours);
        }
        if task.is_empty() {
            return Ok(true);
        }
        self.claim_task(task)?;
        let interface = self.connected.client().candidates().first();
        let interface = interface.map(|candidate| candidate.interface.url.clone()).unwrap_or_default();
        let memo = Memo { task: task.clone(), context: context.clone(), interface };
        if self.cx.memo.is_none() || Memo::read(self.cx.memo.as_deref()).as_ref() != Some(&memo) {
            let mut text = Vec::with_capacity(MEMO);
            serde_json::to_writer(&mut text, &memo).map_err(Error::internal)?;
            self.out.remember(text)?;
        }
        *self.theirs() = Some(memo);
        self.rename(context).await;
        Ok(true)
    }

    /// Takes a task of the agent's for the caller. What becomes of one that is another caller's is not told.
    fn claim_task(&self, task: &TaskId) -> Result<()> {
        if self.shared.task_owners.claim(task, &self.cx.call.caller) {
            return Ok(());
        }
        let agent = &*self.shared.name;
        tracing::error!(agent, task = %self.cx.task_id, theirs = %task, "the agent gives one task to several callers");
        let why = "the agent answered with a task that is not the caller's";
        Err(Error::new(ErrorKind::InvalidAgentResponse, why))
    }

    /// Notes what the agent calls the conversation, if not as we do.
    async fn rename(&self, theirs: &ContextId) {
        let (caller, ours) = (&self.cx.call.caller, &self.cx.context_id);
        let contexts = &self.shared.contexts;
        if theirs.is_empty() || contexts.is_taken(caller, ours, theirs) {
            return;
        }
        // Boxed: most agents take our names.
        Box::pin(async {
            if contexts.theirs(caller, ours).await != *theirs {
                contexts.keep(caller, ours, theirs).await;
            }
        })
        .await;
    }

    /// Asks the agent to cancel, by then. While a task is being stopped only its end can be told.
    async fn cancel(&self, until: Instant) -> Result<()> {
        // The answer to a question is to the task that asked.
        let known = || Memo::read(self.cx.memo.as_deref());
        let Some(memo) = self.theirs().clone().or_else(known) else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        let late = |_| Error::from(ErrorKind::DeadlineExceeded);
        match timeout(left, self.canceled(&memo, left)).await.map_err(late).flatten() {
            Ok(task) => self.end(task).await,
            Err(error) => {
                tracing::info!(task = %self.cx.task_id, %error, "the agent did not cancel");
                if is_unheard(&error) {
                    self.shared.withdrawals.note(&memo.task).await;
                }
                Ok(())
            }
        }
    }

    /// The agent's task after it was asked to cancel it.
    async fn canceled(&self, memo: &Memo, patience: Duration) -> Result<Task> {
        let req = CancelTaskRequest { id: memo.task.clone(), ..CancelTaskRequest::default() };
        let outcome = self.service().cancel_task(&self.call(Some(patience)), req).await;
        let outcome = outcome.and_then(|task| memo.check(task));
        self.link.learn(&outcome);
        match outcome {
            Err(error) if error.kind() == ErrorKind::TaskNotCancelable => {
                self.look_once(memo).await.and_then(|task| memo.check(task))
            }
            outcome => outcome,
        }
    }

    async fn end(&self, task: Task) -> Result<()> {
        if !task.status.state.is_terminal() {
            return Ok(());
        }
        let mut events = super::difference::difference(self.out.task().as_ref(), &self.ours.task(task));
        match (events.pop(), events.is_empty()) {
            (Some(end @ Event::StatusUpdate(_)), true) => self.out.emit(end).await,
            _ => Ok(()),
        }
    }
}

/// The message was not taken. Without a task the caller gets the error; a task that waits for an answer still does; any
/// other has failed.
pub(super) async fn turn_away(cx: &ExecContext, out: &Emitter, error: Error) -> Result<()> {
    let asked = cx.task.as_ref().map(|task| &task.status);
    let Some(asked) = asked.filter(|status| status.state.is_interrupted()) else { return out.refuse(error) };
    let question = asked.message.iter().flat_map(|message| message.parts.iter().cloned());
    let parts: Vec<_> = [Part::text(error.message())].into_iter().chain(question).collect();
    let id: MessageId = hops::random::<16>().into();
    let ours = Ours { task_id: cx.task_id.clone(), context_id: cx.context_id.clone() };
    let message = Some(ours.message(Arc::new(Message::agent(id, parts))));
    let status = TaskStatus { state: asked.state, message, timestamp: None };
    let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
    out.emit(Event::StatusUpdate(update)).await
}
