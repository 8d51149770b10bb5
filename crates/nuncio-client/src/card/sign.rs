//! Signing cards (spec 8.4): a JWS with a detached payload, which is the card in canonical form.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nuncio_protocol::{Error, Result, canonical_card, canonical_json};
use serde_json::{Value, json};

use super::keys::{SigningKey, algorithm_name, install_provider};

/// Signs a card with each key, and adds the signatures to it. Signatures by other keys are kept.
///
/// A card with more than the members of v1.0 gets two signatures per key: one over its v1.0 members, for
/// verifiers that drop unknown members, and one over the whole card, for verifiers that keep it as
/// received. Either verifier finds a valid one.
///
/// # Errors
/// `InvalidParams` if it is not a card or has no canonical form.
pub fn sign_card(card: &mut Value, keys: &[SigningKey]) -> Result<()> {
    install_provider();
    let payloads = payloads(card)?;
    let mut signatures = match card["signatures"].take() {
        Value::Array(signatures) => signatures,
        _ => Vec::new(),
    };
    signatures.retain(|signature| !keys.iter().any(|key| kid(signature).as_deref() == Some(&key.kid)));
    for key in keys {
        for payload in &payloads {
            signatures.push(sign(key, payload)?);
        }
    }
    card["signatures"] = Value::Array(signatures);
    Ok(())
}

/// The payloads to sign: one, or two if they differ.
fn payloads(card: &Value) -> Result<Vec<Vec<u8>>> {
    let whole = canonical_json(&without_signatures(card)?)?;
    if !has_v1_members(card) {
        return Ok(vec![whole]);
    }
    let v1 = canonical_card(card)?;
    Ok(if v1 == whole { vec![v1] } else { vec![v1, whole] })
}

/// False for a card that is only v0.3. Its URL is then in members that a signature over the v1.0 members
/// does not cover, so such a signature would be useless.
pub(crate) fn has_v1_members(card: &Value) -> bool {
    card["supportedInterfaces"].as_array().is_some_and(|interfaces| !interfaces.is_empty())
}

/// The card without its signatures.
pub(crate) fn without_signatures(card: &Value) -> Result<Value> {
    let Value::Object(members) = card else {
        return Err(Error::invalid_field("card", "expected a JSON object"));
    };
    let mut members = members.clone();
    members.remove("signatures");
    Ok(Value::Object(members))
}

fn sign(key: &SigningKey, payload: &[u8]) -> Result<Value> {
    let mut header = json!({ "alg": algorithm_name(key.algorithm), "kid": key.kid, "typ": "JOSE" });
    if let Some(jku) = &key.jku {
        header["jku"] = json!(jku);
    }
    let protected = URL_SAFE_NO_PAD.encode(header.to_string());
    let input = signing_input(&protected, payload);
    let signature = key.sign(&input)?;
    Ok(json!({ "protected": protected, "signature": signature }))
}

/// The input of the algorithm (RFC 7515, 5.1).
pub(crate) fn signing_input(protected: &str, payload: &[u8]) -> String {
    let mut input = String::with_capacity(protected.len() + 1 + payload.len() * 4 / 3 + 4);
    input.push_str(protected);
    input.push('.');
    URL_SAFE_NO_PAD.encode_string(payload, &mut input);
    input
}

/// The protected header of a signature.
pub(crate) fn protected_header(signature: &Value) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(signature["protected"].as_str()?).ok()?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

fn kid(signature: &Value) -> Option<String> {
    protected_header(signature)?["kid"].as_str().map(str::to_owned)
}
