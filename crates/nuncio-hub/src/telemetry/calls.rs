//! Telemetry of the calls of an agent, decoded or sealed: counts them, traces them, and adds their fields to
//! the log.

use std::{sync::Arc, time::Instant};

use nuncio_protocol::{CallContext, Error, ErrorKind, Fault, Result, op::Op};
use prometheus_client::metrics::{gauge::Gauge, histogram::Histogram};
use tracing::Span;

use super::{
    metrics::{AgentMetrics, CallOutcome},
    traces::{CallSpan, Traces},
};
use crate::{
    call::{AgentCall, CallAnswer, StreamObserver, Subject},
    clock,
};

/// The telemetry of the calls of an agent.
pub(crate) struct CallTelemetry {
    pub(super) metrics: AgentMetrics,
    pub(super) traces: Option<Traces>,
}

impl CallTelemetry {
    /// Begins to observe a call.
    pub(crate) fn begin<'a>(
        self: &'a Arc<Self>,
        cx: &'a CallContext,
        call: &impl AgentCall,
    ) -> ObservedCall<'a> {
        let (op, log) = (call.op(), Span::current());
        let span = self.traces.as_ref().map(|traces| traces.begin(self.metrics.name(), op, cx));
        if !log.is_disabled() {
            log.record("agent", &**self.metrics.name());
            log.record("operation", op.name());
            if let Some(principal) = cx.caller.principal() {
                log.record("principal", &**principal);
            }
        }
        let observed =
            ObservedCall { calls: self, in_flight: OutcomeCounter::begin(&self.metrics, op, cx), log, span };
        observed.name(call.subject());
        observed
    }

    /// Logs the cause of an upstream failure; callers get a shorter message.
    fn log_upstream_fault(&self, op: Op, error: &Error) {
        if error.fault() == Fault::Upstream {
            let (agent, operation) = (&**self.metrics.name(), op.name());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(agent, operation, %error, cause, "a call to the agent failed");
        }
    }
}

/// An observed call. If it is dropped before its end, its caller has abandoned it.
pub(crate) struct ObservedCall<'a> {
    calls: &'a Arc<CallTelemetry>,
    in_flight: OutcomeCounter<'a>,
    log: Span,
    span: Option<CallSpan>,
}

impl ObservedCall<'_> {
    /// The call's context with our span as the parent, if the call is traced.
    pub(crate) fn traced(&self) -> Option<CallContext> {
        let trace = self.span.as_ref().and_then(CallSpan::trace)?;
        Some(CallContext { trace: Some(trace), ..self.in_flight.cx.clone() })
    }

    /// Records the outcome; a stream is observed to its end.
    pub(crate) fn end<A: CallAnswer>(mut self, answer: Result<A>) -> Result<A> {
        let refusal = match &answer {
            Ok(answer) => answer.refusal(),
            Err(error) => Some(error.kind()),
        };
        self.in_flight.end(refusal);
        match answer {
            Ok(answer) => {
                if let (Some(span), Some(kind)) = (&self.span, refusal) {
                    span.failed(&kind.into());
                }
                self.name(answer.subject());
                Ok(if answer.is_stream() { answer.observed_by(self.into_stream()) } else { answer })
            }
            Err(error) => {
                self.calls.log_upstream_fault(self.in_flight.op, &error);
                self.span.iter().for_each(|span| span.failed(&error));
                Err(error)
            }
        }
    }

    /// Adds the task and the context of a call to the log and the trace.
    fn name(&self, Subject { task, context }: Subject<'_>) {
        if !self.log.is_disabled() {
            if let Some(task) = task {
                self.log.record("task", task);
            }
            if let Some(context) = context {
                self.log.record("context", context);
            }
        }
        if let Some(span) = &self.span {
            span.about(task, context);
        }
    }

    fn into_stream(self) -> OpenStream {
        let OutcomeCounter { metrics, op, cx, begun, .. } = self.in_flight;
        let histogram = metrics.cell(op, cx.version, cx.binding).first_event_seconds.clone();
        metrics.streams().inc();
        OpenStream {
            first: histogram.map(|histogram| (histogram, begun)),
            open: metrics.streams().clone(),
            span: self.span,
            calls: Arc::clone(self.calls),
            op,
        }
    }
}

/// Counts a call by its outcome.
struct OutcomeCounter<'a> {
    metrics: &'a AgentMetrics,
    op: Op,
    cx: &'a CallContext,
    begun: Instant,
    ended: bool,
}

impl<'a> OutcomeCounter<'a> {
    fn begin(metrics: &'a AgentMetrics, op: Op, cx: &'a CallContext) -> Self {
        if cx.version_inferred {
            metrics.count_unsaid(op, cx.version, cx.binding);
        }
        metrics.called(clock::now());
        Self { metrics, op, cx, begun: Instant::now(), ended: false }
    }

    fn end(&mut self, error: Option<ErrorKind>) {
        self.ended = true;
        let took = self.begun.elapsed().as_secs_f64();
        self.count(error.map_or(CallOutcome::Ok, CallOutcome::Error));
        self.metrics.observe(self.op, self.cx.version, self.cx.binding, took);
    }

    fn count(&self, outcome: CallOutcome) {
        self.metrics.count(self.op, self.cx.version, self.cx.binding, outcome);
    }
}

impl Drop for OutcomeCounter<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.count(CallOutcome::Abandoned);
        }
    }
}

/// A stream that counts as open until it is dropped.
struct OpenStream {
    /// Taken at the first event.
    first: Option<(Histogram, Instant)>,
    open: Gauge,
    span: Option<CallSpan>,
    calls: Arc<CallTelemetry>,
    op: Op,
}

impl StreamObserver for OpenStream {
    fn on_event(&mut self, subject: Subject<'_>) {
        if let Some((seconds, begun)) = self.first.take() {
            seconds.observe(begun.elapsed().as_secs_f64());
            if let Some(span) = &self.span {
                span.about(subject.task, subject.context);
            }
        }
    }

    fn on_error(&mut self, error: &Error) {
        self.calls.log_upstream_fault(self.op, error);
        if let Some(span) = &self.span {
            span.failed(error);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests;
