//! Another caller's latency while sixteen callers send the largest and worst bodies there are, to a hub with little
//! memory, in both of its own stores.
//!
//! Hub and callers share all cores. The bodies are made once, each attacker is a thread with blocking sockets that
//! throws its answers away, and the other caller has a thread of its own: attackers cost little beside the hub.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use hdrhistogram::Histogram;

use crate::{
    Args,
    http1::Connection,
    process::{self, ControlGroup},
    report::Report,
    request::{Template, Wire, text},
    server::{Server, Subject},
};

const MIB: usize = 1 << 20;

/// The number of attackers.
const ATTACKERS: usize = 16;

/// A body just below the default limit.
const BODY_BYTES: usize = 16 * MIB - 4096;

/// The memory of the hub's container. Its own limit is three quarters of it, as by default.
const CONTAINER_BYTES: usize = 1024 * MIB;

/// The pause of the other caller between two sends.
const SEND_INTERVAL: Duration = Duration::from_millis(5);

/// The target of the other caller's 99th percentile.
const TARGET_MS: f64 = 100.0;

/// The stores, in the order of the table.
const SUBJECTS: [Subject; 2] = [Subject::Nuncio, Subject::Sqlite];

/// Answers to attackers.
#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    refused: AtomicU64,
}

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs_f64((args.seconds * scale).max(1.0));
    let requests: Arc<Vec<Vec<u8>>> = Arc::new((0..KINDS.len()).map(request).collect());
    let mut table = format!(
        "| small send beside {ATTACKERS} attackers, {:.0} s | p50 alone | p99 alone | p50 | p99 | sends | large \
         taken | refused | peak of the hub |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        duration.as_secs_f64()
    );
    for subject in SUBJECTS {
        let server = Server::start_limited(subject, CONTAINER_BYTES / 4 * 3)?;
        let container = ControlGroup::around(server.pid(), CONTAINER_BYTES);
        if container.is_none() {
            eprintln!("no control group could be made here; the hub's own limit counts alone");
        }
        let alone = small_sends(&server, &AtomicBool::new(false), Duration::from_secs(1)).await?;
        let (over, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|number| {
                let (address, requests) = (server.address.clone(), Arc::clone(&requests));
                let (over, counts) = (Arc::clone(&over), Arc::clone(&counts));
                thread::spawn(move || attack(&address, &requests, number, &over, &counts))
            })
            .collect();
        let attacked = small_sends(&server, &over, duration).await;
        over.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.join().map_err(|_| anyhow!("an attacker panicked"))??;
        }
        let attacked = attacked?;
        let ms = |latency: &Histogram<u64>, quantile| latency.value_at_quantile(quantile) as f64 / 1000.0;
        write!(
            table,
            "\n| {subject} | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} ms (< {TARGET_MS}) | {} | {} | {} | {} MiB (< {}) |",
            ms(&alone, 0.5),
            ms(&alone, 0.99),
            ms(&attacked, 0.5),
            ms(&attacked, 0.99),
            attacked.len(),
            counts.taken.load(Ordering::Relaxed),
            counts.refused.load(Ordering::Relaxed),
            process::peak(server.pid())? as usize / MIB,
            CONTAINER_BYTES / MIB,
        )?;
    }
    report.table(table);
    Ok(())
}

/// Sends small messages one after the other; gives their latencies in microseconds.
async fn small_sends(server: &Server, over: &AtomicBool, duration: Duration) -> Result<Histogram<u64>> {
    let mut latency = Histogram::new_with_bounds(1, 60_000_000, 3)?;
    let mut template = Template::send(server.path, Wire::JsonRpcV1, &text("echo ", 256), false)?;
    let mut connection = Connection::open(&server.address).await?;
    let (end, mut number) = (Instant::now() + duration, 0);
    while Instant::now() < end && !over.load(Ordering::Relaxed) {
        number += 1;
        let start = Instant::now();
        connection.call(template.fill(number)).await?;
        latency.saturating_record(start.elapsed().as_micros() as u64);
        tokio::time::sleep(SEND_INTERVAL).await;
    }
    Ok(latency)
}

/// Kinds of messages: the element that is repeated, and the text before and after the list.
const KINDS: [(&str, &str, &str); 5] = [
    (r#"{"":0},"#, r#""parts":[{"data":["#, "0]}]"),
    (r#"{"text":""},"#, r#""parts":["#, r#"{"text":""}]"#),
    (r#""","#, r#""parts":[{"text":"x"}],"extensions":["#, r#"""]"#),
    ("[0],", r#""parts":[{"text":"x"}],"metadata":{"list":["#, "0]}"),
    ("xxxxxxxx", r#""parts":[{"text":""#, r#""}]"#),
];

/// A whole request whose message repeats an element. Some are refused for the number of their elements, some are taken.
fn request(kind: usize) -> Vec<u8> {
    let (element, before, after) = KINDS[kind];
    let list = element.repeat((BODY_BYTES - 400) / element.len());
    let message = format!(r#"{{"messageId":"m","role":"ROLE_USER",{before}{list}{after}}}"#);
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{message}}}}}"#);
    let head = format!(
        "POST /agents/echo HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

/// Sends one body after the other until it is over.
fn attack(
    address: &str,
    requests: &[Vec<u8>],
    first: usize,
    over: &AtomicBool,
    counts: &Counts,
) -> Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    for kind in first.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        match exchange(address, &requests[kind % requests.len()], &mut buffer)? {
            200 | 413 => counts.taken.fetch_add(1, Ordering::Relaxed),
            429 => counts.refused.fetch_add(1, Ordering::Relaxed),
            other => bail!("an attacker was answered with the status {other}"),
        };
    }
    Ok(())
}

/// One request on a connection of its own; gives the status of the answer, which is read to its end.
fn exchange(address: &str, request: &[u8], buffer: &mut [u8]) -> Result<u16> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request)?;
    let mut head = Vec::new();
    loop {
        match stream.read(buffer)? {
            0 => break,
            some if head.len() < 12 => head.extend_from_slice(&buffer[..some.min(64)]),
            _ => {}
        }
    }
    let status = head.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).context("an answer without a status")
}
