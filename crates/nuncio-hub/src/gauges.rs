//! Gauges that are read when metrics are scraped; those of the store at most every fifteen seconds.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nuncio_protocol::Timestamp;
use nuncio_server::{
    MemoryAccount,
    store::{Backlog, Store, StoreError, TaskCount},
};
use tokio::sync::Mutex;

use crate::{
    agents::{Backlog as ConsentBacklog, Consents},
    fleet::{Condition, Fleet},
    memory,
    telemetry::Metrics,
};

/// Minimum interval between two queries of the store: counting is costly, and scrapes may be frequent.
const QUERY_INTERVAL: Duration = Duration::from_secs(15);
/// Timeout of these queries; after it the previous values stay.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The sources of the gauges.
pub(crate) struct Gauges {
    metrics: Arc<Metrics>,
    store: Arc<dyn Store>,
    fleet: Arc<Fleet>,
    consents: Arc<Consents>,
    memory: MemoryAccount,
    stored: Mutex<Option<(Instant, Stored)>>,
}

/// The figures of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// Tasks by agent and state.
    pub(crate) tasks: Vec<TaskCount>,
    pub(crate) backlog: Backlog,
    /// The requests for consent.
    pub(crate) consents: ConsentBacklog,
    /// The size of its data in bytes; `None` if it was never told.
    pub(crate) bytes: Option<u64>,
}

impl Gauges {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        store: Arc<dyn Store>,
        fleet: Arc<Fleet>,
        consents: Arc<Consents>,
        memory: MemoryAccount,
    ) -> Self {
        Self { metrics, store, fleet, consents, memory, stored: Mutex::default() }
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) async fn text(&self) -> String {
        for agent in self.fleet.all() {
            if let Some(runtime) = agent.runtime() {
                self.metrics.running(agent.name(), runtime.running());
            }
            if let Some(upstream) = agent.upstream() {
                self.metrics.agent_is(agent.name(), upstream.health().condition == Condition::Up);
            }
        }
        self.metrics.memory(&self.memory, memory::resident());
        self.metrics.ready.set(self.fleet.why_not_ready().is_empty().into());
        self.show(&self.stored().await);
        self.metrics.text()
    }

    /// The figures of the store, at most [`QUERY_INTERVAL`] old; if it does not answer, the previous ones.
    pub(crate) async fn stored(&self) -> Stored {
        let mut stored = self.stored.lock().await;
        if let Some((_, known)) = stored.as_ref().filter(|(asked, _)| asked.elapsed() < QUERY_INTERVAL) {
            return known.clone();
        }
        let now = match tokio::time::timeout(QUERY_TIMEOUT, self.count()).await {
            Ok(Ok(counted)) => Some(counted),
            Ok(Err(error)) => {
                tracing::debug!(%error, "tasks and deliveries could not be counted");
                None
            }
            Err(_) => {
                tracing::debug!("counting tasks and deliveries took too long");
                None
            }
        };
        let now = now.or_else(|| stored.take().map(|(_, before)| before)).unwrap_or_default();
        *stored = Some((Instant::now(), now.clone()));
        now
    }

    async fn count(&self) -> Result<Stored, StoreError> {
        let (backlog, tasks) = (self.store.backlog().await?, self.store.count_tasks().await?);
        let consents = self.consents.backlog().await?;
        Ok(Stored { tasks, backlog, consents, bytes: Some(self.store.size().await?) })
    }

    fn show(&self, Stored { tasks, backlog, consents, .. }: &Stored) {
        self.metrics.pending.set(backlog.pending.cast_signed());
        self.metrics.oldest_pending.set(age(backlog.oldest));
        self.metrics.access_requests.set(i64::try_from(consents.requests).unwrap_or(i64::MAX));
        self.metrics.oldest_access_request.set(age(consents.oldest));
        // Removes the values of states that no task has any more.
        self.metrics.tasks.clear();
        for count in tasks {
            // Tasks outlive their agents; only agents of the fleet have a label of their own.
            let agent = if self.fleet.get(&count.agent).is_some() { &*count.agent } else { "-" };
            self.metrics.add_tasks(agent, count.state, count.tasks);
        }
    }
}

/// The age in seconds of what is from this time; 0 if there is nothing.
fn age(of: Option<Timestamp>) -> f64 {
    let millis = of.and_then(|of| u64::try_from(of.as_millis()).ok());
    let age = millis.map(|millis| since_1970().saturating_sub(Duration::from_millis(millis)));
    age.unwrap_or_default().as_secs_f64()
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
