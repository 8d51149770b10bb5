//! All metrics of the hub in one table, and the handles to update them.
//!
//! No global state: each hub has its own registry. Labels are bounded: agent names are those of the fleet,
//! the rest are words of the protocol, and no label contains the id of a task, a context or a caller. The
//! handles of a request are looked up once and kept ([`AgentMetrics`]), so that a request costs a few atomic
//! additions.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nuncio_protocol::{Binding, ErrorKind, TaskState, Timestamp, Version, op::Op};
use nuncio_server::{
    MemoryAccount, MemoryUse,
    store::{DeliveryState, Settled, StoreOp, Watch},
};
use parking_lot::Mutex;

use super::observed::{OpTotals, UpstreamCells};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry},
};

/// The definition of a metric, for the registry and for the documentation.
pub(super) struct Definition {
    /// Without the suffix that its kind adds.
    name: &'static str,
    #[cfg(test)]
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
}

#[cfg(test)]
#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

macro_rules! definitions {
    ($($constant:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)+) => {
        $(const $constant: Definition = Definition {
            name: concat!("nuncio_", $name),
            #[cfg(test)]
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// All definitions, in the order of registration.
        #[cfg(test)]
        const ALL: &[Definition] = &[$($constant),+];
    };
}

definitions! {
    REQUESTS Counter "requests" ["agent" "operation" "version" "binding" "outcome"]
        "Calls to agents by outcome: ok, abandoned (the caller left before the answer), or the reason of the error";
    REQUEST_SECONDS Histogram "request_seconds" ["agent" "operation" "version" "binding"]
        "Time until a call is answered; for streams, until the stream is open";
    FIRST_EVENT_SECONDS Histogram "first_event_seconds" ["agent" "operation" "version" "binding"]
        "Time from a call to the first event of its stream";
    STREAMS Gauge "open_streams" ["agent"]
        "Open streams";
    INFERRED_VERSIONS Counter "inferred_versions" ["agent" "binding"]
        "Calls without a version that were accepted all the same (lenient mode)";
    RESPONSES Counter "http_responses" ["status"]
        "HTTP responses of the public listener";
    TASKS Gauge "tasks" ["agent" "state"]
        "Stored tasks by state; the number is at most 15 seconds old";
    RUNNING Gauge "running_tasks" ["agent"]
        "Executions running in this process";
    PENDING_DELIVERIES Gauge "pending_deliveries" []
        "Pending webhook deliveries; the number is at most 15 seconds old";
    OLDEST_PENDING Gauge "oldest_pending_delivery_seconds" []
        "Age of the oldest pending delivery; 0 if there is none";
    ACCESS_REQUESTS Gauge "access_requests" []
        "Callers that wait for the consent of an agent's owner; the number is at most 15 seconds old";
    OLDEST_ACCESS_REQUEST Gauge "oldest_access_request_seconds" []
        "Age of the oldest request for consent; 0 if there is none";
    DELIVERIES Counter "delivery_attempts" ["outcome"]
        "Delivery attempts by outcome: delivered, retried (tried again later) or dead (given up)";
    DELIVERY_SECONDS Histogram "delivery_attempt_seconds" []
        "Duration of delivery attempts";
    TRANSLATIONS Counter "translations" ["agent" "from_version" "from_binding" "to_version" "to_binding" "lossy"]
        "Calls translated to another version or binding for a remote agent in proxy mode; lossy is true if the other version cannot express a part of the call";
    DENIALS Counter "denials" ["reason"]
        "Requests refused because of their caller: credentials_refused, attempts_limited, agent_denied or operation_denied";
    MODEL_TOKENS Counter "model_tokens" ["agent" "kind"]
        "Tokens of models by kind: input, output, cached (part of input) or reasoning (part of output)";
    MAILBOX_TURNS Gauge "mailbox_turns" ["agent" "state"]
        "Messages of a mailbox by state: waiting, or leased to a worker";
    MAILBOX_OLDEST Gauge "mailbox_oldest_waiting_seconds" ["agent"]
        "Age of the oldest message of a mailbox that waits; 0 if none does";
    LEASE_OFFERS Counter "lease_offers" ["agent"]
        "Leases that workers of a mailbox got";
    DELIVERIES_TO_AGENTS Counter "mailbox_deliveries" ["agent" "outcome"]
        "Messages posted to the webhook of an agent by outcome: answered, begun (202), retried, refused, gone (410), or held_back (not posted, because the webhook fails or is paused)";
    MAILBOX_DISABLED Gauge "mailbox_disabled" ["agent"]
        "1 if the webhook of an agent is gone (410) and was not enabled again, else 0";
    LEASE_ENDS Counter "lease_ends" ["agent" "outcome"]
        "Ends of turns and leases of a mailbox by outcome: done, returned (offered again), lost (the worker was lost), poison (offered too often) or unclaimed (no worker came)";
    AGENT_UP Gauge "agent_up" ["agent"]
        "1 if a remote agent answers, 0 if it does not; not for other agents";
    ROOM_ROUNDS Counter "room_rounds" ["room"]
        "Rounds of a room that were begun by a message";
    ROOM_TURNS Counter "room_turns" ["room"]
        "Messages of a room";
    ROOM_WAITING Gauge "room_waiting" ["room" "seat"]
        "Open rounds of a room in which this seat speaks next; the number is at most 5 seconds old";
    STORE_SECONDS Histogram "store_seconds" ["operation"]
        "Duration of store operations: commit, read or write; not for the memory store";
    STORE_ERRORS Counter "store_errors" ["operation"]
        "Failed store operations";
    MEMORY_LIMIT Gauge "memory_limit_bytes" []
        "Memory limit of the hub in bytes";
    MEMORY_RESIDENT Gauge "memory_resident_bytes" []
        "Resident memory of the process in bytes; 0 where the system does not report it";
    MEMORY_RESERVED Gauge "memory_reserved_bytes" ["use"]
        "Bytes reserved for large content: requests, responses or tasks";
    MEMORY_REFUSALS Counter "memory_refusals" ["use"]
        "Requests, responses and task events refused because of the memory limit";
    READY Gauge "ready" []
        "1 if the hub is ready for calls, 0 if not";
    RELOADS Counter "config_reloads" ["outcome"]
        "Configuration reloads by outcome: ok or refused";
    STARTED Gauge "start_time_seconds" []
        "Start time of the hub, in seconds since 1970";
    BUILD Info "build" ["version"]
        "Version of the hub";
}

/// Label names with their values.
type Labels<const N: usize> = [(&'static str, Arc<str>); N];
type CounterFamily<const N: usize> = Family<Labels<N>, Counter>;
type GaugeFamily<const N: usize> = Family<Labels<N>, Gauge>;
type HistogramFamily<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// The label value for "none".
const NONE: &str = "-";

/// Buckets from a tenth of a millisecond to ten minutes, the longest time of a blocking call.
pub(super) const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// The metrics of a hub.
pub(crate) struct Metrics {
    registry: Registry,
    requests: CounterFamily<5>,
    request_seconds: HistogramFamily<4>,
    first_event_seconds: HistogramFamily<4>,
    streams: GaugeFamily<1>,
    inferred_versions: CounterFamily<2>,
    responses: CounterFamily<1>,
    by_status: [OnceLock<Counter>; 600],
    pub(crate) tasks: GaugeFamily<2>,
    pub(super) running: GaugeFamily<1>,
    pub(crate) pending: Gauge,
    pub(crate) oldest_pending: Gauge<f64, AtomicU64>,
    pub(crate) access_requests: Gauge,
    pub(crate) oldest_access_request: Gauge<f64, AtomicU64>,
    deliveries: [Counter; 3],
    delivery_seconds: Histogram,
    translations: CounterFamily<6>,
    denials: CounterFamily<1>,
    model_tokens: CounterFamily<2>,
    mailbox_turns: GaugeFamily<2>,
    mailbox_oldest: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    lease_offers: CounterFamily<1>,
    mailbox_deliveries: CounterFamily<2>,
    mailbox_disabled: GaugeFamily<1>,
    lease_ends: CounterFamily<2>,
    agent_up: GaugeFamily<1>,
    room_rounds: CounterFamily<1>,
    room_turns: CounterFamily<1>,
    room_waiting: GaugeFamily<2>,
    store_seconds: [Histogram; StoreOp::ALL.len()],
    store_errors: [Counter; StoreOp::ALL.len()],
    memory_limit: Gauge,
    memory_resident: Gauge,
    memory_reserved: [Gauge; MemoryUse::ALL.len()],
    memory_refusals: [Counter; MemoryUse::ALL.len()],
    pub(crate) ready: Gauge,
    reloads: CounterFamily<1>,
    /// The handles of each agent by name. An agent that is served anew goes on with those of the one before.
    pub(super) agents: Mutex<BTreeMap<Arc<str>, Arc<AgentCells>>>,
    /// The answers of each remote agent by name.
    upstreams: Mutex<BTreeMap<Arc<str>, Arc<UpstreamCells>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Registers a metric under its definition.
fn register<M: Metric + Clone>(registry: &mut Registry, definition: &Definition, metric: M) -> M {
    registry.register(definition.name, definition.help, metric.clone());
    metric
}

fn labels<const N: usize>(definition: &Definition, values: [&str; N]) -> Labels<N> {
    let mut names = definition.labels.iter();
    values.map(|value| (names.next().copied().unwrap_or(NONE), value.into()))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let histograms = || Family::new_with_constructor(seconds as fn() -> Histogram);
        let requests = register(r, &REQUESTS, CounterFamily::default());
        let request_seconds = register(r, &REQUEST_SECONDS, histograms());
        let first_event_seconds = register(r, &FIRST_EVENT_SECONDS, histograms());
        let streams = register(r, &STREAMS, GaugeFamily::default());
        let inferred_versions = register(r, &INFERRED_VERSIONS, CounterFamily::default());
        let responses = register(r, &RESPONSES, CounterFamily::default());
        let tasks = register(r, &TASKS, GaugeFamily::default());
        let running = register(r, &RUNNING, GaugeFamily::default());
        let pending = register(r, &PENDING_DELIVERIES, Gauge::default());
        let oldest_pending = register(r, &OLDEST_PENDING, Gauge::default());
        let access_requests = register(r, &ACCESS_REQUESTS, Gauge::default());
        let oldest_access_request = register(r, &OLDEST_ACCESS_REQUEST, Gauge::default());
        let deliveries = register(r, &DELIVERIES, CounterFamily::<1>::default());
        let delivery_seconds = register(r, &DELIVERY_SECONDS, seconds());
        let translations = register(r, &TRANSLATIONS, CounterFamily::default());
        let denials = register(r, &DENIALS, CounterFamily::default());
        let model_tokens = register(r, &MODEL_TOKENS, CounterFamily::default());
        let mailbox_turns = register(r, &MAILBOX_TURNS, GaugeFamily::default());
        let mailbox_oldest = register(r, &MAILBOX_OLDEST, Family::default());
        let lease_offers = register(r, &LEASE_OFFERS, CounterFamily::default());
        let mailbox_deliveries = register(r, &DELIVERIES_TO_AGENTS, CounterFamily::default());
        let mailbox_disabled = register(r, &MAILBOX_DISABLED, GaugeFamily::default());
        let lease_ends = register(r, &LEASE_ENDS, CounterFamily::default());
        let agent_up = register(r, &AGENT_UP, GaugeFamily::default());
        let room_rounds = register(r, &ROOM_ROUNDS, CounterFamily::default());
        let room_turns = register(r, &ROOM_TURNS, CounterFamily::default());
        let room_waiting = register(r, &ROOM_WAITING, GaugeFamily::default());
        let store_seconds: HistogramFamily<1> =
            register(r, &STORE_SECONDS, Family::new_with_constructor(seconds as fn() -> Histogram));
        let store_errors = register(r, &STORE_ERRORS, CounterFamily::<1>::default());
        let memory_limit = register(r, &MEMORY_LIMIT, Gauge::default());
        let memory_resident = register(r, &MEMORY_RESIDENT, Gauge::default());
        let memory_reserved = register(r, &MEMORY_RESERVED, GaugeFamily::<1>::default());
        let memory_refusals = register(r, &MEMORY_REFUSALS, CounterFamily::<1>::default());
        let ready = register(r, &READY, Gauge::default());
        let reloads = register(r, &RELOADS, CounterFamily::default());
        let started: Gauge = register(r, &STARTED, Gauge::default());
        started
            .set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed()));
        ready.set(1);
        r.register(BUILD.name, BUILD.help, Info::new(labels(&BUILD, [env!("CARGO_PKG_VERSION")])));
        Self {
            deliveries: DeliveryState::ALL
                .map(|state| deliveries.get_or_create_owned(&labels(&DELIVERIES, [outcome_of(state)]))),
            store_seconds: StoreOp::ALL
                .map(|asked| store_seconds.get_or_create_owned(&labels(&STORE_SECONDS, [asked.name()]))),
            store_errors: StoreOp::ALL
                .map(|asked| store_errors.get_or_create_owned(&labels(&STORE_ERRORS, [asked.name()]))),
            memory_reserved: MemoryUse::ALL
                .map(|of| memory_reserved.get_or_create_owned(&labels(&MEMORY_RESERVED, [of.name()]))),
            memory_refusals: MemoryUse::ALL
                .map(|of| memory_refusals.get_or_create_owned(&labels(&MEMORY_REFUSALS, [of.name()]))),
            memory_limit,
            memory_resident,
            by_status: [const { OnceLock::new() }; 600],
            registry,
            requests,
            request_seconds,
            first_event_seconds,
            streams,
            inferred_versions,
            responses,
            tasks,
            running,
            pending,
            oldest_pending,
            access_requests,
            oldest_access_request,
            delivery_seconds,
            translations,
            denials,
            model_tokens,
            mailbox_turns,
            mailbox_oldest,
            lease_offers,
            mailbox_deliveries,
            mailbox_disabled,
            lease_ends,
            agent_up,
            room_rounds,
            room_turns,
            room_waiting,
            ready,
            reloads,
            agents: Mutex::default(),
            upstreams: Mutex::default(),
        }
    }
}

/// The end of a turn or a lease of a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseEnd {
    Done,
    Returned,
    Lost,
    Poison,
    Unclaimed,
}

impl LeaseEnd {
    fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Returned => "returned",
            Self::Lost => "lost",
            Self::Poison => "poison",
            Self::Unclaimed => "unclaimed",
        }
    }
}

