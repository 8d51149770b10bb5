//! Tokens, right and wrong, of an issuer on a port of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{Json, Router, routing::get};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use nuncio_protocol::op::Op;
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::identity::jwt::{self, TokenRefusal};

/// A private key with its name.
pub(in crate::identity) struct Pair {
    kid: &'static str,
    key: EncodingKey,
    algorithm: Algorithm,
}

impl Pair {
    pub(in crate::identity) fn new(kid: &'static str, algorithm: Algorithm) -> Self {
        install_provider();
        let ec =
            |kind| EncodingKey::from_ec_der(&rcgen::KeyPair::generate_for(kind).unwrap().serialize_der());
        let key = match algorithm {
            Algorithm::EdDSA => {
                // PKCS#8 without the public key (RFC 8410, 7): with it the library does not take it.
                let seed: [u8; 32] = rand::random();
                EncodingKey::from_ed_der(
                    &[&b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"[..], &seed]
                        .concat(),
                )
            }
            Algorithm::ES256 => ec(&rcgen::PKCS_ECDSA_P256_SHA256),
            Algorithm::ES384 => ec(&rcgen::PKCS_ECDSA_P384_SHA384),
            other => panic!("no {other:?} in tests"),
        };
        Self { kid, key, algorithm }
    }

    fn jwk(&self) -> Value {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap()).unwrap();
        jwk["kid"] = json!(self.kid);
        jwk
    }

    pub(in crate::identity) fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.to_owned()), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.key).unwrap()
    }
}

/// An issuer on a port of its own.
pub(in crate::identity) struct Server {
    url: String,
    keys: Arc<Mutex<Value>>,
    asked: Arc<AtomicUsize>,
}

impl Server {
    pub(in crate::identity) async fn start(keys: &[&Pair]) -> Self {
        let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let (kept, asked) = (Arc::<Mutex<Value>>::default(), Arc::<AtomicUsize>::default());
        let about = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let (served, counted) = (Arc::clone(&kept), Arc::clone(&asked));
        let keys_of = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let keys = served.lock().unwrap().clone();
            async move { if keys.is_null() { Err(StatusCode::INTERNAL_SERVER_ERROR) } else { Ok(Json(keys)) } }
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async move || Json(about)))
            .route("/keys", get(keys_of));
        tokio::spawn(async move { axum::serve(socket, router).await });
        let server = Self { url, keys: kept, asked };
        server.publish(keys);
        server
    }

    fn publish(&self, keys: &[&Pair]) {
        let keys: Vec<_> = keys.iter().map(|pair| pair.jwk()).collect();
        *self.keys.lock().unwrap() = json!({ "keys": keys });
    }

    fn fail(&self) {
        *self.keys.lock().unwrap() = Value::Null;
    }

    pub(in crate::identity) fn settings(&self) -> config::Issuer {
        config::Issuer {
            issuer: self.url.clone(),
            audience: vec!["nuncio".to_owned()],
            jwks_url: None,
            algorithms: vec![config::Algorithm::ES256, config::Algorithm::EdDSA],
            principal_claim: "sub".to_owned(),
            tenant_claim: None,
            agents_claim: None,
            operations_claim: None,
            allow: None,
            operations: None,
        }
    }

    fn issuer(&self, change: impl FnOnce(&mut config::Issuer)) -> Arc<TrustedIssuer> {
        let mut settings = self.settings();
        change(&mut settings);
        Arc::new(TrustedIssuer::new(settings, &Egress::operator().unwrap()).unwrap())
    }

    /// Claims that hold, changed.
    pub(in crate::identity) fn claims(&self, change: impl FnOnce(&mut Value)) -> Value {
        let mut claims = json!({ "iss": self.url, "aud": "nuncio", "sub": "alice", "exp": seconds() + 600, "org": "acme" });
        change(&mut claims);
        claims
    }
}

pub(in crate::identity) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// As if enough time had passed since the last request.
fn much_later(issuer: &TrustedIssuer) {
    issuer.state().asked = None;
}

/// The principal, or why there is none.
async fn whom(token: &str, issuer: &Arc<TrustedIssuer>) -> String {
    match jwt::verify(token, std::slice::from_ref(issuer)).await {
        Ok(bearer) => bearer.caller.principal().unwrap().to_string(),
        Err(TokenRefusal::Invalid(why)) => why.to_owned(),
        Err(TokenRefusal::Unreachable) => "unreachable".to_owned(),
    }
}

