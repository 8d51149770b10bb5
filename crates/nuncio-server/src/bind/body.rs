//! Request bodies: read within limits. Large ones are decoded on a thread where they do not delay other
//! calls.

use std::{pin::pin, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use nuncio_protocol::{Error, ErrorKind, Result};
use serde_json::value::RawValue;

use super::BindOptions;
use crate::{
    large_work::{self, LARGE},
    memory::{MemoryReservation, MemoryUse, exhausted},
};

/// The copies of a body while it is read and decoded: the whole, as much again while it grows, and the request.
const COPIES: usize = 3;

/// A whole body, with its reservation in the memory account. The last clone releases that.
#[derive(Clone, Debug)]
pub struct ReadBody {
    pub(super) bytes: Bytes,
    memory: Option<Arc<MemoryReservation>>,
}

impl ReadBody {
    /// An empty body.
    pub(super) fn none() -> Self {
        Self { bytes: Bytes::new(), memory: None }
    }

    /// Other bytes under the same reservation, such as the message in a frame.
    pub(super) fn with_bytes(&self, bytes: Bytes) -> Self {
        Self { bytes, memory: self.memory.clone() }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// True if it is decoded on a blocking thread.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() >= LARGE
    }

    /// Decodes the bytes: in place if they are few, otherwise on a blocking thread.
    ///
    /// # Errors
    /// The error of `decode`.
    pub async fn decode<T: Send + 'static>(
        &self,
        decode: impl FnOnce(Bytes) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.is_large() {
            return decode(self.bytes.clone());
        }
        // The memory stays reserved even if the caller disconnects meanwhile.
        let Self { bytes, memory } = self.clone();
        let decoding = large_work::run(move || {
            let decoded = decode(bytes);
            drop(memory);
            decoded
        });
        decoding.await?
    }

    /// Decodes a JSON value that was found in the body.
    pub(super) async fn decode_json<T: Send + 'static>(
        &self,
        json: Option<&RawValue>,
        decode: impl FnOnce(Option<&RawValue>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.is_large() {
            return decode(json);
        }
        let Some(json) = json else { return decode(None) };
        let json = json.get().as_bytes();
        let bytes = if self.bytes.as_ptr_range().contains(&json.as_ptr()) {
            self.bytes.slice_ref(json)
        } else {
            Bytes::copy_from_slice(json)
        };
        let read = move |bytes: Bytes| decode(Some(serde_json::from_slice(&bytes).map_err(Error::internal)?));
        self.with_bytes(bytes).decode(read).await
    }
}

/// Reads the whole body, if it is not too large, arrives in time, and finds room in the memory account.
///
/// # Errors
/// `PayloadTooLarge`, `DeadlineExceeded`, `ResourceExhausted`, or `InvalidRequest` if it breaks off.
pub async fn read(body: Body, options: &BindOptions) -> Result<ReadBody> {
    let mut body = pin!(collect(body, options));
    // The body has nearly always arrived already, and then needs no timer.
    match (&mut body).now_or_never() {
        Some(collected) => collected,
        None => tokio::time::timeout(options.body_timeout, body)
            .await
            .map_err(|_| Error::new(ErrorKind::DeadlineExceeded, "the body did not arrive in time"))?,
    }
}

/// Refuses a body that is larger than the limit.
pub(super) fn check_size(size: usize, options: &BindOptions) -> Result<()> {
    if size <= options.body_bytes {
        return Ok(());
    }
    let why = format!("the body is larger than {} bytes", options.body_bytes);
    Err(Error::new(ErrorKind::PayloadTooLarge, why))
}

async fn collect(mut body: Body, options: &BindOptions) -> Result<ReadBody> {
    let (mut whole, mut size) = (Whole::default(), 0);
    let announced = usize::try_from(http_body::Body::size_hint(&body).lower()).unwrap_or(usize::MAX);
    let mut memory = MemoryReservation::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, "the body could not be read").with_source(error)
        })?;
        let Ok(piece) = frame.into_data() else { continue };
        size += piece.len();
        if let Err(error) = check_size(size, options) {
            discard(body, options.body_bytes).await;
            return Err(error);
        }
        if !memory.try_resize(&options.memory, MemoryUse::Requests, size * COPIES) {
            drop((whole, memory));
            discard(body, options.body_bytes).await;
            return Err(exhausted());
        }
        whole.push(piece, announced);
    }
    let memory = (!memory.is_empty()).then(|| Arc::new(memory));
    Ok(ReadBody { bytes: whole.into_bytes(), memory })
}

/// A body that arrives: its only piece, or a copy of all of them. A piece is copied when it comes, and its buffer is
/// read into again: there is no moment at which all of a large body is joined.
#[derive(Default)]
enum Whole {
    #[default]
    Nothing,
    Piece(Bytes),
    Copied(Vec<u8>),
}

