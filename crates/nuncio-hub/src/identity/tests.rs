//! Callers that are admitted or refused, and the security schemes on cards.

use std::net::Ipv4Addr;

use axum::{
    body::{Body, Bytes},
    response::IntoResponse as _,
};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use jsonwebtoken::Algorithm;
use nuncio_protocol::SecurityScheme;
use nuncio_server::store::MemoryStore;

use super::{
    issuer::tests::{Pair, Server, seconds},
    *,
};
use crate::target::{RouteAccess, Target};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn identity(
    anonymous: Anonymous,
    jwt: Vec<config::Issuer>,
    on_loopback: bool,
) -> (Arc<Authenticator>, crate::trail::TrailWriter) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(10));
    let (trail, writer) = Trail::new(&store);
    let config = config::Identity { anonymous, jwt, ..config::Identity::default() };
    (Authenticator::open(&config, &store, trail, on_loopback).await.unwrap(), writer)
}

fn issuer() -> config::Issuer {
    config::Issuer {
        issuer: "https://login.example.com".to_owned(),
        audience: vec!["nuncio".to_owned()],
        jwks_url: None,
        algorithms: vec![config::Algorithm::EdDSA],
        principal_claim: "sub".to_owned(),
        tenant_claim: None,
        agents_claim: None,
        operations_claim: None,
        allow: None,
        operations: None,
    }
}

