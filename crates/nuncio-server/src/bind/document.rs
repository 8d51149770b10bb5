//! A public JSON document with the headers for caches, and a 304 response for clients that have it already.

use std::time::{Duration, SystemTime};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use nuncio_protocol::{Error, Result, Timestamp};
use sha2::{Digest as _, Sha256};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A public document, ready to be sent.
#[derive(Clone, Debug)]
pub struct Document {
    body: Bytes,
    etag: HeaderValue,
    cache_control: HeaderValue,
    /// Seconds since the Unix epoch; HTTP dates are not finer.
    modified: i64,
    last_modified: HeaderValue,
    vary: Option<HeaderValue>,
}

impl Document {
    /// A document that is unchanged since `modified` and may be cached for `max_age`.
    ///
    /// # Errors
    /// The document cannot be encoded as JSON.
    pub fn new(json: &serde_json::Value, max_age: Duration, modified: SystemTime) -> Result<Self> {
        let body = serde_json::to_vec(json).map_err(Error::internal)?;
        // A digest of the content covers every member, independent of the version that the document states.
        let digest = Sha256::digest(&body);
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let value = |text: String| HeaderValue::from_str(&text).map_err(Error::internal);
        let seconds = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let modified = i64::try_from(seconds).unwrap_or_default();
        Ok(Self {
            etag: value(format!("\"{hex}\""))?,
            cache_control: value(format!("public, max-age={}", max_age.as_secs()))?,
            last_modified: value(http_date(modified))?,
            modified,
            body: body.into(),
            vary: None,
        })
    }

    /// Sets the header `Vary`: the request headers that the document depends on.
    #[must_use]
    pub fn varying_by(mut self, headers: &'static str) -> Self {
        self.vary = Some(HeaderValue::from_static(headers));
        self
    }

    /// The response with the document, or 304 if the client has it (REQ-182, REQ-183).
    #[must_use]
    pub fn respond(&self, request_headers: &HeaderMap) -> Response {
        let mut response = if self.is_known(request_headers) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let mut response = Response::new(Body::from(self.body.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::CACHE_CONTROL, self.cache_control.clone());
        headers.insert(header::LAST_MODIFIED, self.last_modified.clone());
        if let Some(vary) = &self.vary {
            headers.insert(header::VARY, vary.clone());
        }
        // The document is public: pages of any origin may read it.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    }

    /// True if the client has the document. The date counts only if no tag is sent (RFC 9110, 13.1.3).
    fn is_known(&self, headers: &HeaderMap) -> bool {
        let mut tags = headers.get_all(header::IF_NONE_MATCH).iter().peekable();
        if tags.peek().is_some() {
            return tags.any(|value| self.matches(value));
        }
        let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
        since.and_then(parse_http_date).is_some_and(|since| self.modified <= since)
    }

    fn matches(&self, if_none_match: &HeaderValue) -> bool {
        let (Ok(list), Ok(own)) = (if_none_match.to_str(), self.etag.to_str()) else { return false };
        list.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == own)
    }
}

/// Formats an HTTP date (RFC 9110, 5.6.7), such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(seconds: i64) -> String {
    let stamp = Timestamp::from_parts(seconds, 0).unwrap_or(Timestamp::EPOCH).to_string();
    // The positions of the ISO form are fixed: 2026-11-15T12:00:00.000Z
    let month = stamp[5..7].parse::<usize>().map_or(0, |month| month - 1);
    format!(
        "{}, {} {} {} {} GMT",
        DAYS[(seconds / 86_400 % 7) as usize],
        &stamp[8..10],
        MONTHS[month],
        &stamp[..4],
        &stamp[11..19]
    )
}

/// Parses an HTTP date to seconds since the Unix epoch. The two obsolete forms are not parsed; such a client
/// gets the document.
fn parse_http_date(text: &str) -> Option<i64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (time, zone) = (words.next()?, words.next()?);
    if zone != "GMT" || words.next().is_some() {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let stamp = Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()?;
    Some(stamp.as_parts().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 784_111_777;
    const WRITTEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    #[test]
    fn dates_as_http_writes_them() {
        assert_eq!(http_date(NOW), WRITTEN);
        assert_eq!(parse_http_date(WRITTEN), Some(NOW));
        for other in [
            "",
            "Sun, ",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
        ] {
            assert_eq!(parse_http_date(other), None, "{other:?}");
        }
    }

    #[test]
    fn who_has_it_already_is_told_so() {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs());
        let document = Document::new(&serde_json::json!({"a": 1}), Duration::from_secs(9), modified)
            .unwrap()
            .varying_by("x-one, x-two");
        let etag = document.etag.to_str().unwrap().to_owned();
        let (none_match, since) = ("if-none-match", "if-modified-since");
        for (headers, status) in [
            (vec![], 200),
            (vec![(none_match, &*etag)], 304),
            (vec![(none_match, "\"other\""), (none_match, &etag)], 304),
            (vec![(since, WRITTEN)], 304),
            (vec![(since, "Sun, 06 Nov 1994 08:49:38 GMT")], 304),
            (vec![(since, "Sun, 06 Nov 1994 08:49:36 GMT")], 200),
            (vec![(since, "yesterday")], 200),
            // The tag takes precedence.
            (vec![(since, WRITTEN), (none_match, "\"other\"")], 200),
            (vec![(since, "Sun, 06 Nov 1994 08:49:36 GMT"), (none_match, &etag)], 304),
        ] {
            let mut request = HeaderMap::new();
            for (name, value) in &headers {
                request.append(*name, HeaderValue::from_str(value).unwrap());
            }
            let response = document.respond(&request);
            assert_eq!(response.status().as_u16(), status, "{headers:?}");
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(header("etag"), etag);
            assert_eq!(header("cache-control"), "public, max-age=9");
            assert_eq!(header("last-modified"), WRITTEN);
            assert_eq!(header("vary"), "x-one, x-two");
        }
    }
}
