//! Stands before a service that is somewhere else: each call to it is a span of its own, so that a trace shows both
//! hops, and what the other side records hangs below it.

use std::sync::Arc;

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService, CallContext, Carrier, Result, TraceContext,
    op::{Call, Reply},
};

use super::traces::{CallSpan, Traces};

/// The calls of one agent to a service, for one call that it works for.
pub(super) struct Outbound {
    pub(super) traces: Traces,
    pub(super) agent: Arc<str>,
    /// The trace of what they are made for.
    pub(super) parent: Option<TraceContext>,
    pub(super) service: Arc<dyn A2aService>,
}

impl Carrier for Outbound {
    async fn carry(&self, cx: &CallContext, call: Call) -> Result<Reply> {
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

/// The call with the span as what it hangs below. The state of its trace stays: the hops are in it.
fn beneath(cx: &CallContext, span: &CallSpan) -> CallContext {
    let state = cx.trace.as_ref().and_then(|trace| trace.state.clone());
    let trace = span.trace().map(|own| TraceContext { parent: own.parent, state: state.or(own.state) });
    CallContext { trace: trace.or_else(|| cx.trace.clone()), ..cx.clone() }
}
