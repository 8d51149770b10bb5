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
//! [`Client`] finds the agent's card, selects the first supported interface, and makes calls over it.
//! Broken streams resume by themselves; a call is repeated only if that is safe; credentials stay within
//! the origin of the card. [`Client::service`] returns the agent as an
//! [`A2aService`](protocol::A2aService), the trait that a server implements as well.
//!
//! Reading order of the modules:
//!
//! | module | content |
//! |---|---|
//! | `client`, `builder` | the client API and its options |
//! | `card` | discovery, caching, verification and signing of agent cards |
//! | `choose` | selection of an interface, a pure function |
//! | `hosts` | the hosts where an agent may be called, independent of its card |
//! | `auth` | credentials, access tokens, and the origins that get them |
//! | `transport` | one file per binding; streams that resume; selection of an interface per call |
//! | `retry` | retry policies, pure functions |
//! | [`notification`] | proofs of origin of a notification: signing and verification |
//! | [`receiver`] | the receiver of a webhook |
//! | [`worker`] | a worker of a mailbox: an agent without an address |
//! | `egress` | the only place where HTTP clients are built, and the guard for URLs of callers |
//!
//! Absent on purpose: redirects are not followed, and a message is never sent twice unless the agent
//! declares that it recognises repeats ([`RESUME_EXTENSION`]).

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

pub mod worker;

mod egress;
mod failure;
mod http_headers;

#[cfg(feature = "grpc")]
pub use self::transport::grpc::grpc_url;
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
        AddressKind, DEFAULT_MAX_BODY, Egress, EgressBuilder, EventAnswer, ForwardBody, Policy, PostError,
        PostErrorKind, Posted, Refusal, ServerEvent, TlsError, TlsOffer,
    },
    failure::{has_no_agent, was_not_sent},
    hosts::{FOREIGN_HOST, InterfaceHosts},
    receiver::Receiver,
    retry::{Retry, RetryPolicy},
    transport::{
        direct::Direct,
        forward::{Forward, Handed},
    },
};
