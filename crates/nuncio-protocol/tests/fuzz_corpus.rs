//! The fuzz functions over the committed corpus and over mutations of it, the same at every run.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod fuzz;

use std::{fs, panic::catch_unwind};

/// The number of mutations of each file of the corpus.
const MUTATIONS: usize = 1_000;

/// Tokens of the formats, for mutations.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "1e999",
    "-0.0",
    "99999999999999999999",
    "\n",
    "\r",
    "\r\n",
    "data:",
    "id:",
    "\u{feff}",
    "%",
    "%2F",
    "%ff",
    "/",
    "//",
    ":cancel",
    ":subscribe",
    "?",
    "&",
    "=",
    "tasks",
    "\"id\":",
    "\"text\":",
    "\"data\":",
    "\"message\":",
    "TASK_STATE_",
    "2026-11-15T12:00:00Z",
    "\0",
    "ä",
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
    for _ in 0..=dice.roll(3) {
        let from = dice.roll(data.len() + 1);
        let to = from + dice.roll((data.len() - from).min(16) + 1);
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
                let end = start + dice.roll((other.len() - start).min(64) + 1);
                data.splice(from..to, other[start..end].iter().copied());
            }
            _ => drop(data.splice(from..to, TOKENS[dice.roll(TOKENS.len())].bytes())),
        }
    }
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("{}/tests/data/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn run(name: &str, file: &str, data: &[u8]) {
    let outcome = catch_unwind(|| fuzz::run(name, data));
    assert!(outcome.is_ok(), "from {file}, with the input {}", data.escape_ascii());
}

#[track_caller]
fn check(name: &str) {
    let files = corpus(name);
    let mut dice = Dice(0x2602_2602_2602_2602);
    for (file, data) in &files {
        run(name, file, data);
        for _ in 0..MUTATIONS {
            let mut mutated = data.clone();
            let other = &files[dice.roll(files.len())].1;
            mutate(&mut dice, &mut mutated, other);
            run(name, file, &mutated);
        }
    }
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+

        #[test]
        fn every_target_is_run() {
            let run: Vec<&str> = vec![$(stringify!($name)),+];
            let known: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(run, known);
        }
    };
}

targets! { jsonrpc_body jsonrpc_response sse v1_call v1_event v03_call v03_event card rest_path rest_error }
