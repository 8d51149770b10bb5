//! The protobuf form of one version as a value: a binding selects a version once and does not name it
//! afterwards, as with `Dialect` for JSON.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    SERVICE, decode_call, decode_event, decode_reply, decode_status, encode_call, encode_event, encode_reply,
    encode_status, op_from_rpc,
    peek::{peek, with_tenant},
    rpc_name,
};
use crate::{
    Error, ErrorKind, Event, GrpcCode, Result, StreamItem, Version,
    op::{Call, Op, Reply},
    wire::peek::RequestSummary,
};

/// The functions of one version. The functions of [`pb`](crate::pb) document their contracts.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// The version.
    pub version: Version,
    /// Its slot among the cached encodings of a [`StreamItem`].
    pub(crate) slot: usize,
    /// The gRPC service: calls go to `/{service}/{rpc}`.
    pub service: &'static str,
    /// The rpc of an operation; `None` if this version does not have it.
    pub rpc_name: fn(Op) -> Option<&'static str>,
    /// The operation of an rpc.
    pub op_from_rpc: fn(&str) -> Option<Op>,
    /// Server: decodes a request.
    pub decode_call: fn(Op, Bytes) -> Result<Call>,
    /// Relay: the summary of a request; `None` if it has to be decoded for that.
    pub peek: fn(Op, Bytes) -> Option<RequestSummary<'static>>,
    /// Relay: the request with its tenant replaced; `None` if it is not a message, or has no tenant field.
    pub with_tenant: fn(&Bytes, Option<&str>) -> Option<Bytes>,
    /// Server: encodes an answer other than a stream.
    pub encode_reply: fn(Op, &Reply, &mut Vec<u8>) -> Result<()>,
    /// Server: encodes an event.
    pub encode_event: fn(&Event, &mut Vec<u8>) -> Result<()>,
    /// Server: an error in the words of this version.
    pub reword: fn(Error) -> Error,
    /// Server: the status code of an error.
    pub status_code: fn(ErrorKind) -> GrpcCode,
    /// Server: the message of a status; `google.rpc.Status` has the error's own.
    pub status_message: fn(&Error) -> Cow<'_, str>,
    /// Server: encodes an error as `google.rpc.Status`.
    pub encode_status: fn(&Error) -> Vec<u8>,
    /// Client: encodes a request.
    pub encode_call: fn(&Call, &mut Vec<u8>) -> Result<()>,
    /// Client: decodes an answer other than a stream.
    pub decode_reply: fn(Op, Bytes) -> Result<Reply>,
    /// Client: decodes an event.
    pub decode_event: fn(Bytes) -> Result<Event>,
    /// Client: decodes an error from the code, the message and the details of the trailers.
    pub decode_status: fn(i32, &str, &[u8]) -> Error,
}

/// The codec of v1.0.
pub const CODEC: Codec = Codec {
    version: Version::V1_0,
    slot: 3,
    service: SERVICE,
    rpc_name,
    op_from_rpc,
    decode_call,
    peek,
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

/// Server: encodes the event of a stream, once for all subscribers that share it.
///
/// # Errors
/// `InvalidAgentResponse` with the field if protobuf cannot express a value.
pub fn encode_item(codec: &Codec, item: &StreamItem) -> Result<Bytes> {
    let encode = |event: &Event| {
        // Without spare capacity, so that the conversion to `Bytes` does not copy.
        let mut bytes = Vec::new();
        (codec.encode_event)(event, &mut bytes)?;
        Ok(bytes)
    };
    if item.is_shared() {
        return item.try_encoded(codec.slot, encode).cloned();
    }
    encode(item.event()).map(Bytes::from)
}
