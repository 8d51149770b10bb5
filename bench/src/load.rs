//! The generator: a closed loop per connection, all on one thread.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use nuncio_protocol::{
    Binding, CancelTaskRequest, SubscribeToTaskRequest,
    op::{Call, Op},
};
use tokio::task::LocalSet;
use uuid::Uuid;

use crate::{
    http1::{Connection, find},
    http2,
    request::{Kind, Template, Wire, text},
    server::Server,
};

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) wire: Wire,
    pub(crate) connections: usize,
    pub(crate) duration: Duration,
    pub(crate) text: usize,
    /// Requests per second over all connections; `None`: as many as possible.
    pub(crate) rate: Option<f64>,
    /// Each request has an `Idempotency-Key` of its own.
    pub(crate) keyed: bool,
}

/// Cost of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Server CPU per request, in microseconds.
    pub(crate) cpu_us: f64,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Median latency in microseconds.
    pub(crate) p50_us: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} µs CPU, {:.0}/s, p50 {:.0} µs", self.cpu_us, self.rate, self.p50_us)
    }
}

/// A connection of the protocol that a load needs.
enum Caller {
    Http1(Connection),
    Http2(http2::GrpcConnection),
}

impl Caller {
    async fn open(address: &str, wire: Wire, op: Op) -> Result<Self> {
        match wire.binding() {
            Binding::JsonRpc | Binding::HttpJson => Ok(Self::Http1(Connection::open(address).await?)),
            Binding::Grpc => {
                let version = wire.version().as_str();
                Ok(Self::Http2(http2::GrpcConnection::open(address, &wire.rpc(op)?, version).await?))
            }
        }
    }

    /// One request, and the body of its answer.
    async fn call(&mut self, request: &[u8]) -> Result<&[u8]> {
        match self {
            Self::Http1(connection) => {
                connection.call(request).await?;
                Ok(&connection.body)
            }
            Self::Http2(connection) => {
                connection.call(request).await?;
                Ok(&connection.body)
            }
        }
    }
}

/// State that the connections of a load share.
struct Shared {
    next: Cell<u64>,
    done: Cell<u64>,
    stop: Cell<bool>,
    latency: RefCell<Histogram<u64>>,
}

impl Load {
    pub(crate) async fn run(self, server: &Server) -> Result<Sample> {
        let shared = Rc::new(Shared {
            next: Cell::new(rand_start()),
            done: Cell::new(0),
            stop: Cell::new(false),
            latency: RefCell::new(Histogram::new_with_bounds(1, 60_000_000, 3)?),
        });
        let tasks =
            if self.kind == Kind::Get { Rc::new(make_tasks(server, 1000).await?) } else { Rc::default() };
        let local = LocalSet::new();
        let mut workers = Vec::new();
        for number in 0..self.connections {
            let caller = Caller::open(&server.address, self.wire, self.kind.op()).await?;
            let (shared, tasks) = (Rc::clone(&shared), Rc::clone(&tasks));
            let (path, key) = (server.path, server.key.clone());
            workers.push(local.spawn_local(async move {
                let template = self.template(path)?.shown(key.as_deref());
                let pace = self.rate.map(|rate| Pace::new(rate, number, self.connections));
                self.work(caller, template, path, &shared, &tasks, pace).await
            }));
        }
        let warm_up = self.duration / 4;
        let sample = local.run_until(async {
            tokio::time::sleep(warm_up).await;
            let (cpu, done, start) = (server.cpu_ns()?, shared.done.get(), Instant::now());
            shared.latency.borrow_mut().reset();
            tokio::time::sleep(self.duration).await;
            let (cpu, done, elapsed) = (server.cpu_ns()? - cpu, shared.done.get() - done, start.elapsed());
            shared.stop.set(true);
            anyhow::Ok(Sample {
                cpu_us: cpu as f64 / 1000.0 / done.max(1) as f64,
                rate: done as f64 / elapsed.as_secs_f64(),
                p50_us: shared.latency.borrow().value_at_quantile(0.5) as f64,
            })
        });
        let sample = sample.await?;
        local.await;
        for worker in workers {
            worker.await??;
        }
        Ok(sample)
    }

    fn template(&self, path: &str) -> Result<Template> {
        let template = Template::send(path, self.wire, &text("echo ", self.text), self.kind == Kind::Stream)?;
        Ok(if self.keyed { template.keyed() } else { template })
    }

    async fn work(
        self,
        mut caller: Caller,
        mut send: Template,
        path: &str,
        shared: &Shared,
        tasks: &[String],
        mut pace: Option<Pace>,
    ) -> Result<()> {
        let mut gets =
            tasks.iter().map(|task| Template::get(path, self.wire, task)).collect::<Result<Vec<_>>>()?;
        while !shared.stop.get() {
            let number = shared.next.get();
            shared.next.set(number + 1);
            let request = match self.kind {
                Kind::Send | Kind::Stream => send.fill(number),
                Kind::Get => {
                    let index = usize::try_from(number)? % gets.len();
                    gets[index].fill(number)
                }
            };
            if let Some(pace) = &mut pace {
                pace.next().await;
            }
            let start = Instant::now();
            let body = caller.call(request).await?;
            if find(body, self.wire.completed()).is_none() {
                bail!("unexpected answer: {:?}", String::from_utf8_lossy(body));
            }
            shared.latency.borrow_mut().saturating_record(start.elapsed().as_micros() as u64);
            shared.done.set(shared.done.get() + 1);
        }
        Ok(())
    }
}

