//! Connections before their first request and after their last.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nuncio_hub::config::{Config, Connections};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

use crate::{NEVER, Running, SHORT_TIMEOUT, ask, config, impatient, until_closed, within};

/// The beginning of HTTP/2, and settings without a wish.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    // It was kept for ever, and with it one of the connections that may be open.
    let hub = Running::start(config()).await;
    let mut silent = hub.connect().await;
    // Paused time leaps while sockets are still at work, so an hour is given minute by minute.
    for _ in 0..60 {
        if let Ok(read) = tokio::time::timeout(Duration::from_secs(60), silent.read_u8()).await {
            assert!(read.is_err(), "closed by the hub, without a word");
            return;
        }
    }
    panic!("still open after an hour");
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_waited_for() {
    // Long enough for a request to arrive in time on a busy machine.
    let hub = Running::start(impatient(10 * SHORT_TIMEOUT, NEVER)).await;
    let begins = ["G", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"];
    let check = async |begin: &str, is_first: bool| {
        let mut stream = hub.connect().await;
        if !is_first {
            ask(&mut stream).await;
        }
        stream.write_all(begin.as_bytes()).await.unwrap();
        assert_eq!(until_closed(&mut stream).await, b"", "{begin:?}");
    };
    let checks = begins.iter().flat_map(|begin| [check(begin, true), check(begin, false)]);
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn http_2_without_a_request_is_closed() {
    let hub = Running::start(impatient(SHORT_TIMEOUT, NEVER)).await;
    for begin in [PREFACE, &PREFACE[..10], &PREFACE[..24]] {
        let mut stream = hub.connect().await;
        stream.write_all(begin).await.unwrap();
        until_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let hub = Running::start(impatient(NEVER, SHORT_TIMEOUT)).await;
    let mut stream = hub.connect().await;
    ask(&mut stream).await;
    assert_eq!(until_closed(&mut stream).await, b"");

    let (sender, connection) = asked_by_http2(&hub).await;
    within("the end of the connection", connection).await.unwrap().unwrap();
    assert!(sender.is_closed());
}

type Sender = hyper::client::conn::http2::SendRequest<Empty<bytes::Bytes>>;

/// A connection of HTTP/2 on which a request was answered, and its end.
async fn asked_by_http2(hub: &Running) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(hub.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("{}/healthz", hub.url)).body(Empty::new()).unwrap();
    let response = within("the answer", sender.send_request(request)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok\n");
    (sender, connection)
}

fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Nothing is said on it for long, but it is not idle.
#[tokio::test]
async fn a_connection_with_a_stream_is_not_idle() {
    let hub = Running::start(impatient(NEVER, SHORT_TIMEOUT)).await;
    let client = || reqwest::Client::builder().no_proxy();
    for client in [client().http1_only(), client().http2_prior_knowledge()] {
        let client = client.build().unwrap();
        let post = |body: String| {
            let url = format!("{}/agents/echo", hub.url);
            let request = client.post(url).header("content-type", "application/json");
            request.header("a2a-version", "1.0").body(body).send()
        };
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hold" }] });
        let stream = post(call("SendStreamingMessage", &json!({ "message": message })));
        let mut stream = within("the stream", stream).await.unwrap();
        let mut seen = String::new();
        while !seen.contains("TASK_STATE_WORKING") {
            let bytes = within("an event", stream.chunk()).await.unwrap().unwrap();
            seen.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        // Its time would have come several times by now.
        for _ in 0..5 {
            let mut other = hub.connect().await;
            ask(&mut other).await;
            until_closed(&mut other).await;
        }
        let first = seen.lines().find_map(|line| line.strip_prefix("data:")).unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        let id = &first["result"]["task"]["id"];
        let canceled = within("the answer", post(call("CancelTask", &json!({ "id": id })))).await.unwrap();
        assert_eq!(canceled.status(), 200);
        while let Some(bytes) = within("the end of the stream", stream.chunk()).await.unwrap() {
            seen.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(seen.contains("TASK_STATE_CANCELED"), "{seen}");
    }
}

#[tokio::test]
async fn who_reads_nothing_is_cut() {
    let connections = Connections { write_timeout: SHORT_TIMEOUT, ..impatient(NEVER, NEVER).connections };
    let hub = Running::start(Config { connections, ..config() }).await;
    let mut stream = hub.connect().await;
    // Ever more is asked until there is no room for answers, and in turn none for questions.
    let asks =
        async { while stream.write_all(b"GET /agents HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {} };
    within("the end of the connection", asks).await;
}

#[tokio::test]
async fn http_2_learns_its_bounds() {
    let connections = Connections { max_streams: 7, ..Connections::default() };
    let hub = Running::start(Config { connections, ..config() }).await;
    let mut stream = hub.connect().await;
    stream.write_all(PREFACE).await.unwrap();
    let mut head = [0; 9];
    within("a frame", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[3], 4, "settings come first");
    let mut settings = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    within("the settings", stream.read_exact(&mut settings)).await.unwrap();
    let setting = |id: u8| {
        let found = settings.chunks(6).find(|setting| setting[..2] == [0, id])?;
        Some(u32::from_be_bytes(found[2..].try_into().unwrap()))
    };
    assert_eq!((setting(3), setting(6)), (Some(7), Some(32 * 1024)), "streams, bytes of headers");
}

#[tokio::test]
async fn heads_of_http_1_are_bounded() {
    let hub = Running::start(config()).await;
    for (bytes, is_taken) in [(32 * 1024, true), (200 * 1024, false)] {
        let mut stream = hub.connect().await;
        let head = format!(
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: {}\r\n\r\n",
            "x".repeat(bytes)
        );
        // It may be closed before all is sent, and what it said is lost then.
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = until_closed(&mut stream).await;
        assert_eq!(answer.starts_with(b"HTTP/1.1 200"), is_taken, "{bytes}");
        assert!(is_taken || answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{bytes}");
    }
}

#[tokio::test]
async fn at_the_end_idle_connections_are_closed() {
    let hub = Running::start(config()).await;
    let (mut used, mut silent): (TcpStream, _) = (hub.connect().await, hub.connect().await);
    ask(&mut used).await;
    let (sender, connection) = asked_by_http2(&hub).await;
    hub.stop.send(()).unwrap();
    assert_eq!(until_closed(&mut used).await, b"");
    assert_eq!(until_closed(&mut silent).await, b"");
    within("the end of the connection", connection).await.unwrap().unwrap();
    assert!(sender.is_closed());
    within("the end", hub.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn there_is_room_for_so_many_connections() {
    let connections = Connections { max: 1, ..Connections::default() };
    let hub = Running::start(Config { connections, ..config() }).await;
    let (mut first, mut second) = (hub.connect().await, hub.connect().await);
    ask(&mut first).await;
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    // Were there room for the second, it could be answered before the first asks again and again.
    for _ in 0..100 {
        ask(&mut first).await;
    }
    assert!(second.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    drop(first);
    assert!(until_closed(&mut second).await.starts_with(b"HTTP/1.1 200 OK"));
}

/// Of two host names, a proxy before us could have believed the other one.
#[tokio::test]
async fn a_request_with_two_hosts_is_refused() {
    let hub = Running::start(config()).await;
    for (hosts, expected) in [
        ("host: localhost\r\n", "HTTP/1.1 200"),
        ("host: localhost\r\nHost: localhost\r\n", "HTTP/1.1 400"),
        ("host: localhost\r\nhost: evil.example\r\n", "HTTP/1.1 400"),
        ("host: evil.example\r\nhost: localhost\r\n", "HTTP/1.1 400"),
    ] {
        let mut stream = hub.connect().await;
        let head = format!("GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = String::from_utf8(until_closed(&mut stream).await).unwrap();
        assert!(answer.starts_with(expected), "{hosts:?}: {answer}");
    }
}
