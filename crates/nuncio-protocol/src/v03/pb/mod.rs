//! The protobuf form of v0.3 (package `a2a.v1`), for the gRPC binding only.
//!
//! The messages are generated from `proto/a2a_v03.proto` by `cargo xtask codegen`. Their shapes differ from
//! those of v0.3 over JSON-RPC, and they leave this folder only after conversion to our own types.
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
mod peek;
mod status;

pub use self::{
    call::{
        SERVICE, decode_call, decode_event, decode_reply, encode_call, encode_event, encode_reply,
        op_from_rpc, rpc_name,
    },
    status::{decode_status, encode_status, status_code, status_message},
};
use crate::{
    Version, pb,
    pb::Codec,
    v03::{FileBytes, Rest, files, words},
};

/// v0.3, for an unknown peer.
pub const CODEC: Codec = Codec {
    version: Version::V0_3,
    slot: 4,
    service: SERVICE,
    rpc_name,
    op_from_rpc,
    decode_call,
    peek: peek::peek,
    with_tenant: peek::with_tenant,
    encode_reply,
    encode_event,
    reword: words::reword::<Rest>,
    status_code,
    status_message,
    encode_status,
    encode_call,
    decode_reply,
    decode_event,
    decode_status,
};

/// A codec for this form of file content.
macro_rules! with_files {
    ($form:expr, $codec:expr) => {
        Codec {
            decode_call: |op, bytes| files::with($form, || decode_call(op, bytes)),
            encode_reply: |op, reply, out| files::with($form, || encode_reply(op, reply, out)),
            encode_event: |event, out| files::with($form, || encode_event(event, out)),
            encode_call: |call, out| files::with($form, || encode_call(call, out)),
            decode_reply: |op, bytes| files::with($form, || decode_reply(op, bytes)),
            decode_event: |bytes| files::with($form, || decode_event(bytes)),
            ..$codec
        }
    };
}

/// SDKs of the 1.x line that use v0.3 recognise errors by the codes of v1.0.
const MODERN: Codec =
    Codec { status_code: pb::CODEC.status_code, encode_status: pb::CODEC.encode_status, ..CODEC };

/// The slot of [`FileBytes::Raw`]; the other forms are encoded alike.
const RAW_SLOT: usize = 6;
const RAW: Codec = Codec { slot: RAW_SLOT, ..CODEC };
const MODERN_RAW: Codec = Codec { slot: RAW_SLOT, ..MODERN };

static CODECS: [Codec; 6] = [
    CODEC,
    with_files!(FileBytes::Base64, CODEC),
    with_files!(FileBytes::Raw, RAW),
    MODERN,
    with_files!(FileBytes::Base64, MODERN),
    with_files!(FileBytes::Raw, MODERN_RAW),
];

/// v0.3 for a peer with this form of file content. `is_modern` is true for a peer that states its version:
/// SDKs of the 0.3 line do not, since only v1.0 has a header for it.
#[must_use]
pub fn codec(files: FileBytes, is_modern: bool) -> &'static Codec {
    let [detect, base64, raw, modern_detect, modern_base64, modern_raw] = &CODECS;
    match (files, is_modern) {
        (FileBytes::Detect, false) => detect,
        (FileBytes::Base64, false) => base64,
        (FileBytes::Raw, false) => raw,
        (FileBytes::Detect, true) => modern_detect,
        (FileBytes::Base64, true) => modern_base64,
        (FileBytes::Raw, true) => modern_raw,
    }
}
