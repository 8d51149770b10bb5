//! Nuncio and the official SDKs, of both versions and in every binding: their clients against our agents, directly and
//! through hubs, and our client against their servers, in the same ways. `tests/peers/README.md` describes the
//! programs; `docs/compatibility.md` is the table of these tests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod audited;
mod checks;
mod clients;
mod models;
mod quirks;
mod rooms;
mod sdk;
mod servers;
mod setup;
mod table;
