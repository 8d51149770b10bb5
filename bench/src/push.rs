//! Cost of webhooks: a delivery to a receiver that answers at once, the sends that cause it, and the transactions that
//! store it; beside the same sends without webhooks.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::{self, Write as _},
    hint::black_box,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use nuncio_client::{
    SigningKey,
    notification::{self, Claims},
};
use tokio::{task::LocalSet, time::sleep};

use crate::{
    Args,
    http1::{Connection, find},
    process,
    receiver::Receiver,
    report::{Report, median},
    request::{Template, text},
    server::{Server, Subject},
};

const SUBJECTS: [Subject; 3] = [Subject::Nuncio, Subject::Sqlite, Subject::Postgres];

/// Notifications of a task of the echo agent: submitted, working, an artifact, completed.
const NOTIFICATIONS_PER_TASK: u64 = 4;

/// Maximum response time of a receiver. After 15 seconds the hub counts it as down; the rest is a margin.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(10);

/// A measured case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Row {
    /// Sends to a hub without webhooks.
    Off,
    /// Sends to a hub with webhooks, that name none.
    Unused,
    /// Sends that name a webhook, until all is delivered.
    Told,
    /// Sends that name a webhook whose receiver does not answer.
    Hangs,
    /// Deliveries that are pending already.
    Delivery,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "send, no webhooks at all",
            Self::Unused => "send that names none",
            Self::Told => "send with its 4 deliveries",
            Self::Hangs => "send, the receiver hangs",
            Self::Delivery => "a delivery",
        })
    }
}

/// Cost of one delivery or send.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu_us: f64,
    rate: f64,
    /// Of the answers to the sender.
    p50_us: f64,
    commits: f64,
}

/// Counters at the start of a measurement.
struct Mark {
    cpu: u64,
    commits: u64,
    start: Instant,
}

impl Mark {
    async fn new(server: &Server) -> Result<Self> {
        Ok(Self { commits: server.commits().await?, cpu: server.cpu_ns()?, start: Instant::now() })
    }

    /// Shared among so many, which were done at `end`.
    async fn cost(self, server: &Server, count: u64, end: Instant, p50_us: f64) -> Result<Cost> {
        let each = |total: u64| total as f64 / count as f64;
        Ok(Cost {
            cpu_us: each(server.cpu_ns()?.saturating_sub(self.cpu)) / 1000.0,
            rate: count as f64 / (end - self.start).as_secs_f64(),
            p50_us,
            commits: each(server.commits().await? - self.commits),
        })
    }
}

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let many = (20_000.0 * scale) as u64;
    let mut costs: BTreeMap<(Subject, Row), Vec<Cost>> = BTreeMap::new();
    for repetition in 0..args.repeat {
        for subject in SUBJECTS {
            for (row, cost) in once(subject, many, repetition).await? {
                eprintln!("{repetition} {subject}: {row}: {cost:.2?}");
                costs.entry((subject, row)).or_default().push(cost);
            }
        }
    }
    report.note(format!("a signature of a notification (Ed25519, JWT): {:.1} µs CPU", signature()?));
    report.table(table(&costs)?);
    Ok(())
}

/// All rows, with servers of their own.
async fn once(subject: Subject, many: u64, repetition: usize) -> Result<Vec<(Row, Cost)>> {
    let (off, on) = (Server::start(subject)?, Server::start_with_push(subject)?);
    let (receiver, few) = (Receiver::start().await?, many.div_ceil(4));
    send(&off, few, None).await?;
    send(&on, few, None).await?;
    let mut costs = Vec::new();
    let mut pair = [(Row::Off, &off), (Row::Unused, &on)];
    // The first one has no advantage.
    pair.rotate_left(repetition % 2);
    for (row, server) in pair.into_iter().chain(pair.into_iter().rev()) {
        costs.push((row, sends(server, many / 2, None).await?));
    }
    costs.push((Row::Told, sends(&on, few, Some(&receiver)).await?));
    costs.push((Row::Delivery, deliveries(&on, few, &receiver).await?));
    receiver.set_open(false);
    let mark = Mark::new(&on).await?;
    let p50_us = send(&on, few, Some(&receiver)).await?;
    costs.push((Row::Hangs, mark.cost(&on, few, Instant::now(), p50_us).await?));
    Ok(costs)
}

/// Sends, until all that they cause is done.
async fn sends(server: &Server, count: u64, receiver: Option<&Receiver>) -> Result<Cost> {
    let before = receiver.map_or(0, Receiver::answered);
    let mark = Mark::new(server).await?;
    let p50_us = send(server, count, receiver).await?;
    let end = Instant::now();
    if let Some(receiver) = receiver {
        receiver.until(before + count * NOTIFICATIONS_PER_TASK).await?;
    }
    quiet(server).await?;
    mark.cost(server, count, end, p50_us).await
}