#[tokio::test]
async fn what_a_token_must_be() {
    let (ed, ec) = (Pair::new("ed", Algorithm::EdDSA), Pair::new("ec", Algorithm::ES256));
    let (p384, stranger) = (Pair::new("p384", Algorithm::ES384), Pair::new("ed", Algorithm::EdDSA));
    let server = Server::start(&[&ed, &ec, &p384]).await;
    let issuer = server.issuer(|_| {});
    let alice = format!("{}#alice", server.url);
    let claims = |change: fn(&mut Value)| server.claims(change);
    let (past, future) = (seconds() - 120, seconds() + 120);
    let expired = server.claims(|claims| claims["exp"] = past.into());
    let early = server.claims(|claims| claims["nbf"] = future.into());
    for (token, expected) in [
        (ed.sign(&claims(|_| {})), &*alice),
        (ec.sign(&claims(|_| {})), &alice),
        (ec.sign(&claims(|claims| claims["aud"] = json!(["other", "nuncio"]))), &alice),
        (ed.sign(&claims(|claims| claims["sub"] = json!(7))), &format!("{}#7", server.url)),
        (p384.sign(&claims(|_| {})), "the token's signature algorithm is not accepted here"),
        (stranger.sign(&claims(|_| {})), "the token's signature is wrong"),
        (Pair::new("x", Algorithm::EdDSA).sign(&claims(|_| {})), "the token's key is not known"),
        (
            ed.sign(&claims(|claims| claims["iss"] = json!("https://evil.example"))),
            "the token's issuer is not known here",
        ),
        (ed.sign(&claims(|claims| claims["aud"] = json!("other"))), "the token is for another audience"),
        (ed.sign(&expired), "the token has expired"),
        (ed.sign(&early), "the token is not valid yet"),
        (
            ed.sign(&claims(|claims| drop(claims.as_object_mut().unwrap().remove("exp")))),
            "the token lacks one of the claims exp, iss, aud",
        ),
        (
            ed.sign(&claims(|claims| drop(claims.as_object_mut().unwrap().remove("aud")))),
            "the token lacks one of the claims exp, iss, aud",
        ),
        (
            ed.sign(&claims(|claims| drop(claims.as_object_mut().unwrap().remove("sub")))),
            "the token lacks the claim with the caller's name",
        ),
        (
            ed.sign(&claims(|claims| claims["sub"] = json!("a\nb"))),
            "the token lacks the claim with the caller's name",
        ),
        (
            ed.sign(&claims(|claims| drop(claims.as_object_mut().unwrap().remove("iss")))),
            "the token is malformed",
        ),
        ("a.b.c".to_owned(), "the token's signature algorithm is unknown"),
    ] {
        assert_eq!(whom(&token, &issuer).await, expected, "{token}");
    }
}

/// A public key taken for a shared secret would let every reader of it sign; so would an unsigned token.
#[tokio::test]
async fn no_signature_and_shared_secrets_prove_nothing() {
    let ed = Pair::new("ed", Algorithm::EdDSA);
    let server = Server::start(&[&ed]).await;
    let issuer = server.issuer(|_| {});
    let public = ed.jwk()["x"].as_str().unwrap().to_owned();
    let header = Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::HS256) };
    let hmac = encode(&header, &server.claims(|_| {}), &EncodingKey::from_secret(public.as_bytes())).unwrap();
    assert_eq!(whom(&hmac, &issuer).await, "the token's signature algorithm is not accepted here");
    let signed = ed.sign(&server.claims(|_| {}));
    let (_, rest) = signed.split_once('.').unwrap();
    // {"alg":"none","kid":"ed"}
    let none = format!("eyJhbGciOiJub25lIiwia2lkIjoiZWQifQ.{rest}");
    assert_eq!(whom(&none, &issuer).await, "the token's signature algorithm is unknown");
    let (body, _) = none.rsplit_once('.').unwrap();
    assert_eq!(whom(&format!("{body}."), &issuer).await, "the token's signature algorithm is unknown");
}

#[tokio::test]
async fn what_the_operator_makes_of_a_token() {
    let ed = Pair::new("ed", Algorithm::EdDSA);
    let server = Server::start(&[&ed]).await;
    let issuer = server.issuer(|settings| {
        settings.principal_claim = "email".to_owned();
        settings.tenant_claim = Some("org".to_owned());
        settings.allow = Some(vec!["echo".parse().unwrap()]);
        settings.operations = Some(vec![Op::GetTask]);
    });
    let token = ed.sign(&server.claims(|claims| claims["email"] = json!("a@example.com")));
    let bearer = jwt::verify(&token, &[Arc::clone(&issuer)]).await.ok().unwrap();
    assert_eq!(**bearer.caller.principal().unwrap(), format!("{}#a@example.com", server.url));
    assert_eq!(bearer.caller.tenant().map(|tenant| &**tenant), Some("acme"));
    assert_eq!((bearer.caller.may(Op::GetTask), bearer.caller.may(Op::SendMessage)), (true, false));
    assert_eq!(bearer.agents.as_deref(), Some(&["echo".to_owned()][..]));
    let homeless = server.claims(|claims| {
        claims["email"] = json!("a@example.com");
        claims["org"] = Value::Null;
    });
    assert_eq!(whom(&ed.sign(&homeless), &issuer).await, "the token lacks the claim with the tenant");
}

