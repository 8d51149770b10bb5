//! The route to an agent: its usable interfaces in order, retries, token renewal, and streams that resume.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::stream;
use nuncio_protocol::{
    CallContext, CallHandler, EventStream, Result,
    op::{Call, Op, Reply},
};

use super::{Transport, WireStream, headers, sse::Follow};
use crate::{
    RetryPolicy,
    failure::{Failure, Reached},
    retry::{OnRetry, Retry},
};

/// An agent with one or more interfaces.
#[derive(Clone)]
pub(crate) struct Route(Arc<RouteInner>);

struct RouteInner {
    /// In order of preference; at least one.
    wires: Vec<Arc<dyn Transport>>,
    /// The index of the transport that answered last.
    current: AtomicUsize,
    policy: RetryPolicy,
    /// The agent declares that it resumes streams and recognises repeated sends.
    resumes: bool,
    /// Declared on every call.
    extensions: Vec<String>,
    on_retry: OnRetry,
}

impl Route {
    pub(crate) fn new(
        wires: Vec<Arc<dyn Transport>>,
        policy: RetryPolicy,
        resumes: bool,
        extensions: Vec<String>,
        on_retry: OnRetry,
    ) -> Self {
        let current = AtomicUsize::new(0);
        Self(Arc::new(RouteInner { wires, current, policy, resumes, extensions, on_retry }))
    }

    pub(crate) fn policy(&self) -> &RetryPolicy {
        &self.0.policy
    }

    /// True if the agent resumes streams after a given event, and recognises repeated sends by their key.
    pub(crate) fn resumes(&self) -> bool {
        self.0.resumes
    }

    async fn unary(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let cx = self.prepare(cx, call.op());
        let mut retry = 0;
        loop {
            let failure = match self.call_once(&cx, &call).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let pause = self.policy().unary(call.op(), retry, &failure, rand::random());
            if !self.wait(cx.deadline, retry, pause, &failure).await {
                return Err(failure.into());
            }
            retry += 1;
        }
    }

    async fn streaming(&self, cx: &CallContext, call: Call) -> Result<EventStream> {
        // Boxed, because it is moved for each event.
        let mut follow = Box::new(Follow::new(self.clone(), self.prepare(cx, call.op()), call));
        follow.connect().await?;
        Ok(Box::pin(stream::unfold(follow, async |mut follow| {
            let item = follow.next().await?;
            Some((item, follow))
        })))
    }

    /// The context of the outgoing call. A send gets its idempotency key here, so that retries have the
    /// same one.
    fn prepare(&self, cx: &CallContext, op: Op) -> CallContext {
        let mut cx = cx.clone();
        for uri in &self.0.extensions {
            if !cx.extensions.contains(uri) {
                cx.extensions.push(uri.clone());
            }
        }
        if headers::is_send(op) {
            cx.idempotency_key.get_or_insert_with(headers::new_key);
        }
        cx
    }

    /// One attempt at a unary call: tries the transports in turn, until one reaches the agent.
    pub(crate) async fn call_once(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure> {
        let mut outcome = None;
        for (index, wire) in self.turns() {
            let attempt = wire.granted().renewing(|| wire.call(cx, call)).await;
            if self.settles(index, &attempt) {
                return attempt;
            }
            outcome = Some(attempt);
        }
        outcome.unwrap_or_else(|| Err(no_wires()))
    }

    /// One attempt at opening a stream.
    pub(crate) async fn stream_once(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure> {
        let mut outcome = None;
        for (index, wire) in self.turns() {
            let attempt = wire.granted().renewing(|| wire.stream(cx, call)).await;
            if self.settles(index, &attempt) {
                return attempt;
            }
            outcome = Some(attempt);
        }
        outcome.unwrap_or_else(|| Err(no_wires()))
    }

    /// All transports, beginning with the one that answered last.
    fn turns(&self) -> impl Iterator<Item = (usize, &Arc<dyn Transport>)> {
        let first = self.0.current.load(Ordering::Relaxed);
        let indexes = (first..self.0.wires.len()).chain(0..first);
        indexes.filter_map(|index| Some((index, self.0.wires.get(index)?)))
    }

    /// Makes the next transport the first one to try.
    pub(crate) fn pass_on(&self) {
        let next = (self.0.current.load(Ordering::Relaxed) + 1) % self.0.wires.len().max(1);
        self.0.current.store(next, Ordering::Relaxed);
    }

    /// Waits for the pause before retry number `retry` (0 is the first); false if there is none, or if the
    /// deadline would pass meanwhile.
    pub(crate) async fn wait(
        &self,
        deadline: Option<Instant>,
        retry: u32,
        pause: Option<Duration>,
        failure: &Failure,
    ) -> bool {
        let Some(pause) = pause else { return false };
        let until = tokio::time::Instant::now() + pause;
        if deadline.is_some_and(|deadline| until >= deadline.into()) {
            return false;
        }
        let (number, max) = (retry.saturating_add(1), self.policy().retries);
        self.0.on_retry.notify(Retry { error: &failure.error, number, max, pause });
        tokio::time::sleep_until(until).await;
        true
    }

    /// True unless the call was not sent; then the next transport is tried.
    fn settles<T>(&self, index: usize, attempt: &Result<T, Failure>) -> bool {
        let settled = !attempt.as_ref().is_err_and(|failure| failure.reached == Reached::Nobody);
        if settled {
            self.0.current.store(index, Ordering::Relaxed);
        }
        settled
    }
}

impl CallHandler for Route {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        if call.op().row().streaming {
            self.streaming(cx, call).await.map(Reply::Stream)
        } else {
            self.unary(cx, call).await
        }
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("wires", &self.0.wires.len()).finish_non_exhaustive()
    }
}

fn no_wires() -> Failure {
    Failure::answered(nuncio_protocol::Error::internal("a route without wires"))
}
