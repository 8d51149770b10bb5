//! The wall clock. Code that needs the time reads it here once and passes it on.

use std::time::{SystemTime, UNIX_EPOCH};

use nuncio_protocol::Timestamp;

/// The current time.
pub(crate) fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(millis).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
}

/// A time plus a duration.
pub(crate) fn later(at: Timestamp, by: std::time::Duration) -> Timestamp {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_add(millis)).unwrap_or(Timestamp::MAX)
}

/// A time minus a duration.
pub(crate) fn earlier(at: Timestamp, by: std::time::Duration) -> Timestamp {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(millis)).unwrap_or(Timestamp::MIN)
}