fn headers(sent: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The principal, `-` for the anonymous caller, or how it is refused.
async fn who(identity: &Authenticator, sent: &[(&'static str, &str)]) -> String {
    who_at(identity, sent, Peer::new(PEER, LOOPBACK)).await
}

async fn who_at(identity: &Authenticator, sent: &[(&'static str, &str)], peer: Peer) -> String {
    match identity.find(&Uri::from_static("/"), &headers(sent), &peer, || false).await {
        Ok(known) => known.caller.principal().map_or("-".to_owned(), ToString::to_string),
        Err(AuthRefusal::Missing) => "missing".to_owned(),
        Err(AuthRefusal::Foreign) => "foreign".to_owned(),
        Err(AuthRefusal::Invalid(why)) => why.to_owned(),
        Err(AuthRefusal::MailboxKey(mailbox)) => format!("mailbox {mailbox}"),
        Err(AuthRefusal::TooMany(_)) => "too many".to_owned(),
        Err(AuthRefusal::Unavailable) => "unavailable".to_owned(),
    }
}

#[tokio::test]
async fn who_gets_in_without_showing_anything() {
    // mode, an issuer, on loopback, a key: gets in
    use Anonymous::{Always, Loopback, Never};
    for (anonymous, has_issuer, on_loopback, has_key, expected) in [
        (Loopback, false, true, false, "-"),
        (Loopback, false, true, true, "missing"),
        (Loopback, true, true, false, "missing"),
        (Loopback, false, false, false, "missing"),
        (Always, false, false, true, "-"),
        (Always, true, true, true, "-"),
        (Never, false, true, false, "missing"),
    ] {
        let issuers = if has_issuer { vec![issuer()] } else { Vec::new() };
        let (identity, _writer) = identity(anonymous, issuers, on_loopback).await;
        if has_key {
            identity.keyring().create(NewApiKey::named("a")).await.unwrap();
        }
        let case = format!("{anonymous:?} {has_issuer} {on_loopback} {has_key}");
        assert_eq!(who(&identity, &[]).await, expected, "{case}");
        let mut card = AgentCard::new("a", "b");
        identity.declare(&mut card, false);
        assert_eq!(card.security_requirements.is_empty(), expected == "-", "{case}: the card says the same");
    }
}

/// The holder of a mailbox's key learns why it calls nothing; a wrong key learns nothing.
#[tokio::test]
async fn the_key_of_a_mailbox_calls_no_agent() {
    let (identity, _writer) = identity(Anonymous::Loopback, Vec::new(), true).await;
    let (_, key) = identity.mailbox_keys().create(NewApiKey::named("coder")).await.unwrap();
    assert_eq!(who(&identity, &[("x-api-key", key.reveal())]).await, "mailbox coder");
    let (error, challenge) = layer::told(&AuthRefusal::MailboxKey("coder".to_owned()));
    assert!(error.message().starts_with("this key opens the mailbox coder and calls no agent"), "{error}");
    assert!(challenge.is_some_and(|challenge| challenge.contains("invalid_token")));
    identity.mailbox_keys().delete("coder").await.unwrap();
    assert_eq!(who(&identity, &[("x-api-key", key.reveal())]).await, NO_CREDENTIALS);
}

/// Loopback means that the caller is on this machine, not only that the connection is.
#[tokio::test]
async fn a_caller_elsewhere_is_nobody_on_loopback() {
    let forwarded = &[("x-forwarded-for", "203.0.113.7")][..];
    for (anonymous, sent, peer, expected) in [
        (Anonymous::Loopback, &[][..], LOOPBACK, "-"),
        (Anonymous::Loopback, forwarded, LOOPBACK, "foreign"),
        (Anonymous::Loopback, &[("host", "agents.example.com")], LOOPBACK, "foreign"),
        (Anonymous::Loopback, &[], PEER, "foreign"),
        (Anonymous::Loopback, &[("x-real-ip", "203.0.113.7"), ("x-api-key", "x")], LOOPBACK, NO_CREDENTIALS),
        (Anonymous::Never, forwarded, LOOPBACK, "missing"),
        (Anonymous::Always, forwarded, PEER, "-"),
    ] {
        let (identity, _writer) = identity(anonymous, Vec::new(), true).await;
        let found = who_at(&identity, sent, Peer::new(peer, peer)).await;
        assert_eq!(found, expected, "{anonymous:?} {sent:?} {peer}");
    }
}

#[tokio::test]
async fn what_is_shown_is_looked_at_wherever_it_stands() {
    let (identity, _writer) = identity(Anonymous::Always, Vec::new(), true).await;
    for sent in [("authorization", "Bearer x"), ("x-api-key", "x"), ("authorization", "Bearer a.b.c")] {
        assert_eq!(
            who(&identity, &[sent]).await,
            NO_CREDENTIALS,
            "{sent:?}: credentials are always verified"
        );
    }
    let for_agent = headers(&[("authorization", "Basic eDp5")]);
    let found = identity.find(&Uri::from_static("/"), &for_agent, &Peer::new(PEER, LOOPBACK), || true).await;
    assert!(found.is_ok_and(|known| known.caller.principal().is_none()), "the agent judges them");
    let (_, text) = identity.keyring().create(NewApiKey::named("a")).await.unwrap();
    let (_, other) = identity.keyring().create(NewApiKey::named("b")).await.unwrap();
    let [key, other] = [text.reveal(), other.reveal()];
    let (bearer, cut) = (format!("Bearer {key}"), format!("Bearer {}", &key[..60]));
    let unknown = format!("Bearer {}", KeyText::new("k3v9x0a1b2c4").unwrap().reveal());
    for (sent, expected) in [
        (&[("authorization", &*bearer)][..], "a"),
        (&[("authorization", &format!("bEARER   {key} "))], "a"),
        (&[("x-api-key", key)], "a"),
        (&[("x-api-key", key), ("authorization", &bearer)], "a"),
        (&[("x-api-key", other), ("authorization", &bearer)], "expected an API key or a bearer token"),
        (&[("x-api-key", other), ("x-api-key", key)], "expected an API key or a bearer token"),
        (&[("authorization", "Basic YTpi")], "expected an API key or a bearer token"),
        (&[("authorization", key)], "expected an API key or a bearer token"),
        (&[("authorization", "Bearer x")], "there is no such key"),
        (&[("authorization", "Bearer a.b.c")], "there is no such key"),
        (&[("authorization", &cut)], "the key is mistyped or cut off"),
        (&[("authorization", &unknown)], "there is no such key"),
        (&[], "-"),
    ] {
        assert_eq!(who(&identity, sent).await, expected, "{sent:?}");
    }
}

#[tokio::test]
async fn who_is_wrong_too_often_waits_and_who_is_right_does_not() {
    let (identity, mut writer) = identity(Anonymous::Never, Vec::new(), true).await;
    let (_, text) = identity.keyring().create(NewApiKey::named("a")).await.unwrap();
    let mut tries = 0;
    while who(&identity, &[("x-api-key", "wrong")]).await != "too many" {
        tries += 1;
        assert!(tries <= 60, "docs/operating.md says so");
    }
    assert_eq!(tries, 60);
    assert_eq!(who(&identity, &[("x-api-key", text.reveal())]).await, "a", "right ones always pass");
    assert_eq!(
        who(&identity, &[("x-api-key", "wrong")]).await,
        "too many",
        "and open nothing for wrong ones"
    );
    assert_eq!(who(&identity, &[]).await, "missing", "no attempt");
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));
    let right = who_at(&identity, &[("x-api-key", text.reveal())], Peer::new(elsewhere, elsewhere)).await;
    assert_eq!(right, "a");
    let trail = identity.trail().clone();
    tokio::select! {
        never = writer.run() => match never {},
        () = async { while trail.page(None, 10).await.unwrap().len() < 2 { tokio::task::yield_now().await } } => {}
    }
    writer.close().await;
    let rows = trail.page(None, 10).await.unwrap();
    let rows: Vec<_> = rows.iter().map(|(_, row)| (row.what, row.peer, row.count)).collect();
    assert_eq!(
        rows,
        [(What::AttemptsLimited, Some(PEER), 2), (What::CredentialsRefused, Some(PEER), tries)],
        "a row each, with a count"
    );
}

#[tokio::test]
async fn cards_say_what_has_to_be_shown() {
    let mut second = issuer();
    second.issuer = "https://other.example.com".to_owned();
    second.jwks_url = Some("https://other.example.com/keys".parse().unwrap());
    let (identity, _writer) = identity(Anonymous::Loopback, vec![issuer(), second], true).await;
    let mut card = AgentCard::new("a", "b");
    card.security_schemes.insert("theirs".to_owned(), SecurityScheme::MutualTls(Default::default()));
    identity.declare(&mut card, false);
    let names: Vec<_> = card.security_schemes.keys().collect();
    assert_eq!(names, ["apiKey", "bearer", "oidc", "oidc2"]);
    let required: Vec<_> =
        card.security_requirements.iter().flat_map(|required| required.schemes.keys()).collect();
    assert_eq!(required, ["bearer", "apiKey", "oidc", "oidc2"], "any of them");
    let json = serde_json::to_value(&card).unwrap();
    assert_eq!(
        json["securitySchemes"]["oidc"]["openIdConnectSecurityScheme"]["openIdConnectUrl"],
        "https://login.example.com/.well-known/openid-configuration"
    );
    assert_eq!(json["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"], "X-API-Key");
}

#[tokio::test]
async fn a_change_of_keys_is_told() {
    let (identity, _writer) = identity(Anonymous::Loopback, Vec::new(), true).await;
    let mut changes = identity.changes();
    let limits = ApiKeyLimits { streams: Some(2), ..ApiKeyLimits::default() };
    identity.keyring().create(NewApiKey { limits, ..NewApiKey::named("a") }).await.unwrap();
    changes.next().await;
    let who = |key: &ApiKey| CallerId::from(key);
    let keys = identity.keyring().list();
    assert_eq!(identity.limits(), HashMap::from([(who(&keys[0].0), limits)]));
}

/// The stream at the path `/stream` of a hub, opened with this credential.
async fn open(identity: &Arc<Authenticator>, shown: &str) -> Body {
    let endless = |_| async {
        let event = futures_util::stream::iter([Ok::<_, std::io::Error>("data: x\n\n")]);
        let events = event.chain(futures_util::stream::pending());
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
    };
    let target = Target::new(0, RouteAccess::Caller, false, None);
    let request = http::Request::get("/stream").header("x-api-key", shown).body(Body::empty()).unwrap();
    let response = identify(identity, target, false, |_, _| Judge::Hub, Box::new(request), endless).await;
    assert_eq!(response.status(), http::StatusCode::OK);
    response.into_body()
}

/// The length of a stream that ends in good order; `None` if it is still open after two days.
async fn read(stream: Body) -> Option<usize> {
    let read = tokio::time::timeout(2 * DAY, stream.collect()).await;
    read.ok().map(|body| body.unwrap().to_bytes().len())
}

async fn stream(identity: &Arc<Authenticator>, shown: &str) -> Option<usize> {
    read(open(identity, shown).await).await
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_key_expires() {
    let (identity, _writer) = identity(Anonymous::Never, Vec::new(), true).await;
    let new = NewApiKey { expires: Some(clock::later(clock::now(), DAY)), ..NewApiKey::named("a") };
    let (_, expiring) = identity.keyring().create(new).await.unwrap();
    let (_, lasting) = identity.keyring().create(NewApiKey::named("b")).await.unwrap();
    let replaced = lasting.reveal().to_owned();
    assert_eq!(stream(&identity, expiring.reveal()).await, Some(9), "in good order, after what was sent");
    assert_eq!(stream(&identity, &replaced).await, None, "it goes on");
    let overlap = Duration::from_secs(60);
    let (_, newer) = identity.keyring().rotate("b", overlap).await.unwrap();
    assert_eq!(stream(&identity, &replaced).await, Some(9), "no longer than the key is taken");
    assert_eq!(stream(&identity, newer.reveal()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_stream_that_ends_with_its_key_has_trailers() {
    let (identity, _writer) = identity(Anonymous::Never, Vec::new(), true).await;
    let new = NewApiKey { expires: Some(clock::later(clock::now(), DAY)), ..NewApiKey::named("a") };
    let (_, key) = identity.keyring().create(new).await.unwrap();
    let mut own = HeaderMap::new();
    own.insert("grpc-status", HeaderValue::from_static("0"));
    for (ends, status) in [(false, "16"), (true, "0")] {
        let trailers = own.clone();
        let serve = move |_| async move {
            let frames = [Frame::data(Bytes::from_static(b"message")), Frame::trailers(trailers)];
            let frames = frames.into_iter().take(if ends { 2 } else { 1 }).map(Ok::<_, std::io::Error>);
            let pending = futures_util::stream::pending();
            let body = StreamBody::new(futures_util::stream::iter(frames).chain(pending));
            ([(header::CONTENT_TYPE, "application/grpc")], Body::new(body)).into_response()
        };
        let request = http::Request::post("/stream").header("x-api-key", key.reveal());
        let request = Box::new(request.body(Body::empty()).unwrap());
        let target = Target::new(0, RouteAccess::Caller, false, None);
        let response = identify(&identity, target, false, |_, _| Judge::Hub, request, serve).await;
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], status);
        assert_eq!(body.to_bytes(), "message");
    }
}

/// The outcome of an open stream when its key changes.
#[tokio::test(start_paused = true)]
async fn an_open_stream_ends_with_the_secret_that_it_was_asked_for_by() {
    let (identity, _writer) = identity(Anonymous::Never, Vec::new(), true).await;
    let keyring = identity.keyring();
    for change in ["nothing", "another", "rotated", "rotated-twice", "revoked", "deleted"] {
        let (_, key) = keyring.create(NewApiKey::named(change)).await.unwrap();
        let stream = tokio::spawn(read(open(&identity, key.reveal()).await));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let lasts = match change {
            "nothing" => None,
            "another" => {
                keyring.create(NewApiKey::named("somebody-else")).await.unwrap();
                None
            }
            "rotated" => {
                keyring.rotate(change, DAY).await.unwrap();
                Some(DAY)
            }
            "rotated-twice" => {
                keyring.rotate(change, DAY).await.unwrap();
                keyring.rotate(change, DAY).await.unwrap();
                Some(Duration::ZERO)
            }
            "revoked" => {
                keyring.revoke(change).await.unwrap();
                Some(Duration::ZERO)
            }
            _ => {
                keyring.delete(change).await.unwrap();
                Some(Duration::ZERO)
            }
        };
        assert_eq!(stream.await.unwrap(), lasts.map(|_| 9), "{change}");
        // The clock of the test stands still but for this; that of the key does not.
        let hours = |time: Duration| (time.as_secs() + 1800) / 3600;
        assert_eq!(hours(begun.elapsed()), hours(lasts.unwrap_or(2 * DAY)), "{change}");
    }
}

/// A token is valid until it expires, and as long as its issuer is trusted.
#[tokio::test]
async fn an_open_stream_ends_with_its_token_or_the_issuer() {
    let pair = Pair::new("ed", Algorithm::EdDSA);
    let server = Server::start(&[&pair]).await;
    let (settings, other) = (server.settings(), issuer());
    let config = |jwt| config::Identity { anonymous: Anonymous::Never, jwt, ..config::Identity::default() };
    let day = pair.sign(&server.claims(|claims| claims["exp"] = (seconds() + DAY.as_secs()).into()));
    let year = pair.sign(&server.claims(|claims| claims["exp"] = (seconds() + 365 * DAY.as_secs()).into()));
    let stricter = config::Issuer { audience: vec!["others".to_owned()], ..settings.clone() };
    for (name, token, then, ends) in [
        ("it expires", &day, vec![settings.clone()], true),
        ("it does not", &year, vec![settings.clone()], false),
        ("its issuer stays", &year, vec![other.clone(), settings.clone()], false),
        ("its issuer goes", &year, vec![other], true),
        ("its issuer changes", &year, vec![stricter], true),
    ] {
        let (identity, _writer) = identity(Anonymous::Never, vec![settings.clone()], true).await;
        // Before the clock stands still: the keys of the issuer come over a socket.
        let stream = open(&identity, token).await;
        tokio::time::pause();
        let stream = tokio::spawn(read(stream));
        tokio::task::yield_now().await;
        identity.configure(&config(then)).unwrap();
        assert_eq!(stream.await.unwrap(), ends.then_some(9), "{name}");
        tokio::time::resume();
    }
}

#[test]
fn what_is_for_one_caller_is_not_for_caches_of_others() {
    for (said, expected) in [
        (None, "private"),
        (Some("public, max-age=300"), "private, max-age=300"),
        (Some("s-maxage=9, no-transform"), "private, no-transform"),
        (Some("no-cache"), "private, no-cache"),
        (Some("private, no-cache"), "private, no-cache"),
        (Some("no-store"), "no-store"),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(said) = said {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(said));
        }
        layer::for_this_caller(&mut headers);
        assert_eq!(headers[header::CACHE_CONTROL], expected, "{said:?}");
        assert_eq!(headers[header::VARY], "authorization, x-api-key");
    }
}
