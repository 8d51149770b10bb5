//! A cache of access tokens. A token is fetched once, however many calls wait for it.

use std::{fmt, time::Duration};

use http::{HeaderValue, Method};
use jiff::Timestamp;
use nuncio_protocol::ErrorKind;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::oauth::{ClientCredentials, Issued, NoToken};
use crate::{
    egress::{Egress, shown},
    failure::Failure,
};

/// Timeout of the token endpoint.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer of the token endpoint, in bytes.
const MAX_BODY: usize = 64 << 10;

/// The tokens of one client.
pub(super) struct Tokens {
    client: ClientCredentials,
    /// Held by the call that fetches a token; other calls wait for it.
    flight: tokio::sync::Mutex<()>,
    /// Never held during a request.
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    /// The number of completed fetches; also identifies a token.
    flights: u64,
    /// The outcome of the last fetch; `None` if there was none, or its token was refused.
    outcome: Option<Result<CachedToken, NoToken>>,
}

#[derive(Clone)]
struct CachedToken {
    value: HeaderValue,
    since: Instant,
    lifetime: Duration,
}

/// Identifies a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TokenId(u64);

impl TokenState {
    fn good(&self, now: Instant) -> Option<&CachedToken> {
        let token = self.outcome.as_ref()?.as_ref().ok()?;
        (now.saturating_duration_since(token.since) < token.lifetime).then_some(token)
    }
}

impl Tokens {
    pub(super) fn new(client: ClientCredentials) -> Self {
        Self { client, flight: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    /// The header `Authorization` with a cached token, or with a new one.
    pub(super) async fn authorization(&self, egress: &Egress) -> Result<HeaderValue, Failure> {
        let flights = {
            let state = self.state();
            if let Some(token) = state.good(Instant::now()) {
                return Ok(token.value.clone());
            }
            state.flights
        };
        // If this call is dropped while it fetches, the lock is released and the next waiter fetches.
        let _flight = self.flight.lock().await;
        {
            let state = self.state();
            if state.flights != flights
                && let Some(outcome) = &state.outcome
            {
                return outcome.clone().map(|token| token.value).map_err(Failure::from);
            }
        }
        let since = Instant::now();
        let fetched = self.fetch(egress).await;
        let outcome = fetched.map(|Issued { value, lifetime }| CachedToken { value, since, lifetime });
        let mut state = self.state();
        state.flights += 1;
        state.outcome = Some(outcome.clone());
        outcome.map(|token| token.value).map_err(Failure::from)
    }

    /// The cached token, if it has not expired.
    pub(super) fn kept(&self) -> Option<TokenId> {
        let state = self.state();
        state.good(Instant::now()).map(|_| TokenId(state.flights))
    }

    /// Drops this token from the cache; a newer one stays.
    pub(super) fn forget(&self, token: TokenId) {
        let mut state = self.state();
        if TokenId(state.flights) == token {
            state.outcome = None;
        }
    }

    async fn fetch(&self, egress: &Egress) -> Result<Issued, NoToken> {
        let (headers, body) = self.client.request();
        let url = self.client.token_url();
        let egress = egress.clone().with_max_body(MAX_BODY);
        let exchange = async {
            let response = egress.send(Method::POST, url, headers, body).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok::<_, Failure>((status, headers, egress.read(response).await?))
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(Ok((status, headers, body))) => self.client.read(status, &headers, &body, Timestamp::now()),
            Ok(Err(failure)) => Err(told(&failure)),
            Err(_) => {
                let why = format!("{} did not answer within {} seconds", shown(url), TIMEOUT.as_secs());
                Err(NoToken::new(ErrorKind::Unavailable, &why))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, TokenState> {
        self.state.lock()
    }
}

/// The error for a token endpoint that cannot be reached.
fn told(failure: &Failure) -> NoToken {
    let kind = if failure.kind().is_retryable() { failure.kind() } else { ErrorKind::Unauthenticated };
    NoToken::new(kind, failure.error.message())
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.client).finish()
    }
}
