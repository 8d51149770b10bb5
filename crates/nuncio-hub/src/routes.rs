//! The route table of the public listener: every path, the credential it requires, and its handler.
//!
//! | path | access | handler |
//! |---|---|---|
//! | `/healthz`, `/readyz`, the JWKS | anyone | `health`, `signing` |
//! | `/`, for a browser | anyone | `welcome` |
//! | gRPC's health and reflection | anyone but pages of other sites | `grpc` |
//! | `/agents`, the catalogs | caller | `directory` |
//! | gRPC calls | caller | the agent that the tenant names |
//! | routes of kinds below `/agents/NAME/` | set by each route | the kind of the agent |
//! | all else below `/agents/NAME` | caller, or anyone for a public card | the agent |
//! | all else | as above | the agent that the tenant names, or the default agent |

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use anyhow::Result;
use axum::{
    Extension,
    body::{Body, HttpBody as _},
    extract::{DefaultBodyLimit, Request},
    response::Response,
    routing::{MethodFilter, MethodRouter, on},
};
use http::{HeaderMap, Method, Uri, header};
use matchit::{Match, Router as Paths};
use nuncio_protocol::Caller;
use nuncio_server::{
    bind::{self, BindOptions, SharedRoot},
    store::Store,
};

use crate::{
    agent_urls::{self, AgentUrls},
    agents::{self, KindRoute, RouteCall},
    directory,
    fleet::{Fleet, ServedAgent},
    grpc::{self, GrpcHealth},
    health,
    identity::{Access, Judge, credential_headers},
    target::{RouteAccess, Target},
    welcome,
};

/// Paths of a card, below the address of its agent.
const CARD_PATHS: [&str; 4] = ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The handler of a route.
type Handler = MethodRouter<(), Infallible>;

/// Every path of the public listener.
pub(crate) struct RouteTable {
    fleet: Arc<Fleet>,
    root: SharedRoot,
    paths: Paths<Found>,
    routes: Vec<RouteEntry>,
    /// The page for browsers, which shares the root with the default agent.
    welcome: usize,
}

struct RouteEntry {
    access: RouteAccess,
    to: To,
}

enum To {
    /// The agent that the path names, or the tenant, or the default one.
    Agent,
    Handler(Box<Handler>),
}

/// The routes of a path.
#[derive(Default)]
struct Found {
    /// Routes of kinds, each for one method.
    by_method: Vec<(Method, usize)>,
    /// The route of all other methods; by default the agent's.
    any: usize,
    is_card_path: bool,
    /// The path is that of an agent `NAME/b`, the second seat of a room.
    is_second_seat: bool,
}

impl Found {
    fn of_second_seat(self) -> Self {
        Self { is_second_seat: true, ..self }
    }
}

/// The end of the name of the second seat of a room.
const SECOND_SEAT: &str = "/b";

/// The first route, that of an agent: the default, and the one of every path that is not in the table.
const AGENT: usize = 0;

impl RouteTable {
    /// All routes except the JWKS, and the gRPC health of the port.
    pub(crate) async fn new(
        fleet: &Arc<Fleet>,
        store: &Arc<dyn Store>,
        urls: &AgentUrls,
        options: &BindOptions,
    ) -> Result<(Self, GrpcHealth)> {
        let agent = RouteEntry { access: RouteAccess::Caller, to: To::Agent };
        let root = SharedRoot::new(fleet.clone(), options.clone());
        let (paths, routes) = (Paths::new(), vec![agent]);
        let mut table = Self { fleet: Arc::clone(fleet), root, paths, routes, welcome: AGENT };
        table.welcome = table.push(RouteAccess::Anyone, welcome::handler());
        for path in CARD_PATHS {
            let card = || Found { is_card_path: true, ..Found::default() };
            table.paths.insert(format!("/agents/{{name}}{path}"), card())?;
            table.paths.insert(format!("/agents/{{name}}/b{path}"), card().of_second_seat())?;
            // The card of the default agent is at the root.
            if !path.is_empty() {
                table.paths.insert(path, card())?;
            }
        }
        table.paths.insert("/agents/{name}/{*below}", Found::default())?;
        // The second seat of a room; of other agents nothing is there.
        table.paths.insert("/agents/{name}/b/{*below}", Found::default().of_second_seat())?;
        table.add_all(RouteAccess::Anyone, health::public_routes(fleet))?;
        table.add_all(RouteAccess::Caller, directory::routes(fleet, urls))?;
        let (calls, protocol, health) = grpc::routes(fleet.clone(), options.clone()).await?;
        table.add_all(RouteAccess::Caller, calls)?;
        table.add_all(RouteAccess::Protocol, protocol)?;
        table.add_kinds(fleet, store, options)?;
        Ok((table, health))
    }

