//! The state of the hub in one document, for a report. Each part is the answer of its own route.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    AdminState, agents,
    api::{
        Diagnostics, ListAgents, ListDeliveryHosts, ListHubs, ListTrail, Paging, ShowConfig, ShowDiagnostics,
        ShowHealth, ShowStats, StatsOptions, TrailFilter,
    },
    delivery_hosts,
    endpoint::Reply,
    health, hubs,
    problem::AdminProblem,
    reload, stats, trail,
};
use crate::clock;

/// Number of rows of the trail.
const ROWS: usize = 100;

pub(super) async fn show(
    state: Arc<AdminState>,
    _: ShowDiagnostics,
) -> Result<Reply<Diagnostics>, AdminProblem> {
    let of = || Arc::clone(&state);
    let options = StatsOptions { minutes: None };
    let filter = TrailFilter { paging: Paging { limit: Some(ROWS), after: None }, ..TrailFilter::default() };
    let mut parts = Map::new();
    parts.insert("collected".to_owned(), json!(clock::now()));
    let mut add = |name: &str, part: Result<Value, AdminProblem>| {
        // A part that cannot be had must not cost the others.
        let part = part.unwrap_or_else(|problem| json!({ "missing": problem.message() }));
        parts.insert(name.to_owned(), part);
    };
    add("stats", value(stats::show(of(), ShowStats { options }).await));
    add("health", value(health::show(of(), ShowHealth {}).await));
    add("agents", value(agents::list(of(), ListAgents {}).await));
    add("hubs", value(hubs::list(of(), ListHubs {}).await));
    add("deliveryHosts", value(delivery_hosts::list(of(), ListDeliveryHosts {}).await));
    add("config", value(reload::show(of(), ShowConfig {}).await));
    add("trail", value(trail::list(of(), ListTrail { filter }).await));
    Ok(Reply::new(Diagnostics(Value::Object(parts))))
}

fn value<A: Serialize>(answer: Result<Reply<A>, AdminProblem>) -> Result<Value, AdminProblem> {
    serde_json::to_value(answer?.answer).map_err(|_| AdminProblem::internal())
}