/// Makes so many tasks while the receiver does not answer; then it does.
async fn deliveries(server: &Server, tasks: u64, receiver: &Receiver) -> Result<Cost> {
    let (before, begin) = (receiver.answered(), Instant::now());
    receiver.set_open(false);
    send(server, tasks, Some(receiver)).await?;
    quiet(server).await?;
    ensure!(
        begin.elapsed() < MAX_RESPONSE_TIME,
        "the machine is too busy: the receiver would be taken for dead"
    );
    let mark = Mark::new(server).await?;
    receiver.set_open(true);
    let end = receiver.until(before + tasks * NOTIFICATIONS_PER_TASK).await?;
    quiet(server).await?;
    mark.cost(server, tasks * NOTIFICATIONS_PER_TASK, end, f64::NAN).await
}

/// Waits until nothing is written any more.
async fn quiet(server: &Server) -> Result<()> {
    let mut commits = u64::MAX;
    loop {
        sleep(Duration::from_millis(100)).await;
        let now = server.commits().await?;
        if now == std::mem::replace(&mut commits, now) {
            return Ok(());
        }
    }
}

/// Sends so many messages over 16 connections; the median of the times that they took, in microseconds.
async fn send(server: &Server, count: u64, receiver: Option<&Receiver>) -> Result<f64> {
    let local = LocalSet::new();
    let left = Rc::new(Cell::new(count));
    let latency = Rc::new(RefCell::new(Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?));
    let mut workers = Vec::new();
    for _ in 0..16 {
        let mut connection = Connection::open(&server.address).await?;
        let url = receiver.map(Receiver::url);
        let mut template = Template::send_with_webhook(server.path, &text("echo ", 256), url)?;
        let (left, latency) = (Rc::clone(&left), Rc::clone(&latency));
        workers.push(local.spawn_local(async move {
            while left.get() > 0 {
                left.set(left.get() - 1);
                let start = Instant::now();
                connection.call(template.fill(left.get())).await?;
                find(&connection.body, b"TASK_STATE_COMPLETED").context("unexpected answer")?;
                latency.borrow_mut().saturating_record(start.elapsed().as_micros() as u64);
            }
            anyhow::Ok(())
        }));
    }
    local.await;
    for worker in workers {
        worker.await??;
    }
    Ok(latency.borrow().value_at_quantile(0.5) as f64)
}

/// CPU in microseconds for signing a notification alone.
fn signature() -> Result<f64> {
    const COUNT: u64 = 5_000;
    let key = SigningKey::from_ed25519_seed(&[7; 32])?.with_jku("http://127.0.0.1:1/jwks.json".to_owned());
    let (body, id) = (text("", 600), "01890a5d-ac96-774b-bcce-b302099a8057");
    let before = process::cpu_ns(std::process::id())?;
    for number in 0..COUNT {
        let claims =
            Claims::new("http://127.0.0.1:1", "http://127.0.0.1:2/", id, id, body.as_bytes(), number as i64);
        black_box(notification::sign(&key, &claims)?);
    }
    Ok((process::cpu_ns(std::process::id())? - before) as f64 / 1000.0 / COUNT as f64)
}

fn table(costs: &BTreeMap<(Subject, Row), Vec<Cost>>) -> Result<String> {
    let middle = |key: &(Subject, Row), value: fn(&Cost) -> f64| {
        costs.get(key).and_then(|costs| median(costs.iter().map(value))).unwrap_or_default()
    };
    let mut table = String::from("| | hub CPU | × without | per second | p50 | transactions per 1,000 |\n");
    table.push_str("|---|--:|--:|--:|--:|--:|\n");
    for key in costs.keys() {
        let (subject, row) = *key;
        let cpu = middle(key, |cost| cost.cpu_us);
        let (mut ratio, mut p50) = (String::new(), String::new());
        if row != Row::Delivery {
            ratio = format!("{:.2}", cpu / middle(&(subject, Row::Off), |cost| cost.cpu_us));
            p50 = format!("{:.0} µs", middle(key, |cost| cost.p50_us));
        }
        let rate = middle(key, |cost| cost.rate);
        let commits = match subject {
            Subject::Nuncio => String::new(),
            _ => format!("{:.0}", 1000.0 * middle(key, |cost| cost.commits)),
        };
        writeln!(table, "| {row}, {subject} | {cpu:.1} µs | {ratio} | {rate:.0} | {p50} | {commits} |")?;
    }
    Ok(table)
}
