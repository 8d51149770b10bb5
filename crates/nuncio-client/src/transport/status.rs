//! The error of an HTTP status, if the body has no better one. An error is never derived from its status
//! alone (protocol-notes.md, Errors).

use http::{
    HeaderMap, StatusCode,
    header::{LOCATION, WWW_AUTHENTICATE},
};
use jiff::Timestamp;
use nuncio_protocol::{Error, ErrorKind, wire::jsonrpc};
use url::Url;

use crate::{
    egress::{shown, shown_text},
    failure::NoAgent,
    http_headers::{media_type, retry_after},
};

/// Maximum number of quoted characters.
const MAX_QUOTED: usize = 200;

/// The headers of an answer, and its URL.
#[derive(Debug)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) url: &'a Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// The peer did not get the caller's credentials, because they are bound to another origin.
    pub(crate) withheld: bool,
}

impl ResponseHead<'_> {
    /// The error of an answer without success. A JSON-RPC error in the body is preferred, unless its kind
    /// is unspecific; then the status decides the kind. Plain text is quoted.
    pub(crate) fn error(&self, body: &[u8], now: Timestamp) -> Error {
        let said = match jsonrpc::decode_response(body) {
            Err(error) if !is_vague(error.kind()) => Some(error),
            Err(error) if error.kind() == ErrorKind::Internal => {
                Some(Error::new(self.kind(), self.explain(Some(error.message()))))
            }
            _ => self.text(body).map(|text| Error::new(self.kind(), self.explain(Some(&text)))),
        };
        self.told(said, now)
    }

    /// The error of an answer without success: the decoded body, if any, with the facts of the headers.
    pub(crate) fn told(&self, said: Option<Error>, now: Timestamp) -> Error {
        let error = match said {
            Some(error) => hint(error, self.withheld),
            None => Error::new(self.kind(), self.explain(None)),
        };
        // An error about a task has a specific kind.
        let is_unspecific = is_vague(error.kind()) || error.kind() == ErrorKind::MethodNotFound;
        let has_no_agent = self.status == StatusCode::NOT_FOUND && is_unspecific;
        let error = if has_no_agent { error.with_source(NoAgent) } else { error };
        match retry_after(self.headers, now) {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }

    /// The first line of a plain-text body, shortened.
    fn text(&self, body: &[u8]) -> Option<String> {
        if !media_type(self.headers).eq_ignore_ascii_case("text/plain") {
            return None;
        }
        let text = String::from_utf8_lossy(body);
        let line = text.trim().lines().next()?.trim_end();
        let quoted = line
            .chars()
            .take(MAX_QUOTED)
            .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() });
        Some(quoted.collect())
    }

    fn kind(&self) -> ErrorKind {
        match self.status.as_u16() {
            401 => ErrorKind::Unauthenticated,
            403 => ErrorKind::PermissionDenied,
            413 => ErrorKind::PayloadTooLarge,
            415 => ErrorKind::ContentTypeNotSupported,
            429 => ErrorKind::ResourceExhausted,
            502..=504 => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidAgentResponse,
        }
    }

    fn explain(&self, said: Option<&str>) -> String {
        let url = shown(self.url);
        let mut text = format!("{url} answered {}", self.status);
        if let Some(said) = said {
            text.push_str(": ");
            text.push_str(said);
        }
        let header = |name| self.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        if self.withheld && matches!(self.status.as_u16(), 401 | 403) {
            text.push_str(WITHHELD);
        } else if let Some(challenge) = header(WWW_AUTHENTICATE).filter(|_| said.is_none()) {
            // The reason in a challenge (RFC 6750) is that of the body.
            text.push_str("; it asks for ");
            text.push_str(challenge);
        } else if let Some(location) = header(LOCATION).filter(|_| self.status.is_redirection()) {
            text.push_str("; redirects are not followed, use the final address ");
            text.push_str(&shown_text(location));
        } else if self.status == StatusCode::NOT_FOUND {
            text.push_str("; there is no agent at this address");
        }
        text
    }
}

/// Advice for a caller that is refused because its credentials were withheld.
const WITHHELD: &str = "; the credentials were not sent, because they are bound to the origin of the card; \
                        allow this origin to send them";

/// Adds the advice to an error of the peer, if it asks for credentials that were withheld.
pub(crate) fn hint(error: Error, withheld: bool) -> Error {
    let asks = matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::PermissionDenied);
    if !withheld || !asks || error.message().ends_with(WITHHELD) {
        return error;
    }
    let message = format!("{}{WITHHELD}", error.message());
    let hinted = Error::from_details(error.kind(), message, error.details());
    match error.retry_after() {
        Some(after) => hinted.with_retry_after(after),
        None => hinted,
    }
}

