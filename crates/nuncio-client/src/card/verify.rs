//! Verifies the signatures of a card (spec 8.4.3).
//!
//! Signers use different payloads. A signature is therefore checked over the card's v1.0 members by the
//! rules of the specification, over the card as received, and over both without empty values, as some SDKs
//! do (trap T-14). The result says which payload was signed. A signature over the v1.0 members does not
//! cover other members, so a card with other members is first checked as a whole.

use std::fmt;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, crypto};
use nuncio_protocol::{canonical_card, canonical_json};
use serde_json::Value;

use super::{
    keys::{TrustedKey, TrustedKeys, algorithm, algorithm_name, install_provider},
    sign::{has_v1_members, protected_header, signing_input, without_signatures},
};

/// Maximum number of signatures that are checked: each costs several public-key operations.
const MAX_SIGNATURES: usize = 16;

/// The payload that a signature covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// The v1.0 members, by the rules of the specification. Other members of the card are not covered.
    V1Members,
    /// The card as received.
    WholeCard,
    /// The v1.0 members without empty values.
    V1MembersStripped,
    /// The card as received, without empty values.
    WholeCardStripped,
}

impl Over {
    /// True if members outside of v1.0, such as the URL of a v0.3 agent, are not covered and may be forged.
    #[must_use]
    pub fn is_v1_only(self) -> bool {
        matches!(self, Self::V1Members | Self::V1MembersStripped)
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1Members => "the v1.0 members",
            Self::WholeCard => "the whole card",
            Self::V1MembersStripped => "the v1.0 members without empty values",
            Self::WholeCardStripped => "the whole card without empty values",
        })
    }
}

/// A valid signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The id of the key.
    pub kid: String,
    /// The algorithm.
    pub algorithm: &'static str,
    /// The payload that it covers.
    pub over: Over,
}

impl Verified {
    /// The non-empty members of the card that the signature does not cover: they may be forged.
    #[must_use]
    pub fn uncovered<'a>(&self, card: &'a Value) -> Vec<&'a str> {
        if !self.over.is_v1_only() {
            return Vec::new();
        }
        let covered = canonical_card(card).ok().and_then(|json| serde_json::from_slice(&json).ok());
        let covered: Value = covered.unwrap_or_default();
        let says = |value: &Value| *value != Value::Bool(false) && strip_empties(value.clone()).is_some();
        let members = card.as_object().into_iter().flatten();
        let uncovered = members.filter(|(name, value)| {
            *name != "signatures" && covered.get(name.as_str()).is_none() && says(value)
        });
        uncovered.map(|(name, _)| name.as_str()).collect()
    }
}

/// The reason why no signature of a card is accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The card has no signature.
    #[error("the card is not signed")]
    NotSigned,
    /// The card has signatures, but none by a trusted key.
    #[error("none of the card's signatures is by a trusted key; they name: {}", .0.join(", "))]
    NotTrusted(Vec<String>),
    /// The trusted key that signed it has expired or is not valid yet.
    #[error("the key {0} that signed the card is expired or not yet valid")]
    KeyNotValid(String),
    /// A signature names a trusted key and is invalid: the card was changed, another payload was signed, or
    /// another key has the same id.
    #[error("the signature by {0} is invalid: the card was changed, or this is not the key that signed it")]
    DoesNotHold(String),
    /// All signatures are malformed, or use an unsupported algorithm.
    #[error("no signature of the card can be used: {0}")]
    Unusable(String),
}

/// Finds a signature of the card that a trusted key made.
///
/// # Errors
/// There is no such signature; the error has the reason.
pub fn verify_card(card: &Value, keys: &TrustedKeys) -> Result<Verified, VerifyError> {
    verify_card_at(card, keys, Timestamp::now())
}

/// Like [`verify_card`], at the given time.
pub(crate) fn verify_card_at(
    card: &Value,
    keys: &TrustedKeys,
    now: Timestamp,
) -> Result<Verified, VerifyError> {
    install_provider();
    let signatures = card["signatures"].as_array().filter(|signatures| !signatures.is_empty());
    let signatures = signatures.ok_or(VerifyError::NotSigned)?;
    let mut claims = Vec::new();
    // The most specific reason, if no signature is valid.
    let mut reason = VerifyError::NotTrusted(Vec::new());
    for signature in signatures.iter().take(MAX_SIGNATURES) {
        match Claim::read(signature) {
            Ok(claim) => claims.extend(claim.attributed(keys, now, &mut reason)),
            Err(why) if reason == VerifyError::NotTrusted(Vec::new()) => reason = VerifyError::Unusable(why),
            Err(_) => {}
        }
    }
    let Some((first, _)) = claims.first() else { return Err(reason) };
    let failed = VerifyError::DoesNotHold(first.kid.clone());
    for (over, payload) in payloads(card) {
        if let Some((claim, _)) = claims.iter().find(|(claim, keys)| claim.holds(keys, &payload)) {
            return Ok(Verified { kid: claim.kid.clone(), algorithm: algorithm_name(claim.algorithm), over });
        }
    }
    Err(failed)
}

