//! Trust in an agent's card, and the credentials of the hub.

use axum::{Json, Router, routing::post};
use http::HeaderMap;
use serde_json::json;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

use super::*;
use crate::config::{Auth, ClientIdentity, OAuth2, Trust};

const DONE: &str = "completed | user: two | a \"xy\"";

impl Folder {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[tokio::test]
async fn callers_who_are_known_see_the_extended_card_if_the_operator_wants_it() {
    for (extended, extended_card) in [(true, true), (true, false), (false, true)] {
        let peer = Peer::start(Manners { extended, wants: BEARER, renames: true, ..Manners::good() }).await;
        let mut wanted = Upstream { extended_card, ..settings(&peer.url) };
        wanted.auth.credential = Some(Credential::Bearer(Secret::new("t0ken")));
        let hub = hub(wanted).await;
        let is_there = extended && extended_card;
        let declared = hub.agent.shown().card.capabilities.extended_agent_card == Some(true);
        assert_eq!(declared, is_there);
        let get = async |caller: Option<&str>| {
            let caller = caller.map_or_else(nuncio_protocol::Caller::anonymous, |name| {
                nuncio_protocol::Caller::authenticated(name)
            });
            let cx = CallContext { caller, ..CallContext::default() };
            hub.harness.runtime.get_extended_agent_card(&cx, Default::default()).await
        };
        if !is_there {
            assert_eq!(get(Some("ann")).await.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
            continue;
        }
        assert_eq!(get(None).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
        for caller in ["ann", "bob"] {
            let card = get(Some(caller)).await.unwrap();
            assert_eq!(card.description, "A peer, and more.");
            assert_eq!(card.supported_interfaces, hub.agent.shown().card.supported_interfaces, "ours");
        }
        assert_eq!(peer.count(&[Op::GetExtendedAgentCard]), 1, "kept for a while");
        peer.go_down();
        assert!(get(Some("ann")).await.is_ok());
    }
}

#[tokio::test]
async fn a_card_may_be_a_file() {
    let (folder, peer) = (Folder::new(), Peer::start(Manners::good()).await);
    let known = hub(settings(&peer.url)).await.agent.upstream().unwrap().card().unwrap();
    let elsewhere = Peer::start(Manners { card_at: Some("/nowhere"), ..Manners::good() }).await;
    let file = folder.write("card.json", &known.to_string());
    let card = Some(CardSource::File(file.clone()));
    // Where it is called is what the card says.
    let hub = hub(Upstream { card, ..settings(&elsewhere.url) }).await;
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), DONE);
    assert_eq!((peer.sends(), elsewhere.sends()), (1, 0));
    std::fs::write(file, "{").unwrap();
    assert!(hub.agent.upstream().unwrap().refresh(&hub.agent).await.is_err(), "it is said");
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), DONE, "the last good one counts");
}

/// The keys and their policy, the seed by which the card is signed, and whether it is believed.
#[tokio::test]
async fn signatures_mean_what_the_operator_wants() {
    let folder = Folder::new();
    let jwks = json!({ "keys": [peer::key(1).jwk()] }).to_string();
    let keys = vec![folder.write("keys.json", &jwks)];
    let ignore = Trust::default();
    let verify = Trust { keys: keys.clone(), require: false };
    let require = Trust { keys, require: true };
    for (trust, signs, is_believed) in [
        (&ignore, None, true),
        (&ignore, Some(1), true),
        (&ignore, Some(2), true),
        (&verify, None, true),
        (&verify, Some(1), true),
        (&verify, Some(2), false),
        (&require, None, false),
        (&require, Some(1), true),
        (&require, Some(2), false),
    ] {
        let peer = Peer::start(Manners { signs, ..Manners::good() }).await;
        let hub = hub(Upstream { trust: trust.clone(), ..settings(&peer.url) }).await;
        let about = format!("{trust:?} {signs:?}");
        assert_eq!(hub.health().condition == Condition::Up, is_believed, "{about}: {:?}", hub.health());
        assert_eq!(hub.agent.shown().card.description == "A peer.", is_believed, "{about}");
        assert_eq!(hub.agent.upstream().unwrap().card().is_some(), is_believed, "{about}");
        match hub.harness.task("two").await {
            Ok(task) => assert_eq!((&*summary(&task), is_believed), (DONE, true), "{about}"),
            Err(error) => assert_eq!((error.kind(), is_believed), (ErrorKind::Unavailable, false), "{about}"),
        }
    }
    let peer = Peer::start(Manners::good()).await;
    let trust = Trust { keys: Vec::new(), require: true };
    let error =
        Link::open("a", Upstream { trust, ..settings(&peer.url) }, Arc::default(), Default::default());
    let error = error.err().unwrap();
    assert!(error.to_string().contains("no key is trusted"), "{error}");
}

/// Every header by which somebody may show who they are.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "x-api-key", "x-key"];

