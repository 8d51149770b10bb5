//! Translation between the versions: every golden message of v1.0 goes down to each form of v0.3 and up
//! again, every one of v0.3 up to each form of v1.0 and down again. What is then different is what the loss
//! table says, no more and no less; and every row of the table is seen at work.
//!
//! Reading order: `document` (what there is to translate), `wire` (the five forms), `path` and `loss` (the
//! table and how it is applied), then the tests: `down`, `up`, `across`, `property`, `notes`.
#![cfg(feature = "grpc")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod across;
mod document;
mod down;
mod loss;
mod notes;
mod path;
mod property;
#[path = "../pb/strategies.rs"]
mod strategies;
mod up;
mod wire;
