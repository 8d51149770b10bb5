//! Fuzz functions over a committed corpus and over mutations of it, the same at every run. `cargo fuzz` in `/fuzz` runs
//! the same functions at length.

use std::panic::catch_unwind;

/// Mutations of each file.
const MUTATIONS: usize = 400;

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

fn mutate(dice: &mut Dice, data: &mut Vec<u8>, other: &[u8], tokens: &[&str]) {
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
            _ => drop(data.splice(from..to, tokens[dice.roll(tokens.len())].bytes())),
        }
    }
}

/// The committed corpus of this name.
pub(crate) fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/tests/data/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut files: Vec<_> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    files.sort();
    files
}

/// Runs a function over these files and their mutations by these tokens.
pub(crate) fn run(files: &[Vec<u8>], tokens: &[&str], target: fn(&[u8])) {
    let mut dice = Dice(0x2602_2602_2602_2602);
    let run = |data: &[u8]| {
        assert!(catch_unwind(|| target(data)).is_ok(), "with the input {}", data.escape_ascii());
    };
    for data in files {
        run(data);
        for _ in 0..MUTATIONS {
            let mut mutated = data.clone();
            let other = &files[dice.roll(files.len())];
            mutate(&mut dice, &mut mutated, other, tokens);
            run(&mutated);
        }
    }
}
