//! The claims of a notification: a compact JWT (RFC 7519), signed by a key that the sender publishes. It is
//! bound to the body by a hash, to the delivery by its id, and to the receiver by its URL.

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, crypto};
use nuncio_protocol::{Error, Result, wire::excerpt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use crate::card::{
    keys::{SigningKey, TrustedKey, TrustedKeys, algorithm, algorithm_name, install_provider},
    sign::signing_input,
};

/// Lifetime of claims, in seconds.
pub const LIFETIME: i64 = 300;
/// Allowed difference between the clocks of sender and receiver, in seconds.
const SKEW: i64 = 60;
/// Maximum length of a token in bytes; ours have a few hundred.
const MAX_LENGTH: usize = 8 << 10;

/// The claims of a notification's sender. Times are in Unix seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claims {
    /// The base URL of the sender.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// The URL of the webhook.
    #[serde(rename = "aud")]
    pub audience: String,
    /// Time of the signature.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Time of expiry.
    #[serde(rename = "exp")]
    pub expires: i64,
    /// The id of the delivery.
    #[serde(rename = "jti")]
    pub id: String,
    /// The task of the notification.
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// The SHA-256 of the body, in lower-case hex.
    #[serde(rename = "request_body_sha256")]
    pub body_sha256: String,
}

impl Claims {
    /// The claims of a notification with this body, valid for [`LIFETIME`].
    #[must_use]
    pub fn new(issuer: &str, audience: &str, id: &str, task_id: &str, body: &[u8], issued_at: i64) -> Self {
        Self {
            issuer: issuer.to_owned(),
            audience: audience.to_owned(),
            issued_at,
            expires: issued_at.saturating_add(LIFETIME),
            id: id.to_owned(),
            task_id: task_id.to_owned(),
            body_sha256: sha256_hex(body),
        }
    }
}

/// Encodes the claims as a compact JWT, signed by this key.
///
/// # Errors
/// `Internal` if the cryptography library refuses the key.
pub fn sign(key: &SigningKey, claims: &Claims) -> Result<String> {
    install_provider();
    let mut header = json!({ "alg": algorithm_name(key.algorithm), "kid": key.kid, "typ": "JWT" });
    if let Some(jku) = &key.jku {
        header["jku"] = json!(jku);
    }
    let payload = serde_json::to_vec(claims).map_err(Error::internal)?;
    let mut token = signing_input(&URL_SAFE_NO_PAD.encode(header.to_string()), &payload);
    let signature = key.sign(&token)?;
    token.push('.');
    token.push_str(&signature);
    Ok(token)
}

/// The values that the claims of a notification are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The delivery id of the header [`ID`](super::ID).
    pub id: &'a str,
    /// The body as received.
    pub body: &'a [u8],
    /// The URLs of the receiver; if there are none, the audience is not checked.
    pub audiences: &'a [Url],
    /// The current time, in Unix seconds.
    pub now: i64,
}

/// Verified claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    /// The id of the key; empty if the token names none.
    pub kid: String,
    /// The claims.
    pub claims: Claims,
}

/// The reason why the claims of a notification are refused. Fit for logs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Not a compact JWT with the expected claims.
    #[error("it is not a JWT with the claims of a notification")]
    Malformed,
    /// An unsupported algorithm, or not that of the key.
    #[error("the algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// Signed by an unknown key.
    #[error("the key {0:?} is not known")]
    UnknownKey(String),
    /// Its key has expired or is not valid yet.
    #[error("the key {0:?} is expired or not yet valid")]
    KeyNotValid(String),
    /// Signed by another key, or changed in transit.
    #[error("the signature is invalid for the key {0:?}")]
    DoesNotHold(String),
    /// The claims have expired.
    #[error("it has expired")]
    Expired,
    /// The time of the signature is in the future.
    #[error("it was made in the future; one of the two clocks is wrong")]
    FromTheFuture,
    /// For another receiver.
    #[error("it is meant for {0:?}")]
    OtherAudience(String),
    /// For another delivery.
    #[error("it is about another delivery")]
    OtherDelivery,
    /// The body is not the signed one.
    #[error("the body is not the one that was signed")]
    OtherBody,
}

