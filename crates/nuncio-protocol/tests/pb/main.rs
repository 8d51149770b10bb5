//! The protobuf forms of both versions: round trips, against the JSON form, and with hostile bytes.
#![cfg(feature = "grpc")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

mod hostile;
mod oracle;
mod status;
mod strategies;
mod v03;
mod v1;
