//! The claims of a notification: a compact JWT (RFC 7519) by a key that its sender publishes. It is bound to
//! the body by a hash, to the delivery by its id, and to the receiver by its address.

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

/// For how many seconds claims are good.
pub const LIFETIME: i64 = 300;
/// By how many seconds the clocks of sender and receiver may differ.
const SKEW: i64 = 60;
/// The longest token that is looked at; ours have a few hundred bytes.
const MAX_LENGTH: usize = 8 << 10;

/// The claims of a notification's sender. Times are in Unix seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claims {
    /// The base address of the sender.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// The address of the webhook.
    #[serde(rename = "aud")]
    pub audience: String,
    /// The moment of the signature.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Until when it is good.
    #[serde(rename = "exp")]
    pub expires: i64,
    /// The id of the delivery.
    #[serde(rename = "jti")]
    pub id: String,
    /// The task that it is about.
    #[serde(rename = "taskId")]
    pub task_id: String,
    /// The SHA-256 of the body, in lower-case hex.
    #[serde(rename = "request_body_sha256")]
    pub body_sha256: String,
}

impl Claims {
    /// The claims of a notification with this body, good for [`LIFETIME`].
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

/// The claims as a compact JWT, signed by this key.
///
/// # Errors
/// `Internal` if the cryptography refuses the key.
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
    /// The delivery, as the header [`ID`](super::ID) has it.
    pub id: &'a str,
    /// The body as it came.
    pub body: &'a [u8],
    /// The addresses of the receiver; if there are none, the audience is not looked at.
    pub audiences: &'a [Url],
    /// The time, in Unix seconds.
    pub now: i64,
}

/// Claims that hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    /// The key that the token names; empty if it names none.
    pub kid: String,
    /// The claimed value.
    pub claims: Claims,
}

/// The reason why the claims of a notification do not hold. Fit for logs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// It is no compact JWT with our claims.
    #[error("it is no JWT as notifications have it")]
    Malformed,
    /// It is signed in a way that proves nothing, or that the keys are not for.
    #[error("the algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// It is by a key that the receiver does not know.
    #[error("the key {0:?} is not known")]
    UnknownKey(String),
    /// Its key has expired or is not valid yet.
    #[error("the key {0:?} is expired or not yet valid")]
    KeyNotValid(String),
    /// Not by that key, or changed on the way.
    #[error("it does not hold with the key {0:?}")]
    DoesNotHold(String),
    /// It was made too long ago.
    #[error("it has expired")]
    Expired,
    /// It was made in the future.
    #[error("it was made in the future; one of the two clocks is wrong")]
    FromTheFuture,
    /// It is for another receiver.
    #[error("it is meant for {0:?}")]
    OtherAudience(String),
    /// It is for another delivery.
    #[error("it is about another delivery")]
    OtherDelivery,
    /// The body is not what was signed.
    #[error("the body is not the one that was signed")]
    OtherBody,
}

/// Verifies the claims of a notification. The algorithm is that of the key; what the token says about it must
/// agree. Where the token says that its keys are (`jku`) is not looked at.
///
/// # Errors
/// They do not hold; the error says why.
pub fn verify(token: &str, keys: &TrustedKeys, expected: &Expected<'_>) -> Result<Signed, Invalid> {
    install_provider();
    let token = Token::read(token)?;
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

/// A token as it presents itself.
struct Token<'a> {
    /// The signed text.
    input: &'a str,
    payload: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    kid: String,
}

impl<'a> Token<'a> {
    fn read(token: &'a str) -> Result<Self, Invalid> {
        if token.len() > MAX_LENGTH {
            return Err(Invalid::Malformed);
        }
        let (input, signature) = token.rsplit_once('.').ok_or(Invalid::Malformed)?;
        let (header, payload) = input.split_once('.').ok_or(Invalid::Malformed)?;
        let header: Value = from_base64(header).filter(Value::is_object).ok_or(Invalid::Malformed)?;
        if header.get("crit").is_some() {
            // RFC 7515, 4.1.11: what we do not understand and must, we refuse.
            return Err(Invalid::Malformed);
        }
        let name = header["alg"].as_str().unwrap_or_default();
        let algorithm = algorithm(name).ok_or_else(|| Invalid::Algorithm(excerpt(name.to_owned())))?;
        let kid = excerpt(header["kid"].as_str().unwrap_or_default().to_owned());
        Ok(Self { input, payload, signature, algorithm, kid })
    }

    /// The keys by which it may have been made.
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
