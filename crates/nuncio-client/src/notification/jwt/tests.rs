//! Claims: valid proofs and invalid ones.

use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    hmac,
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair},
};
use base64::engine::general_purpose::STANDARD;

use super::*;

const NOW: i64 = 1_800_000_000;
const BODY: &[u8] = br#"{"statusUpdate":{"taskId":"t-1"}}"#;
const HOOK: &str = "https://me.example/hook";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_ed25519_seed(&[seed; 32]).unwrap()
}

fn trust(keys: &[&SigningKey]) -> TrustedKeys {
    let jwks: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    TrustedKeys::from_jwks(&json!({ "keys": jwks })).unwrap()
}

fn claims() -> Claims {
    Claims::new("https://hub.example", HOOK, "d-1", "t-1", BODY, NOW)
}

fn look(token: &str, keys: &TrustedKeys, now: i64) -> Result<Signed, Invalid> {
    let audiences = [Url::parse(HOOK).unwrap()];
    verify(token, keys, &Expected { id: "d-1", body: BODY, audiences: &audiences, now })
}

#[test]
fn a_token_is_as_it_is_fixed() {
    let key = key(1).with_jku("https://hub.example/.well-known/jwks.json");
    let token = sign(&key, &claims()).unwrap();
    let mut parts = token.split('.');
    let mut part = || from_base64::<Value>(parts.next().unwrap()).unwrap();
    let header =
        json!({"alg":"EdDSA","kid":key.kid(),"typ":"JWT","jku":"https://hub.example/.well-known/jwks.json"});
    assert_eq!(part(), header);
    assert_eq!(
        part(),
        json!({
            "iss": "https://hub.example", "aud": HOOK, "iat": NOW, "exp": NOW + 300, "jti": "d-1",
            "taskId": "t-1",
            "request_body_sha256": "b2b7f9dad5594d2aa9c472d48f7c5149beca7d9f058b3293043256e214c11c6a",
        })
    );
}

#[test]
fn every_kind_of_key_signs() {
    let pem = |der: &[u8]| {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
    };
    let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let rsa: Pkcs8V1Der<'_> = rsa.as_der().unwrap();
    for key in [
        key(1),
        SigningKey::from_pem(&pem(p256.as_ref()), "p").unwrap(),
        SigningKey::from_pem(&pem(rsa.as_ref()), "r").unwrap(),
    ] {
        let signed = look(&sign(&key, &claims()).unwrap(), &trust(&[&key]), NOW).unwrap();
        assert_eq!(signed, Signed { kid: key.kid().to_owned(), claims: claims() });
    }
}

#[test]
fn what_is_claimed_is_compared() {
    type Change = fn(&mut Claims);
    let cases: [(&str, Change, i64, Result<(), Invalid>); 12] = [
        ("right", |_| (), NOW, Ok(())),
        (
            "another spelling of the address",
            |c| c.audience = "HTTPS://me.example:443/hook".into(),
            NOW,
            Ok(()),
        ),
        ("at its end", |_| (), NOW + 360, Ok(())),
        ("expired", |_| (), NOW + 361, Err(Invalid::Expired)),
        ("a clock that is behind", |_| (), NOW - 60, Ok(())),
        ("from the future", |_| (), NOW - 61, Err(Invalid::FromTheFuture)),
        ("another delivery", |c| c.id = "d-2".into(), NOW, Err(Invalid::OtherDelivery)),
        ("another body", |c| c.body_sha256 = sha256_hex(b"{}"), NOW, Err(Invalid::OtherBody)),
        ("no body", |c| c.body_sha256.clear(), NOW, Err(Invalid::OtherBody)),
        (
            "another path",
            |c| c.audience = "https://me.example/hook/2".into(),
            NOW,
            Err(Invalid::OtherAudience("https://me.example/hook/2".into())),
        ),
        ("no address", |c| c.audience = "me".into(), NOW, Err(Invalid::OtherAudience("me".into()))),
        ("another task, which the body decides", |c| c.task_id = "t-2".into(), NOW, Ok(())),
    ];
    for (what, change, now, expected) in cases {
        let mut claims = claims();
        change(&mut claims);
        let token = sign(&key(1), &claims).unwrap();
        assert_eq!(look(&token, &trust(&[&key(1)]), now).map(|_| ()), expected, "{what}");
    }
}

#[test]
fn without_an_address_of_its_own_a_receiver_takes_any_audience() {
    let token = sign(&key(1), &Claims { audience: "https://other.example".into(), ..claims() }).unwrap();
    let expected = Expected { id: "d-1", body: BODY, audiences: &[], now: NOW };
    assert!(verify(&token, &trust(&[&key(1)]), &expected).is_ok());
}

