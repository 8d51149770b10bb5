//! Verification of tokens (JWT, RFC 7519) of trusted issuers, and the caller that follows from their claims.
//!
//! The issuer's settings list the accepted algorithms; `none` and those with a shared secret are never
//! accepted. Keys that a token brings or refers to (`jku`, `jwk`, `x5c`) are ignored.

use std::{str::FromStr as _, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, TokenData, Validation, decode, decode_header, errors::ErrorKind};
use nuncio_protocol::{Caller, Timestamp, op::Op};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::issuer::{PublishedKey, TrustedIssuer, Unreachable};
use crate::config;

/// Seconds by which the clocks of issuer and hub may differ.
const LEEWAY: u64 = 30;
/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Maximum length of a name in a claim.
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of keys that are tried for a token that names none.
const MAX_TRIED_KEYS: usize = 8;

/// The value of a claim that stands for all agents or operations.
const ALL: &str = "*";

type Claims = Map<String, Value>;

/// The caller that a token authenticates.
pub(super) struct Bearer {
    pub(super) caller: Caller,
    pub(super) agents: Option<Arc<[String]>>,
    /// Time of expiry, with the leeway.
    pub(super) until: Option<Timestamp>,
    /// Cancelled when the issuer is removed.
    pub(super) issuer: CancellationToken,
}

/// The reason why a token is refused.
#[derive(Debug)]
pub(super) enum TokenRefusal {
    /// Worded for the holder of the token.
    Invalid(&'static str),
    /// The issuer's keys are not available.
    Unreachable,
}

impl From<Unreachable> for TokenRefusal {
    fn from(Unreachable: Unreachable) -> Self {
        Self::Unreachable
    }
}

/// True if the text has the shape of a token.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= MAX_TOKEN_BYTES && text.split('.').count() == 3
}

/// Verifies a token and makes the caller from its claims.
pub(super) async fn verify(token: &str, issuers: &[Arc<TrustedIssuer>]) -> Result<Bearer, TokenRefusal> {
    let malformed = || TokenRefusal::Invalid("the token is malformed");
    let header = decode_header(token)
        .map_err(|_| TokenRefusal::Invalid("the token's signature algorithm is unknown"))?;
    if header.crit.is_some() {
        // RFC 7515, section 4.1.11: a critical extension that is not understood must be refused.
        return Err(malformed());
    }
    let issuer = issuer_of(token).ok_or_else(malformed)?;
    let issuer = issuers.iter().find(|known| known.name() == issuer);
    let issuer = issuer.ok_or(TokenRefusal::Invalid("the token's issuer is not known here"))?;
    if !issuer.settings.algorithms.iter().any(|allowed| algorithm(*allowed) == header.alg) {
        return Err(TokenRefusal::Invalid("the token's signature algorithm is not accepted here"));
    }
    let keys = issuer.keys(header.kid.as_deref()).await?;
    let fits = |key: &&PublishedKey| {
        let is_named = match (&header.kid, &key.kid) {
            (Some(named), Some(kid)) => named == kid,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let name = key.algorithm.map(|algorithm| algorithm.to_string());
        is_named && name.is_none_or(|name| Algorithm::from_str(&name).is_ok_and(|own| own == header.alg))
    };
    let validation = validation(&issuer.settings, header.alg);
    let mut refusal = TokenRefusal::Invalid("the token's key is not known");
    for key in keys.iter().filter(fits).take(MAX_TRIED_KEYS) {
        match decode::<Claims>(token, &key.key, &validation) {
            Ok(TokenData { claims, .. }) => return bearer(issuer, &claims),
            Err(error) => refusal = TokenRefusal::Invalid(explain(error.kind())),
        }
    }
    Err(refusal)
}

/// The issuer that a token names, unverified.
fn issuer_of(token: &str) -> Option<String> {
    let claims: Claims =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?).ok()?;
    claims.get("iss")?.as_str().map(str::to_owned)
}

