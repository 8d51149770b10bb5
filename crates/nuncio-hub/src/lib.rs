//! The hub as a library: agents behind one address, each with everything A2A has.
//!
//! Reading order: [`config`] says what is wanted, [`Hub`] composes it and runs it, `listen` is the
//! network edge, `router` and `grpc` have every mount, `place` says where agents are reached, `data` opens the
//! store and `ready` watches it, `signing` has the keys of cards, `master` the key behind the others, `push`
//! begins to deliver, `agents` has a file per kind of agent, `admin` is for whoever runs the hub.
#![expect(missing_docs, reason = "a product, not a library for others: docs where they say something")]

mod admin;
mod agents;
mod app;
pub mod config;
mod data;
mod grpc;
mod listen;
pub mod maintain;
mod master;
mod place;
mod push;
mod ready;
mod router;
mod signing;

pub use nuncio_server::store::OpenError;

pub use self::{
    admin::admin_token_file,
    agents::{Profile, demo_names},
    app::{Administered, Hub, Served},
    listen::{Certificates, Reload},
};
