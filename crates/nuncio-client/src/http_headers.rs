//! HTTP headers that several parts of the client read, and those that callers may not set.

use std::time::Duration;

use http::{
    HeaderMap, HeaderName,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

/// Headers that frame the message: with them, one request could be made to look like two.
pub(crate) const FRAMING: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The pause that `Retry-After` requests, in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = http_date(text)?;
    // A time in the past means now.
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// Parses an HTTP date (RFC 9110, 5.6.7).
pub(crate) fn http_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// The media type of an answer, without its parameters; empty if it has none.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let whole = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    whole.split(';').next().unwrap_or_default().trim()
}
