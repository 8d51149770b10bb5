//! Workers of a mailbox against a scripted hub: the client crate's worker, and the connector with agents of each kind; and
//! against the binary, through proxies.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod connected;
mod connector;
mod proxied;
