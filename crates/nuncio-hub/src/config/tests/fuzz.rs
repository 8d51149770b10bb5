//! Any bytes in a file give an answer and no panic. `cargo fuzz` in `/fuzz` tries this at length.

use crate::{
    config::{fuzz_config, init},
    mutations,
};

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

/// The committed corpus, and pieces of the file that `init` writes.
fn corpus() -> Vec<Vec<u8>> {
    let mut files = mutations::corpus("config");
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
    mutations::run(&corpus(), TOKENS, fuzz_config);
}
