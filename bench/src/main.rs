//! Measures the cost of a request for the server in every binding and version, beside a bare axum handler or a
//! bare tonic service that answers the same, in one run. The figure to trust is CPU time per request: noise does not move it much.
//!
//! `cargo run --profile dist --features jemalloc -p nuncio-bench` prints a table; `--quick` takes a tenth of the time.
//! The server runs on one core and the generator on another, where `taskset` is there to pin them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints a table")]

mod answers;
mod attack;
mod bare;
mod bare_tonic;
mod http1;
mod http2;
mod hub;
mod keys;
mod load;
mod mailbox;
mod place;
mod process;
mod push;
mod receiver;
mod report;
mod request;
mod server;
mod stores;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use nuncio_protocol::{Binding, Version};

use crate::{
    load::{Load, Sample},
    report::Report,
    request::{Kind, Wire},
    server::{Server, Subject},
};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Parts that can be measured alone.
const PARTS: [&str; 13] = [
    "requests", "memory", "scale", "fanout", "chunks", "stores", "keys", "size", "push", "hub", "attack",
    "mailbox", "answers",
];

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// A tenth of the time; for a first look.
    #[arg(long)]
    quick: bool,
    /// Only these parts: requests, memory, scale, fanout, chunks, stores, keys, size, push, hub, attack, mailbox,
    /// answers.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Requests in these bindings only.
    #[arg(long, value_delimiter = ',')]
    bindings: Vec<BindingName>,
    /// Measure only these intermediaries, such as nginx, proxy, durable or polled.
    #[arg(long, value_delimiter = ',')]
    between: Vec<String>,
    /// Seconds of each measurement of the hub, and of each attack.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Number of concurrent callers of the hub.
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// Sends per second of all callers of the hub together [default: as many as possible].
    #[arg(long)]
    rate: Option<f64>,
    /// Repetitions of each measurement; the median counts.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BindingName {
    Jsonrpc,
    HttpJson,
    Grpc,
}

impl Args {
    /// Wire formats to measure.
    fn wires(&self) -> impl Iterator<Item = Wire> {
        let name = |wire: Wire| match wire.binding() {
            Binding::JsonRpc => BindingName::Jsonrpc,
            Binding::HttpJson => BindingName::HttpJson,
            Binding::Grpc => BindingName::Grpc,
        };
        Wire::ALL
            .into_iter()
            .filter(move |wire| self.bindings.is_empty() || self.bindings.contains(&name(*wire)))
    }
}

#[derive(Subcommand)]
enum Command {
    /// The server process; started by the benchmark itself.
    Serve {
        subject: Subject,
        data: String,
        /// With webhooks, on this machine too; the key of the hub is in this file.
        #[arg(long)]
        push: Option<PathBuf>,
        /// Callers show a key.
        #[arg(long)]
        key: bool,
        /// The hub takes at most so many bytes of memory.
        #[arg(long)]
        memory_limit: Option<usize>,
        /// With a mailbox beside its agents.
        #[arg(long)]
        mailbox: bool,
    },
    /// A hub before an agent; started by the benchmark itself.
    Hub(hub::Between),
    /// A hub with a model; started by the benchmark itself.
    Model(answers::Modelled),
    /// A provider of models; started by the benchmark itself.
    Tokens,
    /// An agent that tells the time; started by the benchmark itself.
    Clock,
    /// An agent that cannot stream; started by the benchmark itself.
    Polled,
}

