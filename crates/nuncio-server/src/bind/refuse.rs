//! The refusal of a request that goes no further, by whoever stands before the agents: in the words of the
//! binding it came by, as far as its head tells. The body is not read, so JSON-RPC is answered without an id.

use std::{fmt, sync::Arc};

use axum::{extract::Request, response::Response};
use http::{Method, StatusCode};
use nuncio_protocol::{CallContext, Error, ErrorKind, op::Op};

use super::{jsonrpc, rest};

/// Answers a request to an agent at `prefix`, as [`Agent::serve`](super::Agent::serve) would, with this error.
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
        "" | "/" if request.method() == Method::POST => jsonrpc::refuse(request, status, error),
        below => rest::refuse(below, request, status, error),
    }
}

type Tell = dyn Fn(&CallContext, Op) + Send + Sync;

/// Is told when a caller asks for an operation that is not among its own.
#[derive(Clone)]
pub struct OnDenied(Arc<Tell>);

impl OnDenied {
    /// Tells this function.
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
