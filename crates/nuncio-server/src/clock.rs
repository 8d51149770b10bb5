//! The wall clock of the server.

use std::time::SystemTime;

use nuncio_protocol::Timestamp;

/// The current time, to the millisecond, which is the precision on the wire.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::EPOCH)
}
