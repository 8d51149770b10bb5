//! The transports: each makes calls to one interface of an agent. A transport makes one exchange per call;
//! [`route`] decides about retries and other interfaces.
//!
//! Reading order: [`jsonrpc`], [`rest`] and [`grpc`] (one exchange each), [`endpoint`], [`headers`] and
//! [`status`] (the parts around the body), [`events`] (one connection with events), [`history`] (histories
//! of length 0 in old versions), [`direct`] (one interface as a service), [`forward`] (one interface for
//! sealed calls), [`sse`] (streams that survive their connection), [`route`] (selection and retries).

mod address;
pub(crate) mod direct;
mod endpoint;
mod events;
pub(crate) mod forward;
#[cfg(feature = "grpc")]
pub(crate) mod grpc;
pub(crate) mod headers;
mod history;
mod jsonrpc;
mod rest;
pub(crate) mod route;
pub(crate) mod sse;
pub(crate) mod status;

use std::{borrow::Cow, future::Future, pin::Pin, sync::Arc, time::Instant};

use async_trait::async_trait;
use futures_core::Stream;
use futures_util::{FutureExt as _, future::Either};
use nuncio_protocol::{
    AgentInterface, Binding, CallContext, Error, ErrorKind, FileBytes, Result, StreamItem, Version,
    op::{Call, Op, Reply},
};
use url::Url;

use self::{
    endpoint::{Endpoint, http_url},
    history::Trimmed,
    jsonrpc::JsonRpcTransport,
    rest::RestTransport,
};
use crate::{
    Credentials, Egress,
    auth::Granted,
    choose::{Candidate, can_ask_for_no_history, jsonrpc_dialect, rest_form},
    failure::Failure,
};

/// Events of one connection. It may end early, which the reader has to detect.
pub(crate) type WireStream = Pin<Box<dyn Stream<Item = Result<StreamItem, Failure>> + Send>>;

/// One interface of an agent.
///
/// Rules for implementors: one exchange per call, no retries; the deadline of the context is kept; a
/// failure states correctly how far the call got.
#[async_trait]
pub(crate) trait Transport: Send + Sync + 'static {
    /// The credentials of its calls. The caller renews tokens.
    fn granted(&self) -> &Granted;

    /// Makes a unary call.
    async fn call(&self, cx: &CallContext, call: &Call) -> Result<Reply, Failure>;

    /// Makes a streaming call.
    async fn stream(&self, cx: &CallContext, call: &Call) -> Result<WireStream, Failure>;
}

/// The transport for an interface of a card that came from `home`; credentials are bound to that origin.
///
/// # Errors
/// `InvalidAgentResponse` if the interface has no valid URL.
pub(crate) fn wire(
    egress: &Egress,
    candidate: &Candidate,
    credentials: &Credentials,
    home: &Url,
    files: FileBytes,
) -> Result<Arc<dyn Transport>> {
    let (interface, version) = (&candidate.interface, candidate.version);
    let tenant = interface.tenant.clone();
    let url = interface_url(interface, candidate.binding, home)?;
    let endpoint = Endpoint::new(egress, url, credentials, home);
    let wire: Arc<dyn Transport> = match candidate.binding {
        Binding::JsonRpc => Arc::new(JsonRpcTransport::new(endpoint, tenant, jsonrpc_dialect(version))?),
        Binding::HttpJson => Arc::new(RestTransport::new(endpoint, tenant, rest_form(version, files))?),
        Binding::Grpc => grpc_wire(endpoint, candidate, files)?,
    };
    let is_exact = can_ask_for_no_history(version, candidate.binding);
    Ok(if is_exact { wire } else { Arc::new(Trimmed(wire)) })
}

/// The URL of an interface of a card that came from `home`.
///
/// # Errors
/// `InvalidAgentResponse` if the binding cannot use it.
pub(crate) fn interface_url(interface: &AgentInterface, binding: Binding, home: &Url) -> Result<Url> {
    match binding {
        Binding::JsonRpc | Binding::HttpJson => http_url(interface),
        #[cfg(feature = "grpc")]
        Binding::Grpc => grpc::grpc_url(&interface.url, home),
        #[cfg(not(feature = "grpc"))]
        Binding::Grpc => {
            let _ = home;
            Err(no_grpc())
        }
    }
}

#[cfg(feature = "grpc")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn grpc_wire(endpoint: Endpoint, candidate: &Candidate, files: FileBytes) -> Result<Arc<dyn Transport>> {
    let codec = crate::choose::grpc_codec(candidate.version, files);
    Ok(Arc::new(grpc::GrpcTransport::new(endpoint, candidate.interface.tenant.clone(), codec)))
}

#[cfg(not(feature = "grpc"))]
fn grpc_wire(_: Endpoint, _: &Candidate, _: FileBytes) -> Result<Arc<dyn Transport>> {
    Err(no_grpc())
}

#[cfg(not(feature = "grpc"))]
fn no_grpc() -> Error {
    let message = "this build does not speak gRPC; build it with the feature grpc";
    Error::new(ErrorKind::UnsupportedOperation, message)
}

/// The call with the tenant of the interface, exactly (spec 8.3.2).
fn with_tenant<'a>(call: &'a Call, tenant: Option<&str>) -> Cow<'a, Call> {
    if call.tenant() == tenant {
        return Cow::Borrowed(call);
    }
    let mut call = call.clone();
    call.set_tenant(tenant.map(str::to_owned));
    Cow::Owned(call)
}

fn no_such_operation(op: Op, version: Version) -> Error {
    let message = format!("{} does not exist in version {version} of the protocol", op.name());
    Error::new(ErrorKind::UnsupportedOperation, message)
}

/// Waits for `future` until the caller's deadline.
pub(crate) fn within<T, F: Future<Output = Result<T, Failure>> + Send>(
    deadline: Option<Instant>,
    future: F,
) -> impl Future<Output = Result<T, Failure>> + Send + use<T, F> {
    // Not an `async fn`: its future would reserve memory for `future` twice.
    match deadline {
        None => Either::Left(future),
        Some(deadline) => {
            let late = |_| Err(Failure::perhaps(deadline_exceeded()));
            let timed = tokio::time::timeout_at(deadline.into(), future);
            Either::Right(timed.map(move |outcome| outcome.unwrap_or_else(late)))
        }
    }
}

pub(crate) fn deadline_exceeded() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the deadline passed before the agent answered")
}
