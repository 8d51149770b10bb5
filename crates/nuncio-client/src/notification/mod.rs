//! Notifications as signed things: what their headers are called, and the two signatures that say where one
//! comes from. A *claim* (a JWT, by a key that the sender publishes) needs no shared secret; a *webhook
//! secret* (an HMAC, as Standard Webhooks has it) needs no public key.
//!
//! Whoever sends uses [`sign`] and [`WebhookSecret::sign`]; whoever receives uses a
//! [`Receiver`](crate::Receiver), which also looks at everything else.

mod jwt;
mod secret;

pub use self::{
    jwt::{Claims, Expected, Invalid, LIFETIME, Signed, sign, verify},
    secret::{SecretError, TOLERANCE, WebhookSecret, WrongSignature},
};

/// The token of the push configuration, as the SDKs for Go and Rust call it (trap T-17).
pub const TOKEN: &str = "a2a-notification-token";
/// The same, as v0.3 and the other SDKs call it.
pub const X_TOKEN: &str = "x-a2a-notification-token";
/// The claims, signed.
pub const SIGNATURE: &str = "a2a-notification-signature";
/// The version of the body.
pub const VERSION: &str = "a2a-version";
/// The id of the delivery: the same for every attempt.
pub const ID: &str = "webhook-id";
/// The moment of this attempt, in Unix seconds.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The number of this attempt; the first is 1.
pub const ATTEMPT: &str = "webhook-attempt";
/// The signatures by shared secrets, separated by spaces.
pub const SECRET_SIGNATURE: &str = "webhook-signature";