fn outcome_of(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending => "retried",
        DeliveryState::Delivered => "delivered",
        DeliveryState::Dead => "dead",
    }
}

impl Metrics {
    /// The handles for an agent of the fleet.
    pub(super) fn agent(self: &Arc<Self>, name: &str) -> AgentMetrics {
        let name: Arc<str> = name.into();
        let mut agents = self.agents.lock();
        let cells = agents.entry(Arc::clone(&name)).or_insert_with(|| {
            Arc::new(AgentCells::new(self.streams.get_or_create_owned(&labels(&STREAMS, [&name]))))
        });
        AgentMetrics { cells: Arc::clone(cells), metrics: Arc::clone(self), name }
    }

    /// The counters of the answers of this remote agent.
    pub(super) fn upstream(&self, agent: &Arc<str>) -> Arc<UpstreamCells> {
        Arc::clone(self.upstreams.lock().entry(Arc::clone(agent)).or_default())
    }

    /// The answers of this remote agent to the hub's own calls.
    pub(crate) fn upstream_totals(&self, agent: &str, op: Op) -> OpTotals {
        self.upstreams.lock().get(agent).map(|cells| cells.totals(op)).unwrap_or_default()
    }

    /// Counts a response by its status.
    pub(super) fn responded(&self, status: u16) {
        let Some(cell) = self.by_status.get(usize::from(status)) else { return };
        let make = || self.responses.get_or_create_owned(&labels(&RESPONSES, [&status.to_string()]));
        cell.get_or_init(make).inc();
    }

