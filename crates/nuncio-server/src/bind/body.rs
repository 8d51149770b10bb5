//! Bodies of requests: read within bounds, and decoded where they hold up nobody.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use nuncio_protocol::{Error, ErrorKind, Result};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BindOptions;

/// Bodies from this size on are decoded on a blocking thread: on an async worker they would hold up every other call
/// that it serves.
const LARGE_BODY: usize = 256 * 1024;

/// The memory that bodies may take together until they are decoded. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Semaphore>);

impl BodyMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    fn acquire(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(bytes).map_err(|_| {
            Error::new(
                ErrorKind::ResourceExhausted,
                "too many large bodies arrive at the same time; try again later",
            )
            .with_retry_after(Duration::from_secs(1))
        })
    }
}

impl Default for BodyMemory {
    /// 512 MiB.
    fn default() -> Self {
        Self::new(512 * 1024 * 1024)
    }
}

/// A whole body, with its share of [`BodyMemory`]. The last clone gives that back.
#[derive(Clone, Debug)]
pub(super) struct ReadBody {
    pub(super) bytes: Bytes,
    permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl ReadBody {
    /// No body.
    pub(super) fn none() -> Self {
        Self { bytes: Bytes::new(), permit: None }
    }

    /// The same share for other bytes, such as the message in a frame.
    pub(super) fn with_bytes(&self, bytes: Bytes) -> Self {
        Self { bytes, permit: self.permit.clone() }
    }

    /// Decodes the bytes: at once if they are few, otherwise on a blocking thread.
    pub(super) async fn decode<T: Send + 'static>(
        &self,
        decode: impl FnOnce(Bytes) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.bytes.len() < LARGE_BODY {
            return decode(self.bytes.clone());
        }
        // The share stays taken also if the caller leaves in the meantime.
        let Self { bytes, permit } = self.clone();
        let decoding = tokio::task::spawn_blocking(move || {
            let decoded = decode(bytes);
            drop(permit);
            decoded
        });
        decoding.await.map_err(Error::internal)?
    }

    /// Decodes JSON that was found in the body.
    pub(super) async fn decode_json<T: Send + 'static>(
        &self,
        json: Option<&RawValue>,
        decode: impl FnOnce(Option<&RawValue>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.bytes.len() < LARGE_BODY {
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

/// The whole body, if it is not too large and comes in time.
pub(super) async fn read(body: Body, options: &BindOptions) -> Result<ReadBody> {
    let mut body = pin!(collect(body, options));
    // It is nearly always there already, and then needs no timer.
    match (&mut body).now_or_never() {
        Some(collected) => collected,
        None => tokio::time::timeout(options.body_timeout, body)
            .await
            .map_err(|_| Error::new(ErrorKind::DeadlineExceeded, "the body did not arrive in time"))?,
    }
}

/// Refuses what is larger than may be.
pub(super) fn check_size(size: usize, options: &BindOptions) -> Result<()> {
    if size <= options.body_bytes {
        return Ok(());
    }
    let why = format!("the body is larger than {} bytes", options.body_bytes);
    Err(Error::new(ErrorKind::PayloadTooLarge, why))
}

async fn collect(mut body: Body, options: &BindOptions) -> Result<ReadBody> {
    let (mut pieces, mut size) = (Vec::<Bytes>::new(), 0);
    let mut permit: Option<OwnedSemaphorePermit> = None;
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
        // The first piece is no larger than what a connection may hold anyway.
        if !pieces.is_empty() {
            let more = options.body_memory.acquire(piece.len())?;
            match &mut permit {
                Some(permit) => permit.merge(more),
                None => permit = Some(more),
            }
        }
        pieces.push(piece);
    }
    let bytes = match pieces.len() {
        0 | 1 => pieces.pop().unwrap_or_default(),
        _ => pieces.concat().into(),
    };
    Ok(ReadBody { bytes, permit: permit.map(Arc::new) })
}

/// Who is still writing would find the connection broken instead of reading why. As much again is taken and
/// thrown away; whoever sends more than that has to do without.
async fn discard(mut body: Body, most: usize) {
    let mut left = most;
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

    fn in_pieces(count: usize, size: usize) -> Body {
        Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, Infallible>(vec![b'x'; size]))))
    }

    async fn length(body: Body, options: &BindOptions) -> usize {
        read(body, options).await.unwrap().bytes.len()
    }

    #[tokio::test]
    async fn bodies_share_their_memory_until_they_are_decoded() {
        let options = BindOptions { body_memory: BodyMemory::new(100), ..BindOptions::default() };
        assert_eq!(length(in_pieces(1, 1000), &options).await, 1000, "the first piece is free");
        assert_eq!(length(in_pieces(3, 50), &options).await, 150);
        let error = read(in_pieces(4, 50), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.retry_after().is_some());
        let body = read(in_pieces(3, 50), &options).await.unwrap();
        // One that is there and not decoded yet holds all there is.
        let clone = body.clone();
        drop(body);
        assert_eq!(read(in_pieces(2, 1), &options).await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
        drop(clone);
        assert_eq!(length(in_pieces(2, 1), &options).await, 2, "and it is given back");
    }

    #[tokio::test]
    async fn what_is_large_is_decoded_on_another_thread_and_what_is_small_is_not() {
        let here = std::thread::current().id();
        for (size, is_here) in [(100, true), (LARGE_BODY, false)] {
            let options = BindOptions { body_memory: BodyMemory::new(2 * size), ..BindOptions::default() };
            let body = read(in_pieces(2, size), &options).await.unwrap();
            let memory = options.body_memory.clone();
            let (seen, left) = body
                .decode(move |_| Ok((std::thread::current().id(), memory.0.available_permits())))
                .await
                .unwrap();
            assert_eq!(seen == here, is_here, "{size}");
            assert_eq!(left, size, "its share is taken while it is decoded");
            drop(body);
            assert_eq!(options.body_memory.0.available_permits(), 2 * size);

            let text = format!("{{\"a\":\"{}\"}}", "x".repeat(size));
            let body = ReadBody { bytes: text.clone().into(), permit: None };
            let value: &RawValue = serde_json::from_slice(&body.bytes).unwrap();
            let foreign = RawValue::from_string("{\"b\":1}".to_owned()).unwrap();
            for json in [Some(value), Some(&*foreign), None] {
                let read = body.decode_json(json, |json| Ok(json.map(ToString::to_string))).await.unwrap();
                assert_eq!(read, json.map(ToString::to_string));
            }
        }
    }
}
