//! OAuth 2.0 client credentials (RFC 6749, 4.4): builds the request to the token endpoint and parses its
//! answer. Does no I/O.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use jiff::Timestamp;
use nuncio_protocol::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::secret::Secret;
use crate::{
    egress::{is_loopback, shown},
    failure::Failure,
    http_headers::retry_after,
};

/// Maximum lifetime of a token without `expires_in`.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Time before its expiry at which a token is renewed, or a tenth of its lifetime if that is less: it must
/// not expire during a call.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);
/// Maximum length of the token endpoint's error text in our message, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Access tokens by OAuth 2.0 client credentials: the token endpoint, and the client's id and secret.
///
/// The secret is sent only to the token endpoint, which the caller configures; the tokens go to the same
/// origins as all credentials. The endpoint is never taken from an agent's card: a card could then name any
/// URL and receive the secret.
///
/// ```
/// use nuncio_client::{ClientCredentials, Credentials};
///
/// let client = ClientCredentials::new("https://login.example/token", "billing", "s3cret")?.scope("agents");
/// let credentials = Credentials::none().client_credentials(client);
/// assert!(!format!("{credentials:?}").contains("s3cret"));
/// # Ok::<_, nuncio_client::protocol::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    token_url: Url,
    client_id: String,
    secret: Secret,
    /// Id and secret for HTTP Basic; marked as sensitive.
    basic: HeaderValue,
    scopes: Vec<String>,
    audience: Option<String>,
    in_body: bool,
}

