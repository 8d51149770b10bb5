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
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    task::{Context, Poll, ready},
    time::Duration,
};

use aws_lc_rs::digest;
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, OptionFuture},
    stream,
};
use nuncio_client::was_not_sent;
use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, ContextId, Error, ErrorKind, Event, EventStream, Message,
    MessageId, Part, Result, Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task,
    TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use nuncio_server::{Emitter, ExecContext, store::Scope};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::SemaphorePermit,
    time::{Instant, timeout},
};
use tracing::Instrument as _;

use super::{
    Shared,
    claim::{self, Claim},
    hops,
    link::{Connected, Link},
    refusal::{Fate, fate, lacks_operation, shown, words},
    translate::{Ours, Theirs},
    withdraw::{CANCEL, is_unheard},
};
use crate::config::Follow;

/// How often a message is repeated that may be; the pauses begin as those between two looks at a task.
const REPEATS: u32 = 4;

/// How long a cancel waits to learn which task there is to cancel, of the time that there is for all.
const LEARN: Duration = Duration::from_secs(2);

/// How long an answer is waited for when its task is canceled here.
const LATE: Duration = Duration::from_secs(60);

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

/// What comes back for a message.
enum Answer {
    Reply(Arc<Message>),
    Task(Task),
    /// Of this task, if the first of them says so.
    Events(Option<TaskId>, EventStream),
}

