//! Cards as callers see them, directly and through a proxy, and who vouches for them.

use std::{fs, path::PathBuf};

use nuncio_client::{TrustedKeys, verify_card};
use nuncio_hub::{
    Hub,
    config::{Anonymous, CardKey, Config, Identity},
};
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::{Running, config, directory, within};

const CARD: &str = "/agents/conformance/.well-known/agent-card.json";

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn url(&self) -> &str {
        self.json["supportedInterfaces"][0]["url"].as_str().unwrap()
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub(crate) async fn get(hub: &Running, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = client().get(format!("{}{path}", hub.url));
    for (name, value) in headers {
        request = request.header(HeaderName::from_bytes(name.as_bytes()).unwrap(), *value);
    }
    read(request).await
}

async fn read(request: reqwest::RequestBuilder) -> Answer {
    let response = within("the answer", request.send()).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let json = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default();
    Answer { status, headers, json }
}

fn behind_a_proxy(network: &str) -> Config {
    let allowed_hosts = ["a.example", "b.example"].map(|name| url::Host::parse(name).unwrap()).to_vec();
    Config { trusted_proxies: vec![network.parse().unwrap()], allowed_hosts, ..open() }
}

/// The caller does not matter here, only the form of cards.
fn open() -> Config {
    Config { identity: Identity { anonymous: Anonymous::Always, ..Identity::default() }, ..config() }
}

/// A new key of the kind that is asked for.
pub(crate) fn key(directory: &str, name: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> PathBuf {
    let file = crate::directory(directory).join(name);
    fs::write(&file, rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_pem()).unwrap();
    file
}

fn header_of(signature: &Value) -> Value {
    let protected = signature["protected"].as_str().unwrap();
    serde_json::from_slice(&base64_url(protected)).unwrap()
}

/// Decodes base64url without padding.
fn base64_url(text: &str) -> Vec<u8> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'-' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, b| bits << 6 | u32::from(value(*b)));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[tokio::test]
async fn a_trusted_proxy_says_where_its_callers_see_us() {
    let hub = Running::start(behind_a_proxy("127.0.0.0/8")).await;
    let own = format!("{}/agents/conformance", hub.url);
    for (headers, expected) in [
        (vec![], own.as_str()),
        (vec![("x-forwarded-for", "203.0.113.9")], &own),
        (vec![("forwarded", "host=a.example;proto=https")], "https://a.example/agents/conformance"),
        (
            vec![
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-prefix", "/x"),
            ],
            "https://a.example/x/agents/conformance",
        ),
        // A proxy that hands on the name it was called by.
        (vec![("host", "b.example"), ("x-forwarded-proto", "https")], "https://b.example/agents/conformance"),
        (vec![("forwarded", "host=evil.example"), ("x-forwarded-for", "203.0.113.9")], &own),
    ] {
        let answer = get(&hub, CARD, &headers).await;
        assert_eq!((answer.status, answer.url()), (200, expected), "{headers:?}");
        assert_eq!(answer.json["url"], expected, "as 0.3 reads it");
        assert!(answer.header("vary").contains("x-forwarded-host"), "{headers:?}");
        let list = get(&hub, "/agents", &headers).await;
        assert_eq!(list.json["agents"][0]["url"], expected, "{headers:?}");
        assert_eq!(list.header("cache-control"), "no-store", "for this caller only");
    }
    // A page that is rebound to us comes from this machine as well, and may send all of these but `Host`.
    let (page, name) = (("host", "evil.example"), ("x-forwarded-host", "evil.example"));
    for headers in [vec![page], vec![page, ("x-forwarded-host", "a.example")], vec![page, name], vec![name]] {
        assert_eq!(get(&hub, CARD, &headers).await.status, 421, "{headers:?}");
    }
}

#[tokio::test]
async fn strangers_are_not_believed() {
    for config in [open(), behind_a_proxy("10.0.0.0/8")] {
        let hub = Running::start(config).await;
        let own = format!("{}/agents/conformance", hub.url);
        for header in [("x-forwarded-host", "localhost"), ("forwarded", "host=localhost;proto=https")] {
            assert_eq!(get(&hub, CARD, &[header]).await.url(), own);
            assert_eq!(get(&hub, CARD, &[("host", "evil.example"), header]).await.status, 421);
        }
    }
}

#[tokio::test]
async fn a_public_url_wins() {
    let public_url = Some("https://public.example/x/".parse().unwrap());
    let hub = Running::start(Config { public_url, ..behind_a_proxy("127.0.0.1") }).await;
    for headers in [vec![], vec![("x-forwarded-host", "a.example"), ("x-forwarded-proto", "http")]] {
        let answer = get(&hub, CARD, &headers).await;
        assert_eq!(answer.url(), "https://public.example/x/agents/conformance");
        assert_eq!(answer.header("vary"), "", "nobody decides about it");
    }
}

#[tokio::test]
async fn each_card_is_signed_by_every_key() {
    let file = |name, algorithm| key("signed", name, algorithm);
    let card_keys = vec![
        CardKey { file: file("es.pem", &rcgen::PKCS_ECDSA_P256_SHA256), kid: Some("old".to_owned()) },
        CardKey { file: file("ed.pem", &rcgen::PKCS_ED25519), kid: None },
    ];
    let public_url = Some("https://public.example/x".parse().unwrap());
    let direct = Config { card_keys, ..open() };
    let behind =
        Config { public_url, trusted_proxies: behind_a_proxy("127.0.0.1").trusted_proxies, ..direct.clone() };
    assert_eq!(direct.validate(), []);
    assert_eq!(behind.validate(), []);
    let direct = Running::start(direct).await;
    let own = direct.url.clone();
    are_signed(&direct, &[], &own).await;
    let behind = Running::start(behind).await;
    for headers in [&[][..], &[("forwarded", "host=evil.example")], &[("x-forwarded-proto", "http")]] {
        are_signed(&behind, headers, "https://public.example/x").await;
    }
}

/// Both cards are for this base, whatever the headers say, and signed by every key that is published.
async fn are_signed(hub: &Running, headers: &[(&str, &str)], base: &str) {
    let jwks = get(hub, "/.well-known/jwks.json", &[]).await;
    assert_eq!((jwks.status, jwks.header("content-type")), (200, "application/json"));
    assert!(jwks.header("cache-control").contains("max-age="), "{:?}", jwks.headers);
    let known = get(hub, "/.well-known/jwks.json", &[("if-none-match", jwks.header("etag"))]).await;
    assert_eq!(known.status, 304);
    let kids: Vec<_> = jwks.json["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
    assert_eq!(kids[0], "old");
    assert_eq!(kids[1].as_str().unwrap().len(), 43, "a thumbprint");
    for key in jwks.json["keys"].as_array().unwrap() {
        assert!(key.get("d").is_none(), "the private half stays here");
    }

    let public = get(hub, CARD, headers).await.json;
    let extended = extended(hub, headers).await;
    assert!(extended["description"].as_str().unwrap().contains("extended"), "{extended}");
    for card in [&public, &extended] {
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("{base}/agents/conformance"));
        for key in jwks.json["keys"].as_array().unwrap() {
            let trusted = TrustedKeys::from_jwks(key).unwrap();
            let verified = verify_card(card, &trusted).unwrap();
            assert_eq!(verified.kid, key["kid"].as_str().unwrap());
        }
        for signature in card["signatures"].as_array().unwrap() {
            assert_eq!(header_of(signature)["jku"], format!("{base}/.well-known/jwks.json"));
        }
        let mut forged = card.clone();
        forged["supportedInterfaces"][0]["url"] = json!("https://evil.example");
        assert!(verify_card(&forged, &TrustedKeys::from_jwks(&jwks.json).unwrap()).is_err());
    }
}

#[tokio::test]
async fn each_base_has_its_own_validators() {
    let hub = Running::start(behind_a_proxy("127.0.0.1")).await;
    let mut seen = Vec::new();
    for headers in [
        vec![],
        vec![("forwarded", "host=a.example;proto=https")],
        vec![("x-forwarded-host", "b.example"), ("x-forwarded-prefix", "/x")],
    ] {
        let card = get(&hub, CARD, &headers).await;
        seen.push((headers, card));
    }
    for (headers, card) in &seen {
        for (name, value, status) in [
            ("if-none-match", card.header("etag"), 304),
            ("if-modified-since", card.header("last-modified"), 304),
            ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT", 200),
            ("if-none-match", seen[0].1.header("etag"), if headers.is_empty() { 304 } else { 200 }),
        ] {
            let again = get(&hub, CARD, &[&headers[..], &[(name, value)]].concat()).await;
            assert_eq!(again.status, status, "REQ-183: {headers:?} {name} {value}");
        }
    }
}

async fn extended(hub: &Running, headers: &[(&str, &str)]) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard" });
    let mut request = client().post(format!("{}/agents/conformance", hub.url)).body(call.to_string());
    for (name, value) in [("content-type", "application/json"), ("a2a-version", "1.0")].iter().chain(headers)
    {
        request = request.header(*name, *value);
    }
    read(request).await.json["result"].clone()
}