    /// Adds to the number of an agent's tasks in this state.
    pub(crate) fn add_tasks(&self, agent: &str, state: TaskState, tasks: u64) {
        let state = state.as_str().trim_start_matches("TASK_STATE_").to_ascii_lowercase();
        self.tasks.get_or_create(&labels(&TASKS, [agent, &state])).inc_by(tasks.cast_signed());
    }

    /// Counts a message of a room, and the round that it begins.
    pub(crate) fn room_turn(&self, room: &str, begins: bool) {
        self.room_turns.get_or_create(&labels(&ROOM_TURNS, [room])).inc();
        if begins {
            self.room_rounds.get_or_create(&labels(&ROOM_ROUNDS, [room])).inc();
        }
    }

    /// Sets the number of rounds in which a seat of a room speaks next.
    pub(crate) fn room_waits(&self, room: &str, seat: &str, rounds: usize) {
        self.room_waiting
            .get_or_create(&labels(&ROOM_WAITING, [room, seat]))
            .set(rounds.cast_signed() as i64);
    }

    /// Sets the number of an agent's running executions.
    pub(crate) fn running(&self, agent: &str, running: usize) {
        self.running.get_or_create(&labels(&RUNNING, [agent])).set(running.cast_signed() as i64);
    }

    /// Copies the figures of the memory account.
    pub(crate) fn memory(&self, account: &MemoryAccount, resident: Option<usize>) {
        let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.memory_limit.set(bytes(account.limit()));
        self.memory_resident.set(bytes(resident.unwrap_or_default()));
        for of in MemoryUse::ALL {
            let usage = account.usage(of);
            self.memory_reserved[of as usize].set(bytes(usage.used));
            let counter = &self.memory_refusals[of as usize];
            counter.inc_by(usage.refused.saturating_sub(counter.get()));
        }
    }

