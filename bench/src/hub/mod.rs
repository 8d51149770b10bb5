//! What a hub adds that stands before an agent: CPU per send and time per event, beside nginx as a plain reverse
//! proxy, in one run.
//!
//! Reading order: this file has what is measured and the table, `middle` starts what stands in between, `clock` is
//! an agent that tells the time and `delay` how late it is told.

mod clock;
mod delay;
mod middle;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::Result;
use nuncio_protocol::Binding;

pub(crate) use self::{clock::serve as clock, middle::Between};
use self::{
    delay::Delay,
    middle::{Middle, start},
};
use crate::{
    Args,
    load::{self, Load, Sample},
    report::{Report, median},
    request::{Kind, Wire},
    server::{KEEP, Server, Subject},
};

/// What a relayed, and what a translated send may cost, in times of nginx.
const RELAYED: f64 = 2.0;
const TRANSLATED: f64 = 4.0;

/// What an event may be late, at the median.
const LATE_US: f64 = 1000.0;

/// Everything that a send is measured by, in the order of the table.
const SENDS: [(Middle, Wire); 17] = [
    (Middle::Nobody, Wire::JsonRpcV1),
    (Middle::Nginx, Wire::JsonRpcV1),
    (Middle::Proxy, Wire::JsonRpcV1),
    (Middle::ProxyWithKeys, Wire::JsonRpcV1),
    (Middle::ProxyToOld, Wire::JsonRpcV1),
    (Middle::ProxyToRest, Wire::JsonRpcV1),
    (Middle::Durable(Subject::Nuncio), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Nuncio), Wire::JsonRpcV1),
    (Middle::Durable(Subject::Sqlite), Wire::JsonRpcV1),
    (Middle::Alone(Subject::Sqlite), Wire::JsonRpcV1),
    (Middle::Nobody, Wire::HttpJsonV1),
    (Middle::Nginx, Wire::HttpJsonV1),
    (Middle::Proxy, Wire::HttpJsonV1),
    (Middle::Nobody, Wire::GrpcV1),
    (Middle::Nginx, Wire::GrpcV1),
    (Middle::Proxy, Wire::GrpcV1),
    (Middle::Proxy, Wire::JsonRpcV03),
];

/// What the time per event is measured by.
const STREAMS: [Middle; 5] = [
    Middle::Nobody,
    Middle::Nginx,
    Middle::Proxy,
    Middle::Durable(Subject::Nuncio),
    Middle::Durable(Subject::Sqlite),
];

type Costs = BTreeMap<(Middle, Wire), Vec<Sample>>;
type Delays = BTreeMap<Middle, Vec<Delay>>;

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let (mut costs, mut delays) = (Costs::new(), Delays::new());
    let wires: Vec<_> = args.wires().collect();
    for repetition in 0..args.repeat {
        let behind = Server::start_behind()?;
        let wanted = |middle: &Middle| {
            let name = middle.to_string();
            args.between.is_empty() || args.between.iter().any(|word| name.starts_with(word))
        };
        for (middle, wire) in SENDS.into_iter().filter(|(_, wire)| wires.contains(wire)) {
            if !wanted(&middle) {
                continue;
            }
            let sample = send(middle, wire, &behind, scale, args.seconds).await?;
            eprintln!("{repetition} {middle} {wire}: {sample}");
            costs.entry((middle, wire)).or_default().push(sample);
        }
        for middle in STREAMS.into_iter().filter(wanted) {
            let delay = stream(middle, scale).await?;
            eprintln!("{repetition} {middle}, a stream: {delay:.1?}");
            delays.entry(middle).or_default().push(delay);
        }
    }
    report.table(sends(&costs)?);
    report.table(streams(&delays)?);
    Ok(())
}

async fn send(middle: Middle, wire: Wire, behind: &Server, scale: f64, seconds: f64) -> Result<Sample> {
    let started = start(middle, wire.binding(), &behind.address).await?;
    let server = started.as_ref().unwrap_or(behind);
    // In the long run every new task pushes an old one out of memory; a file grows.
    let before = match middle {
        Middle::Durable(Subject::Nuncio) | Middle::Alone(Subject::Nuncio) => KEEP as f64,
        Middle::Durable(_) | Middle::Alone(_) => 10_000.0,
        _ => 0.0,
    };
    load::send(server, (before * scale) as u64).await?;
    let duration = Duration::from_secs_f64(seconds * scale);
    Load { kind: Kind::Send, wire, connections: 16, duration, text: 256 }.run(server).await
}

async fn stream(middle: Middle, scale: f64) -> Result<Delay> {
    let behind = clock::start()?;
    let started = start(middle, Binding::JsonRpc, &behind.address).await?;
    delay::measure(started.as_ref().unwrap_or(&behind), scale).await
}

fn sends(costs: &Costs) -> Result<String> {
    let middle = |key: (Middle, Wire), value: fn(&Sample) -> f64| {
        costs.get(&key).and_then(|samples| median(samples.iter().map(value)))
    };
    let cpu = |key| middle(key, |sample| sample.cpu_us);
    let mut table =
        String::from("| send | CPU in between | target | requests/s | p50 |\n|---|--:|--:|--:|--:|\n");
    for (who, wire) in SENDS {
        let Some(own) = cpu((who, wire)) else { continue };
        let times_nginx = |most: f64| {
            let nginx = cpu((Middle::Nginx, wire.newest()));
            nginx.map(|nginx| format!("{:.2} × nginx (≤ {most})", own / nginx))
        };
        let target = match who {
            Middle::Proxy => times_nginx(RELAYED),
            Middle::ProxyWithKeys => times_nginx(f64::INFINITY).map(|ratio| ratio.replace(" (≤ inf)", "")),
            Middle::ProxyToOld | Middle::ProxyToRest => times_nginx(TRANSLATED),
            Middle::Durable(subject) => {
                let sum = cpu((Middle::Proxy, wire)).zip(cpu((Middle::Alone(subject), wire)));
                sum.map(|(proxy, alone)| format!("{:.2} × the sum (≤ 1)", own / (proxy + alone)))
            }
            Middle::Nobody | Middle::Nginx | Middle::Alone(_) => None,
        };
        let shown = if who == Middle::Nobody { "–".to_owned() } else { format!("{own:.1} µs") };
        let rate = middle((who, wire), |sample| sample.rate).unwrap_or_default();
        let p50 = middle((who, wire), |sample| sample.p50_us).unwrap_or_default();
        let target = target.unwrap_or_default();
        writeln!(table, "| {wire}, {who} | {shown} | {target} | {rate:.0} | {p50:.0} µs |")?;
    }
    Ok(table)
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
                (format!("{added:.0} µs (≤ {LATE_US})"), format!("{cpu:.1} µs"))
            }
        };
        writeln!(table, "| {who} | {late:.0} µs | {added} | {cpu} |")?;
    }
    Ok(table)
}
