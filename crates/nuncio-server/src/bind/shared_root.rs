//! The root of a port that several agents share, over HTTP: the tenant of a call names its agent, in the body, in the
//! query or as the first segment of the path. gRPC does the same by itself ([`Grpc::shared`](super::Grpc::shared)).
//!
//! Here a request is only looked at, to find its agent, and then handed to it as it came. The agent has the last word:
//! it takes no call with the tenant of another one (`AgentInner::take_tenant`).

use std::{borrow::Cow, fmt, sync::Arc};

use axum::{body::Body, extract::Request, response::Response};
use http::{HeaderName, HeaderValue, Method, request::Parts};
use nuncio_protocol::{
    Error, ErrorKind, Result,
    wire::{
        jsonrpc::{self as envelope, IncomingBody, RefusedRequest},
        rest,
    },
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Agent, BindOptions, Directory, answer, body,
    directory::refuse_tenant,
    jsonrpc, rest as http_json,
    version::{self, takes_tenant},
};

/// The header that names the agent that answered a call without a tenant: a client that drops the tenant of a card
/// reaches the default agent.
pub(super) const ANSWERED_BY: HeaderName = HeaderName::from_static("nuncio-agent");

/// The root of a port that several agents share.
#[derive(Clone)]
pub struct SharedRoot {
    directory: Arc<dyn Directory>,
    options: Arc<BindOptions>,
}

impl fmt::Debug for SharedRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRoot").finish_non_exhaustive()
    }
}

impl SharedRoot {
    /// Several agents by name, which callers give as the tenant. The name is for finding the agent: it does
    /// not become part of the task's scope.
    #[must_use]
    pub fn new(directory: Arc<dyn Directory>, options: BindOptions) -> Self {
        Self { directory, options: Arc::new(options) }
    }

    /// Answers a request by the agent that it names, or else by the default one.
    ///
    /// # Errors
    /// The request, if it is no call, and there is no default agent to answer it.
    pub async fn serve(&self, request: Box<Request>) -> Result<Response, Box<Request>> {
        let path = request.uri().path();
        let is_call = match path {
            "" | "/" => request.method() == Method::POST && answer::is_json(request.headers()),
            "/.well-known/agent-card.json" | "/.well-known/agent.json" => false,
            _ => true,
        };
        #[cfg(feature = "grpc")]
        let is_call = is_call && !super::is_grpc(request.headers());
        if !is_call {
            return match self.directory.find(None, request.extensions()) {
                Some(agent) => Ok(agent.serve("", request).await),
                None => Err(request),
            };
        }
        if matches!(path, "" | "/") {
            return Ok(self.serve_jsonrpc(request).await);
        }
        self.serve_rest(request).await
    }

    async fn serve_jsonrpc(&self, request: Box<Request>) -> Response {
        let (parts, body) = request.into_parts();
        let body = match body::read(body, &self.options).await {
            Ok(body) => body.bytes,
            Err(error) => return jsonrpc::refuse((&parts).into(), None, error),
        };
        let refuse = |id: Option<&RawValue>, method: Option<&str>, error: Error| {
            jsonrpc::refuse_request(id, method, (&parts).into(), error)
        };
        let (id, method, tenant) = match envelope::decode_body(&body) {
            Ok(IncomingBody::Single(request)) => {
                let tenant = tenant_of_request(&request);
                (request.id, Some(request.method), tenant)
            }
            Ok(IncomingBody::Batch(requests)) => match tenant_of_batch(&requests) {
                Ok(tenant) => (None, None, tenant),
                Err(error) => return refuse(None, None, error),
            },
            // The default agent, if there is one, answers with the error.
            Err(RefusedRequest { id, error }) => match self.directory.look_ahead(None, &parts.extensions) {
                Some(_) => (id, None, None),
                None => return refuse(id, None, error),
            },
        };
        let is_named = tenant.is_some();
        match self.find(tenant.as_deref(), &parts) {
            Ok(agent) => serve_by(&agent, is_named, parts, body.clone().into()).await,
            Err(error) => refuse(id, method.as_deref(), error),
        }
    }

