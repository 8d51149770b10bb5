//! Wire formats. Framing ([`jsonrpc`], [`rest`], [`sse`]) knows envelopes, paths and frames; a
//! [`Dialect`] knows the names and shapes of one version. Neither does I/O, and both sides of the wire
//! use the same code.

pub mod glance;
pub mod jsonrpc;
mod pieces;
pub mod rest;
pub mod sse;
mod v1;

use serde_json::value::RawValue;

use self::glance::TaskPlace;
pub use self::v1::V1;
pub use crate::error::excerpt;
use crate::{
    Error, Event, Result, StreamItem, Version,
    op::{Call, Op, Reply},
};

/// An answer in pieces, each made when it is asked for.
pub type Pieces = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// The names and shapes of one version on the JSON bindings.
///
/// A dialect is pure: bytes to types and back. Input is read liberally, output written exactly.
pub trait Dialect: Send + Sync + 'static {
    /// The version it speaks.
    fn version(&self) -> Version;

    /// Its place among the encodings that a [`StreamItem`] keeps; each dialect has its own.
    fn slot(&self) -> usize;

    /// The JSON-RPC method of an operation; `None` if this version does not have it.
    fn method(&self, op: Op) -> Option<&'static str>;

    /// The operation of a JSON-RPC method.
    fn op(&self, method: &str) -> Option<Op>;

    /// Server: reads the parameters.
    ///
    /// # Errors
    /// `InvalidParams` that names the field.
    fn decode_call(&self, op: Op, params: Option<&RawValue>) -> Result<Call>;

    /// Server: true if the parameters say something that our types have no place for, so that what is decoded is
    /// less than what was said.
    fn says_more(&self, _op: Op, _params: Option<&RawValue>) -> bool {
        false
    }

    /// Server: writes an answer other than a stream.
    ///
    /// # Errors
    /// The answer cannot be written in this version.
    fn encode_reply(&self, op: Op, reply: &Reply, out: &mut Vec<u8>) -> Result<()>;

    /// Server: writes a large answer other than a stream piece by piece, each when it is asked for. Together they are
    /// what [`Self::encode_reply`] writes; they may be one.
    ///
    /// # Errors
    /// The answer cannot be written in this version.
    fn reply_pieces(&self, op: Op, reply: Reply) -> Result<Pieces> {
        let mut out = Vec::new();
        self.encode_reply(op, &reply, &mut out)?;
        Ok(Box::new(std::iter::once(out)))
    }

    /// Server: writes an event.
    fn encode_event(&self, event: &Event, out: &mut Vec<u8>);

    /// Server: an error in the words of this version, where it names roles or states.
    fn reword(&self, error: Error) -> Error {
        error
    }

    /// True if the clients of this version expect a streaming call that is refused to answer with a
    /// stream of one error; otherwise it answers like any other call.
    fn refuses_in_stream(&self) -> bool {
        false
    }

    /// Client: writes the parameters.
    ///
    /// # Errors
    /// The call cannot be written in this version.
    fn encode_call(&self, call: &Call, out: &mut Vec<u8>) -> Result<()>;

    /// Client: reads an answer other than a stream.
    ///
    /// # Errors
    /// `InvalidAgentResponse` that names the field.
    fn decode_reply(&self, op: Op, result: &RawValue) -> Result<Reply>;

    /// Where the task of an event is, for a glance at it; `None`: not in one place.
    fn task_place(&self) -> Option<TaskPlace> {
        None
    }

    /// Client: reads an event.
    ///
    /// # Errors
    /// `InvalidAgentResponse` that names the field.
    fn decode_event(&self, data: &RawValue) -> Result<Event>;

    /// Client: reads the event of a JSON-RPC response in one pass; `None` if it is not as it should be.
    fn event_of(&self, response: &str) -> Option<Event>;

    /// Client: reads the event of a JSON-RPC response.
    ///
    /// # Errors
    /// The peer's error; `InvalidAgentResponse` that says what is wrong.
    fn decode_event_response(&self, response: &str) -> Result<Event> {
        match self.event_of(response) {
            Some(event) => Ok(event),
            None => self.decode_event(jsonrpc::decode_response(response.as_bytes())?),
        }
    }
}

/// Writes the event of a stream: encoded once for all subscribers that share it, or straight away if
/// there is only one.
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