#[tokio::test]
async fn without_keys_nothing_is_signed() {
    let hub = Running::start(config()).await;
    assert_eq!(get(&hub, CARD, &[]).await.json.get("signatures"), None);
    assert_eq!(get(&hub, "/.well-known/jwks.json", &[]).await.status, 404);
}

#[tokio::test]
async fn keys_that_are_wrong_are_told_at_the_start() {
    let directory = directory("wrong-keys");
    let good = key("wrong-keys", "good.pem", &rcgen::PKCS_ED25519);
    let other = key("wrong-keys", "p384.pem", &rcgen::PKCS_ECDSA_P384_SHA384);
    let text = directory.join("text.pem");
    fs::write(&text, "nothing").unwrap();
    let key = |file: &PathBuf| CardKey { file: file.clone(), kid: Some("k".to_owned()) };
    for (card_keys, words) in [
        (vec![key(&directory.join("nope.pem"))], ["--card-key", "nope.pem", "cannot read it"]),
        (vec![key(&text)], ["--card-key", "text.pem", "openssl genpkey"]),
        (vec![key(&other)], ["--card-key", "p384.pem", "P-256"]),
        (vec![key(&good), key(&good)], ["--card-key", "good.pem", "--card-kid"]),
    ] {
        let error = format!("{:#}", Hub::bind(Config { card_keys, ..config() }).await.unwrap_err());
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error:?}");
        }
    }
}

