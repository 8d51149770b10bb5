//! The path of every call to an agent: telemetry, limits, then the agent's backend. A call is decoded or
//! sealed; its binding and the backend decide which.

use std::sync::Arc;

use async_trait::async_trait;
use axum::response::Response;
use nuncio_protocol::{
    A2aService, CallContext, CallHandler, ErrorKind, Result,
    op::{Call, Op, Reply},
};
use nuncio_server::bind::{Relay, SealedCall};

use crate::{
    call::{AgentCall, CallAnswer, SealedAnswer, SealedBackend, Subject},
    identity::Authenticator,
    limits::Gate,
    telemetry::CallTelemetry,
};

/// The layers around the backend of every agent.
#[derive(Clone)]
pub(crate) struct Layers {
    pub(crate) calls: Arc<CallTelemetry>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) identity: Arc<Authenticator>,
    /// The agent asks for consent, so a message must come from a known caller.
    pub(crate) asks: bool,
}

/// A backend with its layers.
pub(crate) struct Dispatch<B: ?Sized> {
    layers: Layers,
    backend: Arc<B>,
}

/// A call that this backend can handle.
trait DispatchTo<B: ?Sized>: AgentCall + Send {
    type Answer: CallAnswer;

    fn dispatch(self, backend: &B, cx: &CallContext) -> impl Future<Output = Result<Self::Answer>> + Send;
}

impl<B: ?Sized> Dispatch<B> {
    pub(crate) fn new(layers: Layers, backend: Arc<B>) -> Self {
        Self { layers, backend }
    }

    /// Dispatches a call. Telemetry is outside of the limits, so that refusals by them are counted.
    async fn pass<C: DispatchTo<B>>(&self, cx: &CallContext, call: C) -> Result<C::Answer> {
        let observed = self.layers.calls.begin(cx, &call);
        let traced = observed.traced();
        let answer = self.limited(traced.as_ref().unwrap_or(cx), call).await;
        observed.end(answer)
    }

    /// Dispatches a call within the limits: a unary call counts until it is answered, a stream until it ends.
    async fn limited<C: DispatchTo<B>>(&self, cx: &CallContext, call: C) -> Result<C::Answer> {
        let is_message = matches!(call.op(), Op::SendMessage | Op::SendStreamingMessage);
        if self.layers.asks && is_message && cx.caller.principal().is_none() {
            return Err(ErrorKind::Unauthenticated.into());
        }
        let permit = self.layers.gate.admit(&cx.caller, call.op())?;
        let answer = call.dispatch(&self.backend, cx).await?;
        Ok(if permit.is_empty() { answer } else { answer.observed_by(permit) })
    }
}

impl<B: A2aService + ?Sized> DispatchTo<B> for Call {
    type Answer = Reply;

    async fn dispatch(self, backend: &B, cx: &CallContext) -> Result<Reply> {
        backend.call(cx, self).await
    }
}

impl<B: A2aService + ?Sized> CallHandler for Dispatch<B> {
    async fn handle(&self, cx: &CallContext, mut call: Call) -> Result<Reply> {
        // The tenant field selects the agent, which is known by now; the tenant of the caller comes from its
        // credential.
        call.set_tenant(None);
        let mut reply = self.pass(cx, call).await?;
        if let Reply::Card(card) = &mut reply {
            self.layers.identity.declare(card, self.layers.asks);
        }
        Ok(reply)
    }
}

/// A sealed call with its route to the agent.
struct Routed<'a, R> {
    route: Result<R>,
    call: SealedCall<'a>,
}

impl<R> AgentCall for Routed<'_, R> {
    fn op(&self) -> Op {
        self.call.op()
    }

    fn subject(&self) -> Subject<'_> {
        self.call.subject()
    }
}

impl<B: SealedBackend> DispatchTo<B> for Routed<'_, B::Route> {
    type Answer = SealedAnswer;

    async fn dispatch(self, backend: &B, cx: &CallContext) -> Result<SealedAnswer> {
        backend.forward(&self.route?, cx, self.call).await
    }
}

#[async_trait]
impl<B: SealedBackend> Relay for Dispatch<B> {
    async fn relay(&self, cx: &CallContext, call: SealedCall<'_>) -> Option<Result<Response>> {
        // `None`: the call is decoded and then dispatched as such.
        let route = self.backend.route(&call).transpose()?;
        Some(self.pass(cx, Routed { route, call }).await.map(|answer| answer.response))
    }
}
