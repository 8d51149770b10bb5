//! Retries: growing pauses ([`Backoff`]) and a circuit breaker ([`Breaker`]). Pure: times and randomness
//! are parameters, and the caller does the waiting.
//!
//! They are in this crate because it is the only one that every other crate may use: a server without
//! webhooks does not compile the client.

mod backoff;
mod breaker;

pub use self::{
    backoff::Backoff,
    breaker::{Breaker, BreakerPolicy},
};
