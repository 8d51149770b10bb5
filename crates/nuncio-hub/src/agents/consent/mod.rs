//! Consent: the messages of a caller wait until an operator, or another owner of the agent, has accepted the caller
//! (`access = "ask"`, decision 0016).
//!
//! ```text
//! first message ──► AUTH_REQUIRED, held ──► accepted: held messages run in order, the grant is kept
//!                                      ├──► declined, or 7 days: REJECTED
//!                                      └──► blocked: REJECTED, as every later message
//! ```
//! Reading order: this file has the records of callers, `record` their content, `executor` the gate before an agent,
//! `decide` decisions and their consequences, `sweep` the end of old requests and the repair after a crash.
//!
//! **Invariants:** one record per agent, tenant and principal has the state and the held messages. It changes in one
//! transaction with the entry that holds, runs or rejects a message, so no message runs twice or is forgotten. A caller
//! cannot tell a decline from a block by the task.

mod decide;
mod executor;
mod record;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use nuncio_protocol::Timestamp;
use nuncio_server::store::{Expect, Record, RecordQuery, Store, StoreError};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) use self::{
    decide::{Decision, DecisionError},
    executor::AskFirst,
    record::{CallerAccess, CallerKey, Standing},
};
use crate::trail::Trail;

/// The kind of the records.
const KIND: &str = "access";

/// Messages of one caller that wait for consent at one agent.
const MAX_HELD_MESSAGES: usize = 3;

/// Bytes of a held message beside its content, such as the metadata of the request.
const MAX_HELD_BYTES: usize = 16 << 10;

/// The time for which a request waits for a decision.
pub(crate) const REQUEST_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Records per read.
const PAGE: usize = 500;

/// Locks for the callers; two callers may share one.
const LOCKS: usize = 64;

/// The callers of agents that ask first.
pub(crate) struct Consents {
    store: Arc<dyn Store>,
    trail: Trail,
    /// Held by those who change a record in this hub, so that only other hubs make them try again.
    locks: [Mutex<()>; LOCKS],
}

/// A record with its version.
struct Stored {
    access: CallerAccess,
    version: u64,
}

/// The requests that wait for a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) requests: usize,
    /// The time of the oldest request.
    pub(crate) oldest: Option<Timestamp>,
}

impl Consents {
    pub(crate) fn new(store: &Arc<dyn Store>, trail: &Trail) -> Self {
        let locks = std::array::from_fn(|_| Mutex::default());
        Self { store: Arc::clone(store), trail: trail.clone(), locks }
    }

    /// The callers after this key, in the order of their keys, and the key of the last one if there may be more.
    ///
    /// # Errors
    /// The store is unavailable, or has a record that cannot be read.
    pub(crate) async fn page(
        &self,
        agent: Option<&str>,
        after: Option<String>,
    ) -> Result<(Vec<CallerAccess>, Option<String>), StoreError> {
        let (stored, next) = self.read_page(agent, after).await?;
        Ok((stored.into_iter().map(|(_, stored)| stored.access).collect(), next))
    }

    /// The requests that wait for a decision.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub(crate) async fn backlog(&self) -> Result<Backlog, StoreError> {
        let (mut backlog, mut after) = (Backlog::default(), None);
        loop {
            let (page, next) = self.page(None, after).await?;
            for access in page.iter().filter(|access| access.standing == Standing::Waiting) {
                backlog.requests += 1;
                backlog.oldest = Some(backlog.oldest.map_or(access.since, |oldest| oldest.min(access.since)));
            }
            if next.is_none() {
                return Ok(backlog);
            }
            after = next;
        }
    }

    /// Erases the grants, blocks and requests of a principal; in all tenants and at all agents if none is named.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub(crate) async fn erase(
        &self,
        principal: &str,
        tenant: Option<&str>,
        agent: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (page, next) = self.read_page(agent, after).await?;
            for (key, Stored { access, .. }) in page {
                let is_meant = &*access.caller.principal == principal
                    && (tenant.is_none() || access.caller.tenant.as_deref() == tenant);
                if is_meant {
                    self.store.delete_record(KIND, &key, Expect::Anything).await.map(drop)?;
                }
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    async fn read_page(
        &self,
        agent: Option<&str>,
        after: Option<String>,
    ) -> Result<(Vec<(String, Stored)>, Option<String>), StoreError> {
        let prefix = agent.map(record::prefix).unwrap_or_default();
        let query = RecordQuery { kind: KIND.into(), prefix, after, limit: PAGE, ..RecordQuery::default() };
        let records = self.store.records(&query).await?;
        let next = records.last().filter(|_| records.len() == PAGE).map(|last| last.key.clone());
        let stored = records.into_iter().map(|record| {
            let stored = Stored::read(&record)?;
            Ok((record.key, stored))
        });
        Ok((stored.collect::<Result<_, StoreError>>()?, next))
    }

    async fn find(&self, caller: &CallerKey) -> Result<Option<Stored>, StoreError> {
        let record = self.store.record(KIND, &caller.key()).await?;
        record.as_ref().map(Stored::read).transpose()
    }

    async fn lock(&self, caller: &CallerKey) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(caller);
        let index = usize::try_from(hash % LOCKS as u64).unwrap_or_default();
        self.locks[index].lock().await
    }
}

impl Stored {
    fn read(record: &Record) -> Result<Self, StoreError> {
        Ok(Self { access: CallerAccess::read(&record.value)?, version: record.version })
    }
}
