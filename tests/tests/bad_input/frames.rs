//! HTTP/2 that is none, byte by byte. A frame is a length of three bytes, a type, flags and the number of a
//! stream; headers are written as literals, so that no table is needed (RFC 7541, 6.2.2).

use std::net::SocketAddr;

use nuncio_protocol::{op::Op, pb};
use nuncio_tests::{
    http2::{frame as message, rpc},
    within,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::Victim;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    assert!(name.len() < 127 && value.len() < 127, "longer ones need another form");
    [vec![0], text(name), text(value)].concat()
}

/// The head of a call.
fn head(address: SocketAddr, path: &str) -> Vec<u8> {
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", &address.to_string()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    headers.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

/// A connection that has begun well.
async fn connect(victim: &Victim) -> TcpStream {
    let mut stream = TcpStream::connect(victim.server.address).await.unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// The next frame: type, flags, stream, payload. `None` when the connection has ended.
async fn read(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    within("a frame", stream.read_exact(&mut head)).await.ok()?;
    let [a, b, c, kind, flags, stream_id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    within("a payload", stream.read_exact(&mut payload)).await.ok()?;
    Some((kind, flags, u32::from_be_bytes(stream_id), payload))
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_rules_end_the_connection_and_nothing_else() {
    let victim = Victim::new().await;
    let address = victim.server.address;
    let path = rpc(&pb::CODEC, Op::GetTask);
    let head = head(address, &path);
    let begun = frame(HEADERS, END_HEADERS, 1, &head);
    let with = |more: &[u8]| frame(HEADERS, END_HEADERS, 1, &[&*head, more].concat());
    for (what, bytes) in [
        ("noise", (0..1000_u32).map(|i| (i * 7919 % 251) as u8).collect()),
        ("all ones", vec![0xff; 1000]),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        ("a frame that is too large", frame(DATA, 0, 1, &vec![0; 20_000])),
        ("data on no stream", frame(DATA, 0, 0, b"x")),
        ("data on a stream that is not open", frame(DATA, 0, 5, b"x")),
        ("headers on no stream", frame(HEADERS, END_HEADERS, 0, &head)),
        ("headers on a stream of the server's", frame(HEADERS, END_HEADERS, 2, &head)),
        ("headers that cannot be read", frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff, 0xff, 0xff])),
        ("an upper case name", with(&literal("X-Upper", "x"))),
        ("an unknown pseudo header", with(&literal(":odd", "x"))),
        ("a header that is no text", with(&[0, 1, b'x', 1, 0x0a])),
        ("an index that is not there", frame(HEADERS, END_HEADERS, 1, &[0xfe])),
        ("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &head)),
        (
            "something else than the continuation",
            [frame(HEADERS, 0, 1, &head), frame(PING, 0, 0, &[0; 8])].concat(),
        ),
        ("a reset of a stream that is not open", frame(RST_STREAM, 0, 7, &[0, 0, 0, 8])),
        ("a reset of the wrong length", [begun.clone(), frame(RST_STREAM, 0, 1, &[0])].concat()),
        ("settings of the wrong length", frame(SETTINGS, 0, 0, &[0])),
        ("settings on a stream", frame(SETTINGS, 0, 1, &[])),
        ("a setting out of range", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])),
        (
            "a promise, which only servers make",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2], &*head].concat()),
        ),
        ("a ping of the wrong length", frame(PING, 0, 0, &[0])),
        ("a ping on a stream", frame(PING, 0, 1, &[0; 8])),
        ("a window of nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window without end", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a goodbye on a stream", frame(GOAWAY, 0, 1, &[0; 8])),
        (
            "a stream number that goes back",
            [frame(HEADERS, END_HEADERS, 5, &head), frame(HEADERS, END_HEADERS, 3, &head)].concat(),
        ),
    ] {
        let mut stream = connect(&victim).await;
        // The server may close before all of it is written.
        let _ = stream.write_all(&bytes).await;
        let mut seen = Vec::new();
        while let Some((kind, ..)) = read(&mut stream).await {
            seen.push(kind);
        }
        assert!(seen.contains(&GOAWAY), "{what}: it says why and closes: {seen:?}");
    }
    victim.still_works().await;
}

