//! The hub itself: its build, its store, its memory, the hubs beside it, its addresses for programs.

use askama::Template;
use axum::response::IntoResponse as _;
use http::header;

use super::{
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{HubInfo, ListHubs, ShowDiagnostics, ShowStats, StatsOptions},
    diagnostics, hubs,
    problem::AdminProblem,
    stats,
};

#[derive(Template)]
#[template(path = "ui/system.html")]
struct SystemPage {
    shell: Shell,
    version: String,
    started: String,
    ready: bool,
    warnings: Vec<String>,
    store: String,
    stored: Option<String>,
    limit: String,
    resident: Option<String>,
    streams: u64,
    hubs: Vec<HubRow>,
}

/// A hub of the store.
struct HubRow {
    url: String,
    listen: String,
    version: String,
    started: String,
    seen: String,
    is_this: bool,
}

impl From<HubInfo> for HubRow {
    fn from(hub: HubInfo) -> Self {
        Self {
            url: show::cell(&hub.url),
            listen: show::cell(&hub.listen),
            version: show::cell(&hub.version),
            started: hub.started.to_string(),
            seen: hub.seen.to_string(),
            is_this: hub.this,
        }
    }
}

pub(super) async fn page(visit: Visit) -> Answer {
    let request = ShowStats { options: StatsOptions { minutes: Some(0) } };
    let shell = visit.shell("System", Area::System).with_route(&request, Some("top".to_owned()))?;
    let stats = visit.call(stats::show, request).await?;
    let size = |bytes: usize| show::bytes(bytes as u64);
    render(&SystemPage {
        shell,
        version: stats.version,
        started: stats.started.to_string(),
        ready: stats.ready,
        warnings: stats.warnings.into_iter().map(|warning| show::cell(&warning.message)).collect(),
        store: show::word(stats.store.kind),
        stored: stats.store.bytes.map(show::bytes),
        limit: size(stats.memory.limit),
        resident: stats.memory.resident.map(size),
        streams: stats.open_streams,
        hubs: visit.call(hubs::list, ListHubs {}).await?.hubs.into_iter().map(HubRow::from).collect(),
    })
}

/// The state of the hub as a file.
pub(super) async fn diagnostics(visit: Visit) -> Answer {
    let collected = visit.call(diagnostics::show, ShowDiagnostics {}).await?;
    let body = serde_json::to_vec_pretty(&collected).map_err(|_| AdminProblem::internal())?;
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"nuncio-diagnostics.json\""),
    ];
    Ok((headers, body).into_response())
}
