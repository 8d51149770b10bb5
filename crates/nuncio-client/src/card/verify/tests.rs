//! Signing and verifying, both ways and with every key.

use aws_lc_rs::{
    encoding::AsDer as _,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::json;

use super::*;
use crate::{SigningKey, sign_card};

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
}

fn ed25519(kid: &str) -> SigningKey {
    let der = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
    SigningKey::from_pem(&pem(der.as_ref()), kid).unwrap()
}

fn p256(kid: &str) -> SigningKey {
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    SigningKey::from_pem(&pem(der.as_ref()), kid).unwrap()
}

fn trust(keys: &[&SigningKey]) -> TrustedKeys {
    let jwks: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    TrustedKeys::from_jwks(&json!({ "keys": jwks })).unwrap()
}

/// A card of v1.0 in which nothing is left to default.
fn card() -> Value {
    json!({
        "name": "Añon", "description": "d", "version": "1.0.0",
        "supportedInterfaces": [{ "url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": { "streaming": false },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "s", "name": "S", "description": "d", "tags": ["t"] }],
    })
}

fn union_card() -> Value {
    let mut card = card();
    card["url"] = json!("https://a.example");
    card["protocolVersion"] = json!("0.3.0");
    card["preferredTransport"] = json!("JSONRPC");
    card
}

fn signed(mut card: Value, keys: &[SigningKey]) -> Value {
    sign_card(&mut card, keys).unwrap();
    card
}

#[test]
fn every_algorithm_signs_and_verifies() {
    let v2 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap().as_der().unwrap();
    for (key, algorithm) in [
        (ed25519("k"), "EdDSA"),
        // crates.md 3.7: keys that carry their public half
        (SigningKey::from_pem(&pem(v2.as_ref()), "k").unwrap(), "EdDSA"),
        (p256("k"), "ES256"),
        (SigningKey::from_pem(&pem(rsa.as_ref()), "k").unwrap(), "RS256"),
    ] {
        let card = signed(card(), std::slice::from_ref(&key));
        assert_eq!(
            card["signatures"].as_array().unwrap().len(),
            1,
            "nothing but v1.0 members: one signature"
        );
        let verified = verify_card(&card, &trust(&[&key])).unwrap();
        assert_eq!(verified, Verified { kid: "k".to_owned(), algorithm, over: Over::V1Members });
        assert_eq!(key.jwk()["alg"], algorithm);
        assert!(key.jwk().get("d").is_none(), "a public key has no private half");
    }
}

#[test]
fn the_protected_header_is_what_the_specification_asks_for() {
    let card = signed(card(), &[p256("key-1").with_jku("https://a.example/jwks.json")]);
    let header = protected_header(&card["signatures"][0]).unwrap();
    assert_eq!(
        header,
        json!({ "alg": "ES256", "typ": "JOSE", "kid": "key-1", "jku": "https://a.example/jwks.json" })
    );
}

#[test]
fn a_union_card_has_a_signature_for_either_kind_of_verifier() {
    let key = p256("k");
    let card = signed(union_card(), std::slice::from_ref(&key));
    assert_eq!(card["signatures"].as_array().unwrap().len(), 2);
    assert_eq!(verify_card(&card, &trust(&[&key])).unwrap().over, Over::WholeCard);

    // A gateway that drops the v0.3 members leaves the first one valid.
    let mut v1_only = card.clone();
    v1_only
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !["url", "protocolVersion", "preferredTransport"].contains(&&**name));
    assert_eq!(verify_card(&v1_only, &trust(&[&key])).unwrap().over, Over::V1Members);

    // So does one who changes them, but then it is told that they are not covered.
    let mut changed = card.clone();
    changed["url"] = json!("https://evil.example");
    assert_eq!(verify_card(&changed, &trust(&[&key])).unwrap().over, Over::V1Members);

    // The second one does not survive that.
    let mut only_whole = card;
    only_whole["signatures"].as_array_mut().unwrap().remove(0);
    assert_eq!(verify_card(&only_whole, &trust(&[&key])).unwrap().over, Over::WholeCard);
    only_whole["url"] = json!("https://evil.example");
    assert_eq!(
        verify_card(&only_whole, &trust(&[&key])).unwrap_err(),
        VerifyError::DoesNotHold("k".to_owned())
    );
}

