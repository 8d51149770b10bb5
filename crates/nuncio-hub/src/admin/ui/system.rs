//! The hub itself: its build, its store, its memory, its addresses for programs.

use askama::Template;

use super::{
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{ShowStats, StatsOptions},
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
    })
}
