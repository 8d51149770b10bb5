//! Keys that sign and verify cards and notifications: ES256, EdDSA (Ed25519) and RS256 only. `none` and
//! algorithms with a shared secret prove nothing to third parties.

use std::{
    fmt,
    sync::{Arc, Once},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey,
    crypto::{self, aws_lc::DEFAULT_PROVIDER},
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, ThumbprintHash},
};
use nuncio_protocol::{Error, Result};
use serde_json::{Value, json};

use super::pem;

/// The algorithms of card signatures.
const ALGORITHMS: [(Algorithm, &str); 3] =
    [(Algorithm::ES256, "ES256"), (Algorithm::EdDSA, "EdDSA"), (Algorithm::RS256, "RS256")];

/// The bytes before the seed in the PKCS#8 form of an Ed25519 key (RFC 8410, 7).
const ED25519_PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// The reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not a private key of a supported type.
    #[error("expected a PKCS#8 PEM of an Ed25519, P-256 or RSA private key; make one with: openssl genpkey")]
    NotASigningKey,
    /// Not a public key of a supported type.
    #[error("expected a PEM of an Ed25519, P-256 or RSA public key, a JWK, or a JWK set: {0}")]
    NotATrustedKey(String),
}

/// Selects the cryptography provider of the JWT library, once per process: the same as for TLS.
pub(crate) fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A provider that the application has installed stays.
        let _ = DEFAULT_PROVIDER.install_default();
    });
}

pub(crate) fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(_, known)| *known == name).map(|(algorithm, _)| *algorithm)
}

pub(crate) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(known, _)| *known == algorithm).map_or("", |(_, name)| name)
}

/// A private key that signs cards and notifications.
#[derive(Clone)]
pub struct SigningKey {
    pub(crate) key: EncodingKey,
    /// The same key, parsed: the library would parse it for each signature, which doubles the cost.
    pair: Option<Arc<Ed25519KeyPair>>,
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: String,
    pub(crate) jku: Option<String>,
    jwk: Jwk,
}

impl SigningKey {
    /// Reads a PKCS#8 PEM: Ed25519, P-256 or RSA. Verifiers find the public key by `kid`; if it is empty,
    /// the key's thumbprint (RFC 7638) is used.
    ///
    /// # Errors
    /// The text is not such a key.
    pub fn from_pem(pem: &str, kid: &str) -> Result<Self, KeyError> {
        install_provider();
        let (algorithm, key) = pem::private_key(pem).ok_or(KeyError::NotASigningKey)?;
        let jwk = public_jwk(&key, algorithm).ok_or(KeyError::NotASigningKey)?;
        let kid = if kid.is_empty() { thumbprint(&jwk)? } else { kid.to_owned() };
        Ok(Self { pair: pair(&key, algorithm), key, algorithm, kid, jku: None, jwk })
    }

    /// The Ed25519 key of a seed, which is the whole private key. Use it to derive keys from a root
    /// secret. The `kid` is its thumbprint.
    ///
    /// # Errors
    /// The cryptography library refuses the seed; no seed is known to be refused.
    pub fn from_ed25519_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        install_provider();
        let key = EncodingKey::from_ed_der(&[&ED25519_PKCS8[..], seed].concat());
        let algorithm = Algorithm::EdDSA;
        let jwk = public_jwk(&key, algorithm).ok_or(KeyError::NotASigningKey)?;
        Ok(Self { pair: pair(&key, algorithm), kid: thumbprint(&jwk)?, key, algorithm, jku: None, jwk })
    }

    /// Signs this text; the signature is in base64url.
    pub(crate) fn sign(&self, text: &str) -> Result<String> {
        match &self.pair {
            Some(pair) => Ok(URL_SAFE_NO_PAD.encode(pair.sign(text.as_bytes()))),
            None => crypto::sign(text.as_bytes(), &self.key, self.algorithm).map_err(Error::internal),
        }
    }

    /// Sets the URL where the public key is published, as a JWK set.
    #[must_use]
    pub fn with_jku(mut self, url: impl Into<String>) -> Self {
        self.jku = Some(url.into());
        self
    }

    /// The key id, by which verifiers find the public key.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key as a JWK, for publication.
    #[must_use]
    pub fn jwk(&self) -> Value {
        // Serializing strings cannot fail.
        let mut jwk = serde_json::to_value(&self.jwk).unwrap_or_default();
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(algorithm_name(self.algorithm));
        jwk
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// The thumbprint of a key (RFC 7638), its default id.
fn thumbprint(jwk: &Jwk) -> Result<String, KeyError> {
    jwk.thumbprint(ThumbprintHash::SHA256).map_err(|_| KeyError::NotASigningKey)
}

/// The public key. The library refuses Ed25519 keys that include their public key (PKCS#8 v2, the format of
/// most tools), so that one is derived here.
fn public_jwk(key: &EncodingKey, algorithm: Algorithm) -> Option<Jwk> {
    if algorithm != Algorithm::EdDSA {
        return Jwk::from_encoding_key(key, algorithm).ok();
    }
    let pair = pair(key, algorithm)?;
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    Jwk::from_decoding_key(&DecodingKey::from_ed_components(&x).ok()?, Some(algorithm)).ok()
}

fn pair(key: &EncodingKey, algorithm: Algorithm) -> Option<Arc<Ed25519KeyPair>> {
    let bytes = Some(key.as_bytes()).filter(|_| algorithm == Algorithm::EdDSA)?;
    Ed25519KeyPair::from_pkcs8(bytes).ok().map(Arc::new)
}

/// A public key that the caller trusts.
#[derive(Clone)]
pub(crate) struct TrustedKey {
    /// `None`: matches any `kid`.
    pub(crate) kid: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
}

impl TrustedKey {
    /// True while the key may be used.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.not_before.is_none_or(|start| start <= now) && self.expires.is_none_or(|end| now < end)
    }
}

