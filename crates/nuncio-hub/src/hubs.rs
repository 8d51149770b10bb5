//! The hubs of one store, as they tell of themselves: a record each, renewed while the hub runs.
//!
//! For people only: nothing in the hub decides by it. Who owns a task is the store's affair.

use std::{convert::Infallible, sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;
use nuncio_server::store::{Expect, PutRecord, RecordQuery, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::clock;

/// The kind of the records; the key is the random id of a process.
const KIND: &str = "hub";
/// Interval at which a hub renews its record.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Age of a record from which on its hub counts as gone.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum number of hubs that are listed.
const MAX_HUBS: usize = 1_000;

/// A hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HubRecord {
    /// The address of the hub as its callers see it.
    pub(crate) url: String,
    /// The address it listens on.
    pub(crate) listen: String,
    pub(crate) version: String,
    pub(crate) started: Timestamp,
}

/// The hubs of a store, this one among them.
pub(crate) struct Hubs {
    store: Arc<dyn Store>,
    id: String,
    own: HubRecord,
}

/// A hub that was seen.
pub(crate) struct SeenHub {
    pub(crate) record: HubRecord,
    pub(crate) seen: Timestamp,
    pub(crate) is_this: bool,
}

impl Hubs {
    pub(crate) fn new(store: &Arc<dyn Store>, url: &str, listen: String) -> Self {
        let own = HubRecord {
            url: url.to_owned(),
            listen,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock::now(),
        };
        Self { store: Arc::clone(store), id: format!("{:032x}", rand::random::<u128>()), own }
    }

    /// Renews the record of this hub, and removes those of hubs that are gone, for as long as it is polled. Only where
    /// several hubs may have the store.
    pub(crate) async fn work(&self) -> Infallible {
        if !self.store.is_shared() {
            return std::future::pending().await;
        }
        let mut renewals = tokio::time::interval(RENEW_INTERVAL);
        loop {
            renewals.tick().await;
            if let Err(error) = self.renew().await {
                tracing::debug!(%error, "this hub could not tell the others of itself");
            }
        }
    }

    /// Removes the record of this hub, which stops.
    pub(crate) async fn leave(&self) {
        if self.store.is_shared() {
            // If it fails, the record grows old.
            let _ = self.store.delete_record(KIND, &self.id, Expect::Anything).await;
        }
    }

    async fn renew(&self) -> Result<(), StoreError> {
        let value = serde_json::to_vec(&self.own).map_err(StoreError::broken)?.into();
        let (key, at) = (self.id.as_str().into(), clock::now());
        let put = PutRecord { kind: KIND.into(), key, value, at, expect: Expect::Anything };
        self.store.put_records(vec![put]).await?;
        for (key, hub) in self.read().await? {
            if !is_alive(hub.seen) {
                // Another hub may have removed it.
                let _ = self.store.delete_record(KIND, &key, Expect::Anything).await?;
            }
        }
        Ok(())
    }

    /// The hubs that are alive, this one first.
    pub(crate) async fn all(&self) -> Result<Vec<SeenHub>, StoreError> {
        let this = SeenHub { record: self.own.clone(), seen: clock::now(), is_this: true };
        let others = if self.store.is_shared() { self.read().await? } else { Vec::new() };
        let others = others.into_iter().filter(|(key, hub)| *key != self.id && is_alive(hub.seen));
        Ok(std::iter::once(this).chain(others.map(|(_, hub)| hub)).collect())
    }

    async fn read(&self) -> Result<Vec<(String, SeenHub)>, StoreError> {
        let query = RecordQuery { kind: KIND.into(), limit: MAX_HUBS, ..RecordQuery::default() };
        let records = self.store.records(&query).await?;
        // A record of a later version may be unreadable.
        let seen = records.into_iter().filter_map(|record| {
            let hub = serde_json::from_slice(&record.value).ok()?;
            Some((record.key, SeenHub { record: hub, seen: record.at, is_this: false }))
        });
        Ok(seen.collect())
    }
}

fn is_alive(seen: Timestamp) -> bool {
    clock::later(seen, MAX_AGE) >= clock::now()
}
