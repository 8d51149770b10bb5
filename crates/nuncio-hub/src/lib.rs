//! The hub as a library: agents behind one address, each with everything that A2A has.
//!
//! Reading order: [`config`] has the settings, [`Hub`] composes the parts and runs. Then in the order of a
//! request: `listen` is the network edge, `pipeline` the steps of every request, `routes` and `grpc` its
//! paths, `cors` answers browsers, `identity` authenticates the caller, `dispatch` and `call` take a call to
//! its agent through `telemetry` and `limits`. `registry` has the agents that are wanted, `fleet` those that are served,
//! `agents` a folder per kind of agent, `rooms` the conversations of two seats, `agent_urls` the addresses, `directory`
//! the lists for callers. `data` opens the store, `ready` watches it, `memory` has the
//! memory limit, `signing` the keys of cards, `root_key` the key that the others are derived from, `push`
//! starts the delivery of webhooks, `trail` stores refused calls and operators' changes, `admin` is the API
//! for operators, `samples` keeps the figures of the last hours and `events` the last changes for it, `health` reports
//! readiness. `playground` sends messages of operators, and `push_receiver` takes their notifications. `hubs` lists
//! the hubs of a store. `connect` is a hub of one agent that works for a mailbox elsewhere.
#![expect(missing_docs, reason = "a product, not a library for others: docs where they say something")]

pub mod admin;
mod agent_urls;
mod agents;
mod app;
mod call;
mod clock;
pub mod config;
mod connect;
mod cors;
mod data;
mod directory;
mod dispatch;
mod events;
mod fleet;
mod gauges;
mod grpc;
mod health;
mod hubs;
mod identity;
mod limits;
mod listen;
mod memory;
#[cfg(test)]
mod mutations;
mod network;
mod pipeline;
mod playground;
mod preflight;
mod push;
mod push_receiver;
mod ready;
mod registry;
mod reload;
mod rooms;
mod root_key;
mod routes;
mod samples;
mod scrape;
mod signing;
pub mod store_maintenance;
mod target;
mod telemetry;
mod trail;
mod welcome;

pub use nuncio_server::store::OpenError;

#[doc(hidden)]
pub use self::agents::fuzz_model_answer;

pub use self::{
    admin::{Reloader, admin_token_file},
    app::{Administered, Hub, Served},
    connect::{ConnectOptions, Connector, LeaseEnd, Report, host_name},
    identity::{ApiKey, ApiKeyLimits, KeyText, Keyring, KeyringError, NewApiKey, key_prefix},
    listen::{Certificates, Reload},
    preflight::preflight,
    reload::Reloading,
};
