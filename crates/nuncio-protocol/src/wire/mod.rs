//! Wire formats. Framing ([`jsonrpc`], [`rest`], [`sse`]) has envelopes, paths and frames; a [`Dialect`]
//! has the names and shapes of one version. Neither does I/O, and both sides of the wire use the same code.

pub mod jsonrpc;
pub mod peek;
mod pieces;
pub mod rest;
pub mod sse;
mod v1;

use bytes::Bytes;
use serde_json::value::RawValue;

use self::peek::TaskShape;
pub use self::v1::V1;
pub use crate::error::excerpt;
use crate::{
    Error, Event, Result, StreamItem, Version,
    op::{Call, Op, Reply},
};

/// An answer in pieces, each encoded on demand.
pub type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

/// The names and shapes of one version in the JSON bindings.
///
/// A dialect is pure: bytes to types and back. Decoding is lenient, encoding is exact.
pub trait Dialect: Send + Sync + 'static {
    /// The version.
    fn version(&self) -> Version;

    /// Its slot among the cached encodings of a [`StreamItem`]; each dialect has its own.
    fn slot(&self) -> usize;

    /// The JSON-RPC method of an operation; `None` if this version does not have it.
    fn method(&self, op: Op) -> Option<&'static str>;

    /// The operation of a JSON-RPC method.
    fn op(&self, method: &str) -> Option<Op>;

    /// Server: decodes the parameters.
    ///
    /// # Errors
    /// `InvalidParams` with the field.
    fn decode_call(&self, op: Op, params: Option<&RawValue>) -> Result<Call>;

    /// Server: true if the parameters have members that our types cannot express, so that decoding loses
    /// them.
    fn says_more(&self, _op: Op, _params: Option<&RawValue>) -> bool {
        false
    }

    /// Server: encodes an answer other than a stream.
    ///
    /// # Errors
    /// This version cannot express the answer.
    fn encode_reply(&self, op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()>;

    /// Server: encodes a large answer other than a stream in pieces, each on demand. Together they equal
    /// the output of [`Self::encode_reply`]; there may be only one.
    ///
    /// # Errors
    /// This version cannot express the answer.
    fn reply_pieces(&self, op: Op, reply: Reply) -> Result<Pieces> {
        let mut out = Vec::new();
        self.encode_reply(op, &reply, &mut out)?;
        Ok(Box::new(std::iter::once(out.into())))
    }

    /// Server: encodes an event.
    fn encode_event(&self, event: &Event, out: &mut Vec<u8>);

    /// Server: an error in the words of this version, where it names roles or states.
    fn reword(&self, error: Error) -> Error {
        error
    }

    /// True if clients of this version expect a refused streaming call to be answered with a stream of one
    /// error; otherwise it is answered like any other call.
    fn refuses_in_stream(&self) -> bool {
        false
    }

    /// Client: encodes the parameters.
    ///
    /// # Errors
    /// This version cannot express the call.
    fn encode_call(&self, call: &Call, out: &mut Vec<u8>) -> Result<()>;

    /// Client: decodes an answer other than a stream.
    ///
    /// # Errors
    /// `InvalidAgentResponse` with the field.
    fn decode_reply(&self, op: Op, result: &RawValue) -> Result<Reply>;

    /// The location of the task in an event, for [`peek`]; `None` if it has no fixed one.
    fn task_shape(&self) -> Option<TaskShape> {
        None
    }

    /// Client: decodes an event.
    ///
    /// # Errors
    /// `InvalidAgentResponse` with the field.
    fn decode_event(&self, data: &RawValue) -> Result<Event>;

    /// Client: decodes the event of a JSON-RPC response in one pass; `None` if it is not the expected
    /// response.
    fn event_of(&self, response: &str) -> Option<Event>;

    /// Client: decodes the event of a JSON-RPC response.
    ///
    /// # Errors
    /// The peer's error; `InvalidAgentResponse` with the problem.
    fn decode_event_response(&self, response: &str) -> Result<Event> {
        match self.event_of(response) {
            Some(event) => Ok(event),
            None => self.decode_event(jsonrpc::decode_response(response.as_bytes())?),
        }
    }
}

/// Encodes the event of a stream: once for all subscribers that share it, or directly if there is only one.
pub fn write_event(dialect: &dyn Dialect, item: &StreamItem, out: &mut Vec<u8>) {
    if !item.is_shared() {
        return dialect.encode_event(item.event(), out);
    }
    out.extend_from_slice(item.encoded(dialect.slot(), |event| {
        let mut bytes = Vec::with_capacity(512);
        dialect.encode_event(event, &mut bytes);
        bytes
    }));
}
