//! Samples of the hub's figures: the calls of the last minutes, from which rates follow, and one sample a minute
//! for the last hours. They are in memory and begin with the hub.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use nuncio_protocol::{TaskState, Timestamp, op::Op};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    clock,
    gauges::{Gauges, Stored},
    telemetry::{AgentTotals, CallTotals, Metrics, OpTotals},
};

/// The interval of samples of calls.
const CALLS_INTERVAL: Duration = Duration::from_secs(10);
/// The number of samples of calls that are kept: ten minutes, and the one before.
const MAX_CALLS: usize = 61;
/// The number of samples of calls between two that are kept for hours.
const CALLS_PER_MINUTE: u64 = 6;
/// The number of minutes that are kept: six hours.
pub(crate) const MAX_MINUTES: usize = 360;

/// The tasks in each state, by the state's number.
pub(crate) type States = [u64; TaskState::ALL.len()];

/// The figures of a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Minute {
    /// Its end.
    pub(crate) at: Timestamp,
    /// The calls within it.
    pub(crate) calls: u64,
    /// Those of them that failed by a fault of the agent or of the hub.
    pub(crate) failed: u64,
    pub(crate) tasks: States,
    pub(crate) open_streams: u64,
    pub(crate) pending_deliveries: u64,
}

/// The calls since an earlier sample.
#[derive(Clone, Debug)]
pub(crate) struct Since {
    /// The time since then.
    pub(crate) length: Duration,
    pub(crate) total: CallTotals,
    pub(crate) agents: BTreeMap<Arc<str>, CallTotals>,
}

/// The calls of all agents at a moment.
#[derive(Clone, Debug)]
struct Calls {
    at: Instant,
    agents: BTreeMap<Arc<str>, CallTotals>,
}

impl Calls {
    fn of(totals: &BTreeMap<Arc<str>, AgentTotals>) -> Self {
        let agents = totals.iter().map(|(name, totals)| (Arc::clone(name), totals.calls.clone())).collect();
        Self { at: Instant::now(), agents }
    }

    fn since(&self, earlier: &Self) -> Since {
        let mut total = CallTotals::default();
        let mut agents = BTreeMap::new();
        for (name, now) in &self.agents {
            // An agent that came later began without calls.
            let before = earlier.agents.get(name).cloned().unwrap_or_default();
            let calls = now.clone().since(&before);
            total.add(&calls);
            agents.insert(Arc::clone(name), calls);
        }
        Since { length: self.at.saturating_duration_since(earlier.at), total, agents }
    }
}

/// The samples of a hub.
pub(crate) struct Samples {
    metrics: Arc<Metrics>,
    pub(crate) gauges: Arc<Gauges>,
    started: Timestamp,
    rings: Mutex<Rings>,
}

struct Rings {
    /// The newest last; never empty.
    calls: VecDeque<Calls>,
    minutes: VecDeque<Minute>,
}

impl Samples {
    pub(crate) fn new(metrics: Arc<Metrics>, gauges: Arc<Gauges>) -> Self {
        let first = Calls::of(&metrics.totals());
        let rings = Rings { calls: VecDeque::from([first]), minutes: VecDeque::new() };
        Self { metrics, gauges, started: clock::now(), rings: Mutex::new(rings) }
    }

    /// The time at which the hub started.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// The calls of each agent until now.
    pub(crate) fn totals(&self) -> BTreeMap<Arc<str>, AgentTotals> {
        self.metrics.totals()
    }

    /// The answers of a remote agent to calls of this operation: to those of the hub, or in proxy mode of callers.
    pub(crate) fn observed(&self, agent: &str, op: Op, is_proxied: bool) -> OpTotals {
        match is_proxied {
            true => self.metrics.outcomes(agent, op),
            false => self.metrics.upstream_totals(agent, op),
        }
    }

