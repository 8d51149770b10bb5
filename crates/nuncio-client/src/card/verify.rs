//! Verifying the signatures of a card (spec 8.4.3).
//!
//! Signers do not agree on what they sign, so a signature is tried over the card's v1.0 members by the
//! rules of the specification, over all that was received, and over both without empty values, as some
//! SDKs do (trap T-14). Which one held is reported: a signature over the v1.0 members says nothing about
//! the others, so a card that has others is first tried as a whole.

use std::fmt;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, crypto};
use nuncio_protocol::{canonical_card, canonical_json};
use serde_json::Value;

use super::{
    keys::{TrustedKey, TrustedKeys, algorithm, algorithm_name, install_provider},
    sign::{has_v1_members, protected_header, signing_input, without_signatures},
};

/// Each signature costs a few operations of public-key cryptography; no honest card has more.
const MAX_SIGNATURES: usize = 16;

/// The document that a signature was made over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// The v1.0 members, by the rules of the specification. If the card has others, nobody vouches for
    /// them.
    V1Members,
    /// All that was received.
    WholeCard,
    /// The v1.0 members without empty values.
    V1MembersStripped,
    /// All that was received without empty values.
    WholeCardStripped,
}

impl Over {
    /// True if members that v1.0 does not know, such as the address of a v0.3 agent, may have been put
    /// there by anybody.
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

/// A signature that holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The key that the signature names.
    pub kid: String,
    /// The algorithm.
    pub algorithm: &'static str,
    /// The document that it was made over.
    pub over: Over,
}

impl Verified {
    /// The members of the card that the signature says nothing about, and that say something themselves:
    /// anybody may have put them there.
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

/// The reason why no signature of a card can be trusted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// It has none.
    #[error("the card is not signed")]
    NotSigned,
    /// It has some, by keys that the caller does not trust.
    #[error("none of the card's signatures is by a trusted key; they name: {}", .0.join(", "))]
    NotTrusted(Vec<String>),
    /// The trusted key that signed it has expired or is not valid yet.
    #[error("the key {0} that signed the card is expired or not yet valid")]
    KeyNotValid(String),
    /// A trusted key is named, but the signature does not hold: the card was changed, or signed over
    /// something else, or by another key of that name.
    #[error(
        "the signature by {0} does not hold: the card was changed, or this is not the key that signed it"
    )]
    DoesNotHold(String),
    /// All signatures are malformed, or of an algorithm that proves nothing.
    #[error("no signature of the card can be used: {0}")]
    Unusable(String),
}

/// Finds a signature of the card that a trusted key made.
///
/// # Errors
/// There is none; the error says why.
pub fn verify_card(card: &Value, keys: &TrustedKeys) -> Result<Verified, VerifyError> {
    verify_card_at(card, keys, Timestamp::now())
}

/// [`verify_card`] at another moment than now.
pub(crate) fn verify_card_at(
    card: &Value,
    keys: &TrustedKeys,
    now: Timestamp,
) -> Result<Verified, VerifyError> {
    install_provider();
    let signatures = card["signatures"].as_array().filter(|signatures| !signatures.is_empty());
    let signatures = signatures.ok_or(VerifyError::NotSigned)?;
    let mut claims = Vec::new();
    // The most telling reason there is to give if none holds.
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

/// A signature as it presents itself.
struct Claim<'a> {
    protected: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    /// Empty if it names no key.
    kid: String,
}

impl<'a> Claim<'a> {
    fn read(json: &'a Value) -> Result<Self, String> {
        let member = |name: &str| json[name].as_str().ok_or_else(|| format!("a signature without {name}"));
        let (protected, signature) = (member("protected")?, member("signature")?);
        let header =
            protected_header(json).ok_or("a protected header that is no base64url of a JSON object")?;
        if header.get("crit").is_some() {
            // RFC 7515, 4.1.11: what we do not understand and must, we refuse.
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

    /// The claim with the trusted keys it may have been made with; otherwise `reason` learns why not.
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

/// What signers may have signed: the specification's way first, unless there is more in the card than it
/// covers. What has no canonical form is left out.
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

/// Without empty strings, lists and objects, at any depth; REQUIRED members as well.
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
