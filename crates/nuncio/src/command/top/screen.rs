//! The lines of `nuncio top`: pure functions of the figures.

use nuncio_hub::admin::api::{AgentFigures, EventKind, HubEvent, Latency, MinuteSample, Stats};

use super::super::pages::word;
use crate::output;

/// The characters of a column chart, from low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The number of minutes in the chart.
const CHART_MINUTES: usize = 60;
/// The maximum number of agents that are shown, the busiest first.
const MAX_AGENTS: usize = 20;

/// The figures as lines, without line breaks or control characters of their own.
pub(super) fn lines(stats: &Stats) -> Vec<String> {
    let mut lines = vec![
        format!(
            "nuncio {}  up {}  {}  {} store{}",
            stats.version,
            duration(stats.uptime_seconds),
            if stats.ready { "ready" } else { "NOT READY" },
            word(stats.store.kind),
            stats.store.bytes.map(|size| format!(" {}", bytes(size))).unwrap_or_default(),
        ),
        format!(
            "agents      {} up  {} degraded  {} down  {} not called yet",
            stats.agents.up, stats.agents.degraded, stats.agents.down, stats.agents.unknown
        ),
        format!("tasks       {}", tasks(stats)),
        format!(
            "calls       {:.1}/s  {} failed in {}  {}",
            stats.calls.per_second,
            stats.calls.failed,
            span(stats.calls.window_seconds),
            latency(stats.calls.latency)
        ),
        format!(
            "streams     {} open      deliveries  {} pending{}",
            stats.open_streams,
            stats.deliveries.pending,
            stats.deliveries.oldest.map(|oldest| format!(" since {oldest}")).unwrap_or_default()
        ),
    ];
    let chart = chart(&stats.history);
    if !chart.is_empty() {
        lines.push(format!("per minute  {chart}"));
    }
    let errors: Vec<_> =
        stats.errors.iter().map(|error| format!("{} {}", error.reason, error.calls)).collect();
    if !errors.is_empty() {
        lines.push(format!("errors      {}", errors.join("  ")));
    }
    let mix = stats
        .mix
        .iter()
        .map(|mix| format!("{} {} {}", mix.interface.version, mix.interface.binding, mix.calls));
    let mix: Vec<_> = mix.collect();
    if !mix.is_empty() {
        lines.push(format!("interfaces  {}", mix.join("  ")));
    }
    lines.extend(stats.warnings.iter().map(|warning| format!("warning     {}", warning.message)));
    lines.push(String::new());
    lines.push(format!(
        "{:<24} {:<9} {:>12} {:>7} {:>7} {:>7}  last call",
        "agent", "health", "calls/10 min", "failed", "running", "streams"
    ));
    let mut agents: Vec<_> = stats.by_agent.iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse((agent.calls, agent.last_call)));
    lines.extend(agents.iter().take(MAX_AGENTS).map(|agent| row(agent)));
    if agents.len() > MAX_AGENTS {
        lines.push(format!("and {} more", agents.len() - MAX_AGENTS));
    }
    lines
}

fn row(agent: &AgentFigures) -> String {
    format!(
        "{:<24} {:<9} {:>12} {:>7} {:>7} {:>7}  {}",
        agent.name,
        word(agent.health),
        agent.calls,
        agent.failed,
        agent.tasks_in_flight,
        agent.open_streams,
        agent.last_call.map_or_else(|| "-".to_owned(), |at| at.to_string()),
    )
}

/// An event as a line.
pub(super) fn event(event: &HubEvent) -> String {
    let mut words = vec![event.at.to_string(), format!("{:<8}", word(event.kind))];
    let subject = if event.kind == EventKind::Task { &event.task_id } else { &event.subject };
    words.extend(event.agent.clone());
    words.extend(subject.clone());
    words.extend(event.state.map(|state| output::state(state).to_owned()));
    words.extend(event.change.clone());
    words.extend(event.sequence.map(|sequence| format!("#{sequence}")));
    words.join("  ")
}

/// A span of time, in whole minutes if it has some.
fn span(seconds: u64) -> String {
    if seconds > 0 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}

fn tasks(stats: &Stats) -> String {
    let counts = stats.tasks.iter().map(|count| format!("{} {}", count.tasks, output::state(count.state)));
    let counts: Vec<_> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join("  ") }
}

fn latency(latency: Option<Latency>) -> String {
    latency.map_or_else(String::new, |Latency { p50, p95, p99 }| {
        format!("p50 {p50:.1} ms  p95 {p95:.1} ms  p99 {p99:.1} ms")
    })
}

/// A column for each of the last minutes, as high as its calls.
fn chart(history: &[MinuteSample]) -> String {
    let shown = &history[history.len().saturating_sub(CHART_MINUTES)..];
    let most = shown.iter().map(|minute| minute.calls).max().unwrap_or_default().max(1);
    let bar = |minute: &MinuteSample| {
        let at = usize::try_from(minute.calls * (BARS.len() as u64 - 1) / most).unwrap_or_default();
        BARS[at.min(BARS.len() - 1)]
    };
    shown.iter().map(bar).collect()
}

/// A duration with its two largest units.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A size with its unit.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Timestamp;

    use super::*;

    #[test]
    fn durations_and_sizes_are_told_in_their_units() {
        for (seconds, expected) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_600, "1 h 0 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), expected);
        }
        for (size, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(size), expected);
        }
    }

    #[test]
    fn the_chart_has_a_column_for_each_of_the_last_minutes() {
        let minute = |calls| MinuteSample {
            at: Timestamp::EPOCH,
            calls,
            failed: 0,
            tasks: Vec::new(),
            open_streams: 0,
            pending_deliveries: 0,
        };
        for (calls, expected) in [(vec![], ""), (vec![0], "▁"), (vec![0, 7, 3, 14], "▁▄▂█")] {
            assert_eq!(chart(&calls.into_iter().map(minute).collect::<Vec<_>>()), expected);
        }
        let long: Vec<_> = (0..100).map(minute).collect();
        assert_eq!(chart(&long).chars().count(), CHART_MINUTES);
    }
}