/// True for kinds that are less specific than the status.
fn is_vague(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Internal | ErrorKind::InvalidAgentResponse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_headers::http_date;

    fn check(
        status: u16,
        headers: &[(&'static str, &str)],
        withheld: bool,
        body: &str,
    ) -> (ErrorKind, String, u64) {
        let url = Url::parse("http://agent.example/a2a?k=v").unwrap();
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let head = ResponseHead {
            url: &url,
            status: StatusCode::from_u16(status).unwrap(),
            headers: &headers,
            withheld,
        };
        let now = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let error = head.error(body.as_bytes(), now);
        (error.kind(), error.message().to_owned(), error.retry_after().map_or(0, |after| after.as_secs()))
    }

    #[test]
    fn the_body_knows_best() {
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}"#;
        assert_eq!(check(404, &[], false, body), (ErrorKind::TaskNotFound, "no such task".to_owned(), 0));
        let vague = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"slow down"}}"#;
        let (kind, message, after) = check(429, &[("retry-after", "7")], false, vague);
        assert_eq!((kind, after), (ErrorKind::ResourceExhausted, 7));
        assert_eq!(message, "http://agent.example/a2a answered 429 Too Many Requests: slow down");
    }

    #[test]
    fn a_text_is_quoted_as_far_as_it_fits() {
        let plain = &[("content-type", "text/plain; charset=utf-8")][..];
        let long = "x".repeat(300);
        for (headers, body, expected) in [
            (plain, "this port speaks TLS\r\nsecond", ": this port speaks TLS"),
            (plain, "\u{1b}[2Jgone", ": \\u{1b}[2Jgone"),
            (plain, &*long, &*format!(": {}", &long[..200])),
            (plain, " \n", ""),
            (&[("content-type", "text/html")], "<html>", ""),
            (&[], "text", ""),
        ] {
            let (kind, message, _) = check(400, headers, false, body);
            let expected = format!("http://agent.example/a2a answered 400 Bad Request{expected}");
            assert_eq!((kind, message), (ErrorKind::InvalidAgentResponse, expected));
        }
    }

    #[test]
    fn without_a_body_the_status_speaks() {
        for (status, kind) in [
            (401, ErrorKind::Unauthenticated),
            (403, ErrorKind::PermissionDenied),
            (404, ErrorKind::InvalidAgentResponse),
            (413, ErrorKind::PayloadTooLarge),
            (415, ErrorKind::ContentTypeNotSupported),
            (429, ErrorKind::ResourceExhausted),
            (500, ErrorKind::InvalidAgentResponse),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(check(status, &[], false, "<html>").0, kind, "{status}");
        }
    }

    #[test]
    fn a_status_of_404_without_an_error_of_the_protocol_means_that_there_is_no_agent() {
        let task = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}"#;
        let page = r#"{"error":{"code":404,"status":"NOT_FOUND","message":"nothing here"}}"#;
        let nothing = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"nothing here"}}"#;
        for (status, body, expected) in [
            (404, "", true),
            (404, page, true),
            (404, nothing, true),
            (200, nothing, false),
            (404, task, false),
            (500, "", false),
            (500, page, false),
        ] {
            let (url, headers) = (Url::parse("https://a.example").unwrap(), HeaderMap::new());
            let status = StatusCode::from_u16(status).unwrap();
            let head = ResponseHead { url: &url, status, headers: &headers, withheld: false };
            let error = head.error(body.as_bytes(), Timestamp::UNIX_EPOCH);
            assert_eq!(crate::has_no_agent(&error), expected, "{status} {body}");
        }
    }

    #[test]
    fn what_to_do_next() {
        let challenge = &[("www-authenticate", "Bearer realm=\"a\"")];
        assert!(check(401, challenge, false, "").1.ends_with("; it asks for Bearer realm=\"a\""));
        let plain = ("content-type", "text/plain");
        let (_, said, _) = check(401, &[challenge[0], plain], false, "there is no such key");
        assert!(said.ends_with(" answered 401 Unauthorized: there is no such key"), "{said}");
        assert!(check(401, challenge, true, "").1.contains("not sent"));
        assert!(
            check(308, &[("location", "https://b.example/")], false, "").1.ends_with("https://b.example/")
        );
    }

    #[test]
    fn dates_and_nonsense() {
        assert_eq!(check(503, &[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], false, "").2, 60);
        assert_eq!(check(503, &[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], false, "").2, 0);
        assert_eq!(check(503, &[("retry-after", "soon")], false, "").2, 0);
    }
}
