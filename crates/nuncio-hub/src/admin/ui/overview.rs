//! The overview page: health, recent activity, and items that need an operator.

use askama::Template;

use super::{
    chart::Bars,
    shell::{Area, Shell, Theme},
    show,
    tasks::{TaskRow, try_command},
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{
        AgentFigures, DeliveryFilter, DeliveryState, Latency, ListDeliveries, ListTasks, Paging, ShowStats,
        Stats, StatsOptions, TaskFilter,
    },
    deliveries, stats, tasks,
};

/// Number of the latest tasks.
const LATEST: usize = 10;
/// Number of dead deliveries that are counted.
const MAX_DEAD: usize = 100;
/// Number of minutes in the charts.
const CHART_MINUTES: usize = 120;

/// A number with a name.
struct Count {
    name: String,
    count: u64,
}

/// An agent with its figures of the last ten minutes.
struct AgentCard {
    name: String,
    path: String,
    health: String,
    running: usize,
    calls: u64,
    errors: Option<String>,
    p95: Option<String>,
    last_call: Option<String>,
}

impl From<AgentFigures> for AgentCard {
    fn from(agent: AgentFigures) -> Self {
        Self {
            path: format!("/ui/agents/{}", show::segment(&agent.name)),
            name: agent.name,
            health: show::word(agent.health),
            running: agent.tasks_in_flight,
            calls: agent.calls,
            errors: agent.error_rate.map(|rate| format!("{:.1} %", rate * 100.0)),
            p95: agent.latency.map(|latency| millis(latency.p95)),
            last_call: agent.last_call.map(|call| call.to_string()),
        }
    }
}

#[derive(Template)]
#[template(path = "ui/overview.html")]
struct OverviewPage {
    shell: Shell,
    warnings: Vec<String>,
    dead: Option<String>,
    states: Vec<Count>,
    per_second: String,
    failed: u64,
    latency: Option<(String, String, String)>,
    streams: u64,
    pending: u64,
    oldest: Option<String>,
    errors: Vec<Count>,
    mix: Vec<Count>,
    calls: Bars,
    working: Bars,
    agents: Vec<AgentCard>,
    rows: Vec<TaskRow>,
    try_command: String,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let request = ShowStats { options: StatsOptions { minutes: Some(CHART_MINUTES) } };
    let shell = visit.shell("Overview", Area::Overview).with_route(&request, Some("top".to_owned()))?;
    let stats = visit.call(stats::show, request).await?;
    let paging = |limit| Paging { limit: Some(limit), after: None };
    let filter = TaskFilter { paging: paging(LATEST), ..TaskFilter::default() };
    let latest = visit.call(tasks::list, ListTasks { filter }).await?.tasks;
    let filter = DeliveryFilter {
        state: Some(DeliveryState::Dead),
        paging: paging(MAX_DEAD),
        ..DeliveryFilter::default()
    };
    let dead = visit.call(deliveries::list, ListDeliveries { filter }).await?;
    let dead = match (dead.deliveries.len(), dead.next) {
        (0, _) => None,
        (1, None) => Some("1 delivery to a webhook was given up".to_owned()),
        (count, None) => Some(format!("{count} deliveries to webhooks were given up")),
        (count, Some(_)) => Some(format!("more than {count} deliveries to webhooks were given up")),
    };
    let (calls, working) = charts(&stats);
    let quantiles = |Latency { p50, p95, p99 }| (millis(p50), millis(p95), millis(p99));
    render(&OverviewPage {
        shell,
        warnings: stats.warnings.into_iter().map(|warning| show::cell(&warning.message)).collect(),
        dead,
        states: stats
            .tasks
            .iter()
            .map(|state| Count { name: show::state(state.state), count: state.tasks })
            .collect(),
        per_second: format!("{:.1}", stats.calls.per_second),
        failed: stats.calls.failed,
        latency: stats.calls.latency.map(quantiles),
        streams: stats.open_streams,
        pending: stats.deliveries.pending,
        oldest: stats.deliveries.oldest.map(|oldest| oldest.to_string()),
        errors: stats
            .errors
            .into_iter()
            .map(|error| Count { name: format!("{} ({})", error.reason, error.code), count: error.calls })
            .collect(),
        mix: stats
            .mix
            .into_iter()
            .map(|mix| Count {
                name: format!("{} {}", mix.interface.version, mix.interface.binding),
                count: mix.calls,
            })
            .collect(),
        calls,
        working,
        agents: stats.by_agent.into_iter().map(AgentCard::from).collect(),
        rows: latest.into_iter().map(TaskRow::from).collect(),
        try_command: try_command(visit.state()),
    })
}

/// Calls per minute with the failed ones, and tasks that have not ended.
fn charts(stats: &Stats) -> (Bars, Bars) {
    let calls = stats.history.iter().map(|minute| (minute.calls, minute.failed));
    let open = stats.history.iter().map(|minute| {
        let open = minute.tasks.iter().filter(|count| !count.state.is_terminal()).map(|count| count.tasks);
        (open.sum(), 0)
    });
    (Bars::new(calls, CHART_MINUTES), Bars::new(open, CHART_MINUTES))
}

fn millis(millis: f64) -> String {
    match millis {
        millis if millis >= 10_000.0 => format!("{:.0} s", millis / 1000.0),
        millis if millis >= 10.0 => format!("{millis:.0} ms"),
        millis => format!("{millis:.1} ms"),
    }
}