/// Schedule of a connection, one of many that take turns.
struct Pace {
    next: tokio::time::Instant,
    pause: Duration,
}

impl Pace {
    fn new(rate: f64, number: usize, connections: usize) -> Self {
        let pause = Duration::from_secs_f64(connections as f64 / rate);
        let place = pause.mul_f64(number as f64 / connections as f64);
        Self { next: tokio::time::Instant::now() + place, pause }
    }

    /// Waits for its turn. One that was missed is not made up for.
    async fn next(&mut self) {
        tokio::time::sleep_until(self.next).await;
        self.next = (self.next + self.pause).max(tokio::time::Instant::now());
    }
}

/// Numbers of different runs do not meet.
fn rand_start() -> u64 {
    u64::from(std::process::id()) << 24 | Instant::now().elapsed().subsec_nanos() as u64
}

/// The ids of so many tasks. A bare server keeps none and knows them all.
async fn make_tasks(server: &Server, count: usize) -> Result<Vec<String>> {
    if server.is_bare {
        return Ok((0..count).map(|_| Uuid::now_v7().to_string()).collect());
    }
    let mut connection = Connection::open(&server.address).await?;
    let mut template = Template::send(server.path, Wire::JsonRpcV1, &text("echo ", 256), false)?;
    let mut ids = Vec::with_capacity(count);
    for number in 0..count {
        connection.call(template.fill(number as u64)).await?;
        let answer: serde_json::Value = serde_json::from_slice(&connection.body)?;
        let id = answer["result"]["task"]["id"].as_str().context("no task in the answer")?;
        ids.push(id.to_owned());
    }
    Ok(ids)
}

/// Sends so many messages over 16 connections; gives the size of one task as JSON.
pub(crate) async fn send(server: &Server, count: u64) -> Result<usize> {
    let local = LocalSet::new();
    let left = Rc::new(Cell::new(count));
    let mut workers = Vec::new();
    for _ in 0..16 {
        let mut connection = Connection::open(&server.address).await?;
        let template = Template::send(server.path, Wire::JsonRpcV1, &text("echo ", 256), false)?;
        let (left, mut template) = (Rc::clone(&left), template.shown(server.key.as_deref()));
        workers.push(local.spawn_local(async move {
            while left.get() > 0 {
                left.set(left.get() - 1);
                connection.call(template.fill(left.get())).await?;
            }
            anyhow::Ok(connection.body.len())
        }));
    }
    local.await;
    let mut size = 0;
    for worker in workers {
        size = worker.await??.max(size);
    }
    // Without the envelope around the task.
    Ok(size.saturating_sub(r#"{"jsonrpc":"2.0","id":"","result":{"task":}}"#.len() + 36))
}

/// Opens so many streams, each of a task that never ends.
pub(crate) async fn hold(server: &Server, count: usize) -> Result<Vec<Connection>> {
    let mut template = Template::send(server.path, Wire::JsonRpcV1, "hold", true)?;
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        let mut connection = Connection::open(&server.address).await?;
        connection.open_stream(template.fill(number as u64), b"TASK_STATE_WORKING", 1).await?;
        held.push(connection);
    }
    Ok(held)
}

/// Server CPU in microseconds that one event costs for each of its subscribers: the last one of a held
/// task, which a cancel makes.
pub(crate) async fn fanout(server: &Server, subscribers: usize) -> Result<f64> {
    let mut first = hold(server, 1).await?;
    let id = {
        let body = String::from_utf8_lossy(&first[0].body).into_owned();
        let start = body.find("\"id\":\"01").context("no task id")? + 6;
        body[start..start + 36].to_owned()
    };
    let mut streams = Vec::new();
    let request = Box::new(SubscribeToTaskRequest { tenant: None, id: id.as_str().into() });
    let mut subscribe = Template::new(server.path, Wire::JsonRpcV1, Call::SubscribeToTask(request))?;
    let request = Box::new(CancelTaskRequest { id: id.into(), ..CancelTaskRequest::default() });
    let mut cancel = Template::new(server.path, Wire::JsonRpcV1, Call::CancelTask(request))?;
    for number in 0..subscribers {
        let mut connection = Connection::open(&server.address).await?;
        connection.open_stream(subscribe.fill(number as u64), b"\"task\"", 1).await?;
        streams.push(connection);
    }
    let mut control = Connection::open(&server.address).await?;
    let before = server.cpu_ns()?;
    control.call(cancel.fill(0)).await?;
    for stream in streams.iter_mut().chain(&mut first) {
        stream.read_until(b"TASK_STATE_CANCELED", 1).await?;
    }
    Ok((server.cpu_ns()? - before) as f64 / 1000.0 / subscribers as f64)
}

/// Server CPU in microseconds per chunk of one artifact of so many, streamed to one caller.
pub(crate) async fn chunks(server: &Server, count: usize) -> Result<f64> {
    let mut connection = Connection::open(&server.address).await?;
    let before = server.cpu_ns()?;
    let text = format!("chunks {count}");
    let mut request = Template::send("/agents/conformance", Wire::JsonRpcV1, &text, true)?;
    connection.call(request.fill(0)).await?;
    if find(&connection.body, b"TASK_STATE_COMPLETED").is_none() {
        bail!("the chunks did not come to an end");
    }
    Ok((server.cpu_ns()? - before) as f64 / 1000.0 / count as f64)
}
