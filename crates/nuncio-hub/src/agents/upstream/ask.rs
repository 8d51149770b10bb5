//! What is said to the agent, and its first word: by a stream if it streams, else by a call.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use aws_lc_rs::digest;
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use nuncio_protocol::{
    CallContext, Caller, Error, ErrorKind, EventStream, Message, Result, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskId, TaskState,
    op::{Call, Reply},
};
use nuncio_server::{Emitter, store::Scope};
use tokio::{runtime::Handle, time::timeout};
use tracing::Instrument as _;

use super::{
    Shared,
    executor::{Memo, Turn},
    hops,
    refusal::lacks_operation,
    translate::Theirs,
};
use crate::config::Follow;

/// How long an answer is waited for when its task is canceled here.
const LATE: Duration = Duration::from_secs(60);

/// What comes back for a message.
pub(super) enum Answer {
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

impl Turn<'_> {
    /// What the message is about, in the agent's terms.
    pub(super) async fn theirs_of(&self, before: Option<&Memo>) -> Theirs {
        let (shared, caller) = (self.shared, &self.cx.call.caller);
        let context = match before {
            Some(memo) => Some(memo.context.clone()).filter(|context| !context.is_empty()),
            None => Some(shared.contexts.theirs(caller, &self.cx.context_id).await),
        };
        Theirs {
            task_id: before.map(|memo| memo.task.clone()).filter(|task| !task.is_empty()),
            context_id: context,
            references: self.references().await,
        }
    }

    /// The message in the agent's terms. It is told as much about how as makes sense there: waiting, history and
    /// webhooks are ours.
    fn request(&self, theirs: &Theirs) -> SendMessageRequest {
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
    pub(super) async fn ask(&self, theirs: &Theirs) -> Result<Answer> {
        match self.ask_once(theirs).await {
            Err(error) if error.kind() == ErrorKind::VersionNotSupported && self.connected.switch() => {
                tracing::warn!(task = %self.cx.task_id, %error, "the agent does not speak what its card promises");
                Box::pin(self.ask_once(theirs)).await
            }
            answer => answer,
        }
    }

    /// As the settings and its card say; an agent that refuses to stream is asked otherwise.
    async fn ask_once(&self, theirs: &Theirs) -> Result<Answer> {
        match self.link.settings.follow {
            Follow::Stream => self.open(theirs).await,
            Follow::Auto if self.link.streams(self.connected) => match self.open(theirs).await {
                Err(error) if lacks_operation(&error) => {
                    self.link.note_no_streams();
                    Box::pin(self.exchange(theirs, true)).await
                }
                answer => answer,
            },
            Follow::Auto | Follow::Poll => Box::pin(self.exchange(theirs, true)).await,
            Follow::Block => Box::pin(self.exchange(theirs, false)).await,
        }
    }

    async fn exchange(&self, theirs: &Theirs, immediately: bool) -> Result<Answer> {
        let mut req = self.request(theirs);
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
    async fn open(&self, theirs: &Theirs) -> Result<Answer> {
        let cx = CallContext { idempotency_key: Some(self.key()), ..self.call(None) };
        let service = self.service();
        let call = Call::SendStreamingMessage(Box::new(self.request(theirs)));
        let patience = self.link.settings.send_timeout;
        self.hear(async move {
            let opening = async {
                let Reply::Stream(mut events) = service.call(&cx, call).await? else {
                    return Err(Error::internal("a stream that is none"));
                };
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
        let (shared, caller) = (Arc::clone(self.shared), self.cx.call.caller.clone());
        Hearing { answer: Some(Box::pin(answer)), shared, caller, out: self.out.clone() }
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
        let text =
            [self.cx.task_id.as_str(), self.cx.message.message_id.as_str(), &turn.to_string()].join("\0");
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        hops::hex(&digest.as_ref()[..16])
    }
}

/// See [`Turn::hear`].
struct Hearing {
    /// `None` once it is there.
    answer: Option<BoxFuture<'static, Result<Answer>>>,
    shared: Arc<Shared>,
    caller: Caller,
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
        let ended = |task: &Task| task.status.state == TaskState::Canceled;
        let Some(answer) = self.answer.take() else { return };
        if !self.out.is_canceled() && !self.out.look(|task| task.is_some_and(ended)) {
            return;
        }
        let (shared, caller) = (Arc::clone(&self.shared), self.caller.clone());
        let late = async move {
            if let Ok(Ok(answer)) = timeout(LATE, answer).await
                && let Some(theirs) = answer.task()
                && !shared.task_owners.is_foreign(&theirs, &caller).await
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
