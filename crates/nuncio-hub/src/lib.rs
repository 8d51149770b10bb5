//! The hub as a library: agents behind one address, each with everything A2A has.
//!
//! Reading order: [`config`] says what is wanted, [`Hub`] composes it and runs it, `host` is
//! the check before all, `router` and `grpc` have every mount, `place` says where agents are reached, `agents` has a file per kind of agent.
#![expect(missing_docs, reason = "a product, not a library for others: docs where they say something")]

mod agents;
mod app;
pub mod config;
mod grpc;
mod host;
mod place;
mod router;

pub use self::{
    agents::{Profile, demo_names},
    app::{Hub, Served},
};
