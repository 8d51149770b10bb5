//! What the HTTP bindings have in common: reading a body within bounds, and answers.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use nuncio_protocol::{Error, ErrorKind, Fault, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::BindOptions;

pub(super) const JSON: &str = "application/json";
pub(super) const A2A_JSON: &str = "application/a2a+json";

/// True for a body that calls itself JSON (REQ-031).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    if value == JSON {
        return true;
    }
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(JSON) || essence.eq_ignore_ascii_case(A2A_JSON)
}

/// The error of a body that is of another type: it is not looked at.
pub(super) fn not_json(expected: &str) -> Error {
    Error::new(ErrorKind::ContentTypeNotSupported, format!("expected Content-Type: {expected}"))
}

/// The memory that bodies may take together while they arrive. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Semaphore>);

impl BodyMemory {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }
}

impl Default for BodyMemory {
    /// 512 MiB.
    fn default() -> Self {
        Self::new(512 * 1024 * 1024)
    }
}

/// The whole body, if it is not too large and comes in time.
pub(super) async fn read(body: Body, options: &BindOptions) -> Result<Bytes> {
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

async fn collect(mut body: Body, options: &BindOptions) -> Result<Bytes> {
    let (mut pieces, mut size) = (Vec::<Bytes>::new(), 0);
    let mut held: Option<SemaphorePermit<'_>> = None;
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
            let more = hold(&options.body_memory, piece.len())?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
        pieces.push(piece);
    }
    Ok(match pieces.len() {
        0 | 1 => pieces.pop().unwrap_or_default(),
        _ => pieces.concat().into(),
    })
}

fn hold(memory: &BodyMemory, bytes: usize) -> Result<SemaphorePermit<'_>> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    memory.0.try_acquire_many(bytes).map_err(|_| {
        Error::new(
            ErrorKind::ResourceExhausted,
            "too many large bodies arrive at the same time; try again later",
        )
        .with_retry_after(Duration::from_secs(1))
    })
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

/// A body of this media type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The headers that go with an error: when to come again, how to authenticate.
pub(super) fn explain(response: &mut Response, error: &Error) {
    let status = response.status();
    let headers = response.headers_mut();
    when_again(headers, error);
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}

/// Says when to come again: too late rather than too early.
pub(super) fn when_again(headers: &mut HeaderMap, error: &Error) {
    if let Some(after) = error.retry_after() {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
}

/// The cause of our own faults goes to the log, once, here where the answer is made. Those of an agent behind us are
/// told by whoever knows its name.
pub(super) fn log(error: &Error) {
    match error.fault() {
        Fault::Us => tracing::error!(%error, cause = ?std::error::Error::source(error), "a call failed"),
        // The words may quote what the caller said; they are for the caller.
        Fault::Caller | Fault::Upstream => tracing::debug!(kind = ?error.kind(), "a call was refused"),
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

    #[tokio::test]
    async fn bodies_share_their_memory_while_they_arrive() {
        let options = BindOptions { body_memory: BodyMemory::new(100), ..BindOptions::default() };
        assert_eq!(read(in_pieces(1, 1000), &options).await.unwrap().len(), 1000, "the first piece is free");
        assert_eq!(read(in_pieces(3, 50), &options).await.unwrap().len(), 150);
        let error = read(in_pieces(4, 50), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.retry_after().is_some());
        assert_eq!(read(in_pieces(3, 50), &options).await.unwrap().len(), 150, "and it is given back");
        // Others hold all there is.
        let held = hold(&options.body_memory, 100).unwrap();
        assert_eq!(read(in_pieces(2, 1), &options).await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
        drop(held);
        assert_eq!(read(in_pieces(2, 1), &options).await.unwrap().len(), 2);
    }
}