/// The keys that the caller trusts. The key URL of a card (`jku`) is ignored, because a forged card can
/// name a forged key.
#[derive(Clone, Default)]
pub struct TrustedKeys {
    pub(crate) keys: Vec<TrustedKey>,
}

impl TrustedKeys {
    /// No keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a file: a PEM of a public key, a JWK, or a JWK set. Keys of a set that cannot verify cards
    /// are left out (RFC 7517, 5).
    ///
    /// # Errors
    /// There is no usable key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.contains("-----BEGIN") {
            return Self::from_pem(text, None);
        }
        let json: Value =
            serde_json::from_str(text).map_err(|error| KeyError::NotATrustedKey(error.to_string()))?;
        Self::from_jwks(&json)
    }

    /// Reads a PEM of a public key. Without a `kid` it is tried on every signature of its algorithm.
    ///
    /// # Errors
    /// It is not a key of a supported type.
    pub fn from_pem(pem: &str, kid: Option<&str>) -> Result<Self, KeyError> {
        let (algorithm, key) = pem::public_key(pem)
            .ok_or_else(|| KeyError::NotATrustedKey("no such key in the PEM".to_owned()))?;
        let kid = kid.map(str::to_owned);
        Ok(Self { keys: vec![TrustedKey { kid, algorithm, key, not_before: None, expires: None }] })
    }

    /// Reads a JWK set, or a single JWK.
    ///
    /// # Errors
    /// There is no usable key.
    pub fn from_jwks(json: &Value) -> Result<Self, KeyError> {
        install_provider();
        let keys: Vec<_> = match json["keys"].as_array() {
            Some(keys) => keys.iter().filter_map(trusted_jwk).collect(),
            None => trusted_jwk(json).into_iter().collect(),
        };
        if keys.is_empty() {
            return Err(KeyError::NotATrustedKey("no usable key in the JSON".to_owned()));
        }
        Ok(Self { keys })
    }

    /// Adds the keys of another set.
    pub fn extend(&mut self, others: Self) {
        self.keys.extend(others.keys);
    }

    /// True if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl fmt::Debug for TrustedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| (&key.kid, algorithm_name(key.algorithm)))).finish()
    }
}

/// A key of a set, if it can verify cards. `nbf` and `exp` are not standard members of a JWK, but they are
/// respected if present.
fn trusted_jwk(json: &Value) -> Option<TrustedKey> {
    let jwk: Jwk = serde_json::from_value(json.clone()).ok()?;
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(ed) if ed.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        _ => return None,
    };
    let for_signatures = json["use"].as_str().is_none_or(|usage| usage == "sig");
    let same_algorithm = json["alg"].as_str().is_none_or(|name| name == algorithm_name(algorithm));
    if !for_signatures || !same_algorithm {
        return None;
    }
    let moment = |name: &str| json[name].as_i64().and_then(|seconds| Timestamp::from_second(seconds).ok());
    Some(TrustedKey {
        kid: json["kid"].as_str().map(str::to_owned),
        algorithm,
        key: DecodingKey::from_jwk(&jwk).ok()?,
        not_before: moment("nbf"),
        expires: moment("exp"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_seed_is_that_of_the_standard() {
        // RFC 8037, appendix A: the private key, its public half and its thumbprint.
        let seed = URL_SAFE_NO_PAD.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
        let key = SigningKey::from_ed25519_seed(&seed.try_into().unwrap()).unwrap();
        assert_eq!(key.jwk()["x"], "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
        assert_eq!(key.jwk()["alg"], "EdDSA");
        assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        assert!(!format!("{key:?}").contains("nWGx"));
    }
}