    /// Adds routes that handle all methods of their paths.
    pub(crate) fn add_all<P: Into<String>>(
        &mut self,
        access: RouteAccess,
        routes: impl IntoIterator<Item = (P, Handler)>,
    ) -> Result<()> {
        for (path, handler) in routes {
            let any = self.push(access, handler);
            self.paths.insert(path, Found { any, ..Found::default() })?;
        }
        Ok(())
    }

    /// Adds the routes of kinds, each for one method; all other methods of their paths are the agent's.
    fn add_kinds(&mut self, fleet: &Arc<Fleet>, store: &Arc<dyn Store>, options: &BindOptions) -> Result<()> {
        let mut paths = BTreeMap::<_, Found>::new();
        for route in agents::routes() {
            let handler = kind_handler(&route, fleet, store)?;
            let index = self.push(route.access, handler.layer(DefaultBodyLimit::max(options.body_bytes)));
            paths.entry(route.path).or_default().by_method.push((route.method, index));
        }
        for (path, found) in paths {
            self.paths.insert(format!("/agents/{{name}}/{path}"), found)?;
        }
        Ok(())
    }

    fn push(&mut self, access: RouteAccess, handler: Handler) -> usize {
        self.routes.push(RouteEntry { access, to: To::Handler(Box::new(handler)) });
        self.routes.len() - 1
    }

    /// Finds the target of a request.
    pub(crate) fn find(&self, request: &Request) -> Target {
        if welcome::is_wanted(request) {
            return Target::new(self.welcome, RouteAccess::Anyone, false, None);
        }
        let is_named = |found: &Match<'_, '_, &Found>| found.params.get("name") != Some("");
        let Some(found) = self.paths.at(request.uri().path()).ok().filter(is_named) else {
            return Target::new(AGENT, RouteAccess::Caller, false, None);
        };
        let Found { by_method, any, is_card_path, is_second_seat } = found.value;
        // GET handles HEAD as well.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let own = by_method.iter().find(|(own, _)| own == method).map(|(_, route)| *route);
        let route = own.unwrap_or(*any);
        let is_card = *is_card_path && reads(request);
        let name = found
            .params
            .get("name")
            .map(|name| name.len() + if *is_second_seat { SECOND_SEAT.len() } else { 0 });
        Target::new(route, self.routes[route].access, is_card, name)
    }

    /// The agent whose public card this request reads, if that is all it does.
    pub(crate) fn public_card(&self, target: Target, request: &Request) -> Option<Arc<ServedAgent>> {
        let reads_card = target.is_card && request.method() != Method::OPTIONS;
        reads_card.then(|| self.fleet.with_public_card(target.agent(request.uri().path()))).flatten()
    }

    /// Decides who checks the credentials: the hub, or an agent that receives them unchanged. A call to the root, or over gRPC, names its agent in its message, which is not read yet.
    pub(crate) fn judge(&self, target: Target, uri: &Uri, headers: &HeaderMap) -> Judge {
        let shown: Vec<_> = credential_headers(headers).collect();
        let name = target.agent(uri.path());
        let is_call = name.is_some() || matches!(self.routes[target.route].to, To::Agent);
        if name.is_none() && !target.is_card && (is_call || bind::is_grpc(headers)) {
            let any = self.fleet.all().iter().any(|agent| agent.receives(&shown));
            return if any { Judge::AgentOfTenant } else { Judge::Hub };
        }
        let receives =
            is_call && self.fleet.named_or_default(name).is_some_and(|agent| agent.receives(&shown));
        if receives { Judge::Agent } else { Judge::Hub }
    }

