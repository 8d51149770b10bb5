//! The table.

use std::collections::BTreeMap;

use nuncio_protocol::Binding;

use crate::{
    load::{Load, Sample},
    request::{Kind, Wire},
    server::Subject,
};

type Key = (Kind, usize, Wire, Subject);

/// The targets are for so many connections.
const CONNECTIONS: usize = 16;

/// Maximum cost of version 0.3, as a multiple of version 1.0 over the same binding.
const OLD_TARGET: f64 = 1.2;

/// Maximum cost of a request, as a multiple of the bare server; `None` for commits that do not wait.
fn target(kind: Kind, subject: Subject) -> Option<f64> {
    let [send, stream, get] = match subject {
        Subject::Sqlite => [5.5, 5.6, 2.5],
        Subject::Postgres => [11.0, 10.5, 5.0],
        Subject::SqliteRelaxed => return None,
        _ => [1.6, 1.6, 1.25],
    };
    Some(match kind {
        Kind::Send => send,
        Kind::Stream => stream,
        Kind::Get => get,
    })
}

/// The bare server that a wire is compared with, and the request to it.
pub(crate) fn limit(wire: Wire) -> (Subject, Wire) {
    match wire.binding() {
        Binding::JsonRpc | Binding::HttpJson => (Subject::BareAxum, Wire::JsonRpcV1),
        Binding::Grpc => (Subject::BareTonic, Wire::GrpcV1),
    }
}

#[derive(Default)]
pub(crate) struct Report {
    samples: BTreeMap<Key, Vec<Sample>>,
    notes: Vec<String>,
    tables: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, subject: Subject, load: Load, sample: Sample) {
        self.samples.entry((load.kind, load.connections, load.wire, subject)).or_default().push(sample);
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    /// A table that a part has made by itself.
    pub(crate) fn table(&mut self, table: String) {
        self.tables.push(table);
    }

    fn median(&self, key: &Key, value: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.samples.get(key)?.iter().map(value))
    }

    fn cpu(&self, key: &Key) -> Option<f64> {
        self.median(key, |sample| sample.cpu_us)
    }

    pub(crate) fn print(&self) {
        if !self.samples.is_empty() {
            println!("| | connections | server CPU per request | × bare | × 1.0 | requests/s | p50 |");
            println!("|---|--:|--:|--:|--:|--:|--:|");
        }
        for key in self.samples.keys() {
            self.print_row(key);
        }
        for note in &self.notes {
            println!("- {note}");
        }
        for table in &self.tables {
            println!("{table}");
        }
    }

    fn print_row(&self, key: &Key) {
        let (kind, connections, wire, subject) = *key;
        let cpu = self.cpu(key).unwrap_or_default();
        let name = match subject {
            Subject::BareAxum | Subject::BareTonic => subject.to_string(),
            Subject::Nuncio | Subject::NuncioKeepAll => wire.to_string(),
            Subject::Sqlite | Subject::SqliteRelaxed | Subject::Postgres => format!("{wire}, {subject}"),
        };
        let (bare, bare_wire) = limit(wire);
        let to_bare = self.cpu(&(kind, connections, bare_wire, bare)).map(|bare| cpu / bare);
        let bare_target = target(kind, subject).filter(|_| connections == CONNECTIONS && subject != bare);
        let newest = Some((kind, connections, wire.newest(), subject)).filter(|newest| newest != key);
        let to_newest = newest.and_then(|newest| self.cpu(&newest)).map(|newest| cpu / newest);
        println!(
            "| {kind}, {name} | {connections} | {cpu:.1} µs | {} | {} | {:.0} | {:.0} µs |",
            ratio(to_bare, bare_target),
            ratio(to_newest, Some(OLD_TARGET)),
            self.median(key, |sample| sample.rate).unwrap_or_default(),
            self.median(key, |sample| sample.p50_us).unwrap_or_default(),
        );
    }
}

/// The one in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A ratio with its target.
fn ratio(ratio: Option<f64>, target: Option<f64>) -> String {
    match (ratio, target) {
        (None, _) => String::new(),
        (Some(ratio), None) => format!("{ratio:.2}"),
        (Some(ratio), Some(target)) => format!("{ratio:.2} (≤ {target})"),
    }
}
