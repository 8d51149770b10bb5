//! The body of a stream, cut into frames: server-sent events, or messages of gRPC.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use nuncio_protocol::wire::sse::Decoder;

use super::{exchange::media_type, grpc::messages};

/// The maximum size of a frame.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// One event as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The id of a server-sent event.
    pub id: Option<String>,
    /// The content.
    pub data: FrameData,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameData {
    /// The data of a server-sent event.
    Text(String),
    /// A message of gRPC, without its prefix.
    Message(Bytes),
}

/// Cuts the body of a stream into frames.
#[derive(Debug)]
pub struct FrameReader(Source);

#[derive(Debug)]
enum Source {
    Sse(Decoder),
    Grpc(BytesMut),
}

impl FrameReader {
    /// A reader for the body of an answer with these headers.
    #[must_use]
    pub fn new(headers: &HeaderMap) -> Self {
        Self(match media_type(headers).as_str() {
            "text/event-stream" => Source::Sse(Decoder::new(MAX_FRAME_BYTES)),
            _ => Source::Grpc(BytesMut::new()),
        })
    }

    /// Takes bytes of the body, and adds the frames that they complete.
    ///
    /// # Errors
    /// The body is not a stream of events; the frames before are added.
    pub fn push(&mut self, data: Bytes, frames: &mut Vec<Frame>) -> Result<(), String> {
        match &mut self.0 {
            Source::Grpc(buffer) => {
                buffer.extend_from_slice(&data);
                let taken = messages(buffer).into_iter();
                frames.extend(taken.map(|message| Frame { id: None, data: FrameData::Message(message) }));
                if buffer.len() > MAX_FRAME_BYTES {
                    return Err(format!("a message is larger than {MAX_FRAME_BYTES} bytes"));
                }
            }
            Source::Sse(decoder) => {
                decoder.push(data);
                while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
                    frames.push(Frame {
                        id: frame.id.map(str::to_owned),
                        data: FrameData::Text(frame.data.to_owned()),
                    });
                }
            }
        }
        Ok(())
    }
}