    /// Counts a refused request.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.denials.get_or_create(&labels(&DENIALS, [reason])).inc();
    }

    /// The counters of calls that are translated to this version and binding of an agent.
    pub(crate) fn translations(self: &Arc<Self>, agent: &Arc<str>, to: (Version, Binding)) -> Translations {
        let cells = [const { [const { OnceLock::new() }; 2] }; Version::ALL.len() * Binding::ALL.len()];
        Translations { metrics: Arc::clone(self), agent: Arc::clone(agent), to, cells }
    }

    /// Counts tokens of an agent's model.
    pub(crate) fn add_model_tokens(&self, agent: &str, kind: &'static str, tokens: u64) {
        if tokens > 0 {
            self.model_tokens.get_or_create(&labels(&MODEL_TOKENS, [agent, kind])).inc_by(tokens);
        }
    }

    /// Sets the turns of a mailbox.
    pub(crate) fn mailbox(&self, agent: &str, waiting: usize, leased: usize, oldest: Duration) {
        for (state, turns) in [("waiting", waiting), ("leased", leased)] {
            let turns = i64::try_from(turns).unwrap_or(i64::MAX);
            self.mailbox_turns.get_or_create(&labels(&MAILBOX_TURNS, [agent, state])).set(turns);
        }
        self.mailbox_oldest.get_or_create(&labels(&MAILBOX_OLDEST, [agent])).set(oldest.as_secs_f64());
    }

    /// Counts a lease that a worker got.
    pub(crate) fn lease_offered(&self, agent: &str) {
        self.lease_offers.get_or_create(&labels(&LEASE_OFFERS, [agent])).inc();
    }

    /// Counts a message that was posted to the webhook of an agent.
    pub(crate) fn delivered(&self, agent: &str, outcome: &str) {
        self.mailbox_deliveries.get_or_create(&labels(&DELIVERIES_TO_AGENTS, [agent, outcome])).inc();
    }

    /// Sets whether the webhook of an agent is gone.
    pub(crate) fn webhook_gone(&self, agent: &str, is_gone: bool) {
        self.mailbox_disabled.get_or_create(&labels(&MAILBOX_DISABLED, [agent])).set(i64::from(is_gone));
    }

    /// Counts the end of a turn or a lease.
    pub(crate) fn lease_ended(&self, agent: &str, end: LeaseEnd) {
        self.lease_ends.get_or_create(&labels(&LEASE_ENDS, [agent, end.word()])).inc();
    }

    /// Sets whether a remote agent answers.
    pub(crate) fn agent_is(&self, agent: &str, up: bool) {
        self.agent_up.get_or_create(&labels(&AGENT_UP, [agent])).set(i64::from(up));
    }

    /// Counts a reload of the configuration.
    pub(crate) fn reloaded(&self, is_ok: bool) {
        let outcome = if is_ok { "ok" } else { "refused" };
        self.reloads.get_or_create(&labels(&RELOADS, [outcome])).inc();
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut out = String::with_capacity(16 * 1024);
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

impl Watch for Metrics {
    fn answered(&self, asked: StoreOp, took: Duration, is_ok: bool) {
        self.store_seconds[asked as usize].observe(took.as_secs_f64());
        if !is_ok {
            self.store_errors[asked as usize].inc();
        }
    }

    fn settled(&self, settled: &[Settled]) {
        for outcome in settled.iter().flat_map(|settled| &settled.outcomes) {
            self.deliveries[outcome.state as usize].inc();
            self.delivery_seconds.observe(f64::from(outcome.attempt.took) / 1000.0);
        }
    }
}

/// The counters of translated calls to one agent, by source version and binding.
pub(crate) struct Translations {
    metrics: Arc<Metrics>,
    agent: Arc<str>,
    to: (Version, Binding),
    /// Without and with a loss.
    cells: [[OnceLock<Counter>; 2]; Version::ALL.len() * Binding::ALL.len()],
}

impl Translations {
    /// Counts a call that came in this version and binding, unless the agent's are the same.
    pub(crate) fn count(&self, version: Version, binding: Option<Binding>, is_lossy: bool) {
        let Some(binding) = binding.filter(|binding| (version, *binding) != self.to) else { return };
        let (to_version, to_binding) = (self.to.0.as_str(), self.to.1.as_str());
        let lossy = if is_lossy { "true" } else { "false" };
        let values = [&*self.agent, version.as_str(), binding.as_str(), to_version, to_binding, lossy];
        let make = || self.metrics.translations.get_or_create_owned(&labels(&TRANSLATIONS, values));
        let cells = &self.cells[version as usize * Binding::ALL.len() + binding as usize];
        cells[usize::from(is_lossy)].get_or_init(make).inc();
    }
}

/// The number of bindings, with "none".
pub(super) const BINDINGS: usize = Binding::ALL.len() + 1;
const CELLS: usize = Op::TABLE.len() * Version::ALL.len() * BINDINGS;

/// The metrics of one agent.
pub(super) struct AgentMetrics {
    name: Arc<str>,
    metrics: Arc<Metrics>,
    cells: Arc<AgentCells>,
}

/// The handles of one agent. Each is made at its first use.
pub(super) struct AgentCells {
    pub(super) streams: Gauge,
    pub(super) cells: Box<[OnceLock<Cell>]>,
    /// The calls by duration, in the buckets of [`SECONDS`] and one for longer ones: the histograms of the
    /// library cannot be read.
    pub(super) latency: [AtomicU64; SECONDS.len() + 1],
    /// The time of the last call, in milliseconds since 1970; 0: none.
    pub(super) last_call: AtomicI64,
}

impl AgentCells {
    fn new(streams: Gauge) -> Self {
        Self {
            streams,
            cells: (0..CELLS).map(|_| OnceLock::new()).collect(),
            latency: Default::default(),
            last_call: AtomicI64::new(0),
        }
    }
}

/// The handles of one operation in one version over one binding.
pub(super) struct Cell {
    seconds: Histogram,
    pub(super) first_event_seconds: Option<Histogram>,
    inferred_versions: OnceLock<Counter>,
    pub(super) ok: OnceLock<Counter>,
    pub(super) abandoned: OnceLock<Counter>,
    pub(super) errors: [OnceLock<Counter>; ErrorKind::TABLE.len()],
}

/// The outcome of a call.
#[derive(Clone, Copy)]
pub(super) enum CallOutcome {
    Ok,
    /// The caller left before the answer.
    Abandoned,
    Error(ErrorKind),
}

impl AgentMetrics {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn cell(&self, op: Op, version: Version, binding: Option<Binding>) -> &Cell {
        let binding_at = binding.map_or(BINDINGS - 1, |binding| binding as usize);
        let at = (op as usize * Version::ALL.len() + version as usize) * BINDINGS + binding_at;
        self.cells.cells[at].get_or_init(|| {
            let values = self.values(op, version, binding);
            let first_event = || {
                self.metrics.first_event_seconds.get_or_create_owned(&labels(&FIRST_EVENT_SECONDS, values))
            };
            Cell {
                seconds: self.metrics.request_seconds.get_or_create_owned(&labels(&REQUEST_SECONDS, values)),
                first_event_seconds: op.row().streaming.then(first_event),
                inferred_versions: OnceLock::new(),
                ok: OnceLock::new(),
                abandoned: OnceLock::new(),
                errors: [const { OnceLock::new() }; ErrorKind::TABLE.len()],
            }
        })
    }

    /// The gauge of open streams.
    pub(super) fn streams(&self) -> &Gauge {
        &self.cells.streams
    }

    /// Notes the time of a call.
    pub(super) fn called(&self, at: Timestamp) {
        self.cells.last_call.store(at.as_millis(), Ordering::Relaxed);
    }

    /// Adds the duration of a call.
    pub(super) fn observe(&self, op: Op, version: Version, binding: Option<Binding>, seconds: f64) {
        self.cell(op, version, binding).seconds.observe(seconds);
        let bucket = SECONDS.iter().position(|most| seconds <= *most).unwrap_or(SECONDS.len());
        self.cells.latency[bucket].fetch_add(1, Ordering::Relaxed);
    }

    fn values(&self, op: Op, version: Version, binding: Option<Binding>) -> [&str; 4] {
        [&self.name, op.name(), version.as_str(), binding.map_or(NONE, Binding::as_str)]
    }

    /// Counts a call.
    pub(super) fn count(&self, op: Op, version: Version, binding: Option<Binding>, outcome: CallOutcome) {
        let cell = self.cell(op, version, binding);
        let (counter, reason) = match outcome {
            CallOutcome::Ok => (&cell.ok, "ok"),
            CallOutcome::Abandoned => (&cell.abandoned, "abandoned"),
            CallOutcome::Error(kind) => (&cell.errors[kind as usize], kind.row().reason),
        };
        let make = || {
            let [agent, operation, version, binding] = self.values(op, version, binding);
            let values = [agent, operation, version, binding, &reason.to_ascii_lowercase()];
            self.metrics.requests.get_or_create_owned(&labels(&REQUESTS, values))
        };
        counter.get_or_init(make).inc();
    }

    /// Counts a call without a version.
    pub(super) fn count_unsaid(&self, op: Op, version: Version, binding: Option<Binding>) {
        let values = [&*self.name, binding.map_or(NONE, Binding::as_str)];
        let make = || self.metrics.inferred_versions.get_or_create_owned(&labels(&INFERRED_VERSIONS, values));
        self.cell(op, version, binding).inferred_versions.get_or_init(make).inc();
    }
}

#[cfg(test)]
mod tests;
