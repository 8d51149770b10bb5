//! A request with its answer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::HeaderMap;

use super::Request;
use crate::outcome::Excerpt;

/// The characters of a body in a report.
const MAX_EXCERPT: usize = 1200;

/// A whole answer. Any status is an answer.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl Response {
    /// The media type, without parameters, in lower case.
    pub(crate) fn media_type(&self) -> String {
        media_type(&self.headers)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn excerpt(&self) -> String {
        let mut text = format!("HTTP {}\n", self.status);
        for (name, value) in self.headers.iter().chain(&self.trailers) {
            if !matches!(name.as_str(), "date" | "set-cookie" | "server" | "vary" | "content-length") {
                text.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or("?")));
            }
        }
        if !self.body.is_empty() {
            text.push('\n');
            text.push_str(&match std::str::from_utf8(&self.body) {
                Ok(body) if !self.media_type().starts_with("application/grpc") => shortened(body),
                _ => format!("({} bytes: {})", self.body.len(), shortened(&STANDARD.encode(&self.body))),
            });
        }
        text
    }
}

/// The media type in headers, without parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection was made.
    Unreached(String),
    /// The connection broke.
    Broken(String),
    /// The answer did not come in time.
    Slow(String),
    /// The deadline of the audit has passed; nothing was sent.
    Deadline,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreached(why) | Self::Broken(why) | Self::Slow(why) => f.write_str(why),
            Self::Deadline => f.write_str("the deadline of the audit has passed; set --deadline"),
        }
    }
}

/// A request with its answer, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) response: Result<Response, Failure>,
}

impl Exchange {
    /// The exchange for reports.
    pub(crate) fn excerpt(&self) -> Excerpt {
        let response = match &self.response {
            Ok(response) => response.excerpt(),
            Err(failure) => format!("({failure})"),
        };
        Excerpt { request: self.request.excerpt(), response }
    }
}

/// The beginning of a text.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text as one word of a shell command.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
