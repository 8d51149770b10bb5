//! The calls since the hub started, as numbers: the difference between two totals tells about the time between
//! them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use nuncio_protocol::{Binding, ErrorKind, Fault, Timestamp, Version, op::Op};
use prometheus_client::metrics::counter::Counter;

use super::{
    metrics::{AgentCells, BINDINGS, Metrics, SECONDS},
    observed::{OpTotals, Shown},
};

/// The HTTP status from which an error is no fault of the caller.
const FIRST_FAILURE: u16 = 500;

/// Calls to one agent, or to all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallTotals {
    ok: u64,
    abandoned: u64,
    errors: [u64; ErrorKind::TABLE.len()],
    /// By version and binding; the last binding is "none".
    mix: [[u64; BINDINGS]; Version::ALL.len()],
    /// By duration, in the buckets of the metrics.
    latency: [u64; SECONDS.len() + 1],
}

/// The calls of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentTotals {
    pub(crate) calls: CallTotals,
    pub(crate) open_streams: u64,
    pub(crate) last_call: Option<Timestamp>,
}

impl Metrics {
    /// The calls of each agent that was ever served.
    pub(crate) fn totals(&self) -> BTreeMap<Arc<str>, AgentTotals> {
        self.agents.lock().iter().map(|(name, cells)| (Arc::clone(name), cells.totals())).collect()
    }
}

impl Metrics {
    /// The outcomes of the calls of one operation to an agent; of an agent in proxy mode they are its own answers.
    pub(crate) fn outcomes(&self, agent: &str, op: Op) -> OpTotals {
        self.agents.lock().get(agent).map(|cells| cells.outcomes(op)).unwrap_or_default()
    }
}

impl AgentCells {
    fn outcomes(&self, op: Op) -> OpTotals {
        let row = Version::ALL.len() * BINDINGS;
        let mut totals = OpTotals::default();
        for cell in self.cells[op as usize * row..][..row].iter().filter_map(OnceLock::get) {
            totals.answered += count(&cell.ok);
            for (row, counter) in ErrorKind::TABLE.iter().zip(&cell.errors) {
                let fault = if row.http >= FIRST_FAILURE { Fault::Upstream } else { Fault::Caller };
                *match Shown::of(row.kind, fault) {
                    Shown::Answered => &mut totals.answered,
                    Shown::Refused => &mut totals.refused,
                    Shown::Failed => &mut totals.failed,
                } += count(counter);
            }
        }
        totals
    }

    fn totals(&self) -> AgentTotals {
        let mut calls = CallTotals::default();
        for (at, cell) in self.cells.iter().enumerate() {
            let Some(cell) = cell.get() else { continue };
            let (ok, abandoned) = (count(&cell.ok), count(&cell.abandoned));
            calls.ok += ok;
            calls.abandoned += abandoned;
            let mut all = ok + abandoned;
            for (sum, counter) in calls.errors.iter_mut().zip(&cell.errors) {
                let errors = count(counter);
                *sum += errors;
                all += errors;
            }
            calls.mix[at / BINDINGS % Version::ALL.len()][at % BINDINGS] += all;
        }
        for (sum, bucket) in calls.latency.iter_mut().zip(&self.latency) {
            *sum = bucket.load(Ordering::Relaxed);
        }
        let last_call = Some(self.last_call.load(Ordering::Relaxed)).filter(|millis| *millis != 0);
        AgentTotals {
            calls,
            open_streams: u64::try_from(self.streams.get()).unwrap_or_default(),
            last_call: last_call.and_then(Timestamp::from_millis),
        }
    }
}

fn count(counter: &OnceLock<Counter>) -> u64 {
    counter.get().map_or(0, Counter::get)
}

impl CallTotals {
    /// All calls.
    pub(crate) fn calls(&self) -> u64 {
        self.ok + self.abandoned + self.errors.iter().sum::<u64>()
    }

    /// The calls that failed by a fault of the agent or of the hub.
    pub(crate) fn failed(&self) -> u64 {
        self.errors().filter(|(kind, _)| kind.row().http >= FIRST_FAILURE).map(|(_, count)| count).sum()
    }

