//! Credentials: what a caller proves itself with, and to whom.
//!
//! The rule: a credential goes to the origin that the card was fetched from, and to origins that the
//! caller named. A card can name any address as an interface; it cannot make us send it a token.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use nuncio_protocol::{Error, Result};
use url::{Origin, Url};

/// What a caller proves itself with: headers, the values of which are never printed.
///
/// ```
/// use nuncio_client::Credentials;
///
/// let credentials = Credentials::none().bearer("s3cret")?.header("x-team", "billing")?;
/// assert!(!format!("{credentials:?}").contains("s3cret"));
/// # Ok::<_, nuncio_client::protocol::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Credentials {
    headers: HeaderMap,
    /// Origins beside the card's own that may see the headers.
    origins: Vec<Origin>,
}

impl Credentials {
    /// No credentials.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// `Authorization: Bearer …`.
    ///
    /// # Errors
    /// The token holds characters that no header can.
    pub fn bearer(self, token: &str) -> Result<Self> {
        self.secret(AUTHORIZATION, &format!("Bearer {token}"), "bearer token")
    }

    /// `Authorization: Basic …`.
    ///
    /// # Errors
    /// The user's name holds a colon (RFC 7617).
    pub fn basic(self, user: &str, password: &str) -> Result<Self> {
        if user.contains(':') {
            return Err(Error::invalid_field(
                "user",
                "a colon cannot be part of a user's name in basic authentication",
            ));
        }
        let pair = STANDARD.encode(format!("{user}:{password}"));
        self.secret(AUTHORIZATION, &format!("Basic {pair}"), "basic credentials")
    }

    /// An API key in a header of this name.
    ///
    /// # Errors
    /// The name is no header's, or the key holds characters that no header can.
    pub fn api_key(self, header: &str, key: &str) -> Result<Self> {
        self.header(header, key)
    }

    /// Any other header. It is bound to origins as well: nobody can tell which of them is a secret.
    ///
    /// # Errors
    /// The name is no header's, or the value holds characters that no header can.
    pub fn header(self, name: &str, value: &str) -> Result<Self> {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Error::invalid_field("header", format!("{name:?} is no name of a header")))?;
        self.secret(header, value, name)
    }

    /// Also sends the credentials to the origin (scheme, host and port) of this address.
    #[must_use]
    pub fn allow_origin(mut self, url: &Url) -> Self {
        self.origins.push(url.origin());
        self
    }

    /// True if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    fn secret(mut self, name: HeaderName, value: &str, what: &str) -> Result<Self> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| Error::invalid_field(what, "holds characters that cannot stand in a header"))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// What may be sent to `target` when the card came from `home`.
    pub(crate) fn for_target(&self, target: &Url, home: &Origin) -> Granted {
        if self.headers.is_empty() {
            return Granted { headers: HeaderMap::new(), withheld: false };
        }
        let origin = target.origin();
        // An opaque origin (`file:` and the like) equals nothing, not even itself.
        let allowed = origin == *home || self.origins.contains(&origin);
        let headers = if allowed { self.headers.clone() } else { HeaderMap::new() };
        Granted { headers, withheld: !allowed }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Credentials").field("headers", &names).finish_non_exhaustive()
    }
}

/// The part of the credentials that one address may see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    /// To be sent; sensitive values print as such.
    pub(crate) headers: HeaderMap,
    /// There are credentials, and this address does not get them.
    pub(crate) withheld: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_at_home() {
        // Lesson 10: a card that names another host must not get the token.
        let home = Url::parse("https://agent.example/.well-known/agent-card.json").unwrap().origin();
        let credentials = Credentials::none()
            .bearer("t")
            .unwrap()
            .allow_origin(&Url::parse("https://calls.example:8443/x").unwrap());
        for (target, sent) in [
            ("https://agent.example/a2a", true),
            ("https://agent.example:443/", true),
            ("http://agent.example/a2a", false),
            ("https://agent.example:8443/", false),
            ("https://sub.agent.example/", false),
            ("https://calls.example:8443/a2a", true),
            ("https://calls.example/a2a", false),
        ] {
            let granted = credentials.for_target(&Url::parse(target).unwrap(), &home);
            assert_eq!(
                (granted.headers.contains_key(AUTHORIZATION), granted.withheld),
                (sent, !sent),
                "{target}"
            );
        }
    }

    #[test]
    fn nothing_to_send_is_nothing_withheld() {
        let home = Url::parse("https://a.example").unwrap().origin();
        assert!(!Credentials::none().for_target(&Url::parse("https://b.example").unwrap(), &home).withheld);
    }

    #[test]
    fn forms() {
        let basic = Credentials::none().basic("Aladdin", "open sesame").unwrap();
        assert_eq!(basic.headers[AUTHORIZATION], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(basic.headers[AUTHORIZATION].is_sensitive());
        assert_eq!(Credentials::none().api_key("X-API-Key", "k").unwrap().headers["x-api-key"], "k");
        for bad in [
            Credentials::none().bearer("a\nb").unwrap_err(),
            Credentials::none().basic("a:b", "c").unwrap_err(),
            Credentials::none().header("no name", "v").unwrap_err(),
        ] {
            assert!(bad.message().starts_with("invalid parameters"), "{bad}");
        }
        assert!(!format!("{basic:?}").contains("QWx"));
    }
}
