//! The events of one SSE connection. The two JSON bindings differ only in the content of a frame.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::{Stream, stream};
use http_body::Body as _;
use nuncio_protocol::{
    Error, ErrorKind, Event, Result, Seq, StreamItem,
    wire::sse::{Decoder, Frame},
};

use super::WireStream;
use crate::{egress::ForwardBody, failure::Failure};

/// A connection with events.
struct Connection<D> {
    /// `None` after the end.
    body: Option<ForwardBody>,
    decoder: Decoder,
    /// Decodes the data of a frame: an event, or the error that ends the stream.
    decode: D,
}

/// The events of a connection, until it ends, breaks, or has an error. No line and no event may be larger
/// than `max_event`.
pub(crate) fn events(
    body: ForwardBody,
    max_event: usize,
    decode: impl Fn(&str) -> Result<Event> + Send + Unpin + 'static,
) -> WireStream {
    Box::pin(Connection { body: Some(body), decoder: Decoder::new(max_event), decode })
}

/// The only event of an answer that is not a stream, although one was requested.
pub(crate) fn only(event: Event) -> WireStream {
    Box::pin(stream::iter([Ok(StreamItem::new(None, Arc::new(event)))]))
}

impl<D: Fn(&str) -> Result<Event> + Unpin> Stream for Connection<D> {
    type Item = Result<StreamItem, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.poll(cx)).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(next)
    }
}

impl<D: Fn(&str) -> Result<Event>> Connection<D> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<StreamItem>, Failure>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
        loop {
            let frame = self.decoder.next_frame().map_err(|error| {
                Failure::answered(Error::new(ErrorKind::InvalidAgentResponse, error.to_string()))
            })?;
            match frame {
                Some(frame) if frame.data.is_empty() => {}
                Some(frame) => {
                    return Poll::Ready(item(&self.decode, frame).map(Some).map_err(Failure::answered));
                }
                None => match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        frame.into_data().into_iter().for_each(|bytes| self.decoder.push(bytes));
                    }
                    None => return Poll::Ready(Ok(None)),
                    Some(Err(error)) => return Poll::Ready(Err(Failure::perhaps(error))),
                },
            }
        }
    }
}

/// Decodes a frame. Its name has no meaning (protocol-notes.md, v1.0).
fn item(decode: impl Fn(&str) -> Result<Event>, frame: Frame<'_>) -> Result<StreamItem> {
    let event = decode(frame.data)?;
    let seq = frame.id.and_then(|id| id.parse().ok()).map(Seq);
    Ok(StreamItem::new(seq, Arc::new(event)))
}
