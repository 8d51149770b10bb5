//! A call on its way to an agent, decoded or sealed, and its answer. Telemetry and limits are written once,
//! over the traits of this file.
//!
//! | call | answer |
//! |---|---|
//! | [`Call`]: decoded | [`Reply`], with a stream of events |
//! | [`SealedCall`]: the original bytes | [`SealedAnswer`], with the body of a response as its stream |

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    response::Response,
};
use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use nuncio_protocol::{
    CallContext, Error, ErrorKind, Event, EventStream, Message, Result, SendMessageResponse, StreamItem,
    Task,
    op::{Call, Op, Reply},
};
use nuncio_server::bind::SealedCall;

/// A call, decoded or sealed.
pub(crate) trait AgentCall {
    fn op(&self) -> Op;

    /// The task and the context that it names.
    fn subject(&self) -> Subject<'_>;
}

/// The answer to a call.
pub(crate) trait CallAnswer: Sized {
    /// The kind of the agent's error, if the answer is one. Errors of decoded calls are an `Err` instead.
    fn refusal(&self) -> Option<ErrorKind>;

    /// The task and the context that it names, as far as known without decoding it.
    fn subject(&self) -> Subject<'_>;

    /// True if it is a stream.
    fn is_stream(&self) -> bool;

    /// Attaches an observer to its stream. If it is not a stream, the observer is dropped.
    #[must_use]
    fn observed_by(self, observer: impl StreamObserver) -> Self;
}

/// Observes a stream, and is dropped with it.
pub(crate) trait StreamObserver: Send + Unpin + 'static {
    /// Called for each event; its subject is known if the stream is decoded.
    fn on_event(&mut self, _subject: Subject<'_>) {}

    /// Called if the stream ends with an error.
    fn on_error(&mut self, _error: &Error) {}
}

/// A backend that forwards sealed calls.
pub(crate) trait SealedBackend: Send + Sync + 'static {
    /// The target of a sealed call.
    type Route: Send + Sync;

    /// Finds the route of a call; `None` if it has to be decoded.
    ///
    /// # Errors
    /// There is no route at present.
    fn route(&self, call: &SealedCall<'_>) -> Result<Option<Self::Route>>;

    /// Forwards a call.
    ///
    /// # Errors
    /// The caller may not make this call, or the agent does not answer.
    fn forward(
        &self,
        route: &Self::Route,
        cx: &CallContext,
        call: SealedCall<'_>,
    ) -> impl Future<Output = Result<SealedAnswer>> + Send;
}

/// The answer to a sealed call.
pub(crate) struct SealedAnswer {
    pub(crate) response: Response,
    /// The kind of the agent's error, if it is known before the answer is forwarded.
    pub(crate) refusal: Option<ErrorKind>,
    /// The operation answers with a stream.
    pub(crate) is_streaming: bool,
}

/// The task and the context that a call or an answer names.
#[derive(Clone, Copy, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) task: Option<&'a str>,
    pub(crate) context: Option<&'a str>,
}

impl<'a> Subject<'a> {
    fn task(id: &'a str) -> Self {
        Self { task: Some(id), context: None }
    }

    fn of_task(task: &'a Task) -> Self {
        Self { task: Some(task.id.as_str()), context: Some(task.context_id.as_str()) }
    }

    fn of_message(message: &'a Message) -> Self {
        let (task, context) = (message.task_id.as_ref(), message.context_id.as_ref());
        Self { task: task.map(|id| id.as_str()), context: context.map(|id| id.as_str()) }
    }

    fn of_event(event: &'a Event) -> Self {
        let (task, context) = (event.task_id(), event.context_id());
        Self { task: task.map(|id| id.as_str()), context: context.map(|id| id.as_str()) }
    }
}

impl AgentCall for Call {
    fn op(&self) -> Op {
        Self::op(self)
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Self::SendMessage(req) | Self::SendStreamingMessage(req) => Subject::of_message(&req.message),
            Self::GetTask(req) => Subject::task(req.id.as_str()),
            Self::CancelTask(req) => Subject::task(req.id.as_str()),
            Self::SubscribeToTask(req) => Subject::task(req.id.as_str()),
            Self::ListTasks(req) => {
                Subject { task: None, context: req.context_id.as_ref().map(|id| id.as_str()) }
            }
            Self::CreateTaskPushNotificationConfig(req) => {
                Subject { task: req.task_id.as_ref().map(|id| id.as_str()), context: None }
            }
            Self::GetTaskPushNotificationConfig(req) => Subject::task(req.task_id.as_str()),
            Self::ListTaskPushNotificationConfigs(req) => Subject::task(req.task_id.as_str()),
            Self::DeleteTaskPushNotificationConfig(req) => Subject::task(req.task_id.as_str()),
            Self::GetExtendedAgentCard(_) => Subject::default(),
        }
    }
}

impl AgentCall for SealedCall<'_> {
    fn op(&self) -> Op {
        self.op
    }

    fn subject(&self) -> Subject<'_> {
        Subject { task: self.summary.task.as_deref(), context: self.summary.context.as_deref() }
    }
}

impl CallAnswer for Reply {
    fn refusal(&self) -> Option<ErrorKind> {
        None
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Self::Sent(SendMessageResponse::Task(task)) | Self::Task(task) => Subject::of_task(task),
            _ => Subject::default(),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    fn observed_by(self, observer: impl StreamObserver) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(Box::pin(ObservedStream { stream, observer })),
            other => other,
        }
    }
}

impl CallAnswer for SealedAnswer {
    fn refusal(&self) -> Option<ErrorKind> {
        self.refusal
    }

    fn subject(&self) -> Subject<'_> {
        Subject::default()
    }

    fn is_stream(&self) -> bool {
        self.is_streaming && self.refusal.is_none()
    }

    fn observed_by(mut self, observer: impl StreamObserver) -> Self {
        if self.is_stream() {
            self.response = self.response.map(|stream| Body::new(ObservedStream { stream, observer }));
        }
        self
    }
}

/// A stream with its observer.
struct ObservedStream<S, O> {
    stream: S,
    observer: O,
}

impl<O: StreamObserver> Stream for ObservedStream<EventStream, O> {
    type Item = Result<StreamItem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.stream.as_mut().poll_next(cx));
        match &item {
            Some(Ok(item)) => self.observer.on_event(Subject::of_event(item.event())),
            Some(Err(error)) => self.observer.on_error(error),
            None => {}
        }
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<O: StreamObserver> HttpBody for ObservedStream<Body, O> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.stream).poll_frame(cx));
        if matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.observer.on_event(Subject::default());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }
}
