//! The events of one connection that carries server-sent events. The two JSON bindings differ in what a
//! frame holds, and in nothing else.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use nuncio_protocol::{
    Error, ErrorKind, Event, Result, Seq, StreamItem,
    wire::sse::{Decoder, Frame},
};

use super::WireStream;
use crate::{egress::ForwardBody, failure::Failure};

/// A connection that carries events.
struct Connection<D> {
    body: ForwardBody,
    decoder: Decoder,
    /// Reads the data of a frame: an event, or the error that ends the stream.
    decode: D,
}

/// The events of a connection: until it ends, breaks, or carries an error. No line and no event may be
/// larger than `max_event`.
pub(crate) fn events(
    body: ForwardBody,
    max_event: usize,
    decode: impl Fn(&str) -> Result<Event> + Send + 'static,
) -> WireStream {
    let connection = Connection { body, decoder: Decoder::new(max_event), decode };
    let events = stream::unfold(Some(connection), |connection| async move {
        let mut connection = connection?;
        match connection.next().await {
            Ok(Some(item)) => Some((Ok(item), Some(connection))),
            Ok(None) => None,
            Err(failure) => Some((Err(failure), None)),
        }
    });
    events.boxed()
}

/// The only event of an answer that is no stream, though one was asked for.
pub(crate) fn only(event: Event) -> WireStream {
    stream::iter([Ok(StreamItem::new(None, Arc::new(event)))]).boxed()
}

impl<D: Fn(&str) -> Result<Event>> Connection<D> {
    async fn next(&mut self) -> Result<Option<StreamItem>, Failure> {
        loop {
            let frame = self.decoder.next_frame().map_err(|error| {
                Failure::answered(Error::new(ErrorKind::InvalidAgentResponse, error.to_string()))
            })?;
            match frame {
                Some(frame) if frame.data.is_empty() => {}
                Some(frame) => return self.item(&frame).map(Some).map_err(Failure::answered),
                None => match self.body.frame().await {
                    Some(Ok(frame)) => {
                        frame.data_ref().into_iter().for_each(|bytes| self.decoder.push(bytes))
                    }
                    None => return Ok(None),
                    Some(Err(error)) => return Err(Failure::perhaps(error)),
                },
            }
        }
    }

    /// The name of a frame does not matter (fact sheet 4.1).
    fn item(&self, frame: &Frame) -> Result<StreamItem> {
        let event = (self.decode)(&frame.data)?;
        let seq = frame.id.as_deref().and_then(|id| id.parse().ok()).map(Seq);
        Ok(StreamItem::new(seq, Arc::new(event)))
    }
}