impl Answer {
    /// The agent's task, if it has named one.
    fn task(self) -> Option<TaskId> {
        match self {
            Self::Reply(_) => None,
            Self::Task(task) => Some(task.id),
            Self::Events(task, _) => task,
        }
    }
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
            return self.cancel(Instant::now() + CANCEL).await;
        }
        let mut work = std::pin::pin!(self.work());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.cx.cancellation.cancelled() => {}
            // Authorised by a message, or not at all: the question stays asked, and the next turn goes on with it.
            () = self.out.answered() => return Ok(()),
            () = self.is_left_alone() => return Ok(()),
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
        self.cancel(until).await
    }

    /// Done when nobody has authorised the task for as long as we are patient.
    async fn is_left_alone(&self) {
        let mut before = None;
        loop {
            tokio::time::sleep(self.link.settings.give_up).await;
            let now = self.out.task().map(|task| task.status);
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
        let place = match self.link.admit().await {
            Ok(place) => place,
            Err(error) => return turn_away(self.cx, self.out, error).await,
        };
        let claim = match self.claim().await {
            Ok(None) => return self.send_under(place, before).await,
            Ok(Some(claim)) => claim,
            // Nothing was sent now, and it is not settled what becomes of it: no task begins that says so.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return turn_away(self.cx, self.out, error).await;
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
        let name = self.cx.name.as_ref().filter(|_| self.out.task().is_none() && !self.may_repeat());
        let at_most = self.link.settings.send_timeout.saturating_mul(2);
        let claim = name.map(|name| Claim::take(&*self.shared.store, &self.shared.name, name, at_most));
        OptionFuture::from(claim).await.transpose()
    }

    async fn send_under(&self, place: Option<SemaphorePermit<'_>>, before: Option<Memo>) -> Result<()> {
        let req = self.request(before.as_ref()).await;
        let (mut repeats, mut may_have_it) = (0, false);
        let error = loop {
            let answer = self.ask(&req).await;
            self.link.learn(&answer);
            let error = match answer {
                Ok(Answer::Reply(message)) => return self.reply(message).await,
                Ok(Answer::Task(task)) => {
                    drop(place);
                    return self.answered(task).await;
                }
                Ok(Answer::Events(_, events)) => return self.follow(Some(events), place).await,
                Err(error) => error,
            };
            tracing::info!(task = %self.cx.task_id, %error, "the agent did not take a message");
            // That nobody was reached this time says nothing of the time before.
            may_have_it &= was_not_sent(&error);
            may_have_it |= fate(&error) == Fate::Unknown;
            if !may_have_it || !self.may_repeat() || repeats == REPEATS {
                break error;
            }
            tokio::time::sleep(self.link.settings.poll_every * 2_u32.pow(repeats)).await;
            repeats += 1;
        };
        let told = shown(&error, self.as_caller());
        if !may_have_it {
            return turn_away(self.cx, self.out, told).await;
        }
        let why =
            format!("{}; whether it took the message is not known, and it is not sent again", words(&told));
        Err(Error::new(told.kind(), why).with_source(error))
    }

    /// True if the agent sees the caller's credentials, and not only the hub's.
    fn as_caller(&self) -> bool {
        self.cx.call.received.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// The message in the agent's terms. It is told as much about how as makes sense there: waiting, history and
    /// webhooks are ours.
    async fn request(&self, before: Option<&Memo>) -> SendMessageRequest {
        let (shared, call) = (self.shared, &self.cx.call);
        let context = match before {
            Some(memo) => Some(memo.context.clone()).filter(|context| !context.is_empty()),
            None => Some(shared.contexts.theirs(call, &self.cx.context_id).await),
        };
        let theirs = Theirs {
            task_id: before.map(|memo| memo.task.clone()).filter(|task| !task.is_empty()),
            context_id: context,
            references: self.references().await,
        };
        SendMessageRequest {
            tenant: None,
            message: theirs.message(Message::clone(&self.cx.message)),
            configuration: Some(SendMessageConfiguration {
                accepted_output_modes: self.cx.configuration.accepted_output_modes.clone(),
                ..SendMessageConfiguration::default()
            }),
            metadata: self.cx.metadata.clone(),
        }
    }

    /// The agent's names of the tasks that the message refers to.
    async fn references(&self) -> HashMap<TaskId, TaskId> {
        let caller = &self.cx.call.caller;
        let tenant = caller.tenant().cloned().or_else(|| self.cx.call.tenant.as_deref().map(Into::into));
        let scope =
            Scope { agent: Arc::clone(&self.shared.name), tenant, owner: caller.principal().cloned() };
        let mut names = HashMap::new();
        for task in &self.cx.references {
            match self.shared.store.task(&scope, &task.id).await {
                Ok(stored) => {
                    let memo = stored.and_then(|stored| Memo::read(stored.memo.as_deref()));
                    names.extend(memo.map(|memo| (task.id.clone(), memo.task)));
                }
                Err(error) => tracing::warn!(task = %task.id, %error, "a referred task cannot be read"),
            }
        }
        names
    }

    /// Says it to the agent, and once more where the answer proves that nothing was done: in another version, if it
    /// does not speak what its card promises first.
    async fn ask(&self, req: &SendMessageRequest) -> Result<Answer> {
        match self.ask_once(req).await {
            Err(error) if error.kind() == ErrorKind::VersionNotSupported && self.connected.switch() => {
                tracing::warn!(task = %self.cx.task_id, %error, "the agent does not speak what its card promises");
                self.ask_once(req).await
            }
            answer => answer,
        }
    }

    /// As the settings and its card say; an agent that refuses to stream is asked otherwise.
    async fn ask_once(&self, req: &SendMessageRequest) -> Result<Answer> {
        match self.link.settings.follow {
            Follow::Stream => self.open(req).await,
            Follow::Auto if self.link.streams(self.connected) => match self.open(req).await {
                Err(error) if lacks_operation(&error) => {
                    self.link.note_no_streams();
                    self.exchange(req, true).await
                }
                answer => answer,
            },
            Follow::Auto | Follow::Poll => self.exchange(req, true).await,
            Follow::Block => self.exchange(req, false).await,
        }
    }

    async fn exchange(&self, req: &SendMessageRequest, immediately: bool) -> Result<Answer> {
        let mut req = req.clone();
        req.configuration.get_or_insert_default().return_immediately = immediately;
        let cx = CallContext {
            idempotency_key: Some(self.key()),
            ..self.call(Some(self.link.settings.send_timeout))
        };
        let service = self.service();
        let exchange = async move {
            Ok(match service.send_message(&cx, req).await? {
                SendMessageResponse::Task(task) => Answer::Task(task),
                SendMessageResponse::Message(message) => Answer::Reply(message),
            })
        };
        // An agent that answers when it is done may take a broken call for a cancel, and has no other.
        if immediately { self.hear(exchange).await } else { exchange.await }
    }

    /// Opens a stream and waits for its first event, by which the agent says whether it takes the message.
    async fn open(&self, req: &SendMessageRequest) -> Result<Answer> {
        let cx = CallContext { idempotency_key: Some(self.key()), ..self.call(None) };
        let (service, req, patience) = (self.service(), req.clone(), self.link.settings.send_timeout);
        self.hear(async move {
            let opening = async {
                let mut events = service.send_streaming_message(&cx, req).await?;
                let first = events.next().await.transpose()?;
                Ok::<_, Error>((first, events))
            };
            let late = || Error::new(ErrorKind::DeadlineExceeded, "the agent took too long to answer");
            let (first, events) = timeout(patience, opening).await.map_err(|_| late())??;
            let Some(first) = first else {
                return Err(Error::new(ErrorKind::Unavailable, "the agent ended the stream without a word"));
            };
            Ok(Answer::Events(
                first.event().task_id().cloned(),
                Box::pin(stream::iter([Ok(first)]).chain(events)),
            ))
        })
        .await
    }

    /// An answer that is waited for. If the task is canceled meanwhile it still is when the turn is over: it tells what
    /// there is to cancel.
    fn hear(&self, answer: impl Future<Output = Result<Answer>> + Send + 'static) -> Hearing {
        Hearing { answer: Some(Box::pin(answer)), shared: Arc::clone(self.shared), out: self.out.clone() }
    }

    /// By this the agent may recognise a repeat: the same turn of the same task has the same one. (Callers use ids of
    /// messages more than once.)
    fn key(&self) -> String {
        if let Some(name) = &self.cx.name {
            return (**name).to_owned();
        }
        let spoken = |task: &Task| task.history.iter().filter(|message| message.role == Role::User).count();
        // What is taken up again is in history already.
        let before = self.cx.task.as_ref().map_or(0, spoken);
        let turn = before.saturating_sub(usize::from(self.cx.again));
        let text = format!("{}\0{}\0{turn}", self.cx.task_id, self.cx.message.message_id);
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        hops::hex(&digest.as_ref()[..16])
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
        if !self.is_ours(&task.id, &task.context_id).await? || !self.snapshot(task).await?.is_settled() {
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
        let interface = self.connected.client().candidates().first();
        let interface = interface.map(|candidate| candidate.interface.url.clone()).unwrap_or_default();
        let memo = Memo { task: task.clone(), context: context.clone(), interface };
        if self.cx.memo.is_none() || Memo::read(self.cx.memo.as_deref()).as_ref() != Some(&memo) {
            self.out.remember(serde_json::to_vec(&memo).map_err(Error::internal)?)?;
        }
        *self.theirs() = Some(memo);
        self.rename(context).await;
        Ok(true)
    }

    /// Notes what the agent calls the conversation, if not as we do.
    async fn rename(&self, theirs: &ContextId) {
        let (call, ours) = (&self.cx.call, &self.cx.context_id);
        let contexts = &self.shared.contexts;
        if !theirs.is_empty() && contexts.theirs(call, ours).await != *theirs {
            contexts.keep(call, ours, theirs).await;
        }
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

/// See [`Turn::hear`].
struct Hearing {
    /// `None` once it is there.
    answer: Option<BoxFuture<'static, Result<Answer>>>,
    shared: Arc<Shared>,
    out: Emitter,
}

impl Future for Hearing {
    type Output = Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let ended = |task: Task| task.status.state == TaskState::Canceled;
        let Some(answer) = self.answer.take() else { return };
        if !self.out.is_canceled() && !self.out.task().is_some_and(ended) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let late = async move {
            if let Ok(Ok(answer)) = timeout(LATE, answer).await
                && let Some(theirs) = answer.task()
            {
                shared.withdraw(&theirs).await;
            }
        };
        // Without a runtime there is nobody to ask any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(late.in_current_span());
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
