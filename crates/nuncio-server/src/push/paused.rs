//! Receivers that are paused by an operator. Their deliveries stay pending, and none is attempted.
//!
//! The list is stored, so that it outlives the server and holds for all servers that share the store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use nuncio_protocol::Timestamp;

use crate::store::{Expect, PutRecord, Record, RecordQuery, Store, StoreError, Topic};

/// The kind of the records; the key is the target, the time of writing the begin of the pause.
const KIND: &str = "push-pause";

/// The maximum number of paused targets.
pub const MAX_PAUSED: usize = 1_000;

/// The paused targets.
#[derive(Default)]
pub(super) struct PausedTargets {
    targets: ArcSwap<BTreeMap<Arc<str>, Timestamp>>,
    /// The list was read: until then nothing is known to be not paused.
    is_read: AtomicBool,
}

impl PausedTargets {
    pub(super) fn has(&self, target: &str) -> bool {
        self.targets.load().contains_key(target)
    }

    pub(super) fn all(&self) -> Arc<BTreeMap<Arc<str>, Timestamp>> {
        self.targets.load_full()
    }

    /// True if the list has been read once.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Reads the list.
    pub(super) async fn read(&self, store: &dyn Store) -> Result<(), StoreError> {
        let query = RecordQuery { kind: KIND.into(), limit: MAX_PAUSED, ..RecordQuery::default() };
        let records = store.records(&query).await?;
        let target = |record: Record| (record.key.into(), record.at);
        self.targets.store(Arc::new(records.into_iter().map(target).collect()));
        self.is_read.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The topic of changes of the list.
pub(super) fn topic() -> Topic {
    Topic::Records(KIND.into())
}

/// Stores a pause; false if it was there already.
pub(super) async fn put(store: &dyn Store, target: &str, at: Timestamp) -> Result<bool, StoreError> {
    let put =
        PutRecord { kind: KIND.into(), key: target.into(), value: Bytes::new(), at, expect: Expect::Absent };
    let results = store.put_records(vec![put]).await?;
    store.signals().send(topic(), target);
    Ok(results.iter().all(Result::is_ok))
}

/// Deletes a pause; false if there was none.
pub(super) async fn delete(store: &dyn Store, target: &str) -> Result<bool, StoreError> {
    let deleted = store.delete_record(KIND, target, Expect::Anything).await?;
    store.signals().send(topic(), target);
    Ok(deleted.unwrap_or(false))
}
