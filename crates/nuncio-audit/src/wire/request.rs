//! A request, as it is sent and as a person can repeat it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use super::exchange::{quoted, shortened};

/// The caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Identity {
    /// The credentials of the audit.
    #[default]
    Caller,
    /// The second credentials (`--as`).
    Second,
    /// No credentials.
    Nobody,
    /// Credentials that cannot be valid.
    Invalid,
}

/// A request to an agent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Over HTTP/2 only, as gRPC needs it.
    pub(crate) http2: bool,
    pub(crate) identity: Identity,
    /// The query of the URL may be a credential, and is not shown.
    pub(crate) hides_query: bool,
    /// The names of the headers with credentials, which are added when the request is sent.
    pub(crate) secrets: Vec<String>,
}

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            http2: false,
            identity: Identity::Caller,
            hides_query: false,
            secrets: Vec::new(),
        }
    }

    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    /// The URL for reports.
    pub(crate) fn shown_url(&self) -> String {
        if self.hides_query { without_query(&self.url) } else { self.url.to_string() }
    }

    /// Sets a header; a value that is no header value is left out.
    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    #[must_use]
    pub(crate) fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    #[must_use]
    pub(crate) fn by(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// A shell command that repeats the request. Credentials are variables.
    pub(crate) fn curl(&self) -> String {
        let mut words = vec!["curl -sS -i".to_owned()];
        if self.http2 {
            let option = if self.url.scheme() == "https" { "--http2" } else { "--http2-prior-knowledge" };
            words.push(option.to_owned());
        }
        if self.method != Method::GET {
            words.push(format!("-X {}", self.method));
        }
        words.push(quoted(&self.shown_url()));
        for (name, value) in &self.headers {
            words.push(format!("-H {}", quoted(&format!("{name}: {}", value.to_str().unwrap_or("?")))));
        }
        for name in &self.secrets {
            words.push(format!("-H \"{name}: ${}\"", name.to_uppercase().replace('-', "_")));
        }
        match std::str::from_utf8(&self.body) {
            Ok("") => words.join(" "),
            Ok(text) if !self.http2 => format!("{} -d {}", words.join(" "), quoted(text)),
            _ => {
                let body = STANDARD.encode(&self.body);
                format!("printf %s {body} | base64 -d | {} --data-binary @-", words.join(" "))
            }
        }
    }

    /// The request for reports: its line, headers and the beginning of the body, without credentials.
    pub(crate) fn excerpt(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.shown_url());
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {}\n", value.to_str().unwrap_or("?")));
        }
        for name in &self.secrets {
            text.push_str(&format!("{name}: (not shown)\n"));
        }
        if !self.body.is_empty() {
            text.push('\n');
            text.push_str(&match std::str::from_utf8(&self.body) {
                Ok(body) if !self.http2 => shortened(body),
                _ => format!("({} bytes: {})", self.body.len(), shortened(&STANDARD.encode(&self.body))),
            });
        }
        text
    }
}

/// A URL that a person gave: its user and query may be credentials.
pub(crate) fn without_query(url: &Url) -> String {
    let mut shown = url.clone();
    // Both succeed for a URL with a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_fragment(None);
    if url.query().is_some() {
        shown.set_query(Some("…"));
    }
    shown.to_string().replace("?%E2%80%A6", "?…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (given, expected) in [
            ("https://a.example/card.json?key=s3cret", "https://a.example/card.json?…"),
            ("https://user:s3cret@a.example/card.json#x", "https://a.example/card.json"),
            ("https://a.example/", "https://a.example/"),
        ] {
            let url = Url::parse(given).unwrap();
            let mut request = Request::get(url.clone());
            request.hides_query = true;
            assert_eq!(without_query(&url), expected);
            assert!(!format!("{} {}", request.curl(), request.excerpt()).contains("s3cret"), "{given}");
        }
    }
}
