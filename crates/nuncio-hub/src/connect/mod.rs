//! The connector: an agent of this machine works for a mailbox of a hub elsewhere. All connections go out.
//!
//! ```text
//! hub ◄── claim, lines, heartbeat ── Worker ──► turn ──► Runtime::run_turn ──► the agent
//! ```
//! The agent is one of any kind that a hub serves, in a hub of one agent without listener and without data: a message
//! is sent to it once, its task is followed, and its changes are the lines of the lease. The memo that the agent's kind
//! keeps with a task goes to the hub, so that the next connector goes on with the task.
//!
//! Reading order: this file (claims, one after the other), `turn` (one lease), `lines` (events as lines), `local` (the
//! agent), `report` (messages for the operator).

mod lines;
mod local;
mod report;
mod turn;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_client::worker::{Worker, WorkerError};
use nuncio_protocol::AgentCard;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};

use self::local::LocalAgent;
pub use self::{
    local::host_name,
    report::{LeaseEnd, Report},
};
use crate::config;

/// The time for which one claim waits for work.
const CLAIM_WAIT: Duration = Duration::from_secs(50);

/// The interval at which an agent that is down is looked at.
const AVAILABILITY_INTERVAL: Duration = Duration::from_secs(1);

/// The time to hand back a claim at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a connector.
#[derive(Debug)]
pub struct ConnectOptions {
    /// The worker of the mailbox.
    pub worker: Worker,
    /// The address of the hub.
    pub hub: url::Url,
    /// The agent on this machine, under the name of the mailbox.
    pub agent: config::Agent,
    /// The number of leases at a time.
    pub concurrency: usize,
}

/// A connector that has prepared its agent.
pub struct Connector {
    worker: Worker,
    agent: Arc<LocalAgent>,
    slots: Arc<Semaphore>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The step before a claim.
enum Ready {
    /// There is a free slot, and the agent can be reached.
    Slot(OwnedSemaphorePermit),
    Stopped,
}

impl Connector {
    /// Prepares the agent. An agent that cannot be reached yet is no error.
    ///
    /// # Errors
    /// The agent cannot be served with these settings.
    pub async fn open(options: ConnectOptions) -> Result<Self> {
        let ConnectOptions { worker, hub, agent, concurrency } = options;
        let agent = LocalAgent::open(agent, &hub).await.context("the agent cannot be connected")?;
        Ok(Self { worker, agent: Arc::new(agent), slots: Arc::new(Semaphore::new(concurrency)) })
    }

    /// The agent in words, such as its address and binding.
    #[must_use]
    pub fn agent(&self) -> String {
        self.agent.describe()
    }

    /// Works until `shutdown` completes; then finishes the leases that have begun, and hands back the others.
    ///
    /// # Errors
    /// The hub refuses the worker.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()>,
        report: impl Fn(Report) + Send + Sync + 'static,
    ) -> Result<()> {
        let report: Arc<dyn Fn(Report) + Send + Sync> = Arc::new(report);
        let mut shutdown = std::pin::pin!(shutdown);
        let mut turns = JoinSet::new();
        let mut published = None;
        let mut failures = 0;
        let ended = loop {
            while turns.try_join_next().is_some() {}
            let ready = tokio::select! {
                biased;
                () = &mut shutdown => Ready::Stopped,
                slot = self.ready(&*report) => Ready::Slot(slot?),
            };
            let Ready::Slot(slot) = ready else { break Ok(()) };
            let claimed = tokio::select! {
                biased;
                () = &mut shutdown => {
                    self.abandon().await;
                    break Ok(());
                }
                claimed = self.claim(&mut published, &*report) => claimed,
            };
            let error = match claimed {
                Ok(lease) => {
                    if std::mem::take(&mut failures) > 0 {
                        report(Report::HubIsBack);
                    }
                    if let Some(lease) = lease {
                        let (agent, report) = (Arc::clone(&self.agent), Arc::clone(&report));
                        turns.spawn(async move {
                            turn::work(lease, &agent, &*report).await;
                            drop(slot);
                        });
                    }
                    continue;
                }
                Err(error) if error.is_temporary() => error,
                Err(error) => break Err(error.into()),
            };
            if failures == 0 {
                report(Report::HubIsAway(error.to_string()));
            }
            tokio::select! {
                () = tokio::time::sleep(error.pause(failures)) => {}
                () = &mut shutdown => break Ok(()),
            }
            failures = failures.saturating_add(1);
        };
        while turns.try_join_next().is_some() {}
        if !turns.is_empty() {
            report(Report::Finishing(turns.len()));
        }
        while turns.join_next().await.is_some() {}
        ended
    }

    /// Waits for a free slot and an agent that can be reached: work that cannot be done is left to others.
    async fn ready(&self, report: &(dyn Fn(Report) + Send + Sync)) -> Result<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.context("the connector has stopped")?;
        let mut away = false;
        while let Some(reason) = self.agent.outage() {
            if !std::mem::replace(&mut away, true) {
                report(Report::AgentIsAway(reason));
            }
            tokio::time::sleep(AVAILABILITY_INTERVAL).await;
        }
        if away {
            report(Report::AgentIsBack);
        }
        Ok(slot)
    }

    /// Publishes the card if it has changed, then asks for work.
    async fn claim(
        &self,
        published: &mut Option<AgentCard>,
        report: &(dyn Fn(Report) + Send + Sync),
    ) -> Result<Option<nuncio_client::worker::Lease>, WorkerError> {
        let card = self.agent.card();
        if published.as_ref() != Some(&card) {
            match self.worker.put_card(&card).await {
                Ok(()) => {}
                // Without its card the agent works as well.
                Err(WorkerError::Refused { detail, .. }) => report(Report::CardRefused(detail)),
                Err(error) => return Err(error),
            }
            if published.is_none() {
                report(Report::Connected);
            }
            *published = Some(card);
        }
        self.worker.claim(CLAIM_WAIT).await
    }

    /// Hands back what the hub may have given to the claim that is not awaited any more.
    async fn abandon(&self) {
        let abandoned = tokio::time::timeout(RELEASE_TIMEOUT, self.worker.abandon_claim()).await;
        if !matches!(abandoned, Ok(Ok(()))) {
            tracing::info!("the last claim could not be handed back; its lease expires by itself");
        }
    }
}
