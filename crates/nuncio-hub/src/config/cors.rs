//! Web pages, by their origin.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::form::text;

/// Web pages that may call agents.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// Origins whose pages may call agents, such as https://app.example.com; "*" for all. Cards are readable
    /// from every page.
    #[schemars(example = ["https://app.example.com"])]
    pub origins: Vec<WebOrigin>,
}

/// An origin that may call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebOrigin {
    /// All origins.
    Any,
    /// This origin, as browsers send it.
    Exact(String),
}

text!(WebOrigin);

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(origin) => f.write_str(origin),
        }
    }
}

impl WebOrigin {
    /// True if it admits this value of the header `Origin`.
    #[must_use]
    pub fn admits(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(known) => known == origin,
        }
    }
}

impl FromStr for WebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let is_bare = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        };
        let url = Url::parse(text).ok().filter(is_bare);
        url.map(|url| Self::Exact(url.origin().ascii_serialization())).ok_or_else(|| {
            "expected an origin such as https://app.example.com, without a path, or * for all".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_by_their_origin() {
        for (text, origin, expected) in [
            ("https://app.example.com", "https://app.example.com", true),
            ("https://App.example.com:443/", "https://app.example.com", true),
            ("http://localhost:5173", "http://localhost:5173", true),
            ("http://localhost:5173", "http://localhost:5174", false),
            ("https://app.example.com", "http://app.example.com", false),
            ("*", "null", true),
        ] {
            let known: WebOrigin = text.parse().unwrap();
            assert_eq!(known.admits(origin), expected, "{text} and {origin}");
        }
        for wrong in ["", "app.example.com", "https://app.example.com/page", "ftp://x.example", "null"] {
            assert!(wrong.parse::<WebOrigin>().is_err(), "{wrong}");
        }
    }
}
