//! Expiry of unused records about tasks and conversations that remote agents store. They expire by age,
//! because the hub is not notified when the remote agent deletes its part.

use nuncio_protocol::Timestamp;
use nuncio_server::store::{Records, StoreError};

use crate::clock;

/// Retention of a record after its last use, in days. A record in use is rewritten only when half of this
/// time is over, so that not every use is a write.
const RETENTION_DAYS: i64 = 180;

/// The number of records removed per query.
const PAGE: usize = 1000;

/// True if a record that is used now has to be rewritten.
pub(super) fn is_due(at: Timestamp) -> bool {
    at < days_ago(RETENTION_DAYS / 2)
}

/// Removes expired records of these kinds, of all agents.
pub(super) async fn forget(store: &dyn Records, kinds: impl Iterator<Item = &'static str>) {
    for kind in kinds {
        if let Err(error) = prune(store, kind).await {
            tracing::warn!(kind, %error, "expired records cannot be removed");
        }
    }
}

async fn prune(store: &dyn Records, kind: &str) -> Result<(), StoreError> {
    while store.prune_records(kind, days_ago(RETENTION_DAYS), PAGE).await? == PAGE {}
    Ok(())
}

pub(super) fn days_ago(days: i64) -> Timestamp {
    let millis = clock::now().as_millis().saturating_sub(days * 24 * 60 * 60 * 1000);
    Timestamp::from_millis(millis).unwrap_or(Timestamp::EPOCH)
}