impl Whole {
    /// Takes a piece of a body that is announced to have so many bytes. Room is made as they come, not as announced.
    fn push(&mut self, piece: Bytes, announced: usize) {
        let mut copied = match std::mem::take(self) {
            Self::Nothing => {
                *self = Self::Piece(piece);
                return;
            }
            Self::Piece(first) => first.to_vec(),
            Self::Copied(copied) => copied,
        };
        let needed = copied.len() + piece.len();
        if needed > copied.capacity() {
            let room = (2 * needed).min(announced.max(needed));
            copied.reserve_exact(room - copied.len());
        }
        copied.extend_from_slice(&piece);
        *self = Self::Copied(copied);
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::Piece(piece) => piece,
            Self::Copied(copied) => copied.into(),
        }
    }
}

/// Reads and drops the rest of a refused body, up to `max` bytes. A client that still writes would otherwise
/// find the connection closed and miss the error; a client that sends even more does miss it.
async fn discard(mut body: Body, max: usize) {
    let mut left = max;
    while let Some(Ok(frame)) = body.frame().await
        && left > 0
    {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;
    use crate::memory::MemoryAccount;

    fn in_pieces(count: usize, size: usize) -> Body {
        Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, Infallible>(vec![b'x'; size]))))
    }

    async fn length(body: Body, options: &BindOptions) -> usize {
        read(body, options).await.unwrap().bytes.len()
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn a_body_is_its_pieces_and_takes_no_more_than_announced() {
        for (announced, count) in [(0, 0), (0, 1), (0, 7), (70_000, 7), (1 << 40, 7)] {
            let pieces = (0..count).map(|number| Bytes::from(vec![number; 10_000]));
            let mut whole = Whole::default();
            pieces.clone().for_each(|piece| whole.push(piece, announced));
            if let (Whole::Copied(copied), 70_000) = (&whole, announced) {
                assert_eq!(copied.capacity(), announced);
            }
            if let Whole::Copied(copied) = &whole {
                assert!(copied.capacity() <= 2 * 70_000, "room is made as bytes come");
            }
            assert_eq!(whole.into_bytes(), pieces.collect::<Vec<_>>().concat(), "{announced} {count}");
        }
    }

    fn options(limit: usize) -> BindOptions {
        BindOptions { memory: MemoryAccount::new(limit), ..BindOptions::default() }
    }

    #[tokio::test]
    async fn bodies_share_their_memory_until_they_are_decoded() {
        let options = options(8 * MIB);
        let body = read(in_pieces(4, MIB / 4), &options).await.unwrap();
        assert_eq!(length(in_pieces(10, 1000), &options).await, 10_000, "small bodies always pass");
        let error = read(in_pieces(4, MIB / 4), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.retry_after().is_some());
        let clone = body.clone();
        drop(body);
        assert!(read(in_pieces(4, MIB / 4), &options).await.is_err(), "it is not decoded yet");
        drop(clone);
        assert_eq!(length(in_pieces(4, MIB / 4), &options).await, MIB);
        assert_eq!(length(in_pieces(12, MIB), &options).await, 12 * MIB, "a large body passes alone");
        assert_eq!(options.memory.usage(MemoryUse::Requests).used, 0);
    }

    #[tokio::test]
    async fn large_bodies_are_decoded_on_another_thread_and_small_ones_are_not() {
        let here = std::thread::current().id();
        for (size, is_here) in [(100, true), (LARGE, false)] {
            let options = options(16 * MIB);
            let body = read(in_pieces(2, size), &options).await.unwrap();
            let memory = options.memory.clone();
            let (seen, used) = body
                .decode(move |_| Ok((std::thread::current().id(), memory.usage(MemoryUse::Requests).used)))
                .await
                .unwrap();
            assert_eq!(seen == here, is_here, "{size}");
            assert_eq!(used, if is_here { 0 } else { 2 * size * COPIES }, "reserved while it is decoded");
            drop(body);
            assert_eq!(options.memory.usage(MemoryUse::Requests).used, 0);

            let text = format!("{{\"a\":\"{}\"}}", "x".repeat(size));
            let body = ReadBody { bytes: text.clone().into(), memory: None };
            let value: &RawValue = serde_json::from_slice(&body.bytes).unwrap();
            let foreign = RawValue::from_string("{\"b\":1}".to_owned()).unwrap();
            for json in [Some(value), Some(&*foreign), None] {
                let read = body.decode_json(json, |json| Ok(json.map(ToString::to_string))).await.unwrap();
                assert_eq!(read, json.map(ToString::to_string));
            }
        }
    }
}