    /// Answers a request of the hub itself, on behalf of this caller, who may call all agents.
    pub(crate) async fn serve_as(&self, caller: Caller, mut request: Request) -> Response {
        let target = self.find(&request);
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(Access::all());
        self.serve(target, None, Box::new(request)).await
    }

    /// Answers an admitted request. `public` is the agent whose public card it reads.
    pub(crate) async fn serve(
        &self,
        target: Target,
        public: Option<Arc<ServedAgent>>,
        mut request: Box<Request>,
    ) -> Response {
        if let To::Handler(handler) = &self.routes[target.route].to {
            request.extensions_mut().insert(target);
            let Ok(response) = tower::Service::call(&mut *handler.clone(), *request).await;
            return response;
        }
        let is_head = request.method() == Method::HEAD;
        let name = target.agent(request.uri().path());
        let prefix = name.map(agent_urls::path).unwrap_or_default();
        let agent = public.or_else(|| self.fleet.visible(name?, request.extensions().get()));
        let response = match agent {
            Some(agent) => agent.shown().bound.serve(&prefix, request).await,
            None if name.is_none() => match self.root.serve(request).await {
                Ok(response) => response,
                Err(request) => not_found(&prefix, &request),
            },
            None => not_found(&prefix, &request),
        };
        if is_head { without_body(response) } else { response }
    }
}

/// True for a read, or a preflight request for one.
fn reads(request: &Request) -> bool {
    let asked = request.headers().get(header::ACCESS_CONTROL_REQUEST_METHOD).map(|asked| asked.as_bytes());
    match (request.method(), asked) {
        (&Method::GET | &Method::HEAD, _) => true,
        (&Method::OPTIONS, Some(asked)) => asked == b"GET" || asked == b"HEAD",
        _ => false,
    }
}

/// The response without its body, with the length that the body would have (RFC 9110, section 9.3.2).
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    response.map(|_| Body::empty())
}

/// A route of a kind, for every agent: which agents are of which kind is not told. No operation has these paths, and no
/// tenant has their names.
fn kind_handler(route: &KindRoute, fleet: &Arc<Fleet>, store: &Arc<dyn Store>) -> Result<Handler> {
    let (fleet, store) = (Arc::clone(fleet), Arc::clone(store));
    let KindRoute { path: pattern, access, handler, .. } = *route;
    let answer = move |Extension(target): Extension<Target>, request: Request| {
        let unknown = head(&request);
        let name = target.agent(request.uri().path()).unwrap_or_default().to_owned();
        let agent = match access {
            RouteAccess::Capability => fleet.get(&name),
            RouteAccess::Anyone | RouteAccess::Protocol | RouteAccess::Caller => {
                fleet.visible(&name, request.extensions().get())
            }
        };
        let captures = captures(pattern, target.below_agent(request.uri().path()));
        let answer = handler(RouteCall { store: Arc::clone(&store), name, agent, captures, request });
        async move {
            let prefix = target.agent_path(unknown.uri().path());
            answer.await.unwrap_or_else(|| not_found(prefix, &unknown))
        }
    };
    Ok(on(MethodFilter::try_from(route.method.clone())?, answer))
}

/// The parts of a path that match the braces of its pattern.
fn captures(pattern: &str, below: &str) -> Vec<String> {
    let parts = pattern.split('/').zip(below.trim_start_matches('/').split('/'));
    parts.filter(|(part, _)| part.starts_with('{')).map(|(_, text)| text.to_owned()).collect()
}

/// A request without its body.
fn head(request: &Request) -> Request {
    let mut head = Request::new(Body::empty());
    head.method_mut().clone_from(request.method());
    head.uri_mut().clone_from(request.uri());
    head.headers_mut().clone_from(request.headers());
    head.extensions_mut().clone_from(request.extensions());
    head
}

/// The answer where no agent is, in the words of the binding. An unknown task is something else (C-69).
fn not_found(prefix: &str, request: &Request) -> Response {
    if bind::is_grpc(request.headers()) {
        return bind::unimplemented("there is no such service here; server reflection lists them");
    }
    let message = format!("there is nothing at {}; GET /agents lists the agents", request.uri().path());
    bind::not_found(prefix, request, &message)
}

#[cfg(test)]
mod tests;
