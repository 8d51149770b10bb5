//! The first page: what is up, what happens, what needs somebody.

use askama::Template;

use super::{
    agents::AgentRow,
    shell::{Area, Shell, Theme},
    tasks::{TaskRow, try_command},
    visit::{Answer, Visit, render},
};
use crate::admin::{
    agents,
    api::{DeliveryFilter, DeliveryState, ListAgents, ListDeliveries, ListTasks, Paging, ShowHealth, TaskFilter},
    deliveries, health, tasks,
};

/// Number of the latest tasks.
const LATEST: usize = 10;
/// Number of dead deliveries that are counted.
const MAX_DEAD: usize = 100;

#[derive(Template)]
#[template(path = "ui/overview.html")]
struct OverviewPage {
    shell: Shell,
    ready: bool,
    reasons: Vec<String>,
    agents: Vec<AgentRow>,
    rows: Vec<TaskRow>,
    dead: String,
    is_volatile: bool,
    try_command: String,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Overview", Area::Overview).from_route(&ShowHealth {}, None)?;
    let health = visit.call(health::show, ShowHealth {}).await?;
    let agents = visit.call(agents::list, ListAgents {}).await?.agents;
    let paging = |limit| Paging { limit: Some(limit), after: None };
    let filter = TaskFilter { paging: paging(LATEST), ..TaskFilter::default() };
    let tasks = visit.call(tasks::list, ListTasks { filter }).await?.tasks;
    let filter = DeliveryFilter {
        state: Some(DeliveryState::Dead),
        paging: paging(MAX_DEAD),
        ..DeliveryFilter::default()
    };
    let dead = visit.call(deliveries::list, ListDeliveries { filter }).await?;
    let count = dead.deliveries.len();
    render(&OverviewPage {
        shell,
        ready: health.ready,
        reasons: health.reasons,
        agents: agents.into_iter().map(AgentRow::from).collect(),
        rows: tasks.into_iter().map(TaskRow::from).collect(),
        dead: if dead.next.is_some() { format!("more than {count}") } else { count.to_string() },
        is_volatile: visit.state().is_volatile,
        try_command: try_command(visit.state()),
    })
}