#[tokio::test]
async fn a_token_may_say_what_its_bearer_may_do_but_no_more_than_the_operator() {
    let ed = Pair::new("ed", Algorithm::EdDSA);
    let server = Server::start(&[&ed]).await;
    let ops = |ops: &[Op]| Some(ops.to_vec());
    let names = |names: &[&str]| Some(names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>());
    // What the operator allows, what the token says, what comes of it; the same for agents and operations.
    for (allow, operations, said, agents, may) in [
        (None, None, json!(["a", "SendMessage"]), Some(vec!["a", "SendMessage"]), vec![Op::SendMessage]),
        (None, None, json!("openid a  GetTask"), Some(vec!["openid", "a", "GetTask"]), vec![Op::GetTask]),
        (
            names(&["a", "b"]),
            ops(&[Op::GetTask]),
            json!("a c GetTask SendMessage"),
            Some(vec!["a"]),
            vec![Op::GetTask],
        ),
        (names(&["a", "b"]), ops(&[Op::GetTask]), json!("*"), Some(vec!["a", "b"]), vec![Op::GetTask]),
        (None, ops(&[Op::GetTask]), json!(["*"]), None, vec![Op::GetTask]),
        (None, None, json!(null), Some(vec![]), vec![]),
        (None, None, json!({"a": true}), Some(vec![]), vec![]),
        (names(&["a"]), ops(&[Op::GetTask]), json!([7]), Some(vec![]), vec![]),
    ] {
        let issuer = server.issuer(|settings| {
            (settings.allow, settings.operations) = (allow, operations);
            settings.agents_claim = Some("may".to_owned());
            settings.operations_claim = Some("may".to_owned());
        });
        let token = ed.sign(&server.claims(|claims| claims["may"] = said.clone()));
        let bearer = jwt::verify(&token, &[issuer]).await.ok().unwrap();
        let seen = bearer.agents.as_deref().map(|agents| agents.iter().map(String::as_str).collect());
        assert_eq!(seen, agents, "{said}");
        let able: Vec<_> = Op::TABLE.iter().map(|row| row.op).filter(|op| bearer.caller.may(*op)).collect();
        assert_eq!(able, may, "{said}");
    }
}

#[tokio::test]
async fn new_keys_are_found_and_strangers_cannot_make_us_look_all_the_time() {
    let (old, new) = (Pair::new("old", Algorithm::EdDSA), Pair::new("new", Algorithm::ES256));
    let server = Server::start(&[&old]).await;
    let issuer = server.issuer(|_| {});
    let alice = format!("{}#alice", server.url);
    let [by_old, by_new] = [&old, &new].map(|pair| pair.sign(&server.claims(|_| {})));
    for _ in 0..3 {
        assert_eq!(whom(&by_old, &issuer).await, alice);
        assert_eq!(whom(&by_new, &issuer).await, "the token's key is not known");
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 1, "once, however many ask for what is not there");
    server.publish(&[&new]);
    assert_eq!(whom(&by_old, &issuer).await, alice, "what is known is not asked for");
    much_later(&issuer);
    assert_eq!(whom(&by_new, &issuer).await, alice);
    assert_eq!(whom(&by_old, &issuer).await, "the token's key is not known", "taken back");
    assert_eq!(server.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn while_an_issuer_is_down_known_keys_go_on_and_of_others_nobody_can_say() {
    let (known, other) = (Pair::new("known", Algorithm::EdDSA), Pair::new("other", Algorithm::EdDSA));
    let server = Server::start(&[]).await;
    let issuer = server.issuer(|_| {});
    let [by_known, by_other] = [&known, &other].map(|pair| pair.sign(&server.claims(|_| {})));
    server.fail();
    assert_eq!(whom(&by_known, &issuer).await, "unreachable");
    server.publish(&[&known]);
    much_later(&issuer);
    issuer.keep_fresh().await;
    let alice = format!("{}#alice", server.url);
    assert_eq!(whom(&by_known, &issuer).await, alice);
    server.fail();
    much_later(&issuer);
    issuer.keep_fresh().await;
    assert_eq!(whom(&by_known, &issuer).await, alice);
    assert_eq!(whom(&by_other, &issuer).await, "unreachable");
}

#[tokio::test]
async fn who_speaks_for_an_issuer_is_that_issuer() {
    let ed = Pair::new("ed", Algorithm::EdDSA);
    let server = Server::start(&[&ed]).await;
    // A slash more, and the document is about somebody else (OpenID Connect Discovery 1.0, 4.3).
    let issuer = server.issuer(|settings| settings.issuer.push('/'));
    let token = ed.sign(&server.claims(|claims| claims["iss"] = json!(format!("{}/", server.url))));
    assert_eq!(whom(&token, &issuer).await, "unreachable");
    // Told where the keys are, we need no document.
    let issuer = server.issuer(|settings| {
        settings.issuer.push('/');
        settings.jwks_url = Some(Url::parse(&format!("{}/keys", server.url)).unwrap());
    });
    assert_eq!(whom(&token, &issuer).await, format!("{}/#alice", server.url));
}
