//! Extra routes of kinds, below the paths of their agents and beside the operations.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use futures_util::future::BoxFuture;
use http::Method;
use nuncio_server::store::Store;

use crate::{fleet::ServedAgent, target::RouteAccess};

/// A route of a kind.
pub(crate) struct KindRoute {
    pub(crate) method: Method,
    /// Below `/agents/{name}/`, such as `upstream-card` or `push/{address}`.
    pub(crate) path: &'static str,
    /// `Caller`: only agents that the caller may see. `Capability`: the caller is not identified.
    pub(crate) access: RouteAccess,
    pub(crate) handler: RouteHandler,
}

/// Answers a request; `None` gives the same 404 as any unknown path.
///
/// The handler is called for every name. It does the same work whether or not the agent exists and is of
/// this kind, so that neither the answer nor its time reveals which agents exist.
pub(crate) type RouteHandler = fn(RouteCall) -> BoxFuture<'static, Option<Response>>;

/// A request at a route of a kind.
pub(crate) struct RouteCall {
    pub(crate) store: Arc<dyn Store>,
    /// The name in the path; an agent of this name need not exist.
    pub(crate) name: String,
    /// The agent of this name, if it exists and the request may see it.
    pub(crate) agent: Option<Arc<ServedAgent>>,
    /// The captures of the path, in order.
    pub(crate) captures: Vec<String>,
    pub(crate) request: Request,
}
