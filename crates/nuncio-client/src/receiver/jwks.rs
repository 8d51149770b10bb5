//! The keys of senders: configured ones, and those published at a URL. The published ones are fetched once,
//! however many notifications wait for them, and cached as their headers allow. An unknown key causes a new
//! fetch, at a limited rate.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::ACCEPT};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use url::Url;

use super::Rejected;
use crate::{Egress, TrustedKeys, card::cache::storage, egress::shown, failure::Failure};

/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a key set, in bytes.
const MAX_BODY: usize = 256 << 10;
/// Minimum time between two fetches.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time for which keys are used while they cannot be fetched again.
const MAX_STALE: Duration = Duration::from_secs(60 * 60);

/// All accepted keys.
pub(super) struct Keys {
    given: Arc<TrustedKeys>,
    published: Option<Jwks>,
}

impl Keys {
    pub(super) fn new(given: TrustedKeys, published: Option<Jwks>) -> Self {
        Self { given: Arc::new(given), published }
    }

    /// The known keys. Fetches the published ones if the cached ones are not fresh.
    pub(super) async fn known(&self) -> Result<Arc<TrustedKeys>, Rejected> {
        let Some(published) = &self.published else { return Ok(Arc::clone(&self.given)) };
        match published.current(Need::Fresh).await {
            Ok(keys) => Ok(self.with(&keys)),
            // The configured keys may be sufficient.
            Err(_) if !self.given.is_empty() => Ok(Arc::clone(&self.given)),
            Err(why) => Err(Rejected::NoKeys(why)),
        }
    }

    /// The keys after another fetch of the published ones; `None` if no keys are published.
    pub(super) async fn renewed(&self) -> Result<Option<Arc<TrustedKeys>>, Rejected> {
        let Some(published) = &self.published else { return Ok(None) };
        match published.current(Need::Newer).await {
            Ok(keys) => Ok(Some(self.with(&keys))),
            Err(why) => Err(Rejected::NoKeys(why)),
        }
    }

    fn with(&self, published: &Arc<TrustedKeys>) -> Arc<TrustedKeys> {
        if self.given.is_empty() {
            return Arc::clone(published);
        }
        let mut all = TrustedKeys::clone(&self.given);
        all.extend(TrustedKeys::clone(published));
        Arc::new(all)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.published.as_ref().map(|published| shown(&published.url));
        f.debug_struct("Keys").field("given", &self.given).field("published", &url).finish()
    }
}

/// The required freshness of the published keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Fresh by their caching headers.
    Fresh,
    /// Newer than the cached ones, if the rate limit allows a fetch.
    Newer,
}

/// Keys that are published as a JWK set.
pub(super) struct Jwks {
    url: Url,
    egress: Egress,
    /// Held by the task that fetches; other tasks wait for it.
    flight: tokio::sync::Mutex<()>,
    /// Never held during a request.
    state: Mutex<KeySetState>,
}

#[derive(Default)]
struct KeySetState {
    kept: Option<CachedKeySet>,
    /// The end of the last request, successful or not.
    asked: Option<Instant>,
    /// The error of the last request.
    trouble: String,
}

struct CachedKeySet {
    keys: Arc<TrustedKeys>,
    since: Instant,
    lifetime: Duration,
}

impl KeySetState {
    /// The answer, if no request is necessary.
    fn answer(&self, need: Need, now: Instant) -> Option<Result<Arc<TrustedKeys>, String>> {
        let kept = self.kept.as_ref();
        let age = |kept: &CachedKeySet| now.saturating_duration_since(kept.since);
        if let Some(kept) = kept.filter(|kept| need == Need::Fresh && age(kept) < kept.lifetime) {
            return Some(Ok(Arc::clone(&kept.keys)));
        }
        let is_early = self.asked.is_some_and(|asked| now.saturating_duration_since(asked) < MIN_INTERVAL);
        if !is_early {
            return None;
        }
        let usable = kept.filter(|kept| age(kept) < kept.lifetime.max(MAX_STALE));
        Some(usable.map(|kept| Arc::clone(&kept.keys)).ok_or_else(|| self.trouble.clone()))
    }
}

impl Jwks {
    pub(super) fn new(url: Url, egress: Egress) -> Self {
        let egress = egress.with_max_body(MAX_BODY);
        Self { url, egress, flight: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    async fn current(&self, need: Need) -> Result<Arc<TrustedKeys>, String> {
        if let Some(answer) = self.state().answer(need, Instant::now()) {
            return answer;
        }
        // If this task is dropped while it fetches, the lock is released and the next waiter fetches.
        let _flight = self.flight.lock().await;
        if let Some(answer) = self.state().answer(need, Instant::now()) {
            return answer;
        }
        let fetched = self.fetch().await;
        let now = Instant::now();
        let mut state = self.state();
        state.asked = Some(now);
        match fetched {
            Ok((keys, lifetime)) => {
                state.kept = Some(CachedKeySet { keys: Arc::new(keys), since: now, lifetime })
            }
            Err(why) => {
                tracing::warn!(%why, "the keys of notifications could not be fetched");
                state.trouble = why;
            }
        }
        state.answer(need, now).unwrap_or_else(|| Err(state.trouble.clone()))
    }

    async fn fetch(&self) -> Result<(TrustedKeys, Duration), String> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let exchange = async {
            let response = self.egress.send(Method::GET, &self.url, headers, Bytes::new()).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok::<_, Failure>((status, headers, self.egress.read(response).await?))
        };
        let place = shown(&self.url);
        let (status, headers, body) = match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return Err(failure.error.message().to_owned()),
            Err(_) => return Err(format!("{place} did not answer within {} seconds", TIMEOUT.as_secs())),
        };
        if status != StatusCode::OK {
            return Err(format!("{place} answered {}", status.as_u16()));
        }
        let json = serde_json::from_slice(&body).map_err(|_| format!("{place} is no JSON"))?;
        let keys = TrustedKeys::from_jwks(&json).map_err(|error| format!("{place}: {error}"))?;
        Ok((keys, storage(&headers).map(|storage| storage.lifetime).unwrap_or_default()))
    }

    fn state(&self) -> MutexGuard<'_, KeySetState> {
        self.state.lock()
    }
}
