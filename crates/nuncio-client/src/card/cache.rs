//! The lifetime of a card (spec 8.6, RFC 9111), and a small cache.
//!
//! A cache is private to one set of credentials: share it only between clients with the same ones.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AGE, CACHE_CONTROL, DATE, ETAG, EXPIRES, LAST_MODIFIED},
};
use nuncio_protocol::Result;
use parking_lot::Mutex;
use tokio::time::Instant;
use url::Url;

use super::discover::{CardResponse, FetchedCard, SharedCard, card_urls, fetch, no_card};
use crate::{Credentials, egress::Egress, http_headers::http_date};

/// Lifetime without caching headers; the specification leaves it to the client.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum lifetime: every card is revalidated once a day.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of cached cards; the one stored first is evicted first.
const MAX_CARDS: usize = 256;

/// Validators for a conditional request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Validators {
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) last_modified: Option<HeaderValue>,
}

/// The caching rules of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// The time for which it is used without revalidation.
    pub(crate) lifetime: Duration,
    pub(crate) validators: Validators,
}

/// Reads the caching rules from the headers; `None` if the answer must not be stored.
pub(crate) fn storage(headers: &HeaderMap) -> Option<Storage> {
    let directives: Vec<_> = headers
        .get_all(CACHE_CONTROL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|directive| directive.trim().to_ascii_lowercase())
        .collect();
    let has = |name: &str| directives.iter().any(|directive| directive.split('=').next() == Some(name));
    if has("no-store") {
        return None;
    }
    let max_age = directives.iter().find_map(|directive| directive.strip_prefix("max-age="));
    let lifetime = match max_age {
        _ if has("no-cache") => Duration::ZERO,
        // An invalid max-age counts as expired (RFC 9111, 4.2.1).
        Some(text) => seconds(text.trim_matches('"')).unwrap_or_default().saturating_sub(age(headers)),
        None => expires_in(headers).unwrap_or(DEFAULT_LIFETIME),
    };
    let validators =
        Validators { etag: headers.get(ETAG).cloned(), last_modified: headers.get(LAST_MODIFIED).cloned() };
    Some(Storage { lifetime: lifetime.min(MAX_LIFETIME), validators })
}

fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The time that the answer has spent in other caches.
fn age(headers: &HeaderMap) -> Duration {
    text(headers, AGE).and_then(seconds).unwrap_or_default()
}

/// The lifetime by `Expires`. `Expires: 0` and invalid values mean expired.
fn expires_in(headers: &HeaderMap) -> Option<Duration> {
    let expires = text(headers, EXPIRES)?;
    let lifetime = http_date(expires)
        .zip(text(headers, DATE).and_then(http_date))
        .and_then(|(expires, date)| Duration::try_from(expires.duration_since(date)).ok());
    Some(lifetime.unwrap_or_default())
}

struct Entry {
    card: SharedCard,
    stored: Instant,
    storage: Storage,
}

impl Entry {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.stored) < self.storage.lifetime
    }
}

/// A cache of fetched cards.
#[derive(Default)]
pub struct CardCache {
    /// By URL. The lock is never held during a request.
    entries: Mutex<HashMap<Url, Entry>>,
}

impl CardCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The card of an agent: from the cache while it is fresh, otherwise by a conditional request to the
    /// agent.
    ///
    /// # Errors
    /// As [`discover`](super::discover::discover); a stale card is not served instead.
    pub async fn discover(
        &self,
        egress: &Egress,
        agent: &Url,
        credentials: &Credentials,
    ) -> Result<Arc<FetchedCard>> {
        let places = card_urls(agent);
        for url in &places {
            if let Some(card) = self.get(egress, url, credentials).await? {
                return Ok(card);
            }
        }
        Err(no_card(&places))
    }

    /// Like [`Self::discover`], for a card at exactly this URL.
    ///
    /// # Errors
    /// As [`Self::discover`].
    pub async fn fetch(
        &self,
        egress: &Egress,
        url: &Url,
        credentials: &Credentials,
    ) -> Result<Arc<FetchedCard>> {
        let card = self.get(egress, url, credentials).await?;
        card.ok_or_else(|| no_card(std::slice::from_ref(url)))
    }

    async fn get(&self, egress: &Egress, url: &Url, credentials: &Credentials) -> Result<Option<SharedCard>> {
        let kept = match self.look(url, Instant::now()) {
            Look::Fresh(card) => return Ok(Some(card)),
            Look::Stale(card, validators) => Some((card, validators)),
            Look::Nothing => None,
        };
        let validators = kept.as_ref().map(|(_, validators)| validators);
        let answer = fetch(egress, url, credentials, validators).await?;
        let (card, storage) = match (answer, kept) {
            (CardResponse::Card(card, storage), _) => (card, storage),
            (CardResponse::NotModified(storage), Some((card, _))) => (card, storage),
            (CardResponse::NotFound | CardResponse::NotModified(_), _) => return self.forget(url),
        };
        self.keep(url, &card, storage, Instant::now());
        Ok(Some(card))
    }

    fn look(&self, url: &Url, now: Instant) -> Look {
        let entries = self.entries.lock();
        match entries.get(url) {
            Some(entry) if entry.is_fresh(now) => Look::Fresh(Arc::clone(&entry.card)),
            Some(entry) => Look::Stale(Arc::clone(&entry.card), entry.storage.validators.clone()),
            None => Look::Nothing,
        }
    }

    fn keep(&self, url: &Url, card: &SharedCard, storage: Option<Storage>, now: Instant) {
        let mut entries = self.entries.lock();
        let Some(mut storage) = storage else {
            entries.remove(url);
            return;
        };
        // A 304 need not repeat the validators.
        if let Some(old) = entries.get(url).filter(|entry| Arc::ptr_eq(&entry.card, card)) {
            let old = &old.storage.validators;
            storage.validators.etag = storage.validators.etag.or_else(|| old.etag.clone());
            storage.validators.last_modified =
                storage.validators.last_modified.or_else(|| old.last_modified.clone());
        }
        if entries.len() >= MAX_CARDS && !entries.contains_key(url) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.stored).map(|(url, _)| url.clone());
            oldest.and_then(|oldest| entries.remove(&oldest));
        }
        entries.insert(url.clone(), Entry { card: Arc::clone(card), stored: now, storage });
    }

    fn forget(&self, url: &Url) -> Result<Option<SharedCard>> {
        self.entries.lock().remove(url);
        Ok(None)
    }
}

