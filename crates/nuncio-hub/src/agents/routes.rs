//! Routes that kinds have below the paths of their agents, beside the operations.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use futures_util::future::BoxFuture;
use http::Method;
use nuncio_server::store::Store;

use crate::{fleet::Agent, target::RouteAccess};

/// A route of a kind.
pub(crate) struct KindRoute {
    pub(crate) method: Method,
    /// Below `/agents/{name}/`, such as `upstream-card` or `push/{address}`.
    pub(crate) path: &'static str,
    /// `Caller`: the agent is one that the caller may know of. `Capability`: nobody is identified.
    pub(crate) access: RouteAccess,
    pub(crate) handler: RouteHandler,
}

/// Answers a request. `None`: there is nothing here, said in the words for any unknown path.
///
/// It is called for every name, and does the same work whether or not there is such an agent and whether or not it is
/// of this kind: neither the answer nor its time tells which agents there are.
pub(crate) type RouteHandler = fn(RouteCall) -> BoxFuture<'static, Option<Response>>;

/// A request at a route of a kind.
pub(crate) struct RouteCall {
    pub(crate) store: Arc<dyn Store>,
    /// The name in the path, be there such an agent or not.
    pub(crate) name: String,
    /// The agent of this name, if there is one that the request may know of.
    pub(crate) agent: Option<Arc<Agent>>,
    /// The captures of the path, in order.
    pub(crate) captures: Vec<String>,
    pub(crate) request: Request,
}
