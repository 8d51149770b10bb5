//! `nuncio serve` with certificates and keys from files.

use std::fs;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, root},
    raw::Raw,
    within,
};
use reqwest::{Certificate, Client};
use serde_json::Value;

use crate::{directory, path, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_replaces_the_certificate() {
    let directory = directory("hangup");
    let (cert, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    let renew = || {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(&cert, pair.cert.pem()).unwrap();
        fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        Certificate::from_pem(pair.cert.pem().as_bytes()).unwrap()
    };
    let old = renew();
    let hub = Hub::start(&["--tls-cert", path(&cert), "--tls-key", path(&key)]).await;
    assert_eq!(hub.announced["agents"][1]["url"], hub.agent("echo"), "called by https");
    let url = format!("{}/healthz", hub.base);
    let get = async |trusted: &Certificate| {
        // A new client, because a connection that is there keeps its certificate.
        let client = Client::builder().no_proxy().tls_certs_only([trusted.clone()]).build().unwrap();
        within("an answer", client.get(&url).send()).await.ok().map(|response| response.status())
    };
    assert!(get(&old).await.is_some_and(|status| status.is_success()));

    fs::write(&cert, "no certificate").unwrap();
    hub.process.signal("HUP").await;
    hub.process.says("cannot reload the certificate; the current one stays in use").await;
    hub.process.says("BEGIN CERTIFICATE").await;
    assert!(get(&old).await.is_some());

    let new = renew();
    hub.process.signal("HUP").await;
    eventually("the new certificate", async || get(&new).await).await;
    assert!(get(&old).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_connection_is_told_in_words() {
    let directory = directory("advice");
    let (cert, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    for (is_ca, advice) in [
        (rcgen::IsCa::NoCa, None),
        (rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained), Some("basicConstraints CA:FALSE")),
    ] {
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let pair = rcgen::KeyPair::generate().unwrap();
        fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        let hub = Hub::start(&["--tls-cert", path(&cert), "--tls-key", path(&key)]).await;
        let unknown = cli(&["send", &hub.agent("echo"), "x"]).await;
        let expected = advice.unwrap_or("is not trusted: its issuer is unknown; if you trust its issuer");
        assert!(unknown.code == Some(3) && unknown.stderr.contains(expected), "{unknown:?}");
        let known = cli(&["send", &hub.agent("echo"), "x", "--ca", path(&cert)]).await;
        assert_eq!(known.code, Some(if advice.is_some() { 3 } else { 0 }), "{known:?}");
        assert!(advice.is_none_or(|words| known.stderr.contains(words)), "{known:?}");
        let jwk = directory.join("jwk.pem");
        fs::write(&jwk, pair.public_key_pem()).unwrap();
        let verify = ["card", "verify", &hub.agent("echo"), "--key", path(&jwk), "--ca", path(&cert)];
        let verified = cli(&verify).await;
        assert_eq!(verified.code, Some(if advice.is_some() { 3 } else { 6 }), "not signed: {verified:?}");
        let plain = cli(&["send", &hub.agent("echo").replace("https:", "http:"), "x"]).await;
        assert_eq!(plain.code, Some(3), "{plain:?}");
        assert!(
            plain.stderr.contains("answered 400 Bad Request: ") && plain.stderr.contains("https"),
            "{plain:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cards_are_signed_with_the_key_of_the_file() {
    let directory = directory("card-key");
    let (key, jwks) = (directory.join("key.pem"), directory.join("jwks.json"));
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let hub = Hub::start(&["--card-key", path(&key), "--card-kid", "k-1", "--no-legacy-card"]).await;
    let keys = Raw::new(&*hub.base).get("/.well-known/jwks.json", &[]).await;
    assert_eq!(text(&keys.json()["keys"][0]["kid"]), "k-1");
    fs::write(&jwks, keys.body).unwrap();
    let verified = cli(&["card", "verify", &hub.agent("echo"), "--key", path(&jwks)]).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.stdout.contains("k-1") && verified.stdout.contains("ES256"), "{verified:?}");

    // Only members of v0.3 were changed: the other signature holds, and says little about them.
    let mut card = Raw::new(hub.agent("echo")).get("/.well-known/agent-card.json", &[]).await.json();
    let file = directory.join("card.json");
    let verify = async |card: &Value| {
        fs::write(&file, card.to_string()).unwrap();
        cli(&["card", "verify", path(&file), "--key", path(&jwks)]).await
    };
    card["url"] = "https://elsewhere.example".into();
    let part = verify(&card).await;
    assert_eq!(part.code, Some(0), "{part:?}");
    assert!(part.stderr.starts_with("warning: the signature does not cover "), "{part:?}");
    assert!(part.stderr.contains("url"), "{part:?}");
    card["name"] = "other".into();
    let changed = verify(&card).await;
    assert_eq!(changed.code, Some(6), "{changed:?}");
    assert!(changed.stderr.contains("the card was changed, or this is not the key"), "{changed:?}");

    let old = Raw::new(hub.agent("echo")).get("/.well-known/agent.json", &[]).await;
    assert_eq!(old.status, 404);
}

/// As it stands in the README, but for the port and the folder: it starts, and a stranger who comes through the proxy
/// is not served.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_hub_behind_a_proxy_is_closed() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap().replace("\\\n", " ");
    let line = readme.lines().find(|line| line.starts_with("nuncio serve") && line.contains("--trust-proxy"));
    let words =
        line.unwrap().split('#').next().unwrap().split_whitespace().skip(2).filter(|word| *word != "--demo");
    let data = directory("proxied").join("nuncio.db");
    let words: Vec<_> = words.map(|word| if word == "nuncio.db" { path(&data) } else { word }).collect();
    let hub = Hub::start(&words).await;
    let raw = Raw::new(&*hub.base);
    for headers in [
        &[("x-forwarded-for", "203.0.113.7"), ("host", "agents.example.com")][..],
        &[("x-forwarded-for", "203.0.113.7")],
        &[("host", "agents.example.com")],
        // A bare `proxy_pass` says nothing at all.
        &[],
    ] {
        assert_eq!(raw.get("/agents", headers).await.status, 401, "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cards_follow_the_proxies_that_are_named() {
    let networks = ["--trust-proxy", "10.0.0.0/8", "--trust-proxy", "127.0.0.1"];
    let open = ["--allow-host", "agents.example.com", "--allow-anonymous"];
    let hub = Hub::start(&[&networks[..], &open].concat()).await;
    let headers = [("x-forwarded-proto", "https"), ("x-forwarded-host", "agents.example.com")];
    let card = Raw::new(hub.agent("echo")).get("/.well-known/agent-card.json", &headers).await;
    assert_eq!(card.json()["supportedInterfaces"][0]["url"], "https://agents.example.com/agents/echo");
}
