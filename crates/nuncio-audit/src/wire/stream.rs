//! A stream of events, read frame by frame within limits.

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use nuncio_client::ForwardBody;
use tokio::time::{Instant, timeout_at};

use super::{Exchange, Frame, FrameData, FrameReader, Request, Response};

/// The maximum number of frames and bytes of a stream.
const MAX_FRAMES: usize = 500;
const MAX_BYTES: usize = 4 << 20;

/// The answer to a request for a stream.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A stream of events.
    Stream(Box<Stream>),
    /// Anything else.
    Answer(Box<Exchange>),
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// The agent closed it.
    Closed,
    /// It broke, or was not a stream of events.
    Broken(String),
    /// Nothing came in time.
    Slow,
    /// It exceeded the limits of the audit.
    TooLong,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) request: Request,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: HeaderMap,
    pub(crate) frames: Vec<Frame>,
    pub(crate) end: Option<End>,
    body: ForwardBody,
    reader: FrameReader,
    bytes: usize,
    deadline: Instant,
}

impl Stream {
    pub(super) fn new(request: Request, response: http::Response<ForwardBody>, deadline: Instant) -> Self {
        let (parts, body) = response.into_parts();
        let reader = FrameReader::new(&parts.headers);
        Self {
            request,
            status: parts.status.as_u16(),
            headers: parts.headers,
            trailers: HeaderMap::new(),
            frames: Vec::new(),
            end: None,
            body,
            reader,
            bytes: 0,
            deadline,
        }
    }

    /// Reads until another frame has arrived; false if there will be none, or not by this time.
    pub(crate) async fn advance(&mut self, by: Instant) -> bool {
        let known = self.frames.len();
        let by = by.min(self.deadline);
        while self.frames.len() == known && self.end.is_none() {
            match timeout_at(by, self.body.frame()).await {
                Err(_) => return false,
                Ok(None) => self.end = Some(End::Closed),
                Ok(Some(Err(error))) => self.end = Some(End::Broken(error.message().to_owned())),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(frame) => self.trailers = frame.into_trailers().unwrap_or_default(),
                },
            }
        }
        self.frames.len() > known
    }

    /// Reads to the end of the stream, or to this time.
    pub(crate) async fn finish(&mut self, by: Instant) {
        while self.advance(by).await {}
        if self.end.is_none() {
            self.end = Some(End::Slow);
        }
    }

    fn take(&mut self, data: Bytes) {
        self.bytes += data.len();
        if let Err(why) = self.reader.push(data, &mut self.frames) {
            self.end = Some(End::Broken(why));
        }
        if self.frames.len() > MAX_FRAMES || self.bytes > MAX_BYTES {
            self.end = Some(End::TooLong);
        }
    }

    /// The stream so far as an exchange, for reports and for answers in the form of a stream.
    pub(crate) fn exchange(&self) -> Exchange {
        let lines = self.frames.iter().map(|frame| match &frame.data {
            FrameData::Text(text) => format!("data: {text}\n\n"),
            FrameData::Message(message) => format!("({} bytes)\n", message.len()),
        });
        let response = Response {
            status: self.status,
            headers: self.headers.clone(),
            body: lines.collect::<String>().into(),
            trailers: self.trailers.clone(),
        };
        Exchange { request: self.request.clone(), response: Ok(response) }
    }
}
