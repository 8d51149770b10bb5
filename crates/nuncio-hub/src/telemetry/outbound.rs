//! Spans of calls to other services, so that a trace shows both hops and the spans of the other side are
//! below ours.

use std::sync::Arc;

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService, CallContext, CallHandler, Result, TraceContext,
    op::{Call, Reply},
};

use super::traces::{CallSpan, Traces};

/// A service that an agent calls on behalf of one incoming call.
pub(super) struct Outbound {
    pub(super) traces: Traces,
    pub(super) agent: Arc<str>,
    /// The trace of the incoming call.
    pub(super) parent: Option<TraceContext>,
    pub(super) service: Arc<dyn A2aService>,
}

impl CallHandler for Outbound {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let span = self.traces.begin_outbound(&self.agent, call.op(), self.parent.as_ref());
        let reply = self.service.call(&beneath(cx, &span), call).await;
        match reply {
            Ok(Reply::Stream(events)) => {
                let seen = move |item: Result<_>| item.inspect_err(|error| span.failed(error));
                Ok(Reply::Stream(events.map(seen).boxed()))
            }
            other => other.inspect_err(|error| span.failed(error)),
        }
    }
}

/// The call's context with the span as its parent. The trace state stays: it contains the hops.
fn beneath(cx: &CallContext, span: &CallSpan) -> CallContext {
    let state = cx.trace.as_ref().and_then(|trace| trace.state.clone());
    let trace = span.trace().map(|own| TraceContext { parent: own.parent, state: state.or(own.state) });
    CallContext { trace: trace.or_else(|| cx.trace.clone()), ..cx.clone() }
}
