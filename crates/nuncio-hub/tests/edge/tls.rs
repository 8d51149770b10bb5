//! TLS: both versions of HTTP by ALPN, certificates that change, and files that are wrong.

use std::{fs, path::Path, sync::Arc};

use nuncio_client::Egress;
use nuncio_hub::{
    Hub, Reload,
    config::{Config, TlsFiles},
};
use nuncio_protocol::{Binding, SendMessageResponse, TaskState, Version as A2aVersion};
use reqwest::{Certificate, Client, ClientBuilder, Version};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, pem::PemObject as _},
    },
};

use crate::{NEVER, Running, SHORT_TIMEOUT, config, directory, impatient, until_closed, within};

/// Puts a new pair into the files; gives the certificate.
fn renew(files: &TlsFiles) -> String {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(&files.cert, pair.cert.pem()).unwrap();
    fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    pair.cert.pem()
}

fn files(directory: &Path) -> TlsFiles {
    TlsFiles { cert: directory.join("cert.pem"), key: directory.join("key.pem") }
}

/// A client that trusts this certificate only.
fn trusting(cert: &str) -> ClientBuilder {
    Client::builder().no_proxy().tls_certs_only([Certificate::from_pem(cert.as_bytes()).unwrap()])
}

async fn secure(name: &str, config: Config) -> (Running, TlsFiles, String) {
    let files = files(&directory(name));
    let cert = renew(&files);
    (Running::start(Config { tls: Some(files.clone()), ..config }).await, files, cert)
}

/// The status, or why there is none.
async fn healthz(hub: &Running, client: &Client) -> Result<u16, String> {
    let response = within("the answer", client.get(format!("{}/healthz", hub.url)).send()).await;
    response.map(|response| response.status().as_u16()).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn both_versions_of_http_by_alpn() {
    let (hub, _, cert) = secure("alpn", config()).await;
    assert!(hub.url.starts_with("https://127.0.0.1:"), "{}", hub.url);
    for (client, version) in
        [(trusting(&cert), Version::HTTP_2), (trusting(&cert).http1_only(), Version::HTTP_11)]
    {
        let client = client.build().unwrap();
        let url = format!("{}/agents/echo", hub.url);
        let card = within("the card", client.get(format!("{url}/.well-known/agent-card.json")).send()).await;
        let card = card.unwrap();
        assert_eq!(card.version(), version);
        let card: Value = serde_json::from_slice(&card.bytes().await.unwrap()).unwrap();
        assert_eq!(card["url"], url, "what is served by TLS is called by https");
    }
}

/// Every binding and version by TLS on the one port, each reached through the card alone.
#[tokio::test]
async fn every_binding_is_secure() {
    let default_agent = Some("echo".to_owned());
    let (hub, _, cert) = secure("bindings", Config { default_agent, ..config() }).await;
    let egress = Egress::builder().root_certificates(cert.as_bytes()).unwrap().build().unwrap();
    for version in A2aVersion::ALL {
        for binding in Binding::ALL {
            let builder = nuncio_client::Client::builder().egress(egress.clone());
            let client =
                builder.version(*version).binding(*binding).connect(format!("{}/agents/echo", hub.url));
            let client = within("the card", client).await.unwrap();
            let SendMessageResponse::Task(task) = within("the answer", client.send("hello")).await.unwrap()
            else {
                panic!("{binding:?} {version}: expected a task");
            };
            assert_eq!(task.status.state, TaskState::Completed, "{binding:?} {version}");
        }
    }
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections() {
    let (hub, files, old) = secure("reload", config()).await;
    let certificates = hub.certificates.clone().unwrap();
    let before = trusting(&old).build().unwrap();
    assert_eq!(healthz(&hub, &before).await, Ok(200));
    assert_eq!(certificates.reload().unwrap(), Reload::Same);

    let new = renew(&files);
    assert_eq!(certificates.reload().unwrap(), Reload::Changed);
    assert_eq!(certificates.reload().unwrap(), Reload::Same);
    assert_eq!(healthz(&hub, &before).await, Ok(200), "a connection that is there stays");
    let after = trusting(&new).build().unwrap();
    assert_eq!(healthz(&hub, &after).await, Ok(200));
    let late = trusting(&old).build().unwrap();
    assert!(healthz(&hub, &late).await.unwrap_err().contains("InvalidCertificate"));
}

#[tokio::test]
async fn a_broken_pair_changes_nothing() {
    let (hub, files, cert) = secure("broken", config()).await;
    let certificates = hub.certificates.clone().unwrap();
    let good = fs::read(&files.cert).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let (cert_name, key_name) = (files.cert.display().to_string(), files.key.display().to_string());
    for (content, words) in [
        (Some("nothing"), vec!["--tls-cert", &cert_name, "BEGIN CERTIFICATE"]),
        (Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"), vec!["--tls-cert", &cert_name]),
        // Half of a pair, as it is while files are being replaced.
        (Some(&*other), vec![&*cert_name, &key_name, "the key it was made for"]),
        (None, vec!["--tls-cert", &cert_name, "cannot read it"]),
    ] {
        match content {
            Some(content) => fs::write(&files.cert, content).unwrap(),
            None => fs::remove_file(&files.cert).unwrap(),
        }
        let error = format!("{:#}", certificates.reload().unwrap_err());
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error:?}");
        }
        assert_eq!(healthz(&hub, &trusting(&cert).build().unwrap()).await, Ok(200));
    }
    fs::write(&files.cert, good).unwrap();
    certificates.reload().unwrap();
    assert_eq!(healthz(&hub, &trusting(&cert).build().unwrap()).await, Ok(200));
}

#[tokio::test]
async fn files_that_are_wrong_are_told_at_the_start() {
    let files = files(&directory("start"));
    let check = async |words: &[&str]| {
        let error =
            format!("{:#}", Hub::bind(Config { tls: Some(files.clone()), ..config() }).await.unwrap_err());
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error:?}");
        }
    };
    let (cert, key) = (files.cert.display().to_string(), files.key.display().to_string());
    check(&["--tls-cert", &cert, "cannot read it", "PEM"]).await;
    renew(&files);
    fs::copy(&files.cert, &files.key).unwrap();
    check(&["--tls-key", &key, "no private key", "BEGIN PRIVATE KEY"]).await;
    fs::remove_file(&files.key).unwrap();
    check(&["--tls-key", &key, "cannot read it"]).await;
    fs::write(&files.key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    check(&[&cert, &key, "the key it was made for"]).await;
}

#[tokio::test]
async fn plain_http_is_told_where_it_went_wrong() {
    let (hub, _, _) = secure("plain", config()).await;
    let mut stream = hub.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
    assert!(body.contains("https"), "{answer}");
}

#[tokio::test]
async fn a_handshake_that_goes_nowhere_is_not_waited_for() {
    let (hub, _, _) = secure("handshake", impatient(SHORT_TIMEOUT, NEVER)).await;
    for begin in [&b""[..], b"\x16", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n"] {
        let mut stream = hub.connect().await;
        stream.write_all(begin).await.unwrap();
        until_closed(&mut stream).await;
    }
}

/// Closed in good order: the other side can tell that nothing was cut off.
#[tokio::test]
async fn an_idle_connection_is_closed_under_tls_as_well() {
    let (hub, _, cert) = secure("idle", impatient(NEVER, SHORT_TIMEOUT)).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let mut stream = connector.connect("localhost".try_into().unwrap(), hub.connect().await).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    within("the end of the connection", stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK") && answer.ends_with(b"ok\n"), "{answer:?}");
}
