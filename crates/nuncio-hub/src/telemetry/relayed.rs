//! The same about calls that are handed on as they came, without a service.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use nuncio_protocol::{ContextId, ErrorKind, TaskId, TraceContext};
use nuncio_server::bind::Raw;
use prometheus_client::metrics::histogram::Histogram;
use tracing::Span;

use super::{
    calls::{Calls, Open, UnderWay},
    traces::CallSpan,
};

/// A call on its way. One that is dropped before its end was given up by its caller.
pub(crate) struct Passing<'a> {
    under_way: UnderWay<'a>,
    span: Option<CallSpan>,
}

impl Calls {
    /// Begins to watch a call.
    pub(crate) fn begin<'a>(&'a self, call: &Raw<'a>) -> Passing<'a> {
        let (op, cx, log) = (call.op, call.cx, Span::current());
        let span = self.span(op, cx);
        if span.is_some() || !log.is_disabled() {
            let task = call.glance.task.as_deref().map(TaskId::from);
            let context = call.glance.context.as_deref().map(ContextId::from);
            self.name(op, (task.as_ref(), context.as_ref()), cx, &log, span.as_ref());
        }
        Passing { under_way: UnderWay::begin(&self.metrics, op, cx), span }
    }
}

impl Passing<'_> {
    /// The trace that the call goes on in, if ours is a part of it.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.span.as_ref().and_then(CallSpan::trace)
    }

    /// It was answered, if not by an error.
    pub(crate) fn end(&mut self, error: Option<ErrorKind>) {
        self.under_way.end(error);
        if let (Some(span), Some(kind)) = (&self.span, error) {
            span.failed(&kind.into());
        }
    }

    /// Its stream.
    pub(crate) fn follow(self, body: Body) -> Body {
        let (first, open) = (self.under_way.first(), self.under_way.open());
        Body::new(Followed { body, first, _open: open, _span: self.span })
    }
}

/// A stream that is open.
struct Followed {
    body: Body,
    /// Taken by what comes first.
    first: Option<(Histogram, Instant)>,
    _open: Open,
    _span: Option<CallSpan>,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_event = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        if let Some((seconds, begun)) = self.first.take_if(|_| is_event) {
            seconds.observe(begun.elapsed().as_secs_f64());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
