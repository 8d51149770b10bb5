//! Any bytes in a file give an answer and no panic. `cargo fuzz` in `/fuzz` tries this at length.

use std::panic::catch_unwind;

use crate::config::{fuzz_config, init};

const MUTATIONS: usize = 400;
const TOKENS: &[&str] = &[
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "\"",
    "\"\"\"",
    "'",
    "#",
    "\n",
    "\r\n",
    "${",
    "$${",
    "${A}",
    "${AAAAA}",
    "${A:-",
    "agents",
    "agents.a",
    "url",
    "auth",
    "bearer",
    "include",
    "[agents.\"\"]",
    "true",
    "1e999",
    "-1",
    "nan",
    "99999999999999999999",
    "0x7fffffffffffffff",
    "1979-05-27",
    "\u{feff}",
    "\0",
    "ä",
    "日本",
    "https://",
    "://",
    "@",
    "postgres://",
    "cmd",
    "***",
    "\\u0000",
    "\\U0010ffff",
    "\t",
];

/// A small generator (xorshift): no seed from outside, no clock.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if sides == 0 { 0 } else { usize::try_from(self.0 % sides as u64).unwrap_or_default() }
    }
}

fn mutate(dice: &mut Dice, data: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=dice.roll(4) {
        let from = dice.roll(data.len() + 1);
        let to = from + dice.roll((data.len() - from).min(24) + 1);
        match dice.roll(6) {
            0 if from < data.len() => data[from] ^= 1 << dice.roll(8),
            1 => drop(data.drain(from..to)),
            2 => {
                let piece = data[from..to].to_vec();
                data.splice(from..from, piece);
            }
            3 => data.truncate(from),
            4 => {
                let start = dice.roll(other.len() + 1);
                let end = start + dice.roll((other.len() - start).min(80) + 1);
                data.splice(from..to, other[start..end].iter().copied());
            }
            _ => drop(data.splice(from..to, TOKENS[dice.roll(TOKENS.len())].bytes())),
        }
    }
}

/// The committed corpus, and pieces of the file that `init` writes.
fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/corpus/config");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    files.sort();
    let whole: String = init()
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    files.extend(whole.split("\n[").map(|piece| format!("[{piece}").into_bytes()));
    files
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let files = corpus();
    let mut dice = Dice(0x2602_2602_2602_2602);
    let run = |data: &[u8]| {
        assert!(catch_unwind(|| fuzz_config(data)).is_ok(), "with the input {}", data.escape_ascii());
    };
    for data in &files {
        run(data);
        for _ in 0..MUTATIONS {
            let mut mutated = data.clone();
            let other = &files[dice.roll(files.len())];
            mutate(&mut dice, &mut mutated, other);
            run(&mutated);
        }
    }
}
