//! Overhead of a hub in front of an agent: CPU per send and time per event, beside nginx as a plain reverse
//! proxy, in one run.
//!
//! Reading order: this file has the measurements and the table, `middle` starts the servers in between,
//! `clock` is an agent that sends the time, and `delay` measures how late it arrives. `polled` measures an
//! agent that cannot stream.

mod clock;
mod delay;
mod middle;
mod polled;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::{Result, ensure};
use nuncio_protocol::Binding;

pub(crate) use self::{
    clock::{TIME_PREFIX, now, serve as clock},
    delay::times,
    middle::Between,
    polled::serve as polled,
};
use self::{
    delay::Delay,
    middle::{
        Callers::{self, Anybody, WithKey},
        Middle, start,
    },
};
use crate::{
    Args,
    load::{self, Load, Sample},
    report::{Report, median},
    request::{Kind, Wire},
    server::{KEEP, Server, Subject},
};

/// Maximum cost of a relayed and of a translated send, as a multiple of nginx.
const RELAYED: f64 = 2.0;
const TRANSLATED: f64 = 4.0;

/// Maximum cost of a turn through a room, as a multiple of a send to a durable agent.
const TURN: f64 = 2.2;

/// Messages of a send to a room with an agent: the caller's and the agent's.
const TURNS: f64 = 2.0;

/// Maximum delay of an event at the median, in microseconds.
const MAX_DELAY_US: f64 = 1000.0;

/// Everything that a send is measured by, in the order of the table.
const SENDS: [(Middle, Wire); 24] = [
    (Middle::Nobody, Wire::JsonRpcV1),
    (Middle::Nginx, Wire::JsonRpcV1),
    (Middle::Proxy(Subject::Nuncio, Anybody), Wire::JsonRpcV1),
    (Middle::Proxy(Subject::Nuncio, WithKey), Wire::JsonRpcV1),
    (Middle::ProxyToOld, Wire::JsonRpcV1),
    (Middle::ProxyToRest, Wire::JsonRpcV1),
    (Middle::Durable(Subject::Nuncio, Anybody), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Nuncio, Anybody), Wire::JsonRpcV1),
    (Middle::Durable(Subject::Nuncio, WithKey), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Nuncio, WithKey), Wire::JsonRpcV1),
    (Middle::Durable(Subject::Sqlite, Anybody), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Sqlite, Anybody), Wire::JsonRpcV1),
    (Middle::Proxy(Subject::Sqlite, WithKey), Wire::JsonRpcV1),
    (Middle::Durable(Subject::Sqlite, WithKey), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Sqlite, WithKey), Wire::JsonRpcV1),
    (Middle::Room(Subject::Nuncio), Wire::JsonRpcV1),
    (Middle::Room(Subject::Sqlite), Wire::JsonRpcV1),
    (Middle::Nobody, Wire::HttpJsonV1),
    (Middle::Nginx, Wire::HttpJsonV1),
    (Middle::Proxy(Subject::Nuncio, Anybody), Wire::HttpJsonV1),
    (Middle::Nobody, Wire::GrpcV1),
    (Middle::Nginx, Wire::GrpcV1),
    (Middle::Proxy(Subject::Nuncio, Anybody), Wire::GrpcV1),
    (Middle::Proxy(Subject::Nuncio, Anybody), Wire::JsonRpcV03),
];

/// Servers for which the time per event is measured.
const STREAMS: [Middle; 5] = [
    Middle::Nobody,
    Middle::Nginx,
    Middle::Proxy(Subject::Nuncio, Anybody),
    Middle::Durable(Subject::Nuncio, Anybody),
    Middle::Durable(Subject::Sqlite, Anybody),
];

type Costs = BTreeMap<(Middle, Wire), Vec<Sample>>;
type Delays = BTreeMap<Middle, Vec<Delay>>;

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let wanted = |middle: &Middle| {
        let name = middle.to_string();
        args.between.is_empty() || args.between.iter().any(|word| name.starts_with(word))
    };
    for word in &args.between {
        let known = word == "polled" || SENDS.iter().any(|(middle, _)| middle.to_string().starts_with(word));
        ensure!(known, "--between {word}: nothing in the table of the hub begins with this");
    }
    let wires: Vec<_> = args.wires().collect();
    let behind = Server::start_behind()?;
    let mut stands = Vec::new();
    for (middle, wire) in SENDS.into_iter().filter(|(middle, wire)| wires.contains(wire) && wanted(middle)) {
        stands.push((middle, wire, prepare(middle, wire, &behind, scale).await?));
    }
    let (mut costs, mut delays) = (Costs::new(), Delays::new());
    // In turns, so that other load of the machine affects all of them.
    for repetition in 0..args.repeat {
        for (middle, wire, server) in &stands {
            let server = server.as_ref().unwrap_or(&behind);
            let duration = Duration::from_secs_f64(args.seconds * scale);
            let load = Load {
                kind: Kind::Send,
                wire: *wire,
                connections: args.callers,
                duration,
                text: 256,
                rate: args.rate,
                keyed: false,
            };
            let sample = load.run(server).await?;
            eprintln!("{repetition} {middle} {wire}: {sample}");
            costs.entry((*middle, *wire)).or_default().push(sample);
        }
    }
    drop((stands, behind));
    if !costs.is_empty() {
        report.table(sends(&costs)?);
    }
    if args.rate.is_some() {
        // Streams have a pace of their own.
        return Ok(());
    }
    for repetition in 0..args.repeat {
        for middle in STREAMS.into_iter().filter(wanted) {
            let delay = stream(middle, scale).await?;
            eprintln!("{repetition} {middle}, a stream: {delay:.1?}");
            delays.entry(middle).or_default().push(delay);
        }
    }
    if !delays.is_empty() {
        report.table(streams(&delays)?);
    }
    if args.between.is_empty() || args.between.iter().any(|word| word == "polled") {
        polled::measure(args.repeat, scale, report).await?;
    }
    Ok(())
}

