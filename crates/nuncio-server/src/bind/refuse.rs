//! Refusals by code that runs before the agents, such as authentication. The error has the form of the
//! request's binding, as far as the head of the request shows it. The body is not read, so a JSON-RPC error
//! has no id.

use std::{fmt, sync::Arc};

use axum::{extract::Request, response::Response};
use http::Method;
use nuncio_protocol::{CallContext, Error, op::Op};

use super::{jsonrpc, rest};

/// Answers a request to an agent at `prefix` with this error, in the form of
/// [`Agent::serve`](super::Agent::serve).
#[must_use]
pub fn refuse(prefix: &str, request: &Request, error: &Error) -> Response {
    #[cfg(feature = "grpc")]
    if super::is_grpc(request.headers()) {
        return super::grpc::refuse(request.uri().path(), request.headers(), error);
    }
    let path = request.uri().path();
    match path.strip_prefix(prefix).unwrap_or(path) {
        "" | "/" if request.method() == Method::POST => {
            jsonrpc::refuse(request.headers(), request.uri().query(), error)
        }
        below => rest::refuse(below, request.headers(), error),
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
