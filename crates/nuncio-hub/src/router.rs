//! Every mount. What comes before all of them is in `listen/host.rs` and `front.rs`.

use std::sync::Arc;

use anyhow::Result;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    middleware,
    response::{IntoResponse as _, Response},
    routing::{MethodFilter, on},
};
use http::{HeaderMap, Method, StatusCode, Uri};
use nuncio_server::{
    bind::{self, BindOptions},
    store::Store,
};
use serde_json::json;

use crate::{
    agent_urls::{self, AgentUrls},
    agents::{self, KindRoute, RouteAccess, RouteCall},
    directory,
    fleet::{Agent, Fleet},
    front::Guard,
    grpc::{self, Health},
    health,
};

pub(crate) async fn router(
    fleet: &Arc<Fleet>,
    store: &Arc<dyn Store>,
    urls: &AgentUrls,
    options: &BindOptions,
    guard: &Guard,
) -> Result<(Router, Health)> {
    let (identified, capabilities): (Vec<_>, Vec<_>) =
        agents::routes().into_iter().partition(|route| route.access == RouteAccess::Caller);
    let agents = mount(identified, fleet, store)?
        .merge(Router::new().fallback(default_agent).with_state(Arc::clone(fleet)))
        .merge(directory::router(fleet, urls));
    let (grpc, health) = grpc::router(fleet.clone(), options.clone()).await?;
    let known = agents.merge(grpc).layer(middleware::from_fn_with_state(guard.clone(), Guard::layer));
    let capabilities = mount(capabilities, fleet, store)?.layer(DefaultBodyLimit::max(options.body_bytes));
    Ok((health::router(fleet).merge(capabilities).merge(known), health))
}

/// The routes of kinds, each below the path of every agent: which agents are of which kind is not told.
fn mount(routes: Vec<KindRoute>, fleet: &Arc<Fleet>, store: &Arc<dyn Store>) -> Result<Router> {
    let mut router = Router::new();
    for route in routes {
        let (fleet, store) = (Arc::clone(fleet), Arc::clone(store));
        let path = format!("/agents/{{name}}/{}", route.path);
        let filter = MethodFilter::try_from(route.method)?;
        let answer = move |Path(captures): Path<Vec<(String, String)>>, request: Request| {
            let mut captures = captures.into_iter().map(|(_, text)| text);
            let decoded = captures.next().unwrap_or_default();
            let (name, agent) = match route.access {
                RouteAccess::Caller => {
                    let name = name_in(request.uri());
                    (name.to_owned(), fleet.visible(name, request.extensions().get()))
                }
                RouteAccess::Capability => {
                    let agent = fleet.get(&decoded);
                    (decoded, agent)
                }
            };
            let (headers, uri) = (request.headers().clone(), request.uri().clone());
            let call =
                RouteCall { store: Arc::clone(&store), name, agent, captures: captures.collect(), request };
            let answer = (route.handler)(call);
            async move { answer.await.unwrap_or_else(|| not_found(&headers, &uri)) }
        };
        router = router.route(&path, on(filter, answer));
    }
    Ok(router)
}

/// The name of the agent in a path, as it came: escaped it would be another one, and no agent has such a name.
fn name_in(uri: &Uri) -> &str {
    uri.path().split('/').nth(2).unwrap_or_default()
}

/// True for what is below an agent's own path and the agent's to answer. No operation has the other paths; one of a
/// tenant named `push` would.
pub(crate) fn is_call(request: &Request) -> bool {
    let Some(below) = request.uri().path().strip_prefix("/agents/") else { return false };
    let Some((name, below)) = below.split_once('/') else { return !below.is_empty() };
    let is_route = match below.split_once('/') {
        None => below == "upstream-card" && matches!(*request.method(), Method::GET | Method::HEAD),
        Some((first, address)) => first == "push" && !address.is_empty() && !address.contains('/'),
    };
    !name.is_empty() && !is_route
}

/// Paths of a card, below the address of its agent.
const CARD_PATHS: [&str; 4] = ["", "/", "/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The agent whose card anybody may read, if this request reads that and nothing else.
fn with_public_card(fleet: &Fleet, request: &Request) -> Option<Arc<Agent>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri().path();
    let (name, below) = match path.strip_prefix("/agents/") {
        Some(rest) => {
            let (name, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some(name), below)
        }
        None => (None, path),
    };
    CARD_PATHS.contains(&below).then(|| fleet.with_public_card(name)).flatten()
}

/// True if this request reads a card that anybody may read.
pub(crate) fn reads_public_card(fleet: &Fleet, request: &Request) -> bool {
    with_public_card(fleet, request).is_some()
}

/// What is below an agent's own path. The name is taken as it came: escaped it would be another one, and no
/// agent has such a name.
pub(crate) async fn agent(fleet: &Fleet, request: Box<Request>) -> Response {
    let path = request.uri().path();
    let name = path.split('/').nth(2).unwrap_or_default();
    let public = with_public_card(fleet, &request);
    match public.or_else(|| fleet.visible(name, request.extensions().get())) {
        Some(agent) => agent.shown().bound.serve(&agent_urls::path(agent.name()), request).await,
        None => not_found(request.headers(), request.uri()),
    }
}

/// Whatever has no place of its own belongs to the agent that answers without a name, if there is one.
async fn default_agent(State(fleet): State<Arc<Fleet>>, request: Request) -> Response {
    let public = with_public_card(&fleet, &request);
    match public.or_else(|| fleet.default_for(request.extensions().get())) {
        Some(agent) => agent.shown().bound.serve("", request).await,
        None => not_found(request.headers(), request.uri()),
    }
}

fn not_found(headers: &HeaderMap, uri: &Uri) -> Response {
    if bind::is_grpc(headers) {
        return bind::unimplemented("there is no such service here; server reflection lists them");
    }
    let body = json!({ "error": {
        "code": 404,
        "status": "NOT_FOUND",
        "message": format!("there is nothing at {}; GET /agents lists the agents", uri.path()),
    }});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}
