//! The cost of an `Idempotency-Key` where tasks are kept: the same sends with and without one, to an agent that is
//! idempotent and to one that is not. Of the latter the store knows each message with a key before the agent does,
//! which is one more commit.

use std::{fmt::Write as _, time::Duration};

use anyhow::Result;

use crate::{
    Args,
    load::{self, Load, Sample},
    report::{Report, median},
    request::{Kind, Wire},
    server::{Server, Subject},
};

const SUBJECTS: [Subject; 3] = [Subject::Sqlite, Subject::SqliteRelaxed, Subject::Postgres];

/// Agents that answer a send at once, each with its kind.
const AGENTS: [(&str, &str); 2] = [("/agents/echo", "idempotent"), ("/agents/conformance", "not idempotent")];

/// Callers at a time: many share a commit, one has it alone.
const CONNECTIONS: [usize; 2] = [16, 1];

pub(crate) async fn measure(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs_f64(4.0 * scale);
    let mut table = "| | agent | connections | CPU without a key | with a key | p50 without | with a key |\n\
                     |---|---|--:|--:|--:|--:|--:|"
        .to_owned();
    for subject in SUBJECTS {
        let mut server = Server::start(subject)?;
        load::send(&server, 10_000).await?;
        for (path, agent) in AGENTS {
            server.path = path;
            for connections in CONNECTIONS {
                let load = |keyed| Load {
                    kind: Kind::Send,
                    wire: Wire::JsonRpcV1,
                    connections,
                    duration,
                    text: 256,
                    rate: None,
                    keyed,
                };
                let (mut plain, mut keyed) = (Vec::new(), Vec::new());
                // In turns: the machine may have other neighbours a minute later.
                for repetition in 0..args.repeat {
                    plain.push(load(false).run(&server).await?);
                    keyed.push(load(true).run(&server).await?);
                    eprintln!(
                        "{repetition} {subject:?} {agent} {connections}: {:?} {:?}",
                        plain.last(),
                        keyed.last()
                    );
                }
                let cpu = |samples: &[Sample]| median(samples.iter().map(|sample| sample.cpu_us));
                let p50 = |samples: &[Sample]| median(samples.iter().map(|sample| sample.p50_us));
                write!(
                    table,
                    "\n| {subject} | {agent} | {connections} | {:.1} µs | {:.1} µs | {:.0} µs | {:.0} µs |",
                    cpu(&plain).unwrap_or_default(),
                    cpu(&keyed).unwrap_or_default(),
                    p50(&plain).unwrap_or_default(),
                    p50(&keyed).unwrap_or_default(),
                )?;
            }
        }
    }
    report.table(table);
    Ok(())
}