impl ClientCredentials {
    /// A client with this id and secret at this token endpoint.
    ///
    /// # Errors
    /// The endpoint is neither https nor http on this machine; or a value is empty.
    pub fn new(token_url: &str, client_id: &str, client_secret: &str) -> Result<Self> {
        let token_url = endpoint(token_url)?;
        for (field, text) in [("client_id", client_id), ("client_secret", client_secret)] {
            if text.is_empty() {
                return Err(Error::invalid_field(field, "is empty"));
            }
        }
        // Both are form-encoded first (RFC 6749, 2.3.1).
        let pair = STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(client_secret)));
        let mut basic = HeaderValue::from_str(&format!("Basic {pair}")).map_err(Error::internal)?;
        basic.set_sensitive(true);
        Ok(Self {
            token_url,
            client_id: client_id.to_owned(),
            secret: Secret::new(client_secret),
            basic,
            scopes: Vec::new(),
            audience: None,
            in_body: false,
        })
    }

    /// Adds a scope to request.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Requests tokens for this audience, which some servers require.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Sends id and secret in the body (`client_secret_post`), for servers that do not accept HTTP Basic
    /// (`client_secret_basic`), which is the default.
    #[must_use]
    pub fn secret_in_body(mut self) -> Self {
        self.in_body = true;
        self
    }

    /// The token endpoint.
    pub(super) fn token_url(&self) -> &Url {
        &self.token_url
    }

    /// The form that is posted to the token endpoint.
    pub(super) fn request(&self) -> (HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !self.scopes.is_empty() {
            form.append_pair("scope", &self.scopes.join(" "));
        }
        if let Some(audience) = &self.audience {
            form.append_pair("audience", audience);
        }
        if self.in_body {
            form.append_pair("client_id", &self.client_id);
            form.append_pair("client_secret", self.secret.reveal());
        } else {
            headers.insert(AUTHORIZATION, self.basic.clone());
        }
        (headers, form.finish().into())
    }

    /// Parses the answer of the token endpoint.
    pub(super) fn read(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Issued, NoToken> {
        if !status.is_success() {
            return Err(self.refusal(status, headers, body, now));
        }
        let not_a_token = |why: &str| {
            let message = format!("the answer of {} is not a token: {why}", shown(&self.token_url));
            NoToken::new(ErrorKind::Unauthenticated, &message)
        };
        // The body may contain a token, so errors never quote it.
        let answer: TokenResponse = serde_json::from_slice(body)
            .map_err(|_| not_a_token("expected a JSON object with access_token"))?;
        if !answer.token_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(not_a_token("expected token_type Bearer"));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {}", answer.access_token))
            .map_err(|_| not_a_token("access_token has characters that are not allowed in a header"))?;
        if answer.access_token.is_empty() {
            return Err(not_a_token("access_token is empty"));
        }
        value.set_sensitive(true);
        Ok(Issued { value, lifetime: lifetime(answer.expires_in.as_ref().and_then(seconds)) })
    }

    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> NoToken {
        let kind = match status.as_u16() {
            429 => ErrorKind::ResourceExhausted,
            500 | 502..=504 => ErrorKind::Unavailable,
            _ => ErrorKind::Unauthenticated,
        };
        let mut message = format!("{} answered {status}", shown(&self.token_url));
        if status.is_redirection() {
            message.push_str("; redirects are not followed, use the final address");
        }
        let said: TokenErrorResponse = serde_json::from_slice(body).unwrap_or_default();
        for text in [said.error, said.error_description].into_iter().flatten() {
            if let Some(text) = self.harmless(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
        }
        NoToken { retry_after: retry_after(headers, now), ..NoToken::new(kind, &message) }
    }

    /// The endpoint's error text, without control characters; `None` if it contains the secret in any form
    /// that was sent.
    fn harmless(&self, text: &str) -> Option<String> {
        let secret = self.secret.reveal();
        let basic = self.basic.to_str().unwrap_or_default().trim_start_matches("Basic ");
        if text.is_empty() || [secret, &encoded(secret), basic].iter().any(|form| text.contains(form)) {
            return None;
        }
        Some(text.chars().filter(|c| !c.is_control()).take(MAX_ERROR_CHARS).collect())
    }
}

/// Parses the URL of a token endpoint (RFC 6749, 3.2).
fn endpoint(text: &str) -> Result<Url> {
    let invalid = |why: &str| Error::invalid_field("token_url", why);
    let url = Url::parse(text.trim()).map_err(|error| invalid(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("holds a user or a password; give the client's id and secret separately"));
    }
    if url.fragment().is_some() {
        return Err(invalid("holds a fragment, which a token endpoint cannot have"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(invalid("expected https: the client's secret goes there; http is for this machine")),
        _ => Err(invalid("expected an https address")),
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// An answer with a token (RFC 6749, 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
}

/// An error answer (RFC 6749, 5.2).
#[derive(Default, Deserialize)]
struct TokenErrorResponse {
    error: Option<String>,
    error_description: Option<String>,
}

/// A token with its lifetime.
#[derive(Debug)]
pub(super) struct Issued {
    /// Value of the header `Authorization`.
    pub(super) value: HeaderValue,
    /// The time for which it is used.
    pub(super) lifetime: Duration,
}

/// Parses seconds; some servers send the number as a string.
fn seconds(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::String(text) => text.trim().parse().ok()?,
        other => other.as_f64()?,
    };
    // Negative values become zero, and too large ones the maximum.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(if seconds > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    }))
}

fn lifetime(stated: Option<Duration>) -> Duration {
    let Some(stated) = stated else { return DEFAULT_LIFETIME };
    stated - (stated / 10).min(RENEWAL_MARGIN)
}

/// The reason why there is no token. All calls that waited for the token get it.
#[derive(Clone, Debug)]
pub(super) struct NoToken {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

impl NoToken {
    pub(super) fn new(kind: ErrorKind, why: &str) -> Self {
        Self { kind, message: format!("no access token: {why}"), retry_after: None }
    }
}

impl From<NoToken> for Failure {
    /// The agent has not received the call, so it may be retried if the error is temporary.
    fn from(no_token: NoToken) -> Self {
        let error = Error::new(no_token.kind, no_token.message);
        let error = match no_token.retry_after {
            Some(after) => error.with_retry_after(after),
            None => error,
        };
        if no_token.kind.is_retryable() { Self::nobody(error) } else { Self::answered(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientCredentials {
        ClientCredentials::new("https://login.example/token?tenant=a", "my id", "s:cr&t/").unwrap()
    }

    #[test]
    fn the_request_in_both_forms() {
        let (headers, body) = client().scope("a").scope("b c").audience("https://agents").request();
        assert_eq!(
            body,
            "grant_type=client_credentials&scope=a+b+c&audience=https%3A%2F%2Fagents".as_bytes()
        );
        // "my+id:s%3Acr%26t%2F"
        assert_eq!(headers[AUTHORIZATION], "Basic bXkraWQ6cyUzQWNyJTI2dCUyRg==");
        assert!(headers[AUTHORIZATION].is_sensitive());
        assert_eq!(headers[CONTENT_TYPE], "application/x-www-form-urlencoded");
        let (headers, body) = client().secret_in_body().request();
        assert_eq!(
            body,
            "grant_type=client_credentials&client_id=my+id&client_secret=s%3Acr%26t%2F".as_bytes()
        );
        assert!(!headers.contains_key(AUTHORIZATION));
    }

    #[test]
    fn endpoints_that_may_have_the_secret() {
        for url in ["https://a.example/t", "http://127.0.0.1:1/t", "http://localhost/t", "http://[::1]/t"] {
            assert!(ClientCredentials::new(url, "i", "s3cret").is_ok(), "{url}");
        }
        for (url, id, secret, why) in [
            ("http://a.example/t", "i", "s3cret", "expected https: "),
            ("ftp://a.example/t", "i", "s3cret", "expected an https address"),
            ("a.example/t", "i", "s3cret", "relative URL"),
            ("https://u:s3cret@a.example/t", "i", "s", "holds a user or a password"),
            ("https://a.example/t#f", "i", "s3cret", "holds a fragment"),
            ("https://a.example/t", "", "s3cret", "client_id"),
            ("https://a.example/t", "i", "", "client_secret"),
        ] {
            let error = ClientCredentials::new(url, id, secret).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains(why) && !error.message().contains("s3cret"), "{error}");
        }
    }

    fn read(status: u16, body: &str) -> Result<Issued, NoToken> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", HeaderValue::from_static("7"));
        client().read(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), Timestamp::now())
    }

    #[test]
    fn tokens_and_how_long_they_are_used() {
        for (expires_in, seconds) in [
            ("3600", 3540),
            ("\"3600\"", 3540),
            ("100.0", 90),
            ("10", 9),
            ("0", 0),
            ("-5", 0),
            ("null", 3600),
            ("\"soon\"", 3600),
            ("{}", 3600),
            ("1e300", u64::MAX - 60),
        ] {
            let body =
                format!(r#"{{"access_token":"t","token_type":"bEARER","expires_in":{expires_in},"x":1}}"#);
            let issued = read(200, &body).unwrap();
            assert_eq!((issued.value.as_bytes(), issued.lifetime.as_secs()), (&b"Bearer t"[..], seconds));
            assert!(issued.value.is_sensitive());
        }
        assert_eq!(read(200, r#"{"access_token":"t"}"#).unwrap().lifetime, DEFAULT_LIFETIME);
    }

    #[test]
    fn answers_without_a_token() {
        for (status, body, kind, expected) in [
            (
                401,
                r#"{"error":"invalid_client","error_description":"no such\n client"}"#,
                ErrorKind::Unauthenticated,
                "https://login.example/token answered 401 Unauthorized: invalid_client: no such client",
            ),
            (
                400,
                r#"{"error":"invalid_scope"}"#,
                ErrorKind::Unauthenticated,
                "answered 400 Bad Request: invalid_scope",
            ),
            (404, "<html>", ErrorKind::Unauthenticated, "answered 404 Not Found"),
            (
                307,
                "",
                ErrorKind::Unauthenticated,
                "Redirect; redirects are not followed, use the final address",
            ),
            (429, "", ErrorKind::ResourceExhausted, "answered 429 Too Many Requests"),
            (503, "", ErrorKind::Unavailable, "answered 503 Service Unavailable"),
            (200, "<html>", ErrorKind::Unauthenticated, "expected a JSON object with access_token"),
            (200, r#"{"access_token":7}"#, ErrorKind::Unauthenticated, "with access_token"),
            (200, r#"{"access_token":""}"#, ErrorKind::Unauthenticated, "access_token is empty"),
            (200, r#"{"access_token":"a\nb"}"#, ErrorKind::Unauthenticated, "are not allowed in a header"),
            (
                200,
                r#"{"access_token":"t","token_type":"mac"}"#,
                ErrorKind::Unauthenticated,
                "expected token_type Bearer",
            ),
        ] {
            let failure = Failure::from(read(status, body).unwrap_err());
            assert_eq!(failure.kind(), kind, "{body}");
            let message = failure.error.message();
            assert!(message.starts_with("no access token: ") && message.ends_with(expected), "{message}");
        }
        let later = Failure::from(read(503, "").unwrap_err());
        assert_eq!(later.error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(later.reached, crate::failure::Reached::Nobody, "the agent was not asked");
    }

    #[test]
    fn an_endpoint_that_repeats_the_secret_is_not_quoted() {
        for form in ["s:cr&t/", "s%3Acr%26t%2F", "bXkraWQ6cyUzQWNyJTI2dCUyRg=="] {
            let body =
                format!(r#"{{"error":"invalid_client","error_description":"{form} is wrong for my id"}}"#);
            let error = read(401, &body).unwrap_err();
            assert!(error.message.ends_with("401 Unauthorized: invalid_client"), "{error:?}");
        }
        let long = format!(
            r#"{{"error":"invalid_client","error_description":"{}"}}"#,
            "x".repeat(10 * MAX_ERROR_CHARS)
        );
        assert!(read(401, &long).unwrap_err().message.len() < 2 * MAX_ERROR_CHARS);
        assert!(!format!("{:?}", client()).contains("s:cr&t/"));
    }
}
