//! Every mount. What comes before all of them is in `listen/host.rs` and `front.rs`.

use std::sync::Arc;

use anyhow::Result;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    middleware,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use nuncio_server::{
    bind::{self, BindOptions},
    store::Store,
};
use serde_json::json;

use crate::{
    agents::Opened,
    directory,
    fleet::{Agent, Fleet},
    front::Guard,
    grpc::{self, Health},
    health,
    place::{self, Place},
};

pub(crate) async fn router(
    fleet: &Arc<Fleet>,
    store: &Arc<dyn Store>,
    place: &Place,
    options: &BindOptions,
    guard: &Guard,
) -> Result<(Router, Health)> {
    let agents = Router::new()
        .route("/agents/{name}/upstream-card", get(upstream_card))
        .fallback(default_agent)
        .with_state(Arc::clone(fleet))
        .merge(directory::router(fleet, place));
    let (grpc, health) = grpc::router(fleet.clone(), options.clone()).await?;
    let known = agents.merge(grpc).layer(middleware::from_fn_with_state(guard.clone(), Guard::layer));
    // Agents that notify show what proves who they are in the address itself.
    let notified = Router::new()
        .route("/agents/{name}/push/{address}", post(notified))
        .layer(DefaultBodyLimit::max(options.body_bytes))
        .with_state((Arc::clone(fleet), Arc::clone(store)));
    Ok((health::router(fleet).merge(notified).merge(known), health))
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
        Some(agent) => agent.shown().bound.serve(&place::path(agent.name()), request).await,
        None => not_found(request.headers(), request.uri()),
    }
}

/// The card of the agent behind an agent, as it came: its signature holds for that.
async fn upstream_card(State(fleet): State<Arc<Fleet>>, request: Request) -> Response {
    let name = request.uri().path().split('/').nth(2).unwrap_or_default();
    let agent = fleet.visible(name, request.extensions().get());
    match agent.and_then(|agent| agent.behind()?.card()) {
        Some(card) => ([(header::CACHE_CONTROL, "no-store")], Json(card)).into_response(),
        None => not_found(request.headers(), request.uri()),
    }
}

/// What an agent that keeps its own tasks has to tell a webhook of one of its callers.
async fn notified(
    State((fleet, store)): State<(Arc<Fleet>, Arc<dyn Store>)>,
    Path((name, address)): Path<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
    body: Bytes,
) -> Response {
    // First, and for any name.
    let opened = match Opened::by(&*store, &name, &address).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::warn!(%error, "a notification could not be handed on");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let agent = fleet.get(&name);
    let status = match (opened, agent.as_ref().and_then(|agent| agent.proxy())) {
        (Some(opened), Some(proxy)) => proxy.notified(opened, &headers, body).await.status(),
        _ => StatusCode::NOT_FOUND,
    };
    match status {
        // In the same words: who can post here, may not know which agents there are.
        StatusCode::NOT_FOUND => not_found(&headers, &uri),
        status => status.into_response(),
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