/// Malformed requests in good frames: the stream ends, or is answered, and the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_request_ends_its_stream_only() {
    let victim = Victim::new().await;
    let address = victim.server.address;
    let path = rpc(&pb::CODEC, Op::GetTask);
    let good = head(address, &path);
    let line = |name: &str, value: &str| literal(name, value);
    for (what, payload) in [
        ("no method", good[line(":method", "POST").len()..].to_vec()),
        ("a header of the connection", [&*good, &line("connection", "close")].concat()),
        ("a pseudo header at the end", [&*good, &line(":path", "/")].concat()),
        ("a length that is not true", [&*good, &line("content-length", "7")].concat()),
        ("a length that is none", [&*good, &line("content-length", "x")].concat()),
        (
            "a path that is none",
            [line(":method", "POST"), line(":scheme", "http"), line(":path", "")].concat(),
        ),
    ] {
        let mut stream = connect(&victim).await;
        stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &payload)).await.unwrap();
        let call = [frame(HEADERS, END_HEADERS, 3, &good), frame(DATA, END_STREAM, 3, &message(&[]))];
        stream.write_all(&call.concat()).await.unwrap();
        let mut first = None;
        loop {
            let Some((kind, flags, id, _)) = read(&mut stream).await else {
                panic!("{what}: the connection has ended");
            };
            match (kind, id) {
                (RST_STREAM | HEADERS, 1) => first = first.or(Some(kind)),
                (HEADERS, 3) if flags & END_STREAM != 0 => break,
                (GOAWAY, _) => panic!("{what}: the connection is ended"),
                _ => {}
            }
        }
        assert!(first.is_some(), "{what}: told about it");
    }
    victim.still_works().await;
}

/// A caller that says goodbye still gets the answers to what it has asked.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_goodbye_what_was_asked_is_answered() {
    let victim = Victim::new().await;
    let path = rpc(&pb::CODEC, Op::GetTask);
    let head = head(victim.server.address, &path);
    let mut stream = connect(&victim).await;
    let asked = [frame(HEADERS, END_HEADERS, 1, &head), frame(GOAWAY, 0, 0, &[0; 8])];
    stream.write_all(&asked.concat()).await.unwrap();
    // The rest of the request comes after the goodbye.
    stream.write_all(&frame(DATA, END_STREAM, 1, &message(&[]))).await.unwrap();
    let mut is_answered = false;
    while let Some((kind, flags, id, _)) = read(&mut stream).await {
        is_answered |= kind == HEADERS && id == 1 && flags & END_STREAM != 0;
    }
    assert!(is_answered, "and then the server closes the connection");
    victim.still_works().await;
}

/// Headers without end: refused at a bound, not gathered.
#[tokio::test(flavor = "multi_thread")]
async fn headers_without_end_are_refused() {
    let victim = Victim::new().await;
    let path = rpc(&pb::CODEC, Op::GetTask);
    let head = head(victim.server.address, &path);
    let filler: Vec<u8> = (0..100).flat_map(|i| literal(&format!("x-{i}"), &"y".repeat(100))).collect();
    let mut stream = connect(&victim).await;
    stream.write_all(&frame(HEADERS, 0, 1, &head)).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let more = frame(CONTINUATION, 0, 1, &filler);
    // Nobody ends this but the server.
    let writing = async { while writer.write_all(&more).await.is_ok() {} };
    let mut answer = Vec::new();
    let reading = async { reader.read_to_end(&mut answer).await };
    within("the end of the connection", async {
        tokio::select! {
            () = writing => {}
            _ = reading => {}
        }
    })
    .await;
    victim.still_works().await;
}
