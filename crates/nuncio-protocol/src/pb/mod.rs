//! The protobuf form of v1.0 (package `lf.a2a.v1`), for the gRPC binding only.
//!
//! The messages are generated from `proto/a2a_v1.proto` by `cargo xtask codegen`. They have presence and
//! numbers, but not the rules of the protocol, so they leave this folder only after conversion to our own
//! types.
//!
//! Reading order: `convert` (messages, both directions), `call` (calls, answers and events as bytes),
//! `status` (errors as bytes), `codec` (all of it, for a binding with several versions), `well_known`
//! (free-form data), `peek` (the summary of a request for a relay), `number` (sequence numbers of
//! events).

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
pub(crate) mod lists;
mod number;
pub(crate) mod peek;
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

/// The descriptors of both packages and of their imports, for a reflection service.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!("descriptor.bin");