impl std::fmt::Debug for CardCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CardCache").finish_non_exhaustive()
    }
}

enum Look {
    Fresh(SharedCard),
    Stale(SharedCard, Validators),
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        storage(&headers).map(|storage| storage.lifetime.as_secs())
    }

    #[test]
    fn lifetimes() {
        const DATES: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (headers, lifetime) in [
            (&[][..], Some(60)),
            (&[("cache-control", "max-age=300")], Some(300)),
            (&[("cache-control", "public, Max-Age=300"), ("age", "100")], Some(200)),
            (&[("cache-control", "max-age=300"), ("age", "400")], Some(0)),
            (&[("cache-control", "max-age=\"30\"")], Some(30)),
            (&[("cache-control", "max-age=soon")], Some(0)),
            (&[("cache-control", "no-cache, max-age=300")], Some(0)),
            (&[("cache-control", "no-store")], None),
            (&[("cache-control", "max-age=300"), ("cache-control", "private, no-store")], None),
            (&[("cache-control", "max-age=99999999999")], Some(86400)),
            (&[DATES, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")], Some(60)),
            (&[DATES, ("expires", "0")], Some(0)),
            (&[DATES, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("cache-control", "max-age=5")], Some(5)),
        ] {
            assert_eq!(check(headers), lifetime, "{headers:?}");
        }
    }

    fn card(name: &str) -> SharedCard {
        let url = Url::parse("http://a.example").unwrap();
        Arc::new(FetchedCard {
            card: nuncio_protocol::AgentCard { name: name.to_owned(), ..Default::default() },
            json: serde_json::json!({}),
            url,
        })
    }

    fn storage_of(lifetime: u64, etag: Option<&'static str>) -> Option<Storage> {
        let validators = Validators { etag: etag.map(HeaderValue::from_static), last_modified: None };
        Some(Storage { lifetime: Duration::from_secs(lifetime), validators })
    }

    #[tokio::test(start_paused = true)]
    async fn fresh_then_stale_then_renewed() {
        let (cache, url, card) = (CardCache::new(), Url::parse("http://a.example").unwrap(), card("a"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.keep(&url, &card, storage_of(10, Some("\"1\"")), at(0));
        assert!(matches!(cache.look(&url, at(9)), Look::Fresh(_)));
        let Look::Stale(_, validators) = cache.look(&url, at(10)) else { panic!("still fresh") };
        assert_eq!(validators.etag.unwrap(), "\"1\"");
        cache.keep(&url, &card, storage_of(10, None), at(10));
        let Look::Stale(_, validators) = cache.look(&url, at(20)) else { panic!("not renewed") };
        assert_eq!(validators.etag.unwrap(), "\"1\"", "a 304 without an ETag keeps the old one");
        cache.keep(&url, &card, None, at(20));
        assert!(matches!(cache.look(&url, at(20)), Look::Nothing), "no-store");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_cards_is_bounded() {
        let cache = CardCache::new();
        let start = Instant::now();
        let url = |n: usize| Url::parse(&format!("http://a.example/{n}")).unwrap();
        for n in 0..=MAX_CARDS {
            cache.keep(&url(n), &card("a"), storage_of(1000, None), start + Duration::from_secs(n as u64));
        }
        assert!(matches!(cache.look(&url(0), start), Look::Nothing));
        assert!(matches!(cache.look(&url(1), start), Look::Fresh(_)));
        assert_eq!(cache.entries.lock().len(), MAX_CARDS);
    }
}