    /// Takes samples for as long as it is polled.
    pub(crate) async fn run(&self) -> Infallible {
        let mut ticks = tokio::time::interval_at(Instant::now() + CALLS_INTERVAL, CALLS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut minute = Calls::of(&self.metrics.totals());
        loop {
            for _ in 0..CALLS_PER_MINUTE {
                ticks.tick().await;
                self.sample_calls();
            }
            minute = self.sample_minute(&minute).await;
        }
    }

    fn sample_calls(&self) {
        let sample = Calls::of(&self.metrics.totals());
        let calls = &mut self.rings.lock().calls;
        calls.push_back(sample);
        if calls.len() > MAX_CALLS {
            calls.pop_front();
        }
    }

    /// Adds the minute since `before`; returns the calls until now.
    async fn sample_minute(&self, before: &Calls) -> Calls {
        let stored = self.gauges.stored().await;
        let totals = self.metrics.totals();
        let now = Calls::of(&totals);
        let Since { total, .. } = now.since(before);
        let minute = Minute {
            at: clock::now(),
            calls: total.calls(),
            failed: total.failed(),
            tasks: by_state(&stored),
            open_streams: totals.values().map(|agent| agent.open_streams).sum(),
            pending_deliveries: stored.backlog.pending,
        };
        let minutes = &mut self.rings.lock().minutes;
        minutes.push_back(minute);
        if minutes.len() > MAX_MINUTES {
            minutes.pop_front();
        }
        now
    }

    /// The calls since the newest sample that is at least so old, or since the oldest.
    pub(crate) fn since(&self, age: Duration) -> Since {
        let now = Calls::of(&self.metrics.totals());
        let rings = self.rings.lock();
        let is_old = |sample: &&Calls| now.at.saturating_duration_since(sample.at) >= age;
        let sample = rings.calls.iter().rev().find(is_old).or(rings.calls.front());
        sample.map_or_else(|| now.since(&now), |sample| now.since(sample))
    }

    /// The last minutes, at most so many, the newest last.
    pub(crate) fn minutes(&self, most: usize) -> Vec<Minute> {
        let rings = self.rings.lock();
        rings.minutes.iter().skip(rings.minutes.len().saturating_sub(most)).cloned().collect()
    }
}

/// The tasks of all agents in each state.
pub(crate) fn by_state(stored: &Stored) -> States {
    let mut states = States::default();
    for count in &stored.tasks {
        states[count.state as usize] += count.tasks;
    }
    states
}

#[cfg(test)]
mod tests {
    use nuncio_server::{
        MemoryAccount,
        store::{MemoryStore, Store},
    };
    use url::Url;

    use super::*;
    use crate::{
        agent_urls::AgentUrls, agents::Consents, fleet::Fleet, telemetry::HubTelemetry, trail::Trail,
    };

    fn samples() -> Samples {
        let telemetry = HubTelemetry::start(&Default::default()).unwrap();
        let urls = AgentUrls::new(&Url::parse("http://127.0.0.1").unwrap(), None);
        let fleet = Arc::new(Fleet::new(&urls));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let metrics = Arc::clone(&telemetry.metrics);
        let consents = Arc::new(Consents::new(&store, &Trail::new(&store).0));
        let gauges = Gauges::new(Arc::clone(&metrics), store, fleet, consents, MemoryAccount::default());
        Samples::new(metrics, Arc::new(gauges))
    }

    #[tokio::test(start_paused = true)]
    async fn samples_are_taken_by_the_minute_and_bounded() {
        let samples = samples();
        assert_eq!((samples.minutes(9).len(), samples.since(Duration::ZERO).total.calls()), (0, 0));
        tokio::select! {
            never = samples.run() => match never {},
            () = tokio::time::sleep(Duration::from_secs(60 * 60 * 7)) => {}
        }
        assert_eq!(samples.minutes(usize::MAX).len(), MAX_MINUTES);
        assert_eq!(samples.minutes(3).len(), 3);
        assert_eq!(samples.minutes(3)[..], samples.minutes(usize::MAX)[MAX_MINUTES - 3..], "the newest");
        assert_eq!(samples.rings.lock().calls.len(), MAX_CALLS);
        let minute = Duration::from_secs(60);
        let last = samples.since(minute).length;
        assert!((minute..minute + CALLS_INTERVAL).contains(&last), "{last:?}");
        let longest = samples.since(Duration::MAX).length;
        assert!((10 * minute..11 * minute).contains(&longest), "{longest:?}");
    }
}