#[test]
fn the_union_of_two_cards_is_signed_for_both() {
    let mut plain = card();
    plain["supportedInterfaces"].as_array_mut().unwrap().push(json!(
        { "url": "https://a.example/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" }
    ));
    plain["securitySchemes"] = json!({ "token": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
    plain["securityRequirements"] = json!([{ "schemes": { "token": { "list": [] } } }]);
    let typed: nuncio_protocol::AgentCard = serde_json::from_value(plain.clone()).unwrap();
    let union = nuncio_protocol::v03::union_card(&typed);
    assert_ne!(union, plain);
    let key = ed25519("k");
    let signed = signed(union, std::slice::from_ref(&key));
    // One who reads the v1.0 members, and one who reads it all.
    plain["signatures"] = json!([signed["signatures"][0]]);
    assert_eq!(verify_card(&plain, &trust(&[&key])).unwrap().over, Over::V1Members);
    let mut whole = signed;
    whole["signatures"] = json!([whole["signatures"][1]]);
    assert_eq!(verify_card(&whole, &trust(&[&key])).unwrap().over, Over::WholeCard);
}

#[test]
fn signatures_over_stripped_cards_are_understood() {
    // Trap T-14
    let key = ed25519("k");
    let mut stripped = card();
    let mut received = card();
    received["description"] = json!("");
    received["skills"] = json!([]);
    for name in ["description", "skills"] {
        stripped.as_object_mut().unwrap().remove(name);
    }
    let payload = canonical_json(&stripped).unwrap();
    let protected = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k","typ":"JOSE"}"#);
    let input = signing_input(&protected, &payload);
    let signature = crypto::sign(input.as_bytes(), &key.key, Algorithm::EdDSA).unwrap();
    received["signatures"] = json!([{ "protected": protected, "signature": signature }]);
    assert_eq!(verify_card(&received, &trust(&[&key])).unwrap().over, Over::V1MembersStripped);
    // They cover no more than the others do.
    received["url"] = json!("https://evil.example");
    assert_eq!(verify_card(&received, &trust(&[&key])).unwrap().over, Over::V1MembersStripped);
}

#[test]
fn the_v1_members_of_a_card_without_interfaces_vouch_for_nothing() {
    // Else anybody could add the address of a v0.3 agent to it.
    let key = p256("k");
    let mut empty = card();
    empty["supportedInterfaces"] = json!([]);
    let mut card = signed(empty, std::slice::from_ref(&key));
    assert_eq!(verify_card(&card, &trust(&[&key])).unwrap().over, Over::WholeCard);
    card["url"] = json!("https://evil.example");
    assert_eq!(verify_card(&card, &trust(&[&key])).unwrap_err(), VerifyError::DoesNotHold("k".to_owned()));
}

#[test]
fn any_change_breaks_it() {
    let key = p256("k");
    let mut card = signed(card(), std::slice::from_ref(&key));
    card["supportedInterfaces"][0]["url"] = json!("https://evil.example");
    let error = verify_card(&card, &trust(&[&key])).unwrap_err();
    assert_eq!(error, VerifyError::DoesNotHold("k".to_owned()));
}

#[test]
fn who_is_not_trusted_does_not_count() {
    let (ours, theirs) = (p256("ours"), p256("theirs"));
    let by_theirs = signed(card(), std::slice::from_ref(&theirs));
    let error = verify_card(&by_theirs, &trust(&[&ours])).unwrap_err();
    assert_eq!(error, VerifyError::NotTrusted(vec!["theirs".to_owned()]));
    // The same name does not make it the same key.
    let impostor = signed(card(), &[p256("ours")]);
    assert_eq!(
        verify_card(&impostor, &trust(&[&ours])).unwrap_err(),
        VerifyError::DoesNotHold("ours".to_owned())
    );
    // One good signature is enough, wherever it stands; signing again keeps those of others.
    let both = signed(by_theirs, std::slice::from_ref(&ours));
    assert_eq!(verify_card(&both, &trust(&[&ours])).unwrap().kid, "ours");
    let again = signed(both, std::slice::from_ref(&ours));
    assert_eq!(again["signatures"].as_array().unwrap().len(), 2);
    assert_eq!(verify_card(&card(), &trust(&[&ours])).unwrap_err(), VerifyError::NotSigned);
}

#[test]
fn algorithms_that_prove_nothing_are_refused() {
    let key = p256("k");
    for header in [
        r#"{"alg":"none","kid":"k"}"#,
        r#"{"alg":"HS256","kid":"k"}"#,
        r#"{"kid":"k"}"#,
        r#"{"alg":"ES256","kid":"k","crit":["b64"],"b64":false}"#,
        "[]",
        "not json",
    ] {
        let mut card = card();
        card["signatures"] = json!([{ "protected": URL_SAFE_NO_PAD.encode(header), "signature": "" }]);
        let error = verify_card(&card, &trust(&[&key])).unwrap_err();
        assert!(matches!(error, VerifyError::Unusable(_)), "{header}: {error:?}");
    }
    // A key is for its own algorithm only.
    let mut card = signed(card(), std::slice::from_ref(&key));
    card["signatures"][0]["protected"] = json!(URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"k"}"#));
    assert!(matches!(verify_card(&card, &trust(&[&key])).unwrap_err(), VerifyError::NotTrusted(_)));
}

#[test]
fn keys_outside_of_their_time_are_refused() {
    let key = p256("k");
    let card = signed(card(), std::slice::from_ref(&key));
    let mut jwk = key.jwk();
    jwk["nbf"] = json!(1_000);
    jwk["exp"] = json!(2_000);
    let keys = TrustedKeys::from_jwks(&jwk).unwrap();
    let at = |second| verify_card_at(&card, &keys, Timestamp::from_second(second).unwrap());
    let refused = Err(VerifyError::KeyNotValid("k".to_owned()));
    assert_eq!(at(999), refused);
    assert!(at(1_000).is_ok());
    assert!(at(1_999).is_ok());
    assert_eq!(at(2_000), refused);
}

#[test]
fn keys_come_as_pem_jwk_or_jwks() {
    // Made with: openssl genpkey -algorithm ed25519 | openssl pkey -pubout
    let public = "-----BEGIN PUBLIC KEY-----\n\
                  MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                  -----END PUBLIC KEY-----\n";
    assert_eq!(TrustedKeys::parse(public).unwrap().keys.len(), 1);
    let key = p256("k");
    assert_eq!(TrustedKeys::parse(&key.jwk().to_string()).unwrap().keys.len(), 1);
    let set = json!({ "keys": [
        key.jwk(),
        { "kty": "oct", "k": "c2VjcmV0", "kid": "hmac" },
        { "kty": "future", "kid": "f" },
        { "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "use": "enc" },
    ]});
    assert_eq!(TrustedKeys::parse(&set.to_string()).unwrap().keys.len(), 1, "only keys that verify cards");
    for nonsense in ["", "{}", r#"{"keys":[]}"#, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
    {
        assert!(TrustedKeys::parse(nonsense).is_err(), "{nonsense}");
    }
    assert!(SigningKey::from_pem("nonsense", "k").is_err());
}

#[test]
fn a_key_without_a_name_is_named_by_its_thumbprint() {
    let der = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
    let key = SigningKey::from_pem(&pem(der.as_ref()), "").unwrap();
    assert_eq!(key.kid().len(), 43, "a SHA-256 in base64url");
    assert_eq!(key.jwk()["kid"], key.kid());
    assert!(!format!("{key:?}").contains(&STANDARD.encode(der.as_ref())));
}

#[test]
fn what_a_signature_does_not_cover_is_named() {
    let key = ed25519("k");
    let mut card = signed(union_card(), std::slice::from_ref(&key));
    let whole = verify_card(&card, &trust(&[&key])).unwrap();
    assert_eq!((whole.over, whole.uncovered(&card)), (Over::WholeCard, vec![]));
    card["url"] = json!("https://b.example");
    card["additionalInterfaces"] = json!([]);
    card["supportsAuthenticatedExtendedCard"] = json!(false);
    let part = verify_card(&card, &trust(&[&key])).unwrap();
    assert_eq!(part.over, Over::V1Members);
    assert_eq!(part.uncovered(&card), ["preferredTransport", "protocolVersion", "url"]);
}

#[test]
fn each_key_is_named_once() {
    // A union card has two signatures by the same key.
    let card = signed(union_card(), &[ed25519("a"), ed25519("b")]);
    let error = verify_card(&card, &trust(&[&ed25519("mine")])).unwrap_err();
    assert_eq!(error, VerifyError::NotTrusted(vec!["a".to_owned(), "b".to_owned()]));
}
