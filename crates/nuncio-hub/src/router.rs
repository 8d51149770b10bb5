//! Every mount. The one check that comes before all of them is in `listen/host.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result};
use axum::{
    Extension, Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, StatusCode, Uri, header};
use nuncio_server::bind::{self, BindOptions, PublicBase};
use serde_json::json;

use crate::{
    agents::Agent,
    grpc::{self, Health},
    place,
};

/// What the routes share.
pub(crate) struct Routes {
    pub(crate) agents: Vec<Agent>,
    /// What was last seen of the store.
    pub(crate) store_is_well: AtomicBool,
}

pub(crate) async fn router(
    routes: &Arc<Routes>,
    default_agent: Option<&str>,
    options: &BindOptions,
) -> Result<(Router, Health)> {
    let list = Router::new().route("/agents", get(list)).with_state(Arc::clone(routes));
    let mut router = health(routes).merge(list);
    let (mut agents, mut default) = (Vec::new(), None);
    for agent in &routes.agents {
        let bound = bind::Agent::new(Arc::new(agent.runtime.clone()), agent.runtime.card(), options.clone())
            .with_context(|| format!("the card of {} is wrong", agent.name))?;
        router = router.merge(bound.router(&place::path(agent.name)));
        if default_agent == Some(agent.name) {
            router = router.merge(bound.router(""));
            default = Some(bound.clone());
        }
        agents.push((agent.name.to_owned(), bound));
    }
    let (grpc, health) = grpc::router(agents, default, options.clone()).await?;
    Ok((router.merge(grpc).fallback(not_found), health))
}

/// How we are, for whoever watches over us.
pub(crate) fn health(routes: &Arc<Routes>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(Arc::clone(routes))
}

async fn ready(State(routes): State<Arc<Routes>>) -> Response {
    let why_not = if !routes.agents.iter().all(|agent| agent.runtime.is_ready()) {
        "draining\n"
    } else if !routes.store_is_well.load(Ordering::Relaxed) {
        "the task store does not answer\n"
    } else {
        return "ready\n".into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, why_not).into_response()
}

/// The agents, at the addresses under which this caller sees them.
async fn list(State(routes): State<Arc<Routes>>, base: Option<Extension<PublicBase>>) -> Response {
    let agents: Vec<_> = routes
        .agents
        .iter()
        .map(|agent| {
            let card = agent.runtime.card();
            let url = match &base {
                Some(Extension(base)) => format!("{base}{}", place::path(agent.name)),
                None => card.supported_interfaces.first().map(|interface| interface.url.clone()).unwrap_or_default(),
            };
            json!({ "name": agent.name, "description": card.description, "url": url, "card": format!("{url}/.well-known/agent-card.json") })
        })
        .collect();
    // The next caller may see us under another base.
    ([(header::CACHE_CONTROL, "no-store")], Json(json!({ "agents": agents }))).into_response()
}

async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    if bind::is_grpc(&headers) {
        return bind::unimplemented("there is no such service here; server reflection lists them");
    }
    let body = json!({ "error": {
        "code": 404,
        "status": "NOT_FOUND",
        "message": format!("there is nothing at {}; GET /agents lists the agents", uri.path()),
    }});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}
