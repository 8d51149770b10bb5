//! The card on the wire: one document for both versions, with everything that caches need.

use std::time::{Duration, SystemTime};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nuncio_protocol::{Error, Result};
use sha2::{Digest as _, Sha256};

/// A card, ready to be sent.
pub(super) struct CardDocument {
    body: Bytes,
    etag: HeaderValue,
    cache_control: HeaderValue,
    last_modified: HeaderValue,
}

impl CardDocument {
    pub(super) fn new(document: &serde_json::Value, max_age: Duration) -> Result<Self> {
        let body = serde_json::to_vec(document).map_err(Error::internal)?;
        // Of the content, so that it covers every member, whatever the card's own version says.
        let digest = Sha256::digest(&body);
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let value = |text: String| HeaderValue::from_str(&text).map_err(Error::internal);
        Ok(Self {
            etag: value(format!("\"{hex}\""))?,
            cache_control: value(format!("public, max-age={}", max_age.as_secs()))?,
            last_modified: value(http_date(SystemTime::now()))?,
            body: body.into(),
        })
    }

    /// The card, or 304 if the caller has it (REQ-182, REQ-183).
    pub(super) fn respond(&self, headers: &HeaderMap, legacy: bool) -> Response {
        let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| self.matches(value));
        let mut response = if known {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let mut response = Response::new(Body::from(self.body.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        };
        let out = response.headers_mut();
        out.insert(header::ETAG, self.etag.clone());
        out.insert(header::CACHE_CONTROL, self.cache_control.clone());
        out.insert(header::LAST_MODIFIED, self.last_modified.clone());
        // Cards are public: a page of any origin may read them.
        out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        if legacy {
            out.insert(HeaderName::from_static("deprecation"), HeaderValue::from_static("true"));
            out.insert(
                header::LINK,
                HeaderValue::from_static("<agent-card.json>; rel=\"successor-version\""),
            );
        }
        response
    }

    fn matches(&self, if_none_match: &HeaderValue) -> bool {
        let (Ok(list), Ok(own)) = (if_none_match.to_str(), self.etag.to_str()) else { return false };
        list.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own)
    }
}

/// RFC 9110 5.6.7, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let days = seconds / 86_400;
    let stamp = nuncio_protocol::Timestamp::from_parts(i64::try_from(seconds).unwrap_or_default(), 0)
        .unwrap_or(nuncio_protocol::Timestamp::EPOCH)
        .to_string();
    // The ISO form has every number at its place: 2026-11-15T12:00:00.000Z
    let month = stamp[5..7].parse::<usize>().map_or(0, |month| month - 1);
    format!(
        "{}, {} {} {} {} GMT",
        DAYS[(days % 7) as usize],
        &stamp[8..10],
        MONTHS[month],
        &stamp[..4],
        &stamp[11..19]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_http_writes_them() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(http_date(time), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
