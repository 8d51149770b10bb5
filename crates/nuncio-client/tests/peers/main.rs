//! The client against peers on real sockets: well-behaved ones, old ones, and hostile ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too, which clippy does not see")]

mod cards;
#[cfg(feature = "grpc")]
mod grpc;
mod guard;
mod interceptors;
mod peer;
mod rest;
mod streams;
mod tls;
mod tokens;
mod unary;
