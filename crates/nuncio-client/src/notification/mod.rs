//! Signatures of notifications: the names of the headers, and the two proofs of origin. A *claim* (a JWT,
//! by a key that the sender publishes) needs no shared secret; a *webhook secret* (an HMAC, as in Standard
//! Webhooks) needs no public key.
//!
//! Senders use [`sign`] and [`WebhookSecret::sign`]. Receivers use a [`Receiver`](crate::Receiver), which
//! also makes all other checks.

mod jwt;
mod secret;

pub use self::{
    jwt::{Claims, Expected, Invalid, LIFETIME, Signed, sign, verify},
    secret::{SecretError, TOLERANCE, WebhookSecret, WrongSignature},
};

/// The token of the push configuration, in the header of the Go and Rust SDKs (trap T-17).
pub const TOKEN: &str = "a2a-notification-token";
/// The same token, in the header of v0.3 and the other SDKs.
pub const X_TOKEN: &str = "x-a2a-notification-token";
/// The signed claims.
pub const SIGNATURE: &str = "a2a-notification-signature";
/// The version of the body.
pub const VERSION: &str = "a2a-version";
/// The id of the delivery: the same for every attempt.
pub const ID: &str = "webhook-id";
/// The time of this attempt, in Unix seconds.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The number of this attempt; the first is 1.
pub const ATTEMPT: &str = "webhook-attempt";
/// The signatures by shared secrets, separated by spaces.
pub const SECRET_SIGNATURE: &str = "webhook-signature";