/// A configured credential, and the headers that the agent gets.
pub(in crate::agents) fn shown() -> [(Auth, Shown); 5] {
    let basic = Credential::Basic { user: "hub".to_owned(), password: Secret::new("p:ss") };
    let bearer = Credential::Bearer(Secret::new("t0ken"));
    let header = ("x-key".parse().unwrap(), Secret::new("k3y"));
    let both = Auth {
        credential: Some(bearer.clone()),
        headers: vec![header.clone(), ("x-api-key".parse().unwrap(), Secret::new("other"))],
        ..Auth::default()
    };
    [
        (Auth::default(), &[]),
        (Auth { credential: Some(basic), ..Auth::default() }, &[("authorization", "Basic aHViOnA6c3M=")]),
        (Auth { credential: Some(bearer), ..Auth::default() }, BEARER),
        (Auth { headers: vec![header], ..Auth::default() }, &[("x-key", "k3y")]),
        (both, &[("authorization", "Bearer t0ken"), ("x-api-key", "other"), ("x-key", "k3y")]),
    ]
}

type Shown = &'static [(&'static str, &'static str)];

/// The credentials in these headers.
pub(in crate::agents) fn seen(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let values =
        |name: &'static str| headers.get_all(name).iter().map(move |value| (name, value.to_str().unwrap()));
    CREDENTIALS.into_iter().flat_map(values).collect()
}

#[tokio::test]
async fn what_the_hub_shows_goes_with_the_card_and_with_every_call() {
    for (auth, wants) in shown() {
        for version in [Version::V1_0, Version::V0_3] {
            for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
                let manners = Manners { wants, only: Some((version, binding)), ..Manners::good() };
                let peer = Peer::start(manners).await;
                // Neither where others look for secrets.
                let wanted = Upstream { auth: auth.clone(), ..settings(&peer.url) };
                let said = format!("{wanted:?}");
                assert!(["p:ss", "t0ken", "k3y"].iter().all(|secret| !said.contains(secret)), "{said}");
                let hub = hub(wanted).await;
                assert_eq!(
                    summary(&hub.harness.task("two").await.unwrap()),
                    DONE,
                    "{wants:?} {version} {binding:?}"
                );
                let requests = peer.state.requests.lock().clone();
                let is_card = |(path, _): &&(String, HeaderMap)| path.starts_with("/.well-known");
                let cards = requests.iter().filter(is_card).count();
                assert!(cards > 0 && requests.len() > cards, "{requests:?}");
                for (path, headers) in &requests {
                    assert_eq!(seen(headers), wants, "{path} {version} {binding:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn tokens_are_asked_for_where_they_are_made_and_used_until_they_end() {
    let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let make = async move |body: String| {
        noted.lock().unwrap().push(body);
        Json(json!({ "access_token": "t0ken", "token_type": "Bearer", "expires_in": 3600 }))
    };
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let token_url = Url::parse(&format!("http://{}/token", socket.local_addr().unwrap())).unwrap();
    tokio::spawn(async move { axum::serve(socket, Router::new().route("/token", post(make))).await });
    let peer = Peer::start(Manners { wants: BEARER, ..Manners::good() }).await;
    let mut wanted = settings(&peer.url);
    wanted.auth.credential = Some(Credential::OAuth2(OAuth2 {
        token_url,
        client_id: "hub".to_owned(),
        client_secret: Secret::new("s3cret"),
        scopes: vec!["read".to_owned(), "write".to_owned()],
        audience: Some("peer".to_owned()),
    }));
    assert!(!format!("{wanted:?}").contains("s3cret"));
    let hub = hub(wanted).await;
    for _ in 0..2 {
        assert_eq!(summary(&hub.harness.task("two").await.unwrap()), DONE);
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    for said in ["grant_type=client_credentials", "scope=read+write", "audience=peer"] {
        assert!(asked[0].contains(said), "{asked:?}");
    }
}

/// TLS in front of a peer: clients without this certificate are refused.
async fn tls_before(folder: &Folder, client: &str) -> (String, TcpListener, TlsAcceptor) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    folder.write("ca.pem", &own.cert.pem());
    let mut roots = RootCertStore::empty();
    roots
        .add(tokio_rustls::rustls::pki_types::CertificateDer::from_pem_slice(client.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", socket.local_addr().unwrap());
    (base, socket, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_certificate_proves_who_the_hub_is() {
    let folder = Folder::new();
    let own = rcgen::generate_simple_self_signed(["hub.example".to_owned()]).unwrap();
    let (cert, key) = (
        folder.write("cert.pem", &own.cert.pem()),
        folder.write("key.pem", &own.signing_key.serialize_pem()),
    );
    let (base, socket, acceptor) = tls_before(&folder, &own.cert.pem()).await;
    let peer = Peer::start(Manners { base: Some(base.clone()), ..Manners::good() }).await;
    let plain = peer.url.socket_addrs(|| None).unwrap()[0];
    tokio::spawn(async move {
        loop {
            let (stream, _) = socket.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(stream).await?;
                let mut inside = tokio::net::TcpStream::connect(plain).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    let mut wanted = settings(&Url::parse(&base).unwrap());
    wanted.auth.authorities = vec![folder.0.join("ca.pem")];
    let stranger = hub(wanted.clone()).await;
    assert_ne!(stranger.health().condition, Condition::Up);
    assert_eq!(stranger.harness.task("two").await.unwrap_err().kind(), ErrorKind::Unavailable);
    wanted.auth.identity = Some(ClientIdentity { cert, key });
    let hub = hub(wanted).await;
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), DONE);
    assert_eq!(peer.sends(), 1);
}
