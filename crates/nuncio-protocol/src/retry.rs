//! Trying again: growing pauses ([`Backoff`]) and a circuit that opens ([`Breaker`]). Pure: moments and chance are
//! given as values, the waiting is done by others.
//!
//! They live in this crate because it is the only one that every other crate may use: a server without webhooks
//! compiles no client.

mod backoff;
mod breaker;

pub use self::{
    backoff::Backoff,
    breaker::{Breaker, BreakerPolicy},
};