fn validation(settings: &config::Issuer, algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.leeway = LEEWAY;
    validation.validate_nbf = true;
    validation.set_issuer(&[&settings.issuer]);
    validation.set_audience(&settings.audience);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation
}

fn explain(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks one of the claims exp, iss, aud",
        ErrorKind::InvalidSignature => "the token's signature is wrong",
        _ => "the token is not valid",
    }
}

fn bearer(issuer: &TrustedIssuer, claims: &Claims) -> Result<Bearer, TokenRefusal> {
    let settings = &issuer.settings;
    let principal = claims.get(&settings.principal_claim).and_then(name);
    let principal =
        principal.ok_or(TokenRefusal::Invalid("the token lacks the claim with the caller's name"))?;
    // With the issuer, because two issuers may use the same names. No principal of an API key contains a `#`.
    let mut caller = Caller::authenticated(format!("{}#{principal}", settings.issuer));
    if let Some(claim) = &settings.tenant_claim {
        let tenant = claims.get(claim).and_then(name);
        caller = caller
            .of_tenant(tenant.ok_or(TokenRefusal::Invalid("the token lacks the claim with the tenant"))?);
    }
    let named = settings.operations_claim.as_ref().map(|claim| words(claims.get(claim)));
    if settings.operations.is_some() || named.is_some() {
        let allowed = |op: &Op| settings.operations.as_ref().is_none_or(|allowed| allowed.contains(op));
        let is_named = |op: &Op| named.as_ref().is_none_or(|named| is_in(op.name(), named));
        let operations = Op::TABLE.iter().map(|row| row.op).filter(allowed).filter(is_named);
        caller = caller.limited_to(operations.collect());
    }
    let allow = settings.allow.as_ref().map(|allow| allow.iter().map(ToString::to_string));
    let named = settings.agents_claim.as_ref().map(|claim| words(claims.get(claim)));
    let agents = match (allow, named) {
        (allow, None) => allow.map(Iterator::collect),
        (Some(allow), Some(named)) => Some(allow.filter(|agent| is_in(agent, &named)).collect()),
        (None, Some(named)) if is_in(ALL, &named) => None,
        (None, Some(named)) => Some(named.into_iter().map(str::to_owned).collect()),
    };
    Ok(Bearer { caller, agents, until: until(claims), issuer: issuer.ended.clone() })
}

/// Expiry of the token, with the leeway. Some issuers write the seconds with a fraction.
fn until(claims: &Claims) -> Option<Timestamp> {
    let seconds = claims.get("exp")?.as_f64()? + LEEWAY as f64;
    Some(Timestamp::from_millis((seconds * 1000.0) as i64).unwrap_or(Timestamp::MAX))
}

/// The items of a claim: a list, or words separated by spaces as in `scope` (RFC 8693, section 4.2). An
/// absent claim has no items, so it allows nothing.
fn words(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}

fn is_in(name: &str, named: &[&str]) -> bool {
    named.iter().any(|named| [name, ALL].contains(named))
}

/// A name in a claim: text, or a number, which some issuers use.
fn name(claim: &Value) -> Option<String> {
    let name = match claim {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control);
    is_name.then_some(name)
}

fn algorithm(algorithm: config::Algorithm) -> Algorithm {
    match algorithm {
        config::Algorithm::RS256 => Algorithm::RS256,
        config::Algorithm::RS384 => Algorithm::RS384,
        config::Algorithm::RS512 => Algorithm::RS512,
        config::Algorithm::PS256 => Algorithm::PS256,
        config::Algorithm::PS384 => Algorithm::PS384,
        config::Algorithm::PS512 => Algorithm::PS512,
        config::Algorithm::ES256 => Algorithm::ES256,
        config::Algorithm::ES384 => Algorithm::ES384,
        config::Algorithm::EdDSA => Algorithm::EdDSA,
    }
}
