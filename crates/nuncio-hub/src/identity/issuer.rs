//! An issuer of tokens and its published keys. They are fetched once however many calls wait for them, kept
//! while the issuer cannot be reached, and fetched again when a token names an unknown key, but at most once
//! per [`MIN_INTERVAL`], so that strangers cannot cause more requests.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use jsonwebtoken::{
    DecodingKey,
    crypto::aws_lc::DEFAULT_PROVIDER,
    jwk::{AlgorithmParameters, Jwk, KeyAlgorithm, PublicKeyUse},
};
use nuncio_client::Egress;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::config;

/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a document.
const MAX_BODY: usize = 256 << 10;
/// Minimum time between two fetches, also after failures and for unknown keys.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Age at which keys are fetched again without a call that needs them.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Maximum number of keys that are kept of a set.
const MAX_KEYS: usize = 64;

/// A key of an issuer.
pub(super) struct PublishedKey {
    pub(super) kid: Option<String>,
    /// The algorithm that it is restricted to, if any.
    pub(super) algorithm: Option<KeyAlgorithm>,
    pub(super) key: DecodingKey,
}

type IssuerKeys = Arc<Vec<PublishedKey>>;

/// A trusted issuer.
pub(crate) struct TrustedIssuer {
    pub(super) settings: config::Issuer,
    /// Cancelled when the issuer is removed or its settings change.
    pub(super) ended: CancellationToken,
    /// Its OpenID discovery document; `None` if the settings have the URL of its keys.
    discovery: Option<Url>,
    egress: Egress,
    /// Held by the one that fetches; the others wait for it.
    flight: tokio::sync::Mutex<()>,
    /// Held for reads and updates, never across a request.
    state: Mutex<IssuerState>,
}

#[derive(Default)]
struct IssuerState {
    keys: Option<IssuerKeys>,
    /// Time at which the last fetch ended, successful or not.
    asked: Option<Instant>,
    /// The last fetch failed.
    failed: bool,
}

/// There are no keys to verify a token with.
#[derive(Debug)]
pub(super) struct Unreachable;

impl TrustedIssuer {
    pub(super) fn new(settings: config::Issuer, egress: &Egress) -> anyhow::Result<Self> {
        install_provider();
        let discovery = match &settings.jwks_url {
            Some(_) => None,
            None => {
                let base = settings.issuer.trim_end_matches('/');
                let url = format!("{base}/.well-known/openid-configuration");
                let wrong = |_| anyhow::anyhow!("identity: the issuer is not an address; set its jwks_url");
                Some(Url::parse(&url).map_err(wrong)?)
            }
        };
        let egress = egress.clone().with_max_body(MAX_BODY);
        let (ended, flight, state) = Default::default();
        Ok(Self { settings, ended, discovery, egress, flight, state })
    }

    /// Its name, as the claim `iss` has it.
    pub(super) fn name(&self) -> &str {
        &self.settings.issuer
    }

    /// The URL of its discovery document, if its keys are found by that.
    pub(super) fn discovery(&self) -> Option<&Url> {
        self.discovery.as_ref()
    }

    /// Its keys. Fetches them if none is known by the name `kid`.
    pub(super) async fn keys(&self, kid: Option<&str>) -> Result<IssuerKeys, Unreachable> {
        let knows = |keys: &IssuerKeys| match kid {
            Some(kid) => keys.iter().any(|key| key.kid.as_deref() == Some(kid)),
            None => !keys.is_empty(),
        };
        if let Some(keys) = self.state().keys.clone().filter(knows) {
            return Ok(keys);
        }
        self.fetch_unless_early(MIN_INTERVAL).await;
        let state = self.state();
        match &state.keys {
            // While the issuer does not answer, it is unknown whether it has such a key.
            Some(keys) if knows(keys) || !state.failed => Ok(Arc::clone(keys)),
            Some(_) | None => Err(Unreachable),
        }
    }

    /// Fetches keys when they are due, so that calls need not wait for them.
    pub(super) async fn keep_fresh(&self) {
        let interval = if self.state().failed { MIN_INTERVAL } else { REFRESH_INTERVAL };
        self.fetch_unless_early(interval).await;
    }

    async fn fetch_unless_early(&self, interval: Duration) {
        let is_early = || self.state().asked.is_some_and(|asked| asked.elapsed() < interval);
        if is_early() {
            return;
        }
        // If this future is dropped while it fetches, the lock is free and the next in line fetches.
        let _flight = self.flight.lock().await;
        if is_early() {
            return;
        }
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
        let mut state = self.state();
        state.asked = Some(Instant::now());
        state.failed = fetched.is_err();
        match fetched {
            Ok(keys) => state.keys = Some(Arc::new(keys)),
            Err(why) => {
                let known = state.keys.as_ref().map_or(0, |keys| keys.len());
                drop(state);
                tracing::warn!(issuer = self.name(), %why, known, "the keys of an issuer could not be fetched");
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<PublishedKey>, String> {
        let url = match (&self.settings.jwks_url, &self.discovery) {
            (Some(url), _) => url.clone(),
            (None, Some(discovery)) => self.discover(discovery).await?,
            (None, None) => return Err("it has neither a jwks_url nor a discovery document".to_owned()),
        };
        let json = self.get(&url).await?;
        let keys = json["keys"].as_array().ok_or("its keys are not a JWK set")?;
        Ok(keys.iter().filter_map(published).take(MAX_KEYS).collect())
    }

    /// OpenID Connect Discovery 1.0, section 4.
    async fn discover(&self, url: &Url) -> Result<Url, String> {
        let json = self.get(url).await?;
        // Section 4.3: otherwise any document that we are led to could speak for the issuer.
        if json["issuer"].as_str() != Some(self.name()) {
            return Err("its document names another issuer".to_owned());
        }
        let url = json["jwks_uri"].as_str().and_then(|url| Url::parse(url).ok());
        url.ok_or_else(|| "its document has no jwks_uri".to_owned())
    }

    async fn get(&self, url: &Url) -> Result<Value, String> {
        let request =
            Request::get(url.as_str()).header(header::ACCEPT, "application/json").body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.egress.fetch(request).await.map_err(|error| error.message().to_owned())?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status().as_u16()));
        }
        serde_json::from_slice(response.body()).map_err(|_| "its answer is not JSON".to_owned())
    }

    fn state(&self) -> MutexGuard<'_, IssuerState> {
        self.state.lock()
    }
}

/// A public key for signatures. Shared secrets are left out: they prove nothing.
fn published(json: &Value) -> Option<PublishedKey> {
    let jwk: Jwk = serde_json::from_value(json.clone()).ok()?;
    let is_public = matches!(
        jwk.algorithm,
        AlgorithmParameters::RSA(_)
            | AlgorithmParameters::EllipticCurve(_)
            | AlgorithmParameters::OctetKeyPair(_)
    );
    let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| is_public && is_for_signatures)?;
    Some(PublishedKey { kid: jwk.common.key_id, algorithm: jwk.common.key_algorithm, key })
}

/// Installs the cryptography of our TLS as the one of the JWT library, which needs it once per process.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that one is installed already; then that one is used.
        let _ = DEFAULT_PROVIDER.install_default();
    });
}

#[cfg(test)]
pub(super) mod tests;
