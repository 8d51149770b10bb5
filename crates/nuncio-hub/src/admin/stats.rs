//! The figures of the hub, and what needs attention.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use nuncio_protocol::{Binding, TaskState, Timestamp};
use nuncio_server::MemoryAccount;

use super::{
    AdminState, agents,
    api::{
        AgentCounts, AgentFigures, CallRates, DEFAULT_HISTORY_MINUTES, DeliveryBacklog, ErrorCount,
        HealthState, Interface, InterfaceCount, Latency, MemoryFigures, MinuteSample, ShowStats, StateCount,
        Stats, StoreFigures, StoreKind, Warning, WarningKind,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::{
    clock,
    config::Data,
    listen::Certificates,
    memory,
    samples::{Minute, Samples, Since, States, by_state},
    telemetry::{AgentTotals, CallTotals},
};

/// The age of the sample from which rates and latencies count.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// The age of the sample from which errors and shares count.
const SHARE_WINDOW: Duration = Duration::from_secs(600);
/// The time before the end of a key or certificate from which it is a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The interface of calls that come from inside of the hub.
const NO_BINDING: &str = "none";

/// Facts about the hub that do not change while it runs, with the sources of its figures.
pub(crate) struct HubFacts {
    pub(crate) samples: Arc<Samples>,
    pub(crate) memory: MemoryAccount,
    pub(crate) store: StoreKind,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) signs_cards: bool,
    /// Callers on other machines can reach the hub.
    pub(crate) is_on_network: bool,
}

impl From<&Data> for StoreKind {
    fn from(data: &Data) -> Self {
        match data {
            Data::Memory { .. } => Self::Memory,
            Data::Sqlite { .. } => Self::Sqlite,
            Data::Postgres { .. } => Self::Postgres,
        }
    }
}

pub(super) async fn show(state: Arc<AdminState>, request: ShowStats) -> Result<Reply<Stats>, AdminProblem> {
    let facts = &state.facts;
    let stored = facts.samples.gauges.stored().await;
    let (now, started) = (clock::now(), facts.samples.started());
    let totals = facts.samples.totals();
    let lately = facts.samples.since(SHARE_WINDOW);
    let reasons = state.fleet.why_not_ready();
    let minutes = request.options.minutes.unwrap_or(DEFAULT_HISTORY_MINUTES);
    let by_agent = figures(&state, &totals, &lately);
    Ok(Reply::new(Stats {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        uptime_seconds: since(started, now).as_secs(),
        ready: reasons.is_empty(),
        warnings: warnings(&state, &reasons, now),
        agents: count(&by_agent),
        tasks: states(&by_state(&stored)),
        open_streams: totals.values().map(|agent| agent.open_streams).sum(),
        deliveries: DeliveryBacklog { pending: stored.backlog.pending, oldest: stored.backlog.oldest },
        calls: rates(&facts.samples.since(RATE_WINDOW)),
        errors: errors(&lately.total),
        mix: mix(&lately.total),
        by_agent,
        store: StoreFigures { kind: facts.store, bytes: stored.bytes },
        memory: MemoryFigures { limit: facts.memory.limit(), resident: memory::resident() },
        history: facts.samples.minutes(minutes).into_iter().map(minute).collect(),
    }))
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(now.as_millis() - earlier.as_millis()).unwrap_or_default())
}

fn figures(
    state: &AdminState,
    totals: &BTreeMap<Arc<str>, AgentTotals>,
    lately: &Since,
) -> Vec<AgentFigures> {
    let agents = state.fleet.all();
    let figures = agents.iter().map(|agent| {
        let calls = lately.agents.get(agent.name()).cloned().unwrap_or_default();
        let total = totals.get(agent.name());
        let all = calls.calls();
        AgentFigures {
            name: agent.name().to_string(),
            health: agents::health_of(agent).state,
            calls: all,
            failed: calls.failed(),
            error_rate: (all > 0).then(|| calls.failed() as f64 / all as f64),
            latency: latency(&calls),
            last_call: total.and_then(|total| total.last_call),
            tasks_in_flight: agent.runtime().map_or(0, |runtime| runtime.running()),
            open_streams: total.map_or(0, |total| total.open_streams),
        }
    });
    figures.collect()
}

