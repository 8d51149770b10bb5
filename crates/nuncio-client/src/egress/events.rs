//! One request whose answer is a stream of server-sent events: to an API that is not an agent, such as the provider of
//! a model.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use nuncio_protocol::{
    Error, ErrorKind, Result,
    wire::sse::{DecodeError, Decoder},
};

use super::{Egress, ForwardBody};
use crate::http_headers;

/// The answer to [`Egress::events`]: its head, and its body as events.
///
/// The events are decoded one by one and within a limit ([`Egress::with_max_event`]). Dropping the answer closes the
/// connection, so that the peer stops.
#[derive(Debug)]
pub struct EventAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: ForwardBody,
    decoder: Decoder,
}

/// A server-sent event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEvent {
    /// The last id that the peer has given, to go on from there.
    pub id: Option<String>,
    /// Its name; `None` for an event without one.
    pub name: Option<String>,
    /// Its data lines, joined by line breaks.
    pub data: String,
}

impl Egress {
    /// Sends a request and returns as soon as the headers of the answer have arrived. Any status is an answer.
    ///
    /// # Errors
    /// `InvalidParams` if the URL is invalid, `Unavailable` without an answer, `PermissionDenied` if the policy does not
    /// allow the address. [`was_not_sent`](crate::was_not_sent) tells whether the peer may have received the request.
    pub async fn events(&self, request: Request<Bytes>) -> Result<EventAnswer> {
        let answer = self.open(request, false).await?;
        Ok(EventAnswer::new(answer, self.max_event()))
    }
}

impl EventAnswer {
    fn new(answer: Response<ForwardBody>, limit: usize) -> Self {
        let (head, body) = answer.into_parts();
        Self { status: head.status, headers: head.headers, body, decoder: Decoder::new(limit) }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The pause that the peer requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        http_headers::retry_after(&self.headers, Timestamp::now())
    }

    /// True if the body is a stream of events by its media type.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        http_headers::media_type(&self.headers).eq_ignore_ascii_case("text/event-stream")
    }

    /// The next event; `None` at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// `Unavailable` if the connection broke, `InvalidAgentResponse` if the stream is not text or an event is larger
    /// than the limit. There are no more events after an error.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(undecodable)? {
                let (id, name) = (frame.id.map(str::to_owned), frame.event.map(str::to_owned));
                return Ok(Some(ServerEvent { id, name, data: frame.data.to_owned() }));
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(bytes);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Reads the body as it is, in place of events; bytes beyond `limit` are not read.
    ///
    /// # Errors
    /// `Unavailable` if the connection broke.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes> {
        let mut body = BytesMut::new();
        while body.len() < limit {
            let Some(frame) = self.body.frame().await.transpose()? else { break };
            if let Ok(bytes) = frame.into_data() {
                let fits = bytes.len().min(limit - body.len());
                body.extend_from_slice(&bytes[..fits]);
            }
        }
        Ok(body.freeze())
    }
}

fn undecodable(error: DecodeError) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, error.to_string())
}
