//! Credentials of a caller, and the origins that they are sent to.
//!
//! The rule: a credential goes to the origin that the card was fetched from, and to origins that the caller
//! allowed. A card can name any URL as an interface, but that does not send a token there. Client
//! certificates follow the same rule, see [`EgressBuilder`](crate::EgressBuilder).
//!
//! Reading order: this file (credentials and origins), [`oauth`] (requests for tokens), [`token`] (the
//! token cache).

mod oauth;
pub(crate) mod secret;
mod token;

use std::{fmt, future::Future, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, COOKIE},
};
use nuncio_protocol::{Error, ErrorKind, Result};
use url::{Origin, Url};

pub use self::oauth::ClientCredentials;
use self::token::Tokens;
use crate::{
    egress::Egress,
    failure::{Failure, Reached},
    http_headers::FRAMING,
};

/// The credentials of a caller: headers and access tokens. Header values are never printed, and tokens are
/// fetched when they are needed. Clones share the tokens.
///
/// A card may ask for an API key in the query of the URL. This is not supported on purpose: URLs are
/// written to the logs of every server and proxy on the way.
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
    /// The source of `Authorization`, if it is not in the headers.
    tokens: Option<Arc<Tokens>>,
    /// Origins besides the card's own that get the headers and tokens.
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
    /// The token has characters that are not allowed in a header.
    pub fn bearer(self, token: &str) -> Result<Self> {
        self.secret(AUTHORIZATION, &format!("Bearer {token}"), "bearer token")
    }

    /// `Authorization: Basic …`.
    ///
    /// # Errors
    /// The user name has a colon (RFC 7617).
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
    /// The name is not a valid header name, or the key has characters that are not allowed in a header.
    pub fn api_key(self, header: &str, key: &str) -> Result<Self> {
        self.header(header, key)
    }

    /// An API key in a cookie of this name.
    ///
    /// # Errors
    /// The name or the key has characters that are not allowed in a cookie (RFC 6265, 4.1.1).
    pub fn api_key_cookie(self, name: &str, key: &str) -> Result<Self> {
        let stands = |text: &str| text.bytes().all(|c| c.is_ascii_graphic() && !b"\",;\\".contains(&c));
        if name.is_empty() || name.contains('=') || !stands(name) || !stands(key) {
            return Err(Error::invalid_field("cookie", "has characters that are not allowed in a cookie"));
        }
        let others = self.headers.get(COOKIE).and_then(|cookies| cookies.to_str().ok());
        let cookies = match others {
            Some(others) => format!("{others}; {name}={key}"),
            None => format!("{name}={key}"),
        };
        self.secret(COOKIE, &cookies, "cookie")
    }

    /// Sends `Authorization: Bearer …` with access tokens by OAuth 2.0 client credentials. A token is
    /// fetched by the first call that needs it, renewed shortly before it expires, and once more when the
    /// agent refuses it. Of several settings of `Authorization`, the last one wins.
    #[must_use]
    pub fn client_credentials(mut self, client: ClientCredentials) -> Self {
        self.headers.remove(AUTHORIZATION);
        self.tokens = Some(Arc::new(Tokens::new(client)));
        self
    }

    /// Any other header. It is bound to origins as well, because any header may contain a secret.
    ///
    /// # Errors
    /// The name is not a valid header name, or the value has characters that are not allowed in a header.
    pub fn header(self, name: &str, value: &str) -> Result<Self> {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Error::invalid_field("header", format!("{name:?} is not a valid header name")))?;
        if FRAMING.contains(&header) {
            let why = format!("{name} cannot be set by a caller; the connection sets it");
            return Err(Error::invalid_field("header", why));
        }
        self.secret(header, value, name)
    }

    /// Also sends the credentials to the origin (scheme, host and port) of this URL.
    #[must_use]
    pub fn allow_origin(mut self, url: &Url) -> Self {
        self.origins.push(url.origin());
        self
    }

    /// True if there are no credentials.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.tokens.is_none()
    }

    /// The headers with these credentials for `target` when the card came from `home`, and the egress to
    /// use: with our client certificate, or without it for an origin that must not see it. Fetches an access
    /// token if necessary. For callers that make requests themselves.
    ///
    /// # Errors
    /// There is no access token.
    pub async fn headers_for(
        &self,
        egress: &Egress,
        target: &Url,
        home: &Url,
    ) -> Result<(Egress, HeaderMap)> {
        let (egress, granted) = self.for_target(egress.clone(), target, &home.origin());
        let headers = granted.headers().await?;
        Ok((egress, headers))
    }

    fn secret(mut self, name: HeaderName, value: &str, what: &str) -> Result<Self> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| Error::invalid_field(what, "has characters that are not allowed in a header"))?;
        value.set_sensitive(true);
        if name == AUTHORIZATION {
            self.tokens = None;
        }
        self.headers.insert(name, value);
        Ok(self)
    }

    /// The credentials for `target` when the card came from `home`, and the egress to use, with or without
    /// our client certificate.
    pub(crate) fn for_target(&self, egress: Egress, target: &Url, home: &Origin) -> (Egress, Granted) {
        let origin = target.origin();
        // An opaque origin (`file:` for example) equals no other, not even itself.
        if origin == *home || self.origins.contains(&origin) {
            let tokens = self.tokens.as_ref().map(|tokens| (Arc::clone(tokens), egress.clone()));
            return (
                egress,
                Granted { headers: self.headers.clone(), tokens, withheld: false, foreign: false },
            );
        }
        let withheld = !self.is_empty() || egress.has_identity();
        (egress.without_identity(), Granted { withheld, foreign: true, ..Granted::default() })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Credentials")
            .field("headers", &names)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// The part of the credentials that one target gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    /// Headers to send; sensitive values are not printed.
    headers: HeaderMap,
    /// Tokens to send, and the egress to fetch them.
    tokens: Option<(Arc<Tokens>, Egress)>,
    /// There are credentials, but this target does not get them.
    pub(crate) withheld: bool,
    /// This target gets no credentials, even if there are any.
    pub(crate) foreign: bool,
}

