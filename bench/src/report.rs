//! The table.

use std::collections::BTreeMap;

use crate::{
    load::{Load, Sample},
    request::{Kind, Wire},
    server::Subject,
};

type Key = (Kind, usize, Wire, Subject);

#[derive(Default)]
pub(crate) struct Report {
    samples: BTreeMap<Key, Vec<Sample>>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, subject: Subject, load: Load, sample: Sample) {
        self.samples.entry((load.kind, load.connections, load.wire, subject)).or_default().push(sample);
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    fn median(&self, key: &Key, value: impl Fn(&Sample) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.samples.get(key)?.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    pub(crate) fn print(&self) {
        if !self.samples.is_empty() {
            println!("| | connections | server CPU per request | × bare | requests/s | p50 |");
            println!("|---|--:|--:|--:|--:|--:|");
        }
        for key in self.samples.keys() {
            let (kind, connections, wire, subject) = *key;
            let cpu = self.median(key, |sample| sample.cpu_us).unwrap_or_default();
            let bare = self.median(&(kind, connections, Wire::V1, Subject::Bare), |sample| sample.cpu_us);
            println!(
                "| {kind:?} {wire:?} {subject:?} | {connections} | {cpu:.1} µs | {:.2} | {:.0} | {:.0} µs |",
                cpu / bare.unwrap_or(cpu),
                self.median(key, |sample| sample.rate).unwrap_or_default(),
                self.median(key, |sample| sample.p50_us).unwrap_or_default(),
            );
        }
        for note in &self.notes {
            println!("- {note}");
        }
    }
}
