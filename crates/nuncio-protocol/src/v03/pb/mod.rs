//! The protobuf form of v0.3 (package `a2a.v1`), for the gRPC binding only.
//!
//! The messages are generated from `proto/a2a_v03.proto` by `cargo xtask codegen`. They are other shapes
//! than those of v0.3 JSON-RPC, and leave this folder only after conversion to our own types.
//!
//! Reading order as in [`crate::pb`]: `convert`, `call`, `status`.

mod call;
mod convert;
#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "generated, and complete whether we use all of it or not"
)]
pub mod generated;
mod glance;
mod status;

pub use self::{
    call::{
        SERVICE, decode_call, decode_event, decode_reply, encode_call, encode_event, encode_reply,
        op_from_rpc, rpc_name,
    },
    status::{decode_status, encode_status},
};
use crate::{Version, pb::Codec};

/// v0.3.
pub const CODEC: Codec = Codec {
    version: Version::V0_3,
    slot: 4,
    service: SERVICE,
    rpc_name,
    op_from_rpc,
    decode_call,
    glance: glance::glance,
    with_tenant: glance::with_tenant,
    encode_reply,
    encode_event,
    encode_status,
    encode_call,
    decode_reply,
    decode_event,
    decode_status,
};
