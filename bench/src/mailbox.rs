//! Mailboxes: the memory of tasks that wait, the time of a claim among them, and the path of a task through a worker.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use hdrhistogram::Histogram;
use nuncio_hub::config::{Agent, AgentKind, AgentOrigin, Mailbox};
use nuncio_protocol::{Message, Part, SendMessageConfiguration, SendMessageRequest, op::Call};
use serde_json::Value;
use tokio::task::LocalSet;

use crate::{
    Args,
    http1::Connection,
    load::{self, Load},
    report::{Report, median},
    request::{HOLE, Kind, Template, Wire, text},
    server::{Server, Subject},
};

/// The name of the mailbox.
const NAME: &str = "inbox";

/// Its agent, for callers.
const PATH: &str = "/agents/inbox";

/// Tasks that wait, in the long form.
const WAITING: f64 = 100_000.0;

/// Workers, and callers, at a time.
const WORKERS: usize = 16;

const SUBJECTS: [Subject; 2] = [Subject::Sqlite, Subject::Postgres];

/// The mailbox, as an agent of the server.
pub(crate) fn agent() -> Result<Agent> {
    let settings = Mailbox { max_waiting: 1_000_000, ..Mailbox::default() };
    let name = NAME.parse().map_err(|error| anyhow!("{error}"))?;
    Ok(Agent::new(name, AgentKind::Mailbox(Box::new(settings)), AgentOrigin::Flag))
}

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    for subject in SUBJECTS {
        waiting(subject, (WAITING * scale) as u64, report).await?;
    }
    let mut table =
        "| | CPU per task | × echo | tasks/s | send to answer, p50 | claim to first line stored, p50 | \
                     first line to last line stored, p50 |\n|---|--:|--:|--:|--:|--:|--:|"
            .to_owned();
    for subject in [Subject::Nuncio, Subject::Sqlite, Subject::Postgres] {
        let duration = Duration::from_secs_f64(4.0 * scale);
        let mut samples = Vec::new();
        let mut echo = Vec::new();
        let mut server = Server::start_with_mailbox(subject)?;
        for repetition in 0..args.repeat {
            let load = Load {
                kind: Kind::Send,
                wire: Wire::JsonRpcV1,
                connections: WORKERS,
                duration,
                text: 256,
                rate: None,
                keyed: false,
            };
            echo.push(load.run(&server).await?.cpu_us);
            server.path = PATH;
            let sample = Box::pin(worked(&server, duration)).await?;
            server.path = "/agents/echo";
            eprintln!("{repetition} {subject:?} {sample:?}");
            samples.push(sample);
        }
        let of = |value: fn(&Worked) -> f64| median(samples.iter().map(value)).unwrap_or_default();
        let cpu = of(|sample| sample.cpu_us);
        let beside = cpu / median(echo.into_iter()).unwrap_or(1.0);
        write!(
            table,
            "\n| {subject} | {cpu:.0} µs | {beside:.1} | {:.0} | {:.0} µs | {:.0} µs | {:.0} µs |",
            of(|sample| sample.rate),
            of(|sample| sample.answer_us),
            of(|sample| sample.first_us),
            of(|sample| sample.last_us),
        )?;
    }
    report.table(table);
    Ok(())
}

/// Fills the mailbox, and lets workers claim and finish some of it.
async fn waiting(subject: Subject, count: u64, report: &mut Report) -> Result<()> {
    let mut server = Server::start_with_mailbox(subject)?;
    // A hub that has worked: its caches and its pools are there.
    load::send(&server, 10_000).await?;
    let idle = server.rss()?;
    server.path = PATH;
    let begun = Instant::now();
    send_all(&server, count).await?;
    let filled = begun.elapsed();
    let peak = server.rss()?;
    let (alone, _) = claims(&server, 1, 500).await?;
    let (crowded, cpu) = claims(&server, WORKERS, 2_000).await?;
    let ms = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e3;
    report.note(format!(
        "{subject}: {count} tasks wait: memory grew by {:.1} MB (≤ 50), and by {:.1} MB with claims; sent in {:.0} s. A \
         claim takes {:.2} ms at the median (≤ 5) with one worker, {:.2} ms with {WORKERS}, and {:.2} ms at their 99th \
         percentile; claim and end together {cpu:.0} µs CPU",
        peak.saturating_sub(idle) as f64 / 1e6,
        server.rss()?.saturating_sub(idle) as f64 / 1e6,
        filled.as_secs_f64(),
        ms(&alone, 0.5),
        ms(&crowded, 0.5),
        ms(&crowded, 0.99),
    ));
    Ok(())
}

