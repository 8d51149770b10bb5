//! Stands around the service of an agent: counts its calls, traces them, and names them for the log.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use futures_util::Stream;
use nuncio_protocol::{
    A2aService, CallContext, Carrier, ContextId, Error, ErrorKind, EventStream, Fault, Result,
    SendMessageResponse, StreamItem, TaskId,
    op::{Call, Op, Reply},
};
use prometheus_client::metrics::{gauge::Gauge, histogram::Histogram};
use tracing::Span;

use super::{
    metrics::{Agent, Outcome},
    traces::{CallSpan, Traces},
};

/// What is told about the calls of an agent, whichever way they take.
pub(crate) struct Calls {
    pub(super) metrics: Agent,
    pub(super) traces: Option<Traces>,
}

/// A service that is watched.
pub(super) struct Watched {
    calls: Arc<Calls>,
    service: Arc<dyn A2aService>,
}

impl Calls {
    /// The span of a call, if spans are sent.
    pub(super) fn span(&self, op: Op, cx: &CallContext) -> Option<CallSpan> {
        self.traces.as_ref().map(|traces| traces.begin(self.metrics.name(), op, cx))
    }

    /// Tells the log why an agent behind us failed a call; callers are told less.
    pub(crate) fn complain(&self, op: Op, error: &Error) {
        if error.fault() == Fault::Upstream {
            let (agent, operation) = (&**self.metrics.name(), op.name());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(agent, operation, %error, cause, "the agent failed a call");
        }
    }

    /// Tells the log and the trace what a call is about.
    pub(super) fn name(
        &self,
        op: Op,
        (task, context): (Option<&TaskId>, Option<&ContextId>),
        cx: &CallContext,
        log: &Span,
        span: Option<&CallSpan>,
    ) {
        if !log.is_disabled() {
            log.record("agent", &**self.metrics.name());
            log.record("operation", op.name());
            if let Some(principal) = cx.caller.principal() {
                log.record("principal", &**principal);
            }
            record(log, task, context);
        }
        if let Some(span) = span {
            span.about(task, context);
        }
    }
}

impl Watched {
    pub(super) fn new(calls: Arc<Calls>, service: Arc<dyn A2aService>) -> Self {
        Self { calls, service }
    }

    /// The same about what was answered.
    fn answered(&self, reply: &Result<Reply>, log: &Span, span: Option<&CallSpan>) {
        let (task, context) = match reply {
            Ok(Reply::Sent(SendMessageResponse::Task(task)) | Reply::Task(task)) => {
                (Some(&task.id), Some(&task.context_id))
            }
            Ok(_) => return,
            Err(error) => return span.into_iter().for_each(|span| span.failed(error)),
        };
        if !log.is_disabled() {
            record(log, task, context);
        }
        if let Some(span) = span {
            span.about(task, context);
        }
    }
}

impl Carrier for Watched {
    async fn carry(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let log = Span::current();
        let span = self.calls.span(call.op(), cx);
        self.calls.name(call.op(), subject(&call), cx, &log, span.as_ref());
        let mut under_way = UnderWay::begin(&self.calls.metrics, call.op(), cx);
        let reply = match span.as_ref().and_then(CallSpan::trace) {
            Some(trace) => {
                let cx = CallContext { trace: Some(trace), ..cx.clone() };
                self.service.call(&cx, call).await
            }
            None => self.service.call(cx, call).await,
        };
        under_way.end(reply.as_ref().err().map(Error::kind));
        let op = under_way.op;
        if let Err(error) = &reply {
            self.calls.complain(op, error);
        }
        self.answered(&reply, &log, span.as_ref());
        match reply {
            Ok(Reply::Stream(events)) => Ok(Reply::Stream(under_way.follow(events, span, &self.calls))),
            other => other,
        }
    }
}

fn record(log: &Span, task: Option<&TaskId>, context: Option<&ContextId>) {
    if let Some(task) = task {
        log.record("task", task.as_str());
    }
    if let Some(context) = context {
        log.record("context", context.as_str());
    }
}

