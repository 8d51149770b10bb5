//! Refusals by code that runs before the agents, such as authentication. The error has the form of the
//! request's binding, as far as the head of the request shows it. The body is not read, so a JSON-RPC error
//! has no id.

use std::{fmt, sync::Arc};

use axum::{extract::Request, response::Response};
use http::{Extensions, HeaderMap, Method, StatusCode, Uri, request::Parts};
use nuncio_protocol::{CallContext, Error, ErrorKind, op::Op};

use super::{jsonrpc, rest};

/// Answers a request to an agent at `prefix` with this error, in the form of
/// [`Agent::serve`](super::Agent::serve).
#[must_use]
pub fn refuse(prefix: &str, request: &Request, error: Error) -> Response {
    answer(prefix, request, None, error)
}

/// Answers a request to an agent at `prefix` that does not exist: 404, in the words of the binding.
#[must_use]
pub fn not_found(prefix: &str, request: &Request, message: &str) -> Response {
    answer(prefix, request, Some(StatusCode::NOT_FOUND), Error::new(ErrorKind::MethodNotFound, message))
}

/// `status` is that of HTTP, if it is not that of the error's kind.
fn answer(prefix: &str, request: &Request, status: Option<StatusCode>, error: Error) -> Response {
    #[cfg(feature = "grpc")]
    if super::is_grpc(request.headers()) {
        return super::grpc::refuse(request, error);
    }
    let path = request.uri().path();
    match path.strip_prefix(prefix).unwrap_or(path) {
        "" | "/" if request.method() == Method::POST => jsonrpc::refuse(request.into(), status, error),
        below => rest::refuse(below, request.into(), status, error),
    }
}

/// The head of a request, as far as its refusal depends on it.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) uri: &'a Uri,
    pub(super) extensions: &'a Extensions,
}

impl<'a> From<&'a Request> for Head<'a> {
    fn from(request: &'a Request) -> Self {
        Self { headers: request.headers(), uri: request.uri(), extensions: request.extensions() }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self { headers: &parts.headers, uri: &parts.uri, extensions: &parts.extensions }
    }
}

type Tell = dyn Fn(&CallContext, Op) + Send + Sync;

/// A callback for calls that are refused because the credential does not permit the operation.
#[derive(Clone)]
pub struct OnDenied(Arc<Tell>);

impl OnDenied {
    /// A callback of this function.
    pub fn new(tell: impl Fn(&CallContext, Op) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(super) fn tell(&self, cx: &CallContext, op: Op) {
        (self.0)(cx, op);
    }
}

impl fmt::Debug for OnDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDenied")
    }
}
