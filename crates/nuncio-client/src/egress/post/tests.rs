//! Webhooks on real sockets, with names as the tests have them: no name is looked up outside.

use std::{
    io,
    net::IpAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use reqwest::dns::Resolve as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::egress::{
    guard::{AddressKind, Policy},
    resolve::{Lookup, Resolver},
};

/// Longer than any test takes: one that waits for it fails.
const LONG: Duration = Duration::from_secs(60);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Names whose answers come in turn, the last one for ever; and how often anybody asked.
fn names(answers: &[&str]) -> (Lookup, Arc<AtomicUsize>) {
    let answers: Vec<Vec<SocketAddr>> = answers
        .iter()
        .map(|answer| {
            answer.split_whitespace().map(|text| (text.parse::<IpAddr>().unwrap(), 0).into()).collect()
        })
        .collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_| {
        let turn = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let answer = Ok(answers[turn].clone());
        Box::pin(async move { answer })
    });
    (lookup, asked)
}

/// Only this address of loopback: it plays the public one.
fn only(address: &str) -> Policy {
    Policy { allow: vec![format!("{address}/32").parse().unwrap()], ..Policy::default() }
}

fn egress(policy: Policy, answers: &[&str]) -> (Egress, Arc<AtomicUsize>) {
    let (lookup, asked) = names(answers);
    (Egress::builder().guarded(policy).lookup(lookup).build().unwrap(), asked)
}

/// A server that answers each connection with these bytes after one request, and then, if `holds`, goes on
/// sending nothing. It tells of each connection.
async fn server(answer: impl Into<Vec<u8>>, holds: bool) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, tell) = mpsc::unbounded_channel();
    let answer: Arc<[u8]> = answer.into().into();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head(&mut stream).await;
            let _ = told.send(head);
            // The other end may have read enough.
            let _ = stream.write_all(&answer).await;
            if holds {
                open.push(stream);
            }
        }
    });
    (port, tell)
}

/// Reads a request of ours, or the beginning of TLS.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"ping") && !bytes.starts_with(&[0x16]) {
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn post(egress: &Egress, url: &str, deadline: Duration) -> Result<Posted, PostError> {
    egress.post(&Url::parse(url).unwrap(), HeaderMap::new(), Bytes::from_static(b"ping"), deadline).await
}

