//! Every mount. The one check that comes before all of them is in `host.rs`.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{StatusCode, Uri};
use nuncio_server::bind::{self, BindOptions};
use serde_json::json;

use crate::agents::{self, Agent};

/// What the routes share.
pub(crate) struct Routes {
    pub(crate) agents: Vec<Agent>,
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
    Ok(router.fallback(not_found))
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

async fn not_found(uri: Uri) -> Response {
    let body = json!({ "error": {
        "code": 404,
        "status": "NOT_FOUND",
        "message": format!("there is nothing at {}; GET /agents lists the agents", uri.path()),
    }});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}
