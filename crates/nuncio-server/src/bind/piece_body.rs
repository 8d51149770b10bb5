//! Response bodies that hold a reservation of the memory account. A large response is encoded piece by piece
//! while it is written, so that only one piece exists twice.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use nuncio_protocol::wire::Pieces;

use crate::memory::MemoryReservation;

/// Small pieces go out together, up to about this many bytes. Larger ones go out as they are.
const WRITE: usize = 64 * 1024;

/// A response with these pieces. It releases its memory when it is written, or when the client disconnects.
pub(super) fn respond(media_type: &'static str, pieces: Pieces, memory: MemoryReservation) -> Response {
    let mut response = Response::new(Body::new(PieceBody { pieces, large: None, _memory: memory }));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

struct PieceBody {
    pieces: Pieces,
    /// A large piece whose turn is next. It may be shared with the task, and is not copied.
    large: Option<Bytes>,
    _memory: MemoryReservation,
}

impl http_body::Body for PieceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(large) = self.large.take() {
            return Poll::Ready(Some(Ok(Frame::data(large))));
        }
        let mut out = Vec::new();
        while out.len() < WRITE
            && let Some(piece) = self.pieces.next()
        {
            if piece.len() >= WRITE {
                self.large = Some(piece);
                break;
            }
            out.extend_from_slice(&piece);
        }
        let frame = if out.is_empty() { self.large.take() } else { Some(out.into()) };
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }
}

/// A body that holds memory until it is written, for responses that are one message.
pub(super) struct HeldBody {
    pub(super) body: Body,
    pub(super) _memory: std::sync::Arc<MemoryReservation>,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