impl Granted {
    /// The headers to send. Fetches a token if necessary.
    pub(crate) async fn headers(&self) -> Result<HeaderMap, Failure> {
        let mut headers = self.headers.clone();
        if let Some((tokens, egress)) = &self.tokens {
            // Boxed to keep this future small: most agents need no token.
            headers.insert(AUTHORIZATION, Box::pin(tokens.authorization(egress)).await?);
        }
        Ok(headers)
    }

    /// True if a refusal may be caused by an expired token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Makes an exchange, and repeats it once with a new token if the peer refuses a cached one. A peer
    /// that refuses the caller has not executed the call, so even a send may be repeated. A refusal of a
    /// new token is final.
    pub(crate) async fn renewing<T, F>(&self, exchange: impl Fn() -> F + Send) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let kept = self.tokens.as_ref().and_then(|(tokens, _)| Some((tokens, tokens.kept()?)));
        match (exchange().await, kept) {
            (Err(failure), Some((tokens, kept))) if is_refusal(&failure) => {
                tokens.forget(kept);
                exchange().await
            }
            (outcome, _) => outcome,
        }
    }
}

fn is_refusal(failure: &Failure) -> bool {
    failure.reached == Reached::Answered && failure.kind() == ErrorKind::Unauthenticated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress() -> Egress {
        Egress::operator().unwrap()
    }

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
            let (_, granted) = credentials.for_target(egress(), &Url::parse(target).unwrap(), &home);
            assert_eq!(
                (granted.headers.contains_key(AUTHORIZATION), granted.withheld, granted.foreign),
                (sent, !sent, !sent),
                "{target}"
            );
        }
    }

    #[test]
    fn nothing_to_send_is_nothing_withheld() {
        let home = Url::parse("https://a.example").unwrap().origin();
        let target = Url::parse("https://b.example").unwrap();
        let (_, granted) = Credentials::none().for_target(egress(), &target, &home);
        assert!(granted.foreign && !granted.withheld);
        let client = ClientCredentials::new("https://login.example/t", "i", "s").unwrap();
        let tokens = Credentials::none().client_credentials(client);
        assert!(tokens.for_target(egress(), &target, &home).1.withheld);
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
            Credentials::none().header("Content-Length", "0").unwrap_err(),
            Credentials::none().api_key_cookie("a=b", "v").unwrap_err(),
            Credentials::none().api_key_cookie("a", "v; admin=1").unwrap_err(),
            Credentials::none().api_key_cookie("", "v").unwrap_err(),
        ] {
            assert!(bad.message().starts_with("invalid parameters"), "{bad}");
        }
        assert!(!format!("{basic:?}").contains("QWx"));
        let cookies =
            Credentials::none().api_key_cookie("a", "1=").unwrap().api_key_cookie("b", "2").unwrap();
        assert_eq!(cookies.headers[COOKIE], "a=1=; b=2");
        assert!(cookies.headers[COOKIE].is_sensitive());
    }

    #[test]
    fn the_last_way_to_authorize_counts() {
        let client = || ClientCredentials::new("https://login.example/t", "i", "s").unwrap();
        let tokens = Credentials::none().bearer("t").unwrap().client_credentials(client());
        assert!(tokens.tokens.is_some() && tokens.headers.is_empty() && !tokens.is_empty());
        let bearer = tokens.bearer("t").unwrap();
        assert!(bearer.tokens.is_none() && bearer.headers[AUTHORIZATION] == "Bearer t");
    }
}