/// Workers that claim and finish so many tasks together: the times of the claims, and the CPU of one task.
async fn claims(server: &Server, workers: usize, count: usize) -> Result<(Histogram<u64>, f64)> {
    let (claims, local, cpu) = (shared()?, LocalSet::new(), server.cpu_ns()?);
    let each = count / workers;
    let working: Vec<_> = (0..workers)
        .map(|number| {
            let (address, claims) = (server.address.clone(), Rc::clone(&claims));
            local.spawn_local(async move {
                let mut worker = Worker::open(&address, number).await?;
                for _ in 0..each {
                    let begun = Instant::now();
                    let lease = worker.claim(0).await?.context("a turn waits")?;
                    claims.borrow_mut().saturating_record(begun.elapsed().as_micros() as u64);
                    worker.write(&lease, 1, r#"{"completed":""}"#).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    local.await;
    for working in working {
        working.await??;
    }
    let cpu = (server.cpu_ns()? - cpu) as f64 / 1e3 / (each * workers) as f64;
    let claims = claims.borrow().clone();
    Ok((claims, cpu))
}

/// The path of tasks through workers.
#[derive(Clone, Copy, Debug)]
struct Worked {
    cpu_us: f64,
    rate: f64,
    /// From the send to its answer.
    answer_us: f64,
    /// From the answer to a claim until its first line is stored.
    first_us: f64,
    /// From there until the last one is.
    last_us: f64,
}

/// Callers wait for their answers while as many workers claim, and write two lines each.
async fn worked(server: &Server, duration: Duration) -> Result<Worked> {
    let (answers, first, last) = (shared()?, shared()?, shared()?);
    let (stop, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0_u64)));
    let local = LocalSet::new();
    let mut running = Vec::new();
    for number in 0..WORKERS {
        let (address, stop) = (server.address.clone(), Rc::clone(&stop));
        let (answers, done) = (Rc::clone(&answers), Rc::clone(&done));
        running.push(local.spawn_local(async move {
            let mut caller = Connection::open(&address).await?;
            let mut send = Template::send(PATH, Wire::JsonRpcV1, &text("work ", 256), false)?;
            while !stop.get() {
                let begun = Instant::now();
                let unique = (number as u64) << 32 | done.get() << 6 | number as u64;
                caller.call(send.fill(unique)).await?;
                answers.borrow_mut().saturating_record(begun.elapsed().as_micros() as u64);
                done.set(done.get() + 1);
            }
            anyhow::Ok(())
        }));
    }
    for number in 0..WORKERS {
        let (address, stop) = (server.address.clone(), Rc::clone(&stop));
        let (first, last) = (Rc::clone(&first), Rc::clone(&last));
        running.push(local.spawn_local(async move {
            let mut worker = Worker::open(&address, number).await?;
            // Until the callers have stopped and nothing waits any more.
            loop {
                let Some(lease) = worker.claim(1).await? else {
                    if stop.get() {
                        return Ok(());
                    }
                    continue;
                };
                let claimed = Instant::now();
                worker.write(&lease, 1, r#"{"text":"the answer"}"#).await?;
                let begun = Instant::now();
                worker.write(&lease, 2, r#"{"completed":""}"#).await?;
                first.borrow_mut().saturating_record((begun - claimed).as_micros() as u64);
                last.borrow_mut().saturating_record(begun.elapsed().as_micros() as u64);
            }
        }));
    }
    let sample = local.run_until(async {
        tokio::time::sleep(duration / 4).await;
        let (cpu, before, begun) = (server.cpu_ns()?, done.get(), Instant::now());
        tokio::time::sleep(duration).await;
        let (cpu, count, took) = (server.cpu_ns()? - cpu, done.get() - before, begun.elapsed());
        stop.set(true);
        let p50 = |of: &RefCell<Histogram<u64>>| of.borrow().value_at_quantile(0.5) as f64;
        anyhow::Ok(Worked {
            cpu_us: cpu as f64 / 1e3 / count.max(1) as f64,
            rate: count as f64 / took.as_secs_f64(),
            answer_us: p50(&answers),
            first_us: p50(&first),
            last_us: p50(&last),
        })
    });
    let sample = sample.await?;
    local.await;
    for running in running {
        running.await??;
    }
    Ok(sample)
}

/// Sends so many messages that wait, without waiting for them.
async fn send_all(server: &Server, count: u64) -> Result<()> {
    let local = LocalSet::new();
    let next = Rc::new(Cell::new(0));
    let sending: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (address, next) = (server.address.clone(), Rc::clone(&next));
            local.spawn_local(async move {
                let mut connection = Connection::open(&address).await?;
                let configuration = SendMessageConfiguration {
                    return_immediately: true,
                    ..SendMessageConfiguration::default()
                };
                let request = SendMessageRequest {
                    message: Message::user(HOLE, [Part::text(text("work ", 256))]),
                    configuration: Some(configuration),
                    ..SendMessageRequest::default()
                };
                let mut send = Template::new(PATH, Wire::JsonRpcV1, Call::SendMessage(Box::new(request)))?;
                while next.get() < count {
                    let number = next.get();
                    next.set(number + 1);
                    connection.call(send.fill(number)).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    local.await;
    for sending in sending {
        sending.await??;
    }
    Ok(())
}

/// A worker of the mailbox, on a connection of its own.
struct Worker {
    connection: Connection,
    address: String,
    number: usize,
    claims: usize,
}

impl Worker {
    async fn open(address: &str, number: usize) -> Result<Self> {
        let connection = Connection::open(address).await?;
        Ok(Self { connection, address: address.to_owned(), number, claims: 0 })
    }

    /// The name of a lease; `None` if nothing has come for so many seconds.
    async fn claim(&mut self, wait: u64) -> Result<Option<String>> {
        self.claims += 1;
        let headers = format!(
            "prefer: wait={wait}\r\nnuncio-worker: w{}\r\nidempotency-key: {}\r\n",
            self.number,
            uuid::Uuid::now_v7(),
        );
        let request = self.request(":claim", &headers, "");
        self.connection.call(&request).await?;
        if self.connection.body.is_empty() {
            return Ok(None);
        }
        let answer: Value = serde_json::from_slice(&self.connection.body)?;
        Ok(answer["lease"].as_str().map(str::to_owned))
    }

    /// Writes one line.
    async fn write(&mut self, lease: &str, number: u64, line: &str) -> Result<()> {
        let request =
            self.request(&format!("/leases/{lease}:update"), &format!("nuncio-first: {number}\r\n"), line);
        self.connection.call(&request).await
    }

    fn request(&self, path: &str, headers: &str, body: &str) -> Vec<u8> {
        format!(
            "POST /mailboxes/{NAME}{path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        )
        .into_bytes()
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000, 3)?)
}

fn shared() -> Result<Rc<RefCell<Histogram<u64>>>> {
    Ok(Rc::new(RefCell::new(histogram()?)))
}
