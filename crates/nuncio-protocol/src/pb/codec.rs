//! The protobuf form of one version as a value, so that a binding selects a version once and names none
//! afterwards: what `Dialect` is to JSON.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    SERVICE, decode_call, decode_event, decode_reply, decode_status, encode_call, encode_event, encode_reply,
    encode_status,
    glance::{glance, with_tenant},
    op_from_rpc, rpc_name,
};
use crate::{
    Error, ErrorKind, Event, GrpcCode, Result, StreamItem, Version,
    op::{Call, Op, Reply},
    wire::glance::Glance,
};

/// The functions of one version. What each keeps is said at the functions of [`pb`](crate::pb).
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// The version it speaks.
    pub version: Version,
    /// Its place among the encodings that a [`StreamItem`] keeps.
    pub(crate) slot: usize,
    /// The gRPC service: calls go to `/{service}/{rpc}`.
    pub service: &'static str,
    /// The rpc of an operation; `None` if this version does not have it.
    pub rpc_name: fn(Op) -> Option<&'static str>,
    /// The operation of an rpc.
    pub op_from_rpc: fn(&str) -> Option<Op>,
    /// Server: reads a request.
    pub decode_call: fn(Op, Bytes) -> Result<Call>,
    /// Relay: whom a request is about; `None` if it has to be decoded to tell.
    pub glance: fn(Op, Bytes) -> Option<Glance<'static>>,
    /// Relay: the request with this tenant in place of its own; `None` if it is no message, or has no place for
    /// one.
    pub with_tenant: fn(&Bytes, Option<&str>) -> Option<Bytes>,
    /// Server: writes an answer other than a stream.
    pub encode_reply: fn(Op, &Reply, &mut Vec<u8>) -> Result<()>,
    /// Server: writes an event.
    pub encode_event: fn(&Event, &mut Vec<u8>) -> Result<()>,
    /// Server: an error in the words of this version.
    pub reword: fn(Error) -> Error,
    /// Server: the status code of an error.
    pub status_code: fn(ErrorKind) -> GrpcCode,
    /// Server: the message of a status; that inside of `google.rpc.Status` is the error's own.
    pub status_message: fn(&Error) -> Cow<'_, str>,
    /// Server: writes an error as `google.rpc.Status`.
    pub encode_status: fn(&Error) -> Vec<u8>,
    /// Client: writes a request.
    pub encode_call: fn(&Call, &mut Vec<u8>) -> Result<()>,
    /// Client: reads an answer other than a stream.
    pub decode_reply: fn(Op, Bytes) -> Result<Reply>,
    /// Client: reads an event.
    pub decode_event: fn(Bytes) -> Result<Event>,
    /// Client: reads an error from the code, the message and the details of the trailers.
    pub decode_status: fn(i32, &str, &[u8]) -> Error,
}

/// v1.0.
pub const CODEC: Codec = Codec {
    version: Version::V1_0,
    slot: 3,
    service: SERVICE,
    rpc_name,
    op_from_rpc,
    decode_call,
    glance,
    with_tenant,
    encode_reply,
    encode_event,
    reword: |error| error,
    status_code: |kind| kind.row().grpc,
    status_message: |error| error.message().into(),
    encode_status,
    encode_call,
    decode_reply,
    decode_event,
    decode_status,
};

/// Server: the event of a stream, encoded once for all subscribers that share it.
///
/// # Errors
/// `InvalidAgentResponse` that names the field when protobuf cannot carry a value.
pub fn encode_item(codec: &Codec, item: &StreamItem) -> Result<Bytes> {
    let encode = |event: &Event| {
        // Grows to what is needed and no more, so that it becomes `Bytes` as it is.
        let mut bytes = Vec::new();
        (codec.encode_event)(event, &mut bytes)?;
        Ok(bytes)
    };
    if item.is_shared() {
        return item.try_encoded(codec.slot, encode).cloned();
    }
    encode(item.event()).map(Bytes::from)
}
