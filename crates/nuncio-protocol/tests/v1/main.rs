//! The JSON form of v1.0: golden files, invalid input, round trips, and a second opinion.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden;
mod invalid;
mod oracle;
mod round_trip;
#[path = "../pb/strategies.rs"]
mod strategies;
