//! Agent cards: discovery, caching, signing and verification.

pub(crate) mod cache;
pub(crate) mod discover;
pub(crate) mod keys;
mod pem;
pub(crate) mod sign;
pub(crate) mod trust;
pub(crate) mod verify;
