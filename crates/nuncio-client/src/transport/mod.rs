//! The wires: each takes a call to one interface of an agent and brings the answer back. A wire does
//! one exchange and no more; what is tried again, and where, is for [`route`] to say.
//!
//! Reading order: [`jsonrpc`] (one exchange), [`headers`] and [`status`] (what is said around the body,
//! both ways), [`sse`] (streams that survive their connection), [`route`] (which wire, how often).

pub(crate) mod headers;
pub(crate) mod jsonrpc;
pub(crate) mod route;
mod service;
pub(crate) mod sse;
pub(crate) mod status;

use std::{future::Future, pin::Pin, time::Instant};

use async_trait::async_trait;
use futures_core::Stream;
use nuncio_protocol::{
    CallContext, Error, ErrorKind, StreamItem,
    op::{Call, Reply},
};

use crate::failure::Failure;

/// Events of one connection. It may end early: whether it did is for the reader to see.
pub(crate) type WireStream = Pin<Box<dyn Stream<Item = Result<StreamItem, Failure>> + Send>>;

/// One interface of an agent.
///
/// What implementors keep: one exchange per call, no repetition; the deadline of the context is kept;
/// a failure says truthfully how far the call got.
#[async_trait]
pub(crate) trait Transport: Send + Sync + 'static {
    /// Makes a call that has one answer.
    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure>;

    /// Makes a call that answers with a stream.
    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure>;
}

/// Waits for `future`, but not beyond the caller's deadline.
pub(crate) async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T, Failure> {
    let Some(deadline) = deadline else { return future.await };
    match tokio::time::timeout_at(deadline.into(), future).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::perhaps(deadline_exceeded())),
    }
}

pub(crate) fn deadline_exceeded() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the deadline passed before the agent answered")
}