/// A token with this header over our claims, with this signature.
fn forged(header: &Value, sign: impl FnOnce(&str) -> String) -> String {
    let payload = serde_json::to_vec(&claims()).unwrap();
    let input = signing_input(&URL_SAFE_NO_PAD.encode(header.to_string()), &payload);
    let signature = sign(&input);
    format!("{input}.{signature}")
}

#[test]
fn a_token_by_somebody_else_proves_nothing() {
    let (ours, theirs) = (key(1), key(2));
    let kid = ours.kid();
    let algorithm = |name: &str| Err(Invalid::Algorithm(name.to_owned()));
    let own = |input: &str| crypto::sign(input.as_bytes(), &key(1).key, Algorithm::EdDSA).unwrap();
    let other = |input: &str| crypto::sign(input.as_bytes(), &key(2).key, Algorithm::EdDSA).unwrap();
    // The public key as if it were a shared secret: the classic confusion.
    let public = URL_SAFE_NO_PAD.decode(ours.jwk()["x"].as_str().unwrap()).unwrap();
    let hs256 = |input: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &public);
        URL_SAFE_NO_PAD.encode(hmac::sign(&key, input.as_bytes()))
    };
    let nothing = |_: &str| String::new();
    let cases: Vec<(&str, String, Result<(), Invalid>)> = vec![
        ("ours", forged(&json!({"alg":"EdDSA","kid":kid}), own), Ok(())),
        ("without a name", forged(&json!({"alg":"EdDSA"}), own), Ok(())),
        ("none", forged(&json!({"alg":"none","kid":kid}), nothing), algorithm("none")),
        ("no algorithm", forged(&json!({"kid":kid}), own), algorithm("")),
        ("HS256", forged(&json!({"alg":"HS256","kid":kid}), hs256), algorithm("HS256")),
        (
            "the key is for another algorithm",
            forged(&json!({"alg":"ES256","kid":kid}), own),
            algorithm("ES256"),
        ),
        (
            "another key under our name",
            forged(&json!({"alg":"EdDSA","kid":kid}), other),
            Err(Invalid::DoesNotHold(kid.to_owned())),
        ),
        (
            "another key without a name",
            forged(&json!({"alg":"EdDSA"}), other),
            Err(Invalid::DoesNotHold(String::new())),
        ),
        ("another key", sign(&theirs, &claims()).unwrap(), Err(Invalid::UnknownKey(theirs.kid().to_owned()))),
        (
            "not signed",
            forged(&json!({"alg":"EdDSA","kid":kid}), nothing),
            Err(Invalid::DoesNotHold(kid.to_owned())),
        ),
        (
            "a header that must be understood",
            forged(&json!({"alg":"EdDSA","kid":kid,"crit":["b64"],"b64":false}), own),
            Err(Invalid::Malformed),
        ),
        ("no JSON", "e30x.e30.AAAA".to_owned(), Err(Invalid::Malformed)),
        ("a list", format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode("[]")), Err(Invalid::Malformed)),
        ("two parts", "e30.e30".to_owned(), Err(Invalid::Malformed)),
        ("nothing", String::new(), Err(Invalid::Malformed)),
        ("too long", "a.".repeat(MAX_LENGTH), Err(Invalid::Malformed)),
    ];
    for (what, token, expected) in cases {
        assert_eq!(look(&token, &trust(&[&ours]), NOW).map(|_| ()), expected, "{what}");
    }
}

#[test]
fn claims_that_are_missing_prove_nothing() {
    let whole = serde_json::to_value(claims()).unwrap();
    for name in whole.as_object().unwrap().keys() {
        let mut part = whole.clone();
        part.as_object_mut().unwrap().remove(name);
        let header = URL_SAFE_NO_PAD.encode(json!({"alg":"EdDSA"}).to_string());
        let input = signing_input(&header, part.to_string().as_bytes());
        let signature = crypto::sign(input.as_bytes(), &key(1).key, Algorithm::EdDSA).unwrap();
        let result = look(&format!("{input}.{signature}"), &trust(&[&key(1)]), NOW);
        assert_eq!(result, Err(Invalid::Malformed), "{name}");
    }
}

#[test]
fn a_key_is_good_in_its_time() {
    let mut jwk = key(1).jwk();
    jwk["exp"] = json!(NOW);
    let keys = TrustedKeys::from_jwks(&jwk).unwrap();
    let token = sign(&key(1), &claims()).unwrap();
    assert!(look(&token, &keys, NOW - 1).is_ok());
    assert_eq!(look(&token, &keys, NOW), Err(Invalid::KeyNotValid(key(1).kid().to_owned())));
}
