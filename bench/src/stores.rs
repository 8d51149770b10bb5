//! Cost of stores: the same requests with the tasks in memory, in SQLite and in PostgreSQL, beside the bare handler,
//! in one run.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_protocol::{ListTasksRequest, op::Call};

use crate::{
    Args,
    http1::Connection,
    load::{self, Load},
    report::Report,
    request::{Kind, Template, Wire},
    server::{Server, Subject},
};

const DURABLE: [Subject; 3] = [Subject::Sqlite, Subject::SqliteRelaxed, Subject::Postgres];

/// Send, stream and get on 16 connections, send on 64 and on one.
pub(crate) async fn requests(args: &Args, scale: f64, report: &mut Report) -> Result<()> {
    let duration = Duration::from_secs_f64(4.0 * scale);
    let subjects = [Subject::BareAxum, Subject::Nuncio].into_iter().chain(DURABLE);
    let loads = [(Kind::Send, 16), (Kind::Stream, 16), (Kind::Get, 16), (Kind::Send, 64), (Kind::Send, 1)];
    for repetition in 0..args.repeat {
        let mut servers = BTreeMap::new();
        for subject in subjects.clone() {
            let server = Server::start(subject)?;
            if !server.is_bare {
                load::send(&server, 10_000).await?;
            }
            servers.insert(subject, server);
        }
        for (kind, connections) in loads {
            for (subject, server) in &servers {
                let load = Load {
                    kind,
                    wire: Wire::JsonRpcV1,
                    connections,
                    duration,
                    text: 256,
                    rate: None,
                    keyed: false,
                };
                let sample = load.run(server).await?;
                eprintln!("{repetition} {subject:?} {kind} {connections}: {sample}");
                report.add(*subject, load, sample);
            }
        }
    }
    Ok(())
}

/// The cost with few and with very many stored tasks, of pages near and far, of reading many tasks, and of
/// chunks.
pub(crate) async fn size(scale: f64, report: &mut Report) -> Result<()> {
    for subject in [Subject::Sqlite, Subject::Postgres] {
        chunks(subject, report).await?;
        grow(subject, (1_000_000.0 * scale) as u64, scale, report).await?;
    }
    Ok(())
}

async fn chunks(subject: Subject, report: &mut Report) -> Result<()> {
    let server = Server::start(subject)?;
    load::chunks(&server, 100).await?;
    for count in [1_000, 10_000] {
        let before = server.bytes();
        let cost = load::chunks(&server, count).await?;
        let bytes = server.bytes().saturating_sub(before) / count as u64;
        report.note(format!(
            "{subject}: {count} chunks of one artifact, streamed: {cost:.2} µs CPU and {bytes} bytes a chunk"
        ));
    }
    Ok(())
}

async fn grow(subject: Subject, many: u64, scale: f64, report: &mut Report) -> Result<()> {
    let server = Server::start(subject)?;
    let duration = Duration::from_secs_f64(4.0 * scale.max(0.25));
    let mut stored = 0;
    for target in [10_000.min(many), many / 10, many] {
        load::send(&server, target.saturating_sub(stored)).await?;
        stored = target.max(stored);
        for kind in Kind::ALL {
            let load = Load {
                kind,
                wire: Wire::JsonRpcV1,
                connections: 16,
                duration,
                text: 256,
                rate: None,
                keyed: false,
            };
            let sample = load.run(&server).await?;
            report.note(format!("{subject}: {kind} with {target} stored tasks: {sample}"));
        }
    }
    report.note(format!("{subject}: {} bytes on the disk a task", server.bytes() / stored.max(1)));
    let before = server.rss()?;
    let (near, far, ids) = pages(&server, 1_000).await?;
    report.note(format!(
        "{subject}: a page of 100 tasks: {near:.0} µs CPU for the first, {far:.0} µs from the 900th on"
    ));
    let peak = read(&server, &ids).await?;
    report.note(format!(
        "{subject}: {} finished tasks read: memory grew by {:.1} MB at most",
        ids.len(),
        peak.saturating_sub(before) as f64 / 1e6
    ));
    Ok(())
}

/// Walks the list; CPU in microseconds per page at its beginning and at its end, and the ids of the tasks.
async fn pages(server: &Server, count: usize) -> Result<(f64, f64, Vec<String>)> {
    let mut connection = Connection::open(&server.address).await?;
    let (mut ids, mut token) = (Vec::new(), None);
    let mut marks = vec![server.cpu_ns()?];
    for number in 0..count {
        let request =
            ListTasksRequest { page_size: Some(100), page_token: token, ..ListTasksRequest::default() };
        let call = Call::ListTasks(Box::new(request));
        connection.call(Template::new(server.path, Wire::JsonRpcV1, call)?.fill(number as u64)).await?;
        let answer: serde_json::Value = serde_json::from_slice(&connection.body)?;
        let tasks = answer["result"]["tasks"].as_array().context("no tasks in the answer")?;
        ids.extend(tasks.iter().filter_map(|task| task["id"].as_str().map(str::to_owned)));
        marks.push(server.cpu_ns()?);
        token =
            answer["result"]["nextPageToken"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    // The first page counts the tasks, too.
    let each = |from: usize, to: usize| (marks[to] - marks[from]) as f64 / 1000.0 / (to - from).max(1) as f64;
    let last = marks.len() - 1;
    let far = last * 9 / 10;
    Ok((each(1.min(last), (last / 10).max(1).min(last)), each(far, last), ids))
}

/// Reads each task once; the most memory that was in use.
async fn read(server: &Server, ids: &[String]) -> Result<u64> {
    let mut connection = Connection::open(&server.address).await?;
    let mut peak = server.rss()?;
    for (number, id) in ids.iter().enumerate() {
        connection.call(Template::get(server.path, Wire::JsonRpcV1, id)?.fill(number as u64)).await?;
        if number % 1_000 == 0 {
            peak = peak.max(server.rss()?);
        }
    }
    Ok(peak.max(server.rss()?))
}
