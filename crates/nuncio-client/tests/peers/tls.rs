//! TLS: authorities of one's own, and peers that ask who we are.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use nuncio_client::{
    Egress, EgressBuilder, TlsError,
    protocol::{ErrorKind, TaskState},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::peer::{Peer, builder, card, json_answer, result, task};

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str) -> Pair {
        self.issue_with(name, |_| {})
    }

    fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Lets in only those who show a certificate of this authority.
    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap()
    }
}

/// The clients that a peer accepts.
#[derive(Clone, Copy)]
enum Asks<'a> {
    Nothing,
    Certificate(&'a Authority),
}

struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    async fn bind(authority: &Authority, asks: Asks<'_>) -> Self {
        Self::with(&authority.issue("localhost"), asks).await
    }

    async fn with(pair: &Pair, asks: Asks<'_>) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let verifier = match asks {
            Asks::Nothing => WebPkiClientVerifier::no_client_auth(),
            Asks::Certificate(authority) => authority.verifier(),
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    fn base(&self) -> String {
        format!("https://localhost:{}", self.tcp.local_addr().unwrap().port())
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            match self.acceptor.accept(stream).into_fallible().await {
                Ok(stream) => return (stream, address),
                // Closed only when the other end has closed: unread bytes would make it a reset, and the
                // other end might not see the alert.
                Err((_, mut stream)) => {
                    let _ = stream.shutdown().await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// An agent on TLS.
async fn agent(authority: &Authority, asks: Asks<'_>) -> Peer {
    let listener = TlsListener::bind(authority, asks).await;
    Peer::serve(listener.base(), listener, |asked| match &*asked.path {
        "/rpc" => result(asked, &task("TASK_STATE_COMPLETED")),
        _ => json_answer(&card(&asked.base, &[])),
    })
}

fn trusting(authority: &Authority) -> EgressBuilder {
    Egress::builder().root_certificates(authority.pem().as_bytes()).unwrap()
}

fn identified(egress: EgressBuilder, pair: &Pair) -> Egress {
    egress.client_identity(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap().build().unwrap()
}

#[tokio::test]
async fn an_authority_of_ones_own_has_to_be_added() {
    let authority = Authority::new("ours");
    let peer = agent(&authority, Asks::Nothing).await;
    let error = builder().connect(&peer.base).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().starts_with("the certificate of localhost:"), "{error}");
    let reason = "is not trusted: its issuer is unknown; if you trust its issuer, or it is self-signed, name its file \
                  with --ca (auth.ca in nuncio.toml)";
    assert!(error.message().ends_with(reason), "{error}");
    // A trusted authority of the same name is not the issuer.
    let namesake = trusting(&Authority::new("ours")).build().unwrap();
    let error = builder().egress(namesake).connect(&peer.base).await.unwrap_err();
    let reason =
        "is not trusted: no trusted issuer has signed it; if you trust its issuer, or it is self-signed, ";
    assert!(error.message().contains(reason), "{error}");
    let other = trusting(&Authority::new("another")).build().unwrap();
    assert!(builder().egress(other).connect(&peer.base).await.is_err());

    let client = builder().egress(trusting(&authority).build().unwrap()).connect(&peer.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_refused_with_the_reason() {
    let authority = Authority::new("ours");
    type Change = fn(&mut CertificateParams);
    let cases: [(&str, Change, &str); 5] = [
        ("localhost", |params| params.not_after = date_time_ymd(2001, 1, 1), "it has expired; replace it"),
        ("localhost", |params| params.not_before = date_time_ymd(3000, 1, 1), "it is not valid yet; compare"),
        ("other.example", |_| {}, "it is for another host name; call the host by a name"),
        (
            "localhost",
            |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            "it is that of a certificate authority; make one with basicConstraints CA:FALSE",
        ),
        (
            "localhost",
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "it is not for servers; make one with extendedKeyUsage serverAuth",
        ),
    ];
    for (name, change, expected) in cases {
        let pair = authority.issue_with(name, change);
        let listener = TlsListener::with(&pair, Asks::Nothing).await;
        let peer = Peer::serve(listener.base(), listener, |asked| json_answer(&card(&asked.base, &[])));
        let egress = trusting(&authority).build().unwrap();
        let error = builder().egress(egress).connect(&peer.base).await.unwrap_err();
        assert!(error.message().contains(&format!("is not trusted: {expected}")), "{error}");
    }
}

#[tokio::test]
async fn a_peer_that_asks_for_a_certificate_gets_it() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("stranger"));
    let peer = agent(&authority, Asks::Certificate(&authority)).await;
    let egress = identified(trusting(&authority), &authority.issue("me"));
    let client = builder().egress(egress).connect(&peer.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);

    for (egress, expected) in [
        (trusting(&authority).build().unwrap(), "it asks for a client certificate, and none was shown"),
        (
            identified(trusting(&authority), &stranger.issue("me")),
            "it does not accept the client certificate",
        ),
    ] {
        let error = builder().egress(egress).connect(&peer.base).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.message().starts_with("cannot connect to https://localhost:"), "{error}");
        assert!(error.message().ends_with(expected), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_does_not_follow_a_card_to_another_origin() {
    // Lesson 10
    let authority = Authority::new("ours");
    let peer = agent(&authority, Asks::Certificate(&authority)).await;
    let listener = TlsListener::bind(&authority, Asks::Certificate(&authority)).await;
    let base = peer.base.clone();
    let directory = Peer::serve(listener.base(), listener, move |_| json_answer(&card(&base, &[])));
    let egress = identified(trusting(&authority), &authority.issue("me"));
    let client = builder().egress(egress.clone()).connect(&directory.base).await.unwrap();
    let error = client.get("t-1").await.unwrap_err();
    assert!(error.message().ends_with("and none was shown"), "{error}");
    assert!(peer.asked("/rpc").is_empty());

    let client = builder().egress(egress).allow_origin(&peer.base).connect(&directory.base).await.unwrap();
    assert_eq!(client.get("t-1").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_peer_without_tls_is_told_apart() {
    let peer = Peer::agent(&[], |asked| result(asked, &task("TASK_STATE_COMPLETED"))).await;
    let error = builder().connect(peer.base.replace("http:", "https:")).await.unwrap_err();
    assert!(error.message().ends_with("it does not seem to speak TLS; try http"), "{error}");
}

#[test]
fn certificates_and_keys_that_cannot_be_used() {
    let authority = Authority::new("ours");
    let (pair, other) = (authority.issue("me"), authority.issue("you"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let garbled = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let second = authority.pem() + broken;
    for (pem, expected) in [
        ("", "no certificate in it"),
        (&*pair.key, "no certificate in it"),
        (broken, "certificate number 1 in it cannot be read"),
        (garbled, "certificate number 1 in it cannot be read"),
        (&*second, "certificate number 2 in it cannot be read"),
    ] {
        let error = Egress::builder().root_certificates(pem.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let unusable = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (certificate, key, expected) in [
        (&*pair.key, &*pair.key, "no certificate in it"),
        (&*pair.certificate, &*pair.certificate, "no private key in it"),
        (&*pair.certificate, locked, "no private key in it"),
        (&*pair.certificate, unusable, "the private key cannot be used: "),
        (&*pair.certificate, &*other.key, "the key does not belong to the certificate"),
        (broken, &*pair.key, "certificate number 1 in it cannot be read"),
    ] {
        let error = Egress::builder().client_identity(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let error = Egress::builder().client_identity(pair.certificate.as_bytes(), other.key.as_bytes());
    assert!(matches!(error, Err(TlsError::KeyMismatch)));

    // One file may hold both.
    let both = pair.certificate + &pair.key;
    let builder = Egress::builder().client_identity(both.as_bytes(), both.as_bytes()).unwrap();
    assert_eq!(format!("{builder:?}"), "EgressBuilder { roots: 0, identity: true, policy: None }");
}
