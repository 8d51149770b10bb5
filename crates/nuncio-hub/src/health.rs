//! Liveness and readiness of the hub, with reasons.
//!
//! The answer is a word; with `?verbose` or `Accept: application/json` it is JSON with the reasons. A remote
//! agent that does not answer is reported there and does not affect the hub's readiness. Only the admin
//! listener names agents: a caller may not know all of them.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::fleet::{Fleet, ServedAgent};

/// The routes of the public listener.
pub(crate) fn public_routes(fleet: &Arc<Fleet>) -> [(&'static str, MethodRouter); 2] {
    routes(&Asked { fleet: Arc::clone(fleet), tells_agents: false })
}

/// The routes of the admin listener.
pub(crate) fn router_with_agents(fleet: &Arc<Fleet>) -> Router {
    let routes = routes(&Asked { fleet: Arc::clone(fleet), tells_agents: true });
    routes.into_iter().fold(Router::new(), |router, (path, handler)| router.route(path, handler))
}

#[derive(Clone)]
struct Asked {
    fleet: Arc<Fleet>,
    tells_agents: bool,
}

fn routes(asked: &Asked) -> [(&'static str, MethodRouter); 2] {
    [("/healthz", get(async || "ok\n")), ("/readyz", get(ready).with_state(asked.clone()))]
}

async fn ready(State(Asked { fleet, tells_agents }): State<Asked>, request: Request) -> Response {
    let reasons = fleet.why_not_ready();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if !wants_all(&request) {
        let word = if reasons.is_empty() { "ready".to_owned() } else { reasons.join("; ") };
        return (status, word + "\n").into_response();
    }
    let mut answer = json!({ "ready": reasons.is_empty(), "reasons": reasons });
    if tells_agents {
        answer["agents"] = fleet.all().iter().map(|agent| tell(agent)).collect();
    }
    (status, Json(answer)).into_response()
}

fn wants_all(request: &Request) -> bool {
    let asks = |pair: &str| pair.split('=').next() == Some("verbose");
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    request.uri().query().is_some_and(|query| query.split('&').any(asks))
        || accept.is_some_and(|accept| accept.contains("application/json"))
}

fn tell(agent: &ServedAgent) -> Value {
    let Some(upstream) = agent.upstream() else { return json!({ "name": **agent.name(), "state": "up" }) };
    let condition = &upstream.health().condition;
    json!({ "name": **agent.name(), "state": condition.word(), "reason": condition.reason() })
}
