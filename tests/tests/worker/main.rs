//! Workers of a mailbox against a scripted hub: the client crate's worker, and the connector with agents of each kind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod connector;