/// Verifies the claims of a notification. The algorithm is that of the key, and the header of the token
/// must agree. The key URL of the token (`jku`) is ignored.
///
/// # Errors
/// The reason why the claims are refused.
pub fn verify(token: &str, keys: &TrustedKeys, expected: &Expected<'_>) -> Result<Signed, Invalid> {
    install_provider();
    let token = ParsedJwt::read(token)?;
    let fitting = token.fitting(keys, expected.now)?;
    let holds = |key: &&TrustedKey| {
        crypto::verify(token.signature, token.input.as_bytes(), &key.key, key.algorithm)
            .is_ok_and(|holds| holds)
    };
    if !fitting.iter().any(holds) {
        return Err(Invalid::DoesNotHold(token.kid));
    }
    let claims: Claims = from_base64(token.payload).ok_or(Invalid::Malformed)?;
    check(&claims, expected)?;
    Ok(Signed { kid: token.kid, claims })
}

fn check(claims: &Claims, expected: &Expected<'_>) -> Result<(), Invalid> {
    if claims.expires.saturating_add(SKEW) < expected.now {
        return Err(Invalid::Expired);
    }
    if claims.issued_at.saturating_sub(SKEW) > expected.now {
        return Err(Invalid::FromTheFuture);
    }
    let is_ours = || Url::parse(&claims.audience).is_ok_and(|url| expected.audiences.contains(&url));
    if !expected.audiences.is_empty() && !is_ours() {
        return Err(Invalid::OtherAudience(excerpt(claims.audience.clone())));
    }
    if claims.id != expected.id {
        return Err(Invalid::OtherDelivery);
    }
    if claims.body_sha256 != sha256_hex(expected.body) {
        return Err(Invalid::OtherBody);
    }
    Ok(())
}

/// The parsed members of a token.
struct ParsedJwt<'a> {
    /// The signed text.
    input: &'a str,
    payload: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    kid: String,
}

impl<'a> ParsedJwt<'a> {
    fn read(token: &'a str) -> Result<Self, Invalid> {
        if token.len() > MAX_LENGTH {
            return Err(Invalid::Malformed);
        }
        let (input, signature) = token.rsplit_once('.').ok_or(Invalid::Malformed)?;
        let (header, payload) = input.split_once('.').ok_or(Invalid::Malformed)?;
        let header: Value = from_base64(header).filter(Value::is_object).ok_or(Invalid::Malformed)?;
        if header.get("crit").is_some() {
            // RFC 7515, 4.1.11: critical headers that are not understood have to be refused.
            return Err(Invalid::Malformed);
        }
        let name = header["alg"].as_str().unwrap_or_default();
        let algorithm = algorithm(name).ok_or_else(|| Invalid::Algorithm(excerpt(name.to_owned())))?;
        let kid = excerpt(header["kid"].as_str().unwrap_or_default().to_owned());
        Ok(Self { input, payload, signature, algorithm, kid })
    }

    /// The keys that may have signed it.
    fn fitting<'k>(&self, keys: &'k TrustedKeys, now: i64) -> Result<Vec<&'k TrustedKey>, Invalid> {
        let is_named =
            |key: &TrustedKey| self.kid.is_empty() || key.kid.as_ref().is_none_or(|kid| *kid == self.kid);
        let mut fitting: Vec<_> = keys.keys.iter().filter(|key| is_named(key)).collect();
        if fitting.is_empty() {
            return Err(Invalid::UnknownKey(self.kid.clone()));
        }
        fitting.retain(|key| key.algorithm == self.algorithm);
        if fitting.is_empty() {
            return Err(Invalid::Algorithm(algorithm_name(self.algorithm).to_owned()));
        }
        let now = Timestamp::from_second(now).unwrap_or(Timestamp::MAX);
        fitting.retain(|key| key.is_valid(now));
        if fitting.is_empty() {
            return Err(Invalid::KeyNotValid(self.kid.clone()));
        }
        Ok(fitting)
    }
}

fn from_base64<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

fn sha256_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = digest(&SHA256, bytes);
    let digits = hash.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests;