/// Starts the intermediary; `None` for a direct call.
async fn prepare(middle: Middle, wire: Wire, behind: &Server, scale: f64) -> Result<Option<Server>> {
    let server = start(middle, wire.binding(), &behind.address).await?;
    // In the long run every new task pushes an old one out of memory; a file grows.
    let before = match middle {
        Middle::Durable(Subject::Nuncio, _) | Middle::Alone(Subject::Nuncio, _) => KEEP as f64,
        Middle::Durable(..) | Middle::Alone(..) => 10_000.0,
        Middle::Room(_) => 1_000.0,
        _ => 0.0,
    };
    load::send(server.as_ref().unwrap_or(behind), (before * scale) as u64).await?;
    Ok(server)
}

async fn stream(middle: Middle, scale: f64) -> Result<Delay> {
    let behind = clock::start()?;
    let started = start(middle, Binding::JsonRpc, &behind.address).await?;
    delay::measure(started.as_ref().unwrap_or(&behind), scale).await
}

fn sends(costs: &Costs) -> Result<String> {
    let all =
        |key| costs.get(&key).map(|samples| samples.iter().map(|sample| sample.cpu_us).collect::<Vec<_>>());
    // Of each repetition by itself.
    let ratio = |own: &[f64], others: &[f64]| median(own.iter().zip(others).map(|(own, other)| own / other));
    // Other processes on the machine can only add time.
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let mut table =
        String::from("| send | CPU in between | target | requests/s | p50 |\n|---|--:|--:|--:|--:|\n");
    for (who, wire) in SENDS {
        let (Some(samples), Some(own)) = (costs.get(&(who, wire)), all((who, wire))) else { continue };
        let times_nginx = |target: String| {
            let ratio = ratio(&own, &all((Middle::Nginx, wire.newest()))?)?;
            Some(format!("{ratio:.2} × nginx{target}"))
        };
        let target = match who {
            Middle::Proxy(Subject::Nuncio, _) => times_nginx(format!(" (≤ {RELAYED})")),
            // It waits for the disk, which nginx has nothing to do with.
            Middle::Proxy(..) => times_nginx(String::new()),
            Middle::ProxyToOld | Middle::ProxyToRest => times_nginx(format!(" (≤ {TRANSLATED})")),
            Middle::Durable(subject, callers) => all((relayed(subject, callers), wire))
                .zip(all((Middle::Alone(subject, callers), wire)))
                .and_then(|(proxy, alone)| {
                    let best = least(&own) / (least(&proxy) + least(&alone));
                    let sum: Vec<_> = proxy.iter().zip(alone).map(|(proxy, alone)| proxy + alone).collect();
                    Some(format!("{:.2} × the sum (≤ 1), {best:.2} by best turns", ratio(&own, &sum)?))
                }),
            Middle::Room(subject) => all((Middle::Durable(subject, Anybody), wire)).and_then(|durable| {
                let turns: Vec<_> = own.iter().map(|own| own / TURNS).collect();
                Some(format!("a turn: {:.2} × durable (≤ {TURN})", ratio(&turns, &durable)?))
            }),
            Middle::Nobody | Middle::Nginx | Middle::Alone(..) => None,
        };
        let middle = |value: fn(&Sample) -> f64| median(samples.iter().map(value)).unwrap_or_default();
        let cpu = middle(|sample| sample.cpu_us);
        let shown = if who == Middle::Nobody { "–".to_owned() } else { format!("{cpu:.1} µs") };
        let (rate, p50) = (middle(|sample| sample.rate), middle(|sample| sample.p50_us));
        let target = target.unwrap_or_default();
        writeln!(table, "| {wire}, {who} | {shown} | {target} | {rate:.0} | {p50:.0} µs |")?;
    }
    Ok(table)
}

/// The proxy that a durable agent is measured by: the same hub. Of anybody's tasks it writes nothing, wherever to.
fn relayed(subject: Subject, callers: Callers) -> Middle {
    Middle::Proxy(if callers == Anybody { Subject::Nuncio } else { subject }, callers)
}

fn streams(delays: &Delays) -> Result<String> {
    let middle = |who: &Middle, value: fn(&Delay) -> f64| {
        delays.get(who).and_then(|delays| median(delays.iter().map(value))).unwrap_or_default()
    };
    let mut table =
        String::from("| an event of a stream | late by | added | CPU in between |\n|---|--:|--:|--:|\n");
    for who in STREAMS {
        let late = middle(&who, |delay| delay.late_us);
        let added = late - middle(&Middle::Nobody, |delay| delay.late_us);
        let (added, cpu) = match who {
            Middle::Nobody => (String::new(), "–".to_owned()),
            _ => {
                let cpu = middle(&who, |delay| delay.cpu_us);
                (format!("{added:.0} µs (≤ {MAX_DELAY_US})"), format!("{cpu:.1} µs"))
            }
        };
        writeln!(table, "| {who} | {late:.0} µs | {added} | {cpu} |")?;
    }
    Ok(table)
}