#[tokio::test]
async fn the_old_place_of_cards_can_be_closed() {
    let old = "/agents/echo/.well-known/agent.json";
    let hub = Running::start(config()).await;
    let answer = get(&hub, old, &[]).await;
    assert_eq!((answer.status, answer.header("deprecation")), (200, "true"));
    let hub = Running::start(Config { legacy_card: false, ..config() }).await;
    assert_eq!(get(&hub, old, &[]).await.status, 404);
}

#[tokio::test]
async fn head_is_get_without_the_body_by_either_http() {
    let hub = Running::start(config()).await;
    let clients = [client(), reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap()];
    for client in clients {
        for path in [CARD, "/agents/conformance", "/agents/nobody", "/healthz"] {
            let ask = |method| client.request(method, format!("{}{path}", hub.url)).send();
            let full = within("the answer", ask(reqwest::Method::GET)).await.unwrap();
            let head = within("the answer", ask(reqwest::Method::HEAD)).await.unwrap();
            assert_eq!(head.status(), full.status(), "{path}");
            let length = |answer: &reqwest::Response| answer.headers().get("content-length").cloned();
            let said = length(&head);
            let got = full.bytes().await.unwrap().len();
            assert_eq!(said.as_ref().and_then(|said| said.to_str().ok()), Some(&*got.to_string()), "{path}");
            assert_eq!(head.bytes().await.unwrap().len(), 0, "{path}");
        }
    }
}
