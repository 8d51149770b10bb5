//! The URL of one interface.

use http::Uri;
use nuncio_protocol::{Error, Result};
use url::Url;

/// A URL, split into the parts that call URIs are made of.
pub(crate) struct Address {
    /// `https://host:port` and the path prefix, without a trailing slash.
    base: String,
    /// The query of the URL itself.
    query: Option<String>,
    /// The complete URI.
    whole: Uri,
}

impl Address {
    /// Splits a URL.
    ///
    /// # Errors
    /// `Internal` if it cannot be called.
    pub(crate) fn new(url: &Url) -> Result<Self> {
        let origin = url.origin().ascii_serialization();
        let query = url.query().filter(|query| !query.is_empty()).map(str::to_owned);
        let whole = join(&format!("{origin}{}", url.path()), "", [query.as_deref(), None])?;
        let base = format!("{origin}{}", url.path().trim_end_matches('/'));
        Ok(Self { base, query, whole })
    }

    /// The complete URI.
    pub(crate) fn whole(&self) -> Uri {
        self.whole.clone()
    }

    /// The URI with this path and query appended, both escaped already.
    ///
    /// # Errors
    /// The path or the query is invalid.
    pub(crate) fn below(&self, path: &str, query: Option<&str>) -> Result<Uri> {
        join(&self.base, path, [self.query.as_deref(), query])
    }
}

fn join(base: &str, path: &str, queries: [Option<&str>; 2]) -> Result<Uri> {
    let mut text = String::with_capacity(base.len() + path.len() + 32);
    text.push_str(base);
    text.push_str(path);
    let queries = queries.into_iter().flatten().filter(|query| !query.is_empty());
    for (number, query) in queries.enumerate() {
        text.push(if number == 0 { '?' } else { '&' });
        text.push_str(query);
    }
    text.try_into().map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_below_the_address_and_keep_its_query() {
        for (url, path, query, whole, below) in [
            ("http://a.example", "/tasks/1", None, "http://a.example/", "http://a.example/tasks/1"),
            ("http://a.example/x/", "/t", Some("a=1"), "http://a.example/x/", "http://a.example/x/t?a=1"),
            (
                "https://a.example:8443/x?k=v",
                "/t%20u",
                Some("a=1"),
                "https://a.example:8443/x?k=v",
                "https://a.example:8443/x/t%20u?k=v&a=1",
            ),
            ("http://[::1]:9/x?", "/t", Some(""), "http://[::1]:9/x", "http://[::1]:9/x/t"),
            ("http://user:secret@a.example/#f", "/t", None, "http://a.example/", "http://a.example/t"),
        ] {
            let address = Address::new(&Url::parse(url).unwrap()).unwrap();
            assert_eq!(address.whole().to_string(), whole);
            assert_eq!(address.below(path, query).unwrap().to_string(), below);
        }
    }
}