    async fn serve_rest(&self, request: Box<Request>) -> Result<Response, Box<Request>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let paths = version::rest_form(path, &parts.headers).paths;
        let Ok(route) = rest::find_route(&paths, parts.method.as_str(), path) else {
            // Nothing is at this path; only an agent can say so as one.
            return match self.directory.find(None, &parts.extensions) {
                Some(agent) => Ok(serve_by(&agent, false, parts, body).await),
                None => Err(Box::new(Request::from_parts(parts, body))),
            };
        };
        let refuse = |error: Error| http_json::refuse(path, (&parts).into(), None, error);
        let (tenant, body) = match route.tenant().map(str::to_owned) {
            Some(tenant) => (Some(tenant), body),
            None => {
                let read = if parts.method == Method::POST {
                    match body::read(body, &self.options).await {
                        Ok(body) => body.bytes,
                        Err(error) => return Ok(refuse(error)),
                    }
                } else {
                    bytes::Bytes::new()
                };
                let tenant = match route.decode(parts.method.as_str(), parts.uri.query(), &read) {
                    Ok(incoming) if paths.tenants => tenant_of(&incoming.params).map(Cow::into_owned),
                    // The agent answers with the error.
                    Ok(_) | Err(_) => None,
                };
                (tenant, read.into())
            }
        };
        match self.find(tenant.as_deref(), &parts) {
            Ok(agent) => Ok(serve_by(&agent, tenant.is_some(), parts, body).await),
            Err(error) => Ok(refuse(error)),
        }
    }

    fn find(&self, tenant: Option<&str>, parts: &Parts) -> Result<Agent> {
        self.directory.permit(tenant, &parts.extensions)?;
        let agent = self.directory.find(tenant, &parts.extensions);
        agent.ok_or_else(|| refuse_tenant(&*self.directory, tenant, &parts.extensions))
    }
}

/// Hands a request to its agent as it came.
async fn serve_by(agent: &Agent, is_named: bool, parts: Parts, body: Body) -> Response {
    let mut response = agent.serve("", Request::from_parts(parts, body)).await;
    let name = agent.inner.options.agent_name.as_deref().filter(|_| !is_named);
    if let Some(name) = name.and_then(|name| HeaderValue::from_str(name).ok()) {
        response.headers_mut().insert(ANSWERED_BY, name);
    }
    response
}

/// The tenant in the parameters of a call.
#[derive(Deserialize)]
struct Routing<'a> {
    #[serde(default, borrow)]
    tenant: Option<Cow<'a, str>>,
}

/// The tenant in these parameters; `None` if there is none, or if they cannot be read: then the call will not be either.
fn tenant_of(params: &RawValue) -> Option<Cow<'_, str>> {
    let routing: Routing<'_> = serde_json::from_str(params.get()).ok()?;
    routing.tenant.filter(|tenant| !tenant.is_empty())
}

fn tenant_of_request<'a>(request: &envelope::Request<'a>) -> Option<Cow<'a, str>> {
    request.params.filter(|_| takes_tenant(&request.method)).and_then(tenant_of)
}

/// The tenant of all requests of a batch.
fn tenant_of_batch<'a>(requests: &[&'a RawValue]) -> Result<Option<Cow<'a, str>>> {
    let mut tenants = requests.iter().map(|json| {
        let request = envelope::open(json).ok();
        request.and_then(|request| tenant_of_request(&request))
    });
    let first = tenants.next().flatten();
    if tenants.all(|tenant| tenant == first) {
        return Ok(first);
    }
    let why = "a batch is for one agent, and the tenants of its requests differ; send a batch to each";
    Err(Error::new(ErrorKind::InvalidRequest, why))
}