impl Command {
    async fn run(self) -> Result<()> {
        match self {
            Self::Serve { subject, data, push, key, memory_limit, mailbox } => {
                Box::pin(server::serve(subject, &data, push, key, memory_limit, mailbox)).await
            }
            Self::Hub(between) => Box::pin(between.serve()).await,
            Self::Model(modelled) => Box::pin(modelled.serve()).await,
            Self::Tokens => answers::provide().await,
            Self::Clock => hub::clock().await,
            Self::Polled => hub::polled().await,
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(command) = args.command {
        return tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command.run());
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(&args))
}

async fn measure(args: &Args) -> Result<()> {
    for part in &args.only {
        ensure!(PARTS.contains(&part.as_str()), "--only {part}: there are {}", PARTS.join(", "));
    }
    ensure!(args.rate.is_none_or(|rate| rate >= 1.0), "--rate takes at least 1 send a second");
    let wants = |part: &str| args.only.is_empty() || args.only.iter().any(|only| only == part);
    let scale = if args.quick { 0.1 } else { 1.0 };
    let mut report = Report::default();
    if wants("requests") {
        requests(args, scale, &mut report).await?;
    }
    if wants("memory") {
        memory(scale, &mut report).await?;
    }
    if wants("scale") {
        flat(scale, &mut report).await?;
    }
    if wants("fanout") {
        fanout(&mut report).await?;
    }
    if wants("chunks") {
        chunks(&mut report).await?;
    }
    if wants("stores") {
        stores::requests(args, scale, &mut report).await?;
    }
    if wants("keys") {
        keys::measure(args, scale, &mut report).await?;
    }
    if wants("size") {
        stores::size(scale, &mut report).await?;
    }
    if wants("push") {
        push::measure(args, scale, &mut report).await?;
    }
    if wants("hub") {
        hub::measure(args, scale, &mut report).await?;
    }
    if wants("attack") {
        attack::measure(args, scale, &mut report).await?;
    }
    if wants("mailbox") {
        mailbox::measure(args, scale, &mut report).await?;
    }
    if wants("answers") {
        answers::measure(args, &mut report).await?;
    }
    report.print();
    Ok(())
}

/// Send, stream and get, on 16 connections; in version 1.0 on one, too. Compared subjects are measured one
/// after the other, because the machine may have other neighbours a minute later.
async fn requests(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs_f64(4.0 * scale);
    let mut loads: Vec<(Subject, Wire)> = Vec::new();
    for wire in args.wires() {
        loads.extend(Some(report::limit(wire)).filter(|limit| !loads.contains(limit)));
        loads.push((Subject::Nuncio, wire));
    }
    for repetition in 0..args.repeat {
        let mut servers = BTreeMap::new();
        for (subject, _) in &loads {
            if let Entry::Vacant(entry) = servers.entry(*subject) {
                entry.insert(Server::start(*subject)?);
            }
        }
        // The store is full, as it is in the long run: each task that is kept pushes one out.
        load::send(&servers[&Subject::Nuncio], server::KEEP as u64).await?;
        for (kind, connections) in Kind::ALL.into_iter().flat_map(|kind| [(kind, 16), (kind, 1)]) {
            for &(subject, wire) in &loads {
                if connections == 1 && wire.version() != Version::V1_0 {
                    continue;
                }
                let load = Load { kind, wire, connections, duration, text: 256, rate: None, keyed: false };
                let sample = load.run(&servers[&subject]).await?;
                eprintln!("{repetition} {subject:?} {kind}, {wire} {connections}: {sample}");
                report.add(subject, load, sample);
            }
        }
    }
    Ok(())
}

/// Measures the memory of an idle stream and of a finished task.
async fn memory(scale: f64, report: &mut Report) -> Result<()> {
    let streams = (2000.0 * scale.max(0.25)) as usize;
    for subject in [Subject::BareAxum, Subject::Nuncio] {
        let server = Server::start(subject)?;
        let before = server.rss()?;
        let held = load::hold(&server, streams).await?;
        let after = server.rss()?;
        report.note(format!(
            "idle stream with its own task, {subject:?}: {:.1} KB ({streams} streams)",
            (after.saturating_sub(before)) as f64 / 1024.0 / streams as f64
        ));
        drop(held);
    }
    let tasks = (100_000.0 * scale.max(0.2)) as u64;
    let server = Server::start(Subject::NuncioKeepAll)?;
    load::send(&server, 1000).await?;
    let before = server.rss()?;
    let answer = load::send(&server, tasks).await?;
    let after = server.rss()?;
    let per_task = (after.saturating_sub(before)) as f64 / tasks as f64;
    report.note(format!(
        "finished task in memory, log included: {per_task:.0} bytes, {:.2} × its JSON of {answer} bytes ({tasks} tasks)",
        per_task / answer as f64
    ));
    Ok(())
}

/// The cost of a request with few and with very many stored tasks.
async fn flat(scale: f64, report: &mut Report) -> Result<()> {
    let many = (1_000_000.0 * scale) as u64;
    let server = Server::start(Subject::NuncioKeepAll)?;
    let duration = Duration::from_secs_f64(4.0 * scale.max(0.25));
    let mut stored = 0;
    for target in [0, many / 10, many] {
        if target > stored {
            load::send(&server, target - stored).await?;
            stored = target;
        }
        for kind in [Kind::Send, Kind::Stream, Kind::Get] {
            let sample: Sample = Load {
                kind,
                wire: Wire::JsonRpcV1,
                connections: 16,
                duration,
                text: 256,
                rate: None,
                keyed: false,
            }
            .run(&server)
            .await?;
            report.note(format!("{kind:?} with {target} stored tasks: {:.1} µs CPU", sample.cpu_us));
        }
    }
    Ok(())
}

/// One event to many subscribers.
async fn fanout(report: &mut Report) -> Result<()> {
    let server = Server::start(Subject::Nuncio)?;
    let cost = load::fanout(&server, 1000).await?;
    report.note(format!("one event to 1000 subscribers: {cost:.1} µs CPU each"));
    Ok(())
}

/// Appends cost their own size.
async fn chunks(report: &mut Report) -> Result<()> {
    let server = Server::start(Subject::Nuncio)?;
    load::chunks(&server, 100).await?;
    for count in [1000, 10_000] {
        let cost = load::chunks(&server, count).await?;
        report.note(format!("{count} chunks of one artifact, streamed: {cost:.2} µs CPU a chunk"));
    }
    Ok(())
}