fn count(agents: &[AgentFigures]) -> AgentCounts {
    let mut counts = AgentCounts::default();
    for agent in agents {
        *match agent.health {
            HealthState::Up => &mut counts.up,
            HealthState::Degraded => &mut counts.degraded,
            HealthState::Down => &mut counts.down,
            HealthState::Unknown => &mut counts.unknown,
        } += 1;
    }
    counts
}

fn rates(Since { length, total, .. }: &Since) -> CallRates {
    let seconds = length.as_secs_f64();
    CallRates {
        window_seconds: length.as_secs(),
        calls: total.calls(),
        failed: total.failed(),
        per_second: if seconds > 0.0 { total.calls() as f64 / seconds } else { 0.0 },
        latency: latency(total),
    }
}

fn latency(calls: &CallTotals) -> Option<Latency> {
    let millis = |share| Some(calls.quantile(share)?.as_secs_f64() * 1000.0);
    Some(Latency { p50: millis(0.5)?, p95: millis(0.95)?, p99: millis(0.99)? })
}

fn errors(calls: &CallTotals) -> Vec<ErrorCount> {
    let errors = calls.errors().map(|(kind, calls)| {
        let row = kind.row();
        ErrorCount { reason: row.reason.to_owned(), code: row.code, calls }
    });
    let mut errors: Vec<_> = errors.collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.calls));
    errors
}

fn mix(calls: &CallTotals) -> Vec<InterfaceCount> {
    let mix = calls.mix().map(|(version, binding, calls)| {
        let binding = binding.map_or(NO_BINDING, Binding::as_str).to_owned();
        InterfaceCount { interface: Interface { version: version.as_str().to_owned(), binding }, calls }
    });
    let mut mix: Vec<_> = mix.collect();
    mix.sort_by_key(|interface| std::cmp::Reverse(interface.calls));
    mix
}

fn states(states: &States) -> Vec<StateCount> {
    let counts =
        TaskState::ALL.iter().map(|state| StateCount { state: *state, tasks: states[*state as usize] });
    counts.filter(|count| count.tasks > 0).collect()
}

fn minute(minute: Minute) -> MinuteSample {
    let Minute { at, calls, failed, tasks, open_streams, pending_deliveries } = minute;
    MinuteSample { at, calls, failed, tasks: states(&tasks), open_streams, pending_deliveries }
}

fn warnings(state: &AdminState, not_ready: &[&str], now: Timestamp) -> Vec<Warning> {
    let facts = &state.facts;
    let mut warnings = Vec::new();
    let mut warn = |kind, subject: Option<String>, message: String| {
        warnings.push(Warning { kind, subject, message });
    };
    for reason in not_ready {
        warn(WarningKind::NotReady, None, format!("the hub does not accept calls: {reason}"));
    }
    if facts.is_on_network && !state.identity.is_closed() {
        let message = "anybody who reaches the hub may call its agents; create keys by `nuncio key create`, or \
                       configure token issuers";
        warn(WarningKind::OpenAccess, None, message.to_owned());
    }
    let soon = clock::later(now, EXPIRES_SOON);
    if let Some(expires) = facts.certificates.as_ref().and_then(|certificates| certificates.expires())
        && expires < soon
    {
        let message =
            format!("the TLS certificate expires at {expires}; replace its files, which are read again");
        warn(WarningKind::CertificateExpires, None, message);
    }
    for (key, _) in state.identity.keyring().list() {
        let ends = key.expires.filter(|ends| key.revoked.is_none() && *ends > now && *ends < soon);
        if let Some(ends) = ends {
            let message =
                format!("the key {} expires at {ends}; create a new one before, and hand it out", key.name);
            warn(WarningKind::KeyExpires, Some(key.name), message);
        }
    }
    if facts.store == StoreKind::Memory {
        let message = "tasks and keys are in memory and are lost when the hub stops; name a file by --data";
        warn(WarningKind::MemoryStore, None, message.to_owned());
    }
    if !facts.signs_cards {
        let message = "cards are not signed, so callers cannot tell a changed one; sign them by --card-key";
        warn(WarningKind::UnsignedCards, None, message.to_owned());
    }
    warnings
}