/// The parsed members of a signature.
struct Claim<'a> {
    protected: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    /// Empty if the signature names no key.
    kid: String,
}

impl<'a> Claim<'a> {
    fn read(json: &'a Value) -> Result<Self, String> {
        let member = |name: &str| json[name].as_str().ok_or_else(|| format!("a signature without {name}"));
        let (protected, signature) = (member("protected")?, member("signature")?);
        let header =
            protected_header(json).ok_or("a protected header that is not a JSON object in base64url")?;
        if header.get("crit").is_some() {
            // RFC 7515, 4.1.11: critical headers that are not understood have to be refused.
            return Err("a signature with critical headers".to_owned());
        }
        let name = header["alg"].as_str().unwrap_or_default();
        let algorithm = algorithm(name).ok_or_else(|| format!("the algorithm {name:?} is not accepted"))?;
        Ok(Self {
            protected,
            signature,
            algorithm,
            kid: header["kid"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// The claim and the trusted keys that may have made it; `None` sets `reason`.
    fn attributed<'k>(
        self,
        keys: &'k TrustedKeys,
        now: Timestamp,
        reason: &mut VerifyError,
    ) -> Option<(Self, Vec<&'k TrustedKey>)> {
        let fits = |key: &&TrustedKey| {
            let named = self.kid.is_empty() || key.kid.as_ref().is_none_or(|kid| *kid == self.kid);
            named && key.algorithm == self.algorithm
        };
        let known: Vec<_> = keys.keys.iter().filter(fits).collect();
        let valid: Vec<_> = known.iter().copied().filter(|key| key.is_valid(now)).collect();
        if !valid.is_empty() {
            return Some((self, valid));
        }
        match reason {
            _ if !known.is_empty() => *reason = VerifyError::KeyNotValid(self.kid),
            VerifyError::NotTrusted(kids) if kids.contains(&self.kid) => {}
            VerifyError::NotTrusted(kids) => kids.push(self.kid),
            VerifyError::Unusable(_) => *reason = VerifyError::NotTrusted(vec![self.kid]),
            _ => {}
        }
        None
    }

    fn holds(&self, keys: &[&TrustedKey], payload: &[u8]) -> bool {
        let input = signing_input(self.protected, payload);
        keys.iter().any(|key| {
            crypto::verify(self.signature, input.as_bytes(), &key.key, self.algorithm)
                .is_ok_and(|holds| holds)
        })
    }
}

/// The payloads that signers use: the specification's first, unless the card has members that it does not
/// cover. A payload without a canonical form is left out.
fn payloads(card: &Value) -> impl Iterator<Item = (Over, Vec<u8>)> {
    let v1 = Some(card).filter(|card| has_v1_members(card)).and_then(|card| canonical_card(card).ok());
    let stripped_v1 =
        v1.as_deref().and_then(|json| serde_json::from_slice(json).ok()).and_then(strip_empties);
    let whole = without_signatures(card).ok();
    let stripped_whole = whole.clone().and_then(strip_empties);
    let canonical = |json: Option<Value>| json.and_then(|json| canonical_json(&json).ok());
    let whole = canonical(whole);
    let has_others = v1 != whole;
    let mut all = [
        (Over::V1Members, v1),
        (Over::V1MembersStripped, canonical(stripped_v1)),
        (Over::WholeCard, whole),
        (Over::WholeCardStripped, canonical(stripped_whole)),
    ];
    if has_others {
        all.rotate_left(2);
    }
    all.into_iter().filter_map(|(over, payload)| Some((over, payload?)))
}

/// Removes empty strings, lists and objects at any depth, REQUIRED members included.
fn strip_empties(json: Value) -> Option<Value> {
    match json {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().filter_map(strip_empties).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members: serde_json::Map<_, _> = members
                .into_iter()
                .filter_map(|(name, member)| Some((name, strip_empties(member)?)))
                .collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
