//! The hub as a library: agents behind one address, each with everything A2A has.
//!
//! Reading order: [`config`] says what is wanted, [`Hub`] composes it and runs it, `listen` is the
//! network edge, `cors` answers browsers, `identity` finds who calls, `limits` says how much,
//! `trail` takes down who was refused, `pipeline` has the stations of a request, `routes` every path and `grpc` its
//! own, `dispatch` the path of a call to an agent and `call` what a call is, `fleet` has the agents that
//! are served, `agent_urls` has the addresses of agents, `data` opens the
//! store and `ready` watches it, `memory` has the limit of the process, `signing` has the keys of cards, `master` the key behind the others, `push`
//! begins to deliver, `agents` has a folder per kind of agent, `admin` is for whoever runs the hub, `health` and
//! `telemetry` say how it is.
#![expect(missing_docs, reason = "a product, not a library for others: docs where they say something")]

pub mod admin;
mod agent_urls;
mod agents;
mod app;
mod call;
mod clock;
pub mod config;
mod cors;
mod data;
mod directory;
mod dispatch;
mod fleet;
mod gauges;
mod grpc;
mod health;
mod identity;
mod limits;
mod listen;
pub mod maintain;
mod master;
mod memory;
mod network;
mod pipeline;
mod preflight;
mod push;
mod ready;
mod registry;
mod reload;
mod routes;
mod scrape;
mod signing;
mod target;
mod telemetry;
mod trail;

pub use nuncio_server::store::OpenError;

pub use self::{
    admin::{Reloader, admin_token_file},
    app::{Administered, Hub, Served},
    identity::{Key, KeyLimits, KeyText, Keyring, KeyringError, NewKey, key_prefix},
    listen::{Certificates, Reload},
    preflight::preflight,
    reload::Reloading,
};