/// The task and the conversation that a call names.
fn subject(call: &Call) -> (Option<&TaskId>, Option<&ContextId>) {
    match call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => {
            (req.message.task_id.as_ref(), req.message.context_id.as_ref())
        }
        Call::GetTask(req) => (Some(&req.id), None),
        Call::CancelTask(req) => (Some(&req.id), None),
        Call::SubscribeToTask(req) => (Some(&req.id), None),
        Call::ListTasks(req) => (None, req.context_id.as_ref()),
        Call::CreateTaskPushNotificationConfig(req) => (req.task_id.as_ref(), None),
        Call::GetTaskPushNotificationConfig(req) => (Some(&req.task_id), None),
        Call::ListTaskPushNotificationConfigs(req) => (Some(&req.task_id), None),
        Call::DeleteTaskPushNotificationConfig(req) => (Some(&req.task_id), None),
        Call::GetExtendedAgentCard(_) => (None, None),
    }
}

/// A call that is under way. One that is dropped before its end was given up by its caller.
pub(super) struct UnderWay<'a> {
    metrics: &'a Agent,
    op: Op,
    cx: &'a CallContext,
    begun: Instant,
    ended: bool,
}

impl<'a> UnderWay<'a> {
    pub(super) fn begin(metrics: &'a Agent, op: Op, cx: &'a CallContext) -> Self {
        if cx.version_unsaid {
            metrics.count_unsaid(op, cx.version, cx.binding);
        }
        Self { metrics, op, cx, begun: Instant::now(), ended: false }
    }

    /// It was answered, if not by an error.
    pub(super) fn end(&mut self, error: Option<ErrorKind>) {
        self.ended = true;
        let took = self.begun.elapsed().as_secs_f64();
        self.metrics.cell(self.op, self.cx.version, self.cx.binding).seconds.observe(took);
        self.count(error.map_or(Outcome::Ok, Outcome::Error));
    }

    fn count(&self, outcome: Outcome) {
        self.metrics.count(self.op, self.cx.version, self.cx.binding, outcome);
    }

    fn follow(&self, events: EventStream, span: Option<CallSpan>, calls: &Arc<Calls>) -> EventStream {
        let (calls, op) = (Arc::clone(calls), self.op);
        Box::pin(Followed { events, first: self.first(), _open: self.open(), span, calls, op })
    }

    /// What its first event is noted by.
    pub(super) fn first(&self) -> Option<(Histogram, Instant)> {
        let cell = self.metrics.cell(self.op, self.cx.version, self.cx.binding);
        cell.first_event_seconds.clone().map(|histogram| (histogram, self.begun))
    }

    /// Its stream counts as open as long as this is kept.
    pub(super) fn open(&self) -> Open {
        Open::one_more(&self.metrics.streams)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.count(Outcome::Abandoned);
        }
    }
}

/// A stream that is open.
struct Followed {
    events: EventStream,
    /// Taken by the first event.
    first: Option<(Histogram, Instant)>,
    _open: Open,
    span: Option<CallSpan>,
    calls: Arc<Calls>,
    op: Op,
}

impl Stream for Followed {
    type Item = Result<StreamItem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.events.as_mut().poll_next(cx));
        if let Some((seconds, begun)) = self.first.take_if(|_| matches!(item, Some(Ok(_)))) {
            seconds.observe(begun.elapsed().as_secs_f64());
            if let (Some(span), Some(Ok(item))) = (&self.span, &item) {
                span.about(item.event().task_id(), item.event().context_id());
            }
        }
        if let Some(Err(error)) = &item {
            self.calls.complain(self.op, error);
            self.span.iter().for_each(|span| span.failed(error));
        }
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

/// Counts as an open stream until it is dropped.
pub(super) struct Open(Gauge);

impl Open {
    fn one_more(streams: &Gauge) -> Self {
        streams.inc();
        Self(streams.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
