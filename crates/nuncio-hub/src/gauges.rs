//! Gauges that are read when metrics are scraped; those of the store at most every fifteen seconds.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nuncio_protocol::Timestamp;
use nuncio_server::{
    MemoryAccount,
    store::{Store, StoreError},
};
use tokio::sync::Mutex;

use crate::{
    agents::{Backlog, Consents},
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
    asked: Mutex<Option<Instant>>,
}

impl Gauges {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        store: Arc<dyn Store>,
        fleet: Arc<Fleet>,
        consents: Arc<Consents>,
        memory: MemoryAccount,
    ) -> Self {
        Self { metrics, store, fleet, consents, memory, asked: Mutex::default() }
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
        self.ask_the_store().await;
        self.metrics.text()
    }

    async fn ask_the_store(&self) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|asked| asked.elapsed() < QUERY_INTERVAL) {
            return;
        }
        match tokio::time::timeout(QUERY_TIMEOUT, self.count()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "tasks and deliveries could not be counted"),
            Err(_) => tracing::debug!("counting tasks and deliveries took too long"),
        }
        *asked = Some(Instant::now());
    }

    async fn count(&self) -> Result<(), StoreError> {
        let backlog = self.store.backlog().await?;
        self.metrics.pending.set(backlog.pending.cast_signed());
        self.metrics.oldest_pending.set(age(backlog.oldest));
        let Backlog { requests, oldest } = self.consents.backlog().await?;
        self.metrics.access_requests.set(i64::try_from(requests).unwrap_or(i64::MAX));
        self.metrics.oldest_access_request.set(age(oldest));
        let tasks = self.store.count_tasks().await?;
        // Removes the values of states that no task has any more.
        self.metrics.tasks.clear();
        for count in tasks {
            // Tasks outlive their agents; only agents of the fleet have a label of their own.
            let agent = if self.fleet.get(&count.agent).is_some() { &*count.agent } else { "-" };
            self.metrics.add_tasks(agent, count.state, count.tasks);
        }
        Ok(())
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
