//! Every mount and every layer, in order, with its reason.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{StatusCode, Uri, header};
use nuncio_server::bind::{self, BindOptions};
use serde_json::json;

use crate::agents::{self, Agent};

/// What the routes share.
pub(crate) struct Routes {
    pub(crate) agents: Vec<Agent>,
    /// Names under which callers may address us; empty: any.
    pub(crate) hosts: Vec<String>,
}

pub(crate) fn router(routes: &Arc<Routes>, default_agent: Option<&str>) -> Result<Router> {
    let mut router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/agents", get(list))
        .with_state(Arc::clone(routes));
    for agent in &routes.agents {
        let bound =
            bind::Agent::new(Arc::new(agent.runtime.clone()), agent.runtime.card(), BindOptions::default())
                .with_context(|| format!("the card of {} is wrong", agent.name))?;
        router = router.merge(bound.router(&agents::path(agent.name)));
        if default_agent == Some(agent.name) {
            router = router.merge(bound.router(""));
        }
    }
    Ok(router
        .fallback(not_found)
        // Outermost: a page of another site that got our address into its own name reaches nothing.
        .layer(middleware::from_fn_with_state(Arc::clone(routes), check_host)))
}

async fn ready(State(routes): State<Arc<Routes>>) -> Response {
    if routes.agents.iter().all(|agent| agent.runtime.is_ready()) {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
}

async fn list(State(routes): State<Arc<Routes>>) -> Response {
    let agents: Vec<_> = routes
        .agents
        .iter()
        .map(|agent| {
            let card = agent.runtime.card();
            let url = card.supported_interfaces.first().map(|interface| interface.url.clone()).unwrap_or_default();
            json!({ "name": agent.name, "description": card.description, "url": url, "card": format!("{url}/.well-known/agent-card.json") })
        })
        .collect();
    Json(json!({ "agents": agents })).into_response()
}

async fn not_found(State(()): State<()>, uri: Uri) -> Response {
    let body = json!({ "error": {
        "code": 404,
        "status": "NOT_FOUND",
        "message": format!("there is nothing at {}; GET /agents lists the agents", uri.path()),
    }});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

/// DNS rebinding: on loopback we answer to our own names only.
async fn check_host(State(routes): State<Arc<Routes>>, request: Request, next: Next) -> Response {
    if !routes.hosts.is_empty() {
        let host = request.uri().host().map(str::to_owned).or_else(|| {
            let value = request.headers().get(header::HOST)?.to_str().ok()?;
            Some(
                value
                    .rsplit_once(':')
                    .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
                    .map_or(value, |(host, _)| host)
                    .to_owned(),
            )
        });
        let known =
            host.as_deref().is_some_and(|host| routes.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)));
        if !known {
            let message = "this host name is not ours; listen on another address or set --public-url\n";
            return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
        }
    }
    next.run(request).await
}
