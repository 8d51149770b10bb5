//! The hub itself: its version, its readiness, its addresses for programs.

use askama::Template;

use super::{
    shell::{Area, Shell, Theme},
    visit::{Answer, Visit, render},
};
use crate::admin::{api::ShowHealth, health};

#[derive(Template)]
#[template(path = "ui/system.html")]
struct SystemPage {
    shell: Shell,
    version: String,
    ready: bool,
    reasons: Vec<String>,
    is_volatile: bool,
    agents: usize,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("System", Area::System).from_route(&ShowHealth {}, None)?;
    let health = visit.call(health::show, ShowHealth {}).await?;
    render(&SystemPage {
        shell,
        version: health.version,
        ready: health.ready,
        reasons: health.reasons,
        is_volatile: visit.state().is_volatile,
        agents: health.agents.len(),
    })
}
