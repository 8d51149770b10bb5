//! A large answer that is encoded as it is written: no more of it is there twice than one piece.

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

use crate::memory::Reservation;

/// Small pieces go out together, up to about this many bytes. Larger ones go out as they are.
const WRITE: usize = 64 * 1024;

/// The response of these pieces, which gives back its memory when it is written, or when nobody wants it any more.
pub(super) fn respond(media_type: &'static str, pieces: Pieces, memory: Reservation) -> Response {
    let mut response = Response::new(Body::new(PieceBody { pieces, large: None, _memory: memory }));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

struct PieceBody {
    pieces: Pieces,
    /// A large piece whose turn is next. It may be shared with the task, and is not copied.
    large: Option<Bytes>,
    _memory: Reservation,
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

/// A body that holds memory until it is written: for answers that are one message.
pub(super) struct HeldBody {
    pub(super) body: Body,
    pub(super) _memory: std::sync::Arc<Reservation>,
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
