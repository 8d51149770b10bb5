//! Claims on messages that are being sent to an agent that does not recognise repeats, before a task of
//! them is stored. If the hub is stopped meanwhile, a repeat by the caller under the same idempotency key
//! finds the claim: the message may have arrived, and is not sent again.

use std::time::Duration;

use nuncio_protocol::{Error, ErrorKind, Result, Timestamp};
use nuncio_server::store::{Expect, PutRecord, Store};

use super::super::link::DEFAULT_RETRY_AFTER;
use crate::clock;

/// The kind of the records.
pub(in crate::agents) const KIND: &str = "on-its-way";

/// A stored claim: the message is being sent.
pub(super) struct StoredClaim<'a> {
    store: &'a dyn Store,
    key: String,
}

impl<'a> StoredClaim<'a> {
    /// Stores a claim on the message with this name. Sending it takes at most `at_most`.
    ///
    /// # Errors
    /// `Unavailable` if another hub may be sending it, or the store is unavailable. Any other error: it was
    /// sent before, with an unknown outcome.
    pub(super) async fn take(
        store: &'a dyn Store,
        agent: &str,
        name: &str,
        at_most: Duration,
    ) -> Result<Self> {
        let key = format!("{agent}\0{name}");
        let put = PutRecord {
            kind: KIND.into(),
            key: key.as_str().into(),
            value: bytes::Bytes::new(),
            at: clock::now(),
            expect: Expect::Absent,
        };
        let [taken] = &store.put_records(vec![put]).await?[..] else {
            return Err(ErrorKind::Internal.into());
        };
        match taken {
            Ok(_) => Ok(Self { store, key }),
            // In a store that is not shared, the process that took the claim has ended.
            Err(_) if !store.is_shared() => Err(was_left()),
            Err(_) => match store.record(KIND, &key).await? {
                Some(record) if age(record.at) > at_most => Err(was_left()),
                _ => {
                    let why = "the message is on its way, or was when another hub stopped; ask again later";
                    Err(Error::new(ErrorKind::Unavailable, why).with_retry_after(DEFAULT_RETRY_AFTER))
                }
            },
        }
    }

    /// Deletes the claim: the result is stored, so a repeat finds it, or the message was not sent, so a
    /// repeat may send it.
    pub(super) async fn give_back(self) {
        if let Err(error) = self.store.delete_record(KIND, &self.key, Expect::Anything).await {
            tracing::debug!(%error, "the claim on a sent message cannot be deleted; it expires later");
        }
    }
}

fn age(at: Timestamp) -> Duration {
    let millis = clock::now().as_millis().saturating_sub(at.as_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// The error for a message that may have been sent and has no known answer.
pub(super) fn was_left() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the hub stopped before it was known whether the agent took the message; it was not sent again",
    )
}
