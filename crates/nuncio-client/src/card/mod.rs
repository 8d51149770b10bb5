//! Agent cards on the way in: found, kept, and checked; and signed on the way out.

pub(crate) mod cache;
pub(crate) mod discover;
pub(crate) mod keys;
mod pem;
pub(crate) mod sign;
pub(crate) mod trust;
pub(crate) mod verify;