fn resolved(outcome: Result<Posted, PostError>) -> AddressKind {
    match outcome.unwrap_err().kind {
        PostErrorKind::Blocked(Refusal::Resolved { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn names_of_inner_addresses_are_refused_at_connect_time() {
    for (answer, expected) in [
        ("127.0.0.1", AddressKind::Loopback),
        ("::1", AddressKind::Loopback),
        ("::ffff:127.0.0.1", AddressKind::Loopback),
        ("64:ff9b::7f00:1", AddressKind::Loopback),
        ("0.0.0.0", AddressKind::Unspecified),
        ("10.0.0.1", AddressKind::Private),
        ("100.64.0.1", AddressKind::Private),
        ("fd12::1", AddressKind::Private),
        ("169.254.169.254", AddressKind::Metadata),
        ("fd00:ec2::254", AddressKind::Metadata),
        ("fe80::1", AddressKind::LinkLocal),
        ("2002:7f00:1::", AddressKind::Transition),
        ("2001:db8::1", AddressKind::Documentation),
        // One bad address spoils the name, wherever it stands.
        ("8.8.8.8 127.0.0.1", AddressKind::Loopback),
        ("127.0.0.1 8.8.8.8", AddressKind::Loopback),
        ("2606:4700::1111 8.8.8.8 10.0.0.1", AddressKind::Private),
    ] {
        let (egress, asked) = egress(Policy::default(), &[answer]);
        // By its text there is nothing wrong with it.
        assert_eq!(Policy::default().check(&Url::parse("https://hooks.example/").unwrap()), Ok(()));
        let outcome = post(&egress, "https://hooks.example/secret-path?k=secret", LONG).await;
        let text = outcome.as_ref().unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "it is not allowed to post to https://hooks.example: hooks.example resolves to {expected}"
            )
        );
        assert_eq!((resolved(outcome), asked.load(Ordering::SeqCst)), (expected, 1), "{answer}");
    }
}

/// The owner of a name decides how many addresses it has. If each were tried, one notification would connect to
/// hundreds of strangers.
#[tokio::test]
async fn of_a_name_with_many_addresses_a_few_of_each_family_are_tried() {
    let many: Vec<_> =
        (1..=200).map(|i| format!("8.8.4.{i}")).chain((1..=200).map(|i| format!("2606:4700::{i}"))).collect();
    let many = many.join(" ");
    let spoilt = format!("{many} 10.0.0.1");
    let (lookup, _) = names(&[&many, &spoilt]);
    let resolver = Resolver::new(Policy::default(), lookup);
    let name = || "hooks.example".parse().unwrap();
    let tried: Vec<_> = resolver.resolve(name()).await.unwrap().collect();
    let old: Vec<_> = tried.iter().filter(|address| address.is_ipv4()).collect();
    assert_eq!((old.len(), tried.len()), (8, 16));
    assert_eq!(old[0].to_string(), "8.8.4.1:0", "in their order");
    assert!(resolver.resolve(name()).await.is_err(), "and yet all are judged");
}

#[tokio::test]
async fn literals_are_refused_before_anything_is_sent() {
    let (port, mut connections) = server(OK, false).await;
    let (egress, asked) = egress(Policy::default(), &["8.8.8.8"]);
    for host in ["127.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]", "localhost", "localhost."] {
        let error = post(&egress, &format!("http://{host}:{port}/"), LONG).await.unwrap_err();
        let blocked = matches!(error.kind, PostErrorKind::Blocked(Refusal::Address { .. }));
        assert!(blocked, "{host}: {error:?}");
    }
    assert!(connections.try_recv().is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// Rebinding: the answer that was judged is the one that is used, and the next connection asks and judges again.
#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let (port, mut connections) = server(OK, false).await;
    let (egress, asked) = egress(only("127.0.0.1"), &["127.0.0.1", "127.0.0.2"]);
    let url = format!("http://hooks.example:{port}/");
    let posted = post(&egress, &url, LONG).await.unwrap();
    assert_eq!(posted.remote.unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one lookup for one connection");
    let head = connections.recv().await.unwrap();
    assert!(head.contains(&format!("host: hooks.example:{port}\r\n")), "{head}");
    assert_eq!(resolved(post(&egress, &url, LONG).await), AddressKind::Loopback);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(connections.try_recv().is_err());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (port, mut inner) = server(OK, false).await;
    for code in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {code} Elsewhere\r\nlocation: http://127.0.0.1:{port}/\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"
        );
        let (outer, _connections) = server(answer, false).await;
        let (egress, _) = egress(only("127.0.0.1"), &["127.0.0.1"]);
        let posted = post(&egress, &format!("http://hooks.example:{outer}/"), LONG).await.unwrap();
        assert_eq!(posted.status.as_u16(), code);
        assert_eq!(posted.retry_after(), Some(Duration::from_secs(7)));
    }
    assert!(inner.try_recv().is_err());
}

#[tokio::test]
async fn what_goes_wrong_has_a_kind() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (silent, _silence) = server("", true).await;
    let (hangs_up, _) = server("", false).await;
    let (garbage, _) = server("SSH-2.0-OpenSSH_9.2\r\n\r\n", false).await;
    let no_name: Lookup = Arc::new(|_| Box::pin(async { Err(io::Error::other("no such name")) }));
    let no_name = Egress::builder().guarded(Policy::default()).lookup(no_name).build().unwrap();
    let (empty, _) = egress(Policy::default(), &[""]);
    let (here, _) = egress(only("127.0.0.1"), &["127.0.0.1"]);
    for (egress, url, expected) in [
        (&no_name, "https://hooks.example/".to_owned(), PostErrorKind::Dns),
        (&empty, "https://hooks.example/".to_owned(), PostErrorKind::Dns),
        (&here, format!("http://hooks.example:{closed}/"), PostErrorKind::Connect),
        (&here, format!("https://hooks.example:{garbage}/"), PostErrorKind::Tls),
        (&here, format!("http://hooks.example:{garbage}/"), PostErrorKind::Broke),
        (&here, format!("http://hooks.example:{hangs_up}/"), PostErrorKind::Broke),
        (&here, "ftp://hooks.example/".to_owned(), PostErrorKind::Blocked(Refusal::Scheme("ftp".into()))),
        (&here, format!("http://hooks.example:{silent}/"), PostErrorKind::Timeout),
    ] {
        // Where nothing comes, there is nothing but time to wait for.
        if expected == PostErrorKind::Timeout {
            tokio::time::pause();
        }
        let error = post(egress, &url, LONG).await.unwrap_err();
        assert_eq!(error.kind, expected, "{url}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_ends_with_the_deadline() {
    let hangs: Lookup = Arc::new(|_| Box::pin(std::future::pending()));
    let egress = Egress::builder().guarded(Policy::default()).lookup(hangs).build().unwrap();
    let error = post(&egress, "https://hooks.example/", Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(error.kind, PostErrorKind::Timeout);
    assert_eq!(error.to_string(), "no answer from https://hooks.example: the deadline has passed");
}

/// The body has no end; if it were read, the test would have none either.
#[tokio::test]
async fn of_a_huge_answer_only_the_beginning_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let flood = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let (egress, _) = egress(only("127.0.0.1"), &["127.0.0.1"]);
    let posted = post(&egress, &format!("http://hooks.example:{port}/"), LONG).await.unwrap();
    assert_eq!((posted.status, posted.excerpt), (StatusCode::OK, Bytes::from(vec![b'x'; MAX_EXCERPT])));
    // And the connection is gone.
    tokio::time::timeout(LONG, flood).await.unwrap().unwrap();
}

/// The clock stands still unless nothing else can happen.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_though_its_rest_never_comes() {
    let (port, _open) = server("HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nplease w", true).await;
    let (cut, _) = server("HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\nbecause", false).await;
    let (egress, _) = egress(only("127.0.0.1"), &["127.0.0.1"]);
    let deadline = Duration::from_secs(3);
    for (port, expected, waited) in [(port, "503 please w", deadline), (cut, "500 because", Duration::ZERO)] {
        let begin = Instant::now();
        let posted = post(&egress, &format!("http://hooks.example:{port}/"), deadline).await.unwrap();
        let told = format!("{} {}", posted.status.as_u16(), String::from_utf8_lossy(&posted.excerpt));
        assert_eq!((&*told, begin.elapsed().as_secs()), (expected, waited.as_secs()));
    }
}

#[tokio::test]
async fn connections_are_kept_with_a_bounded_number_of_hosts() {
    tokio::time::pause();
    let (kept, deadline) = (OpenHosts::default(), Duration::from_secs(10));
    let admits =
        |host: usize| kept.admits(&Url::parse(&format!("https://h{host}.example/{host}")).unwrap(), deadline);
    assert!((0..MAX_OPEN_HOSTS).all(admits));
    assert!(!admits(MAX_OPEN_HOSTS));
    tokio::time::advance(Duration::from_secs(9)).await;
    // One that is there already stays, and stays longer.
    assert!(admits(7));
    tokio::time::advance(Duration::from_secs(7)).await;
    // All others have been closed by now.
    assert!((MAX_OPEN_HOSTS..2 * MAX_OPEN_HOSTS - 1).all(admits));
    assert!(admits(7));
    assert!(!admits(0));
}

/// In a process of its own: this one's environment cannot be changed.
#[test]
fn the_proxy_of_the_environment_is_not_for_callers() {
    let name = "egress::post::tests::in_an_environment_with_a_proxy";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--ignored", "--nocapture"]);
    // Nothing listens on port 1.
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(variable, "http://127.0.0.1:1");
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "run by the_proxy_of_the_environment_is_not_for_callers"]
async fn in_an_environment_with_a_proxy() {
    let (port, mut connections) = server(OK, false).await;
    let url = format!("http://hooks.example:{port}/");
    // What the operator gave goes to the proxy, who is not there.
    let error = post(&Egress::operator().unwrap(), &url, LONG).await.unwrap_err();
    assert_eq!(error.kind, PostErrorKind::Connect);
    let (egress, asked) = egress(only("127.0.0.1"), &["127.0.0.1"]);
    assert_eq!(post(&egress, &url, LONG).await.unwrap().status, StatusCode::OK);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(connections.recv().await.is_some());
}