    /// The kinds of errors that occurred, with their numbers.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        let kinds = ErrorKind::TABLE.iter().map(|row| row.kind);
        kinds.zip(self.errors).filter(|(_, count)| *count > 0)
    }

    /// The versions and bindings that occurred, with their numbers; a call inside of the hub has no binding.
    pub(crate) fn mix(&self) -> impl Iterator<Item = (Version, Option<Binding>, u64)> + '_ {
        let bindings = || Binding::ALL.iter().copied().map(Some).chain([None]);
        let all = Version::ALL.iter().flat_map(move |version| {
            bindings().map(move |binding| {
                let at = binding.map_or(BINDINGS - 1, |binding| binding as usize);
                (*version, binding, self.mix[*version as usize][at])
            })
        });
        all.filter(|(.., count)| *count > 0)
    }

    /// The duration below which this share of the calls was answered, estimated within its bucket; `None` without
    /// calls.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.latency.iter().sum();
        let wanted = all as f64 * share;
        let (mut below, mut low) = (0.0, 0.0);
        for (at, count) in self.latency.iter().enumerate() {
            // The last bucket has no upper bound.
            let high = SECONDS.get(at).copied().unwrap_or(low);
            let count = *count as f64;
            if count > 0.0 && below + count >= wanted {
                let within = (wanted - below) / count;
                return Some(Duration::from_secs_f64(low + (high - low) * within.clamp(0.0, 1.0)));
            }
            (below, low) = (below + count, high);
        }
        None
    }

    /// Adds the calls of another agent.
    pub(crate) fn add(&mut self, other: &Self) {
        self.zip(other, |sum, one| *sum += one);
    }

    /// The calls since an earlier total.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        self.zip(earlier, |now, before| *now = now.saturating_sub(before));
        self
    }

    fn zip(&mut self, other: &Self, apply: impl Fn(&mut u64, u64)) {
        let Self { ok, abandoned, errors, mix, latency } = self;
        apply(ok, other.ok);
        apply(abandoned, other.abandoned);
        errors.iter_mut().zip(other.errors).for_each(|(own, other)| apply(own, other));
        mix.iter_mut()
            .flatten()
            .zip(other.mix.into_iter().flatten())
            .for_each(|(own, other)| apply(own, other));
        latency.iter_mut().zip(other.latency).for_each(|(own, other)| apply(own, other));
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::op::Op;

    use super::{super::metrics::CallOutcome, *};

    #[test]
    fn totals_are_the_calls_that_were_counted() {
        let metrics = Arc::new(Metrics::default());
        let agent = metrics.agent("echo");
        let (v1, v03) = (Version::V1_0, Version::V0_3);
        for (version, binding, outcome) in [
            (v1, Some(Binding::JsonRpc), CallOutcome::Ok),
            (v1, Some(Binding::Grpc), CallOutcome::Ok),
            (v03, Some(Binding::HttpJson), CallOutcome::Abandoned),
            (v1, None, CallOutcome::Error(ErrorKind::TaskNotFound)),
            (v03, Some(Binding::HttpJson), CallOutcome::Error(ErrorKind::Unavailable)),
        ] {
            agent.count(Op::GetTask, version, binding, outcome);
        }
        let before = metrics.totals()["echo"].calls.clone();
        assert_eq!((before.calls(), before.failed()), (5, 1));
        assert_eq!(
            before.errors().collect::<Vec<_>>(),
            [(ErrorKind::TaskNotFound, 1), (ErrorKind::Unavailable, 1)]
        );
        let mix = [
            (v1, Some(Binding::JsonRpc), 1),
            (v1, Some(Binding::Grpc), 1),
            (v1, None, 1),
            (v03, Some(Binding::HttpJson), 2),
        ];
        assert_eq!(before.mix().collect::<Vec<_>>(), mix);
        // Served anew after a change of its settings.
        metrics.agent("echo").count(Op::SendMessage, v1, None, CallOutcome::Ok);
        let now = metrics.totals()["echo"].calls.clone();
        assert_eq!((now.calls(), now.clone().since(&before).calls()), (6, 1));
        let mut both = now;
        both.add(&before);
        assert_eq!(both.calls(), 11);
        assert_eq!(
            metrics.outcomes("echo", Op::GetTask),
            OpTotals { answered: 3, refused: 0, failed: 1 },
            "an abandoned call shows nothing"
        );
    }

    #[test]
    fn quantiles_are_estimated_within_their_bucket() {
        let metrics = Arc::new(Metrics::default());
        let agent = metrics.agent("echo");
        assert_eq!(metrics.totals()["echo"].calls.quantile(0.5), None, "no call");
        for (calls, seconds) in [(50, 0.0009), (40, 0.02), (10, 700.0)] {
            (0..calls).for_each(|_| agent.observe(Op::GetTask, Version::V1_0, None, seconds));
        }
        let calls = &metrics.totals()["echo"].calls;
        for (share, low, high) in
            [(0.25, 0.0005, 0.001), (0.5, 0.0005, 0.001), (0.9, 0.01, 0.025), (0.99, 600.0, 600.0)]
        {
            let found = calls.quantile(share).unwrap().as_secs_f64();
            assert!((low..=high).contains(&found), "{share}: {found}");
        }
    }

    #[test]
    fn the_last_call_and_the_open_streams_are_told() {
        let metrics = Arc::new(Metrics::default());
        let agent = metrics.agent("echo");
        assert_eq!(metrics.totals()["echo"].last_call, None);
        agent.called(Timestamp::from_millis(5).unwrap());
        agent.streams().inc();
        let totals = &metrics.totals()["echo"];
        assert_eq!((totals.last_call, totals.open_streams), (Timestamp::from_millis(5), 1));
    }
}
