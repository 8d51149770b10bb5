//! The protobuf form of v1.0 (package `lf.a2a.v1`), for the gRPC binding only.
//!
//! The messages are generated from `proto/a2a_v1.proto` by `cargo xtask codegen`. They know presence and
//! numbers, not the rules of the protocol, so they leave this folder only after conversion to our own types.
//!
//! Reading order: `convert` (one message after the other, both directions), `call` (a call, an answer or
//! an event as bytes), `status` (an error as bytes), `codec` (all of it for a binding that serves several
//! versions), `well_known` (free-form data), `glance` (what a relay sees of a request), `number` (where a stream can be resumed).

mod call;
mod codec;
pub(crate) mod convert;
#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "generated, and complete whether we use all of it or not"
)]
pub mod generated;
pub(crate) mod glance;
mod number;
mod status;
pub mod well_known;

pub use self::{
    call::{
        SERVICE, decode_call, decode_event, decode_reply, encode_call, encode_event, encode_reply,
        op_from_rpc, rpc_name,
    },
    codec::{CODEC, Codec, encode_item},
    number::{encode_numbered_item, take_number},
    status::{decode_status, encode_status, kind_from_grpc},
};
pub(crate) use self::{
    call::{params, result, write},
    status::{decode_status_or, encode_status_as, status_message},
};

/// The descriptors of both packages and of what they import, for a reflection service.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!("descriptor.bin");
