//! Tokens per day, of a caller over all agents and of an agent over all callers, counted in the store: all hubs of one
//! store share the figures.
//!
//! An answer is counted when it is complete, so that one answer may exceed the limit. Days are those of UTC.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, Timestamp};
use nuncio_server::store::{Expect, PutRecord, Store, StoreError};

use crate::{agents::AgentFactory, clock, config};

/// The kind of the records.
const KIND: &str = "model-tokens";

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Attempts to add to a record that other hubs change as well.
const MAX_ATTEMPTS: usize = 20;

/// Records removed per query.
const PAGE: usize = 1000;

/// The budgets that an answer of one agent counts for.
pub(super) struct Budget {
    agent: Arc<str>,
    /// The limit of the agent.
    agent_limit: Option<u64>,
    /// The limit of each caller.
    limits: Arc<ArcSwap<config::Limits>>,
    store: Arc<dyn Store>,
}

/// One limit, and the record that counts for it.
struct Counter {
    limit: u64,
    key: String,
    whose: &'static str,
}

impl Budget {
    pub(super) fn new(agent: &Arc<str>, agent_limit: Option<u64>, factory: &AgentFactory) -> Self {
        let (limits, store) = (Arc::clone(&factory.limits), Arc::clone(&factory.store));
        Self { agent: Arc::clone(agent), agent_limit, limits, store }
    }

    /// Checks that there are tokens left today.
    ///
    /// # Errors
    /// `ResourceExhausted` until midnight (UTC), or the store is unavailable.
    pub(super) async fn check(&self, caller: &Caller) -> Result<()> {
        let now = clock::now();
        for counter in self.counters(caller, now) {
            let used = self.used(&counter.key).await?.0;
            if used >= counter.limit {
                let message = format!(
                    "the limit of {} tokens a day of {} is used up; try again after midnight UTC",
                    counter.limit, counter.whose
                );
                return Err(
                    Error::new(ErrorKind::ResourceExhausted, message).with_retry_after(until_midnight(now))
                );
            }
        }
        Ok(())
    }

    /// Counts the tokens of an answer. A failure is logged: the answer is there all the same.
    pub(super) async fn spend(&self, caller: &Caller, tokens: u64) {
        let now = clock::now();
        for counter in self.counters(caller, now) {
            if let Err(error) = self.add(&counter.key, tokens, now).await {
                tracing::warn!(agent = &*self.agent, %error, "the tokens of an answer could not be counted");
            }
        }
    }

    fn counters(&self, caller: &Caller, now: Timestamp) -> Vec<Counter> {
        let day = now.as_millis().div_euclid(DAY_MS);
        let agent = self.agent_limit.map(|limit| Counter {
            limit,
            key: format!("{day}/agent/{}", self.agent),
            whose: "this agent",
        });
        let own = self.limits.load().tokens_per_day.map(|limit| {
            let text = |part: Option<&Arc<str>>| part.map(|part| &**part).unwrap_or_default().to_owned();
            // Lengths keep apart what would otherwise be joined to the same text.
            let (tenant, principal) = (text(caller.tenant()), text(caller.principal()));
            Counter {
                limit,
                key: format!("{day}/caller/{}:{tenant}/{principal}", tenant.len()),
                whose: "yours",
            }
        });
        agent.into_iter().chain(own).collect()
    }

    /// The tokens of a record, and its version.
    async fn used(&self, key: &str) -> Result<(u64, Option<u64>), StoreError> {
        let Some(record) = self.store.record(KIND, key).await? else { return Ok((0, None)) };
        let used = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse().ok());
        Ok((used.unwrap_or_default(), Some(record.version)))
    }

    async fn add(&self, key: &str, tokens: u64, now: Timestamp) -> Result<(), StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let (used, version) = self.used(key).await?;
            let put = PutRecord {
                kind: KIND.into(),
                key: key.into(),
                value: Bytes::from(used.saturating_add(tokens).to_string()),
                at: now,
                expect: version.map_or(Expect::Absent, Expect::Version),
            };
            if self.store.put_records(vec![put]).await?.iter().all(Result::is_ok) {
                if version.is_none() {
                    self.forget(now).await?;
                }
                return Ok(());
            }
        }
        tracing::warn!(
            agent = &*self.agent,
            "the tokens of an answer were not counted: other hubs were always quicker"
        );
        Ok(())
    }

    /// Removes the records of past days, once a day for each counter.
    async fn forget(&self, now: Timestamp) -> Result<(), StoreError> {
        let before = clock::earlier(now, Duration::from_millis(2 * DAY_MS.unsigned_abs()));
        while self.store.prune_records(KIND, before, PAGE).await? == PAGE {}
        Ok(())
    }
}

fn until_midnight(now: Timestamp) -> Duration {
    let left = DAY_MS - now.as_millis().rem_euclid(DAY_MS);
    // In whole seconds, as the header has them.
    Duration::from_secs(left.unsigned_abs().div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_midnight_of_utc() {
        for (millis, seconds) in [(0, 86_400), (1, 86_400), (DAY_MS - 1, 1), (DAY_MS + 1000, 86_399)] {
            assert_eq!(
                until_midnight(Timestamp::from_millis(millis).unwrap()),
                Duration::from_secs(seconds),
                "{millis}"
            );
        }
    }
}
