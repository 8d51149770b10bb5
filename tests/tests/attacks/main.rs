//! Attacks on the real binary: requests that are within every limit and made to hurt. The hub stays alive, stays within
//! its bounds, and serves the next caller.
//!
//! | file | what it holds |
//! |---|---|
//! | `limited` | the worst bodies for a hub with little memory |
//! | `lists` | lists of large tasks by callers that do not read them |
//! | `memory` | bodies that would take many times their size once decoded |
//! | `workers` | workers of mailboxes: keys of others, leases that are over, lines of every kind |
//!
//! `NUNCIO_BIN` names the binary to attack, such as the release build; else it is the one that cargo
//! builds. `NUNCIO_ATTACKS=long` makes the run long.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, its helpers too; figures go to stderr"
)]

mod limited;
mod lists;
mod memory;
mod workers;

/// The long form has the largest bodies there may be. It is for the release binary: one without optimisations takes
/// many seconds for each.
fn is_long() -> bool {
    std::env::var_os("NUNCIO_ATTACKS").is_some_and(|form| form == "long")
}
