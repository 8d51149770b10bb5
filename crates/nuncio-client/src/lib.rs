//! Call any A2A agent, of either version of the protocol.
//!
//! ```no_run
//! use futures_util::StreamExt as _;
//! use nuncio_client::Client;
//!
//! # async fn run() -> nuncio_client::protocol::Result<()> {
//! let client = Client::connect("http://localhost:2602/agents/echo").await?;
//! let mut events = client.stream("hello").await?;
//! while let Some(item) = events.next().await {
//!     println!("{:?}", item?.event());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] finds the agent's card, picks the first interface that we speak, and talks over it. Broken
//! streams resume by themselves; only what is safe to repeat is repeated; credentials stay within the
//! origin that the card came from. [`Client::service`] gives the agent as an
//! [`A2aService`](protocol::A2aService), the trait that a server implements as well.
//!
//! Reading order of the modules:
//!
//! | module | its job |
//! |---|---|
//! | `client`, `builder` | the pleasant front, and its options |
//! | `card` | discover, keep, verify and sign agent cards |
//! | `choose` | which interface: a pure function |
//! | `hosts` | at which hosts an agent may be called, whatever its card says |
//! | `auth` | credentials, access tokens, and to whom they may go |
//! | `transport` | the wires, one file per binding; streams that resume; which wire, how often |
//! | `retry` | when to try again: pure functions |
//! | [`notification`] | what proves where a notification comes from: made and verified |
//! | [`receiver`] | the other end of a webhook |
//! | `egress` | the only place where HTTP clients are made, and the guard over what callers name |
//!
//! Absent on purpose: redirects are not followed, and a message is never sent twice unless the agent
//! declares that it recognises the repetition ([`RESUME_EXTENSION`]).

mod client;

mod builder;

mod card;

mod choose;

mod hosts;

mod auth;

mod transport;

mod retry;

pub mod notification;

pub mod receiver;

mod egress;
mod failure;
mod http_headers;

pub use nuncio_protocol as protocol;
pub use nuncio_protocol::RESUME_EXTENSION;

pub use self::{
    auth::{ClientCredentials, Credentials},
    builder::ClientBuilder,
    card::{
        cache::CardCache,
        discover::{FetchedCard, agent_url, card_urls, discover},
        keys::{KeyError, SigningKey, TrustedKeys},
        sign::sign_card,
        trust::Trust,
        verify::{Over, Verified, VerifyError, verify_card},
    },
    choose::{Candidate, Preferences, SPOKEN_BINDINGS, choose},
    client::{Client, Outgoing},
    egress::{
        AddressKind, DEFAULT_MAX_BODY, Egress, EgressBuilder, ForwardBody, Policy, PostError, PostErrorKind,
        Posted, Refusal, TlsError,
    },
    failure::{has_no_agent, was_not_sent},
    hosts::{FOREIGN_HOST, InterfaceHosts},
    receiver::Receiver,
    retry::RetryPolicy,
    transport::{
        direct::Direct,
        forward::{Forward, Handed},
    },
};
