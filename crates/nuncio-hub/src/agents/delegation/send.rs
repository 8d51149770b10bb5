//! Sends the message and waits for the first answer: over a stream if the agent streams, else as a call.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use aws_lc_rs::digest;
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use nuncio_protocol::{
    CallContext, Error, ErrorKind, EventStream, Message, Result, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskId, TaskState,
    op::{Call, Reply},
};
use nuncio_server::Emitter;
use tokio::{runtime::Handle, time::timeout};
use tracing::Instrument as _;

use super::{Delegate, Delegation, RemoteIds, lacks_operation};
use crate::{agents::hex::hex, config::Follow};

/// Timeout of an answer that is still outstanding when our task is canceled.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The answer to a message.
pub(in crate::agents) enum SendOutcome {
    Reply(Arc<Message>),
    Task(Task),
    /// A stream of events, and the task that its first event names.
    Events(Option<TaskId>, EventStream),
}

impl SendOutcome {
    /// The agent's task, if it has named one.
    fn task(self) -> Option<TaskId> {
        match self {
            Self::Reply(_) => None,
            Self::Task(task) => Some(task.id),
            Self::Events(task, _) => task,
        }
    }
}

/// Cancels the task of an answer that arrived after our task was canceled.
pub(in crate::agents) type LateAnswer = Box<dyn FnOnce(TaskId) -> BoxFuture<'static, ()> + Send>;

impl<D: Delegate> Delegation<'_, D> {
    /// The request in the agent's ids. Blocking, history length and webhooks are not forwarded: the hub
    /// handles them.
    fn request(&self, ids: &RemoteIds) -> SendMessageRequest {
        SendMessageRequest {
            tenant: None,
            message: ids.message(Message::clone(&self.cx.message)),
            configuration: Some(SendMessageConfiguration {
                accepted_output_modes: self.cx.configuration.accepted_output_modes.clone(),
                ..SendMessageConfiguration::default()
            }),
            metadata: self.cx.metadata.clone(),
        }
    }

    /// Sends the message. It is sent again in another version if the agent refuses the version that its
    /// card lists first; that error proves that nothing was done.
    pub(in crate::agents) async fn send(&self, ids: &RemoteIds) -> Result<SendOutcome> {
        let answer = match self.send_once(ids).await {
            Err(error) if error.kind() == ErrorKind::VersionNotSupported && self.to.switch_version() => {
                tracing::warn!(task = %self.cx.task_id, %error, "the agent refuses the version that its card lists; trying another one");
                Box::pin(self.send_once(ids)).await
            }
            answer => answer,
        };
        self.to.record_outcome(answer.as_ref().err());
        answer
    }

    /// Sends in the way that the settings and the card select; falls back to a call if the agent refuses to
    /// stream.
    async fn send_once(&self, ids: &RemoteIds) -> Result<SendOutcome> {
        match self.pace.follow {
            Follow::Stream => self.open_stream(ids).await,
            Follow::Auto if self.to.streams() => match self.open_stream(ids).await {
                Err(error) if lacks_operation(&error) => {
                    self.to.note_no_streams();
                    Box::pin(self.exchange(ids, true)).await
                }
                answer => answer,
            },
            Follow::Auto | Follow::Poll => Box::pin(self.exchange(ids, true)).await,
            Follow::Block => Box::pin(self.exchange(ids, false)).await,
        }
    }

    async fn exchange(&self, ids: &RemoteIds, immediately: bool) -> Result<SendOutcome> {
        let mut req = self.request(ids);
        req.configuration.get_or_insert_default().return_immediately = immediately;
        let cx =
            CallContext { idempotency_key: Some(self.key()), ..self.context(Some(self.pace.send_timeout)) };
        let service = self.to.service();
        let exchange = async move {
            Ok(match service.send_message(&cx, req).await? {
                SendMessageResponse::Task(task) => SendOutcome::Task(task),
                SendMessageResponse::Message(message) => SendOutcome::Reply(message),
            })
        };
        // Not cancel-aware: an agent that answers only when it is done may take a closed connection for a
        // cancel, and there is no task id to cancel otherwise.
        if immediately { self.cancel_aware(exchange).await } else { exchange.await }
    }

    /// Opens a stream and waits for its first event, which shows that the agent accepts the message.
    async fn open_stream(&self, ids: &RemoteIds) -> Result<SendOutcome> {
        let cx = CallContext { idempotency_key: Some(self.key()), ..self.context(None) };
        let service = self.to.service();
        let call = Call::SendStreamingMessage(Box::new(self.request(ids)));
        let send_timeout = self.pace.send_timeout;
        self.cancel_aware(async move {
            let opening = async {
                let Reply::Stream(mut events) = service.call(&cx, call).await? else {
                    return Err(Error::internal("the service answered a streaming call without a stream"));
                };
                let first = events.next().await.transpose()?;
                Ok::<_, Error>((first, events))
            };
            let late = || Error::new(ErrorKind::DeadlineExceeded, "the agent took too long to answer");
            let (first, events) = timeout(send_timeout, opening).await.map_err(|_| late())??;
            let Some(first) = first else {
                return Err(Error::new(ErrorKind::Unavailable, "the agent sent a stream without events"));
            };
            Ok(SendOutcome::Events(
                first.event().task_id().cloned(),
                Box::pin(stream::iter([Ok(first)]).chain(events)),
            ))
        })
        .await
    }

    /// Waits for an answer. If our task is canceled meanwhile, the wait continues after the turn has ended,
    /// because the answer names the remote task to cancel.
    fn cancel_aware(
        &self,
        answer: impl Future<Output = Result<SendOutcome>> + Send + 'static,
    ) -> CancelAwareCall {
        CancelAwareCall { answer: Some(Box::pin(answer)), late: self.to.late_answer(), out: self.out.clone() }
    }

    /// The idempotency key of the message: the same for each repeat of the same turn of a task. (Callers
    /// reuse message ids.)
    fn key(&self) -> String {
        if let Some(name) = &self.cx.repeat_id {
            return (**name).to_owned();
        }
        let spoken = |task: &Task| task.history.iter().filter(|message| message.role == Role::User).count();
        // The history of a resumed task already has this message.
        let before = self.cx.task.as_ref().map_or(0, spoken);
        let turn = before.saturating_sub(usize::from(self.cx.resumed));
        let text =
            [self.cx.task_id.as_str(), self.cx.message.message_id.as_str(), &turn.to_string()].join("\0");
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        hex(&digest.as_ref()[..16])
    }
}

/// See [`Delegation::cancel_aware`].
struct CancelAwareCall {
    /// `None` once the answer is complete.
    answer: Option<BoxFuture<'static, Result<SendOutcome>>>,
    late: Option<LateAnswer>,
    out: Emitter,
}

impl Future for CancelAwareCall {
    type Output = Result<SendOutcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<SendOutcome>> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl Drop for CancelAwareCall {
    fn drop(&mut self) {
        let ended = |task: &Task| task.status.state == TaskState::Canceled;
        let Some((answer, late)) = self.answer.take().zip(self.late.take()) else { return };
        if !self.out.is_canceled() && !self.out.with_task(|task| task.is_some_and(ended)) {
            return;
        }
        let cancel = async move {
            if let Ok(Ok(answer)) = timeout(LATE_ANSWER_TIMEOUT, answer).await
                && let Some(task) = answer.task()
            {
                late(task).await;
            }
        };
        // Without a tokio runtime, nothing can be sent any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(cancel.in_current_span());
        }
    }
}
