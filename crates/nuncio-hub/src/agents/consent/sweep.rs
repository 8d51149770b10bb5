//! The sweeper: declines requests that nobody has decided on, and carries out decisions that a crash, or an agent that
//! was not served, has left half done.

use std::{convert::Infallible, time::Duration};

use nuncio_protocol::{Result, Timestamp};
use nuncio_server::{Runtime, store::Expect};

use super::{
    Consents, REQUEST_LIFETIME, Stored,
    record::{CallerAccess, Standing},
};
use crate::{clock, fleet::Fleet};

/// The interval of rounds.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The time for which the record of a caller without request, grant or block is kept. Hubs that have read it meanwhile
/// must not take a new record for it.
const KEEP_SETTLED: Duration = Duration::from_secs(24 * 60 * 60);

impl Consents {
    /// Sweeps for as long as it is polled, beginning at once.
    pub(crate) async fn sweep(&self, fleet: &Fleet) -> Infallible {
        let runtime_of = |agent: &str| fleet.get(agent)?.runtime().cloned();
        let mut rounds = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            rounds.tick().await;
            if let Err(error) = self.sweep_at(clock::now(), runtime_of).await {
                tracing::warn!(%error, "requests for consent could not be checked; trying again");
            }
        }
    }

    /// One round at this time, over the agents that are served.
    pub(super) async fn sweep_at(
        &self,
        now: Timestamp,
        runtime_of: impl Fn(&str) -> Option<Runtime>,
    ) -> Result<()> {
        let mut after = None;
        loop {
            let (page, next) = self.read_page(None, after).await?;
            for (_, stored) in page {
                self.sweep_one(now, &runtime_of, stored).await?;
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    async fn sweep_one(
        &self,
        now: Timestamp,
        runtime_of: impl Fn(&str) -> Option<Runtime>,
        stored: Stored,
    ) -> Result<()> {
        let Stored { access, version } = stored;
        let age = Duration::from_millis(
            u64::try_from(now.as_millis().saturating_sub(access.since.as_millis())).unwrap_or_default(),
        );
        let is_expired = access.standing == Standing::Waiting && age >= REQUEST_LIFETIME;
        if access.standing == Standing::Waiting && !is_expired {
            return Ok(());
        }
        if access.held.is_empty() {
            if access.standing == Standing::Declined && age >= KEEP_SETTLED {
                self.delete(&access.caller, version).await?;
            }
            return Ok(());
        }
        let caller = access.caller.clone();
        let _alone = self.lock(&caller).await;
        if is_expired {
            tracing::info!(
                agent = &*caller.agent,
                held = access.held.len(),
                "a request for consent has expired"
            );
            let declined = CallerAccess::new(caller.clone(), Standing::Declined, access.held);
            if !self.write(&declined, Expect::Version(version)).await? {
                // It has changed since it was read; the next round looks again.
                return Ok(());
            }
        }
        if let Some(runtime) = runtime_of(&caller.agent)
            && let Err(error) = self.carry_out(&runtime, &caller).await
        {
            tracing::warn!(agent = &*caller.agent, %error, "held messages are left for the next round");
        }
        Ok(())
    }
}
