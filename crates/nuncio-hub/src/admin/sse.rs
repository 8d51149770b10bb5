//! Server-sent events of the admin API: an id, by which a client goes on, and one line of JSON.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderValue, header};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::api::Route;

/// The interval of comments while there are no events, so that neither side takes the connection for dead.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// A comment.
const HEARTBEAT: &[u8] = b":\n\n";

/// A response with these events.
pub(super) fn response<R: Route>(items: impl Stream<Item = R::Answer> + Send + 'static) -> Response {
    let mut beats = tokio::time::interval_at(Instant::now() + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first bytes go out at once, so that a client knows that the stream is open.
    let begin = stream::iter([Bytes::from_static(HEARTBEAT)]);
    let frames = stream::unfold((Box::pin(items), beats), |(mut items, mut beats)| async move {
        let frame = next::<R>(&mut items, &mut beats).await?;
        Some((frame, (items, beats)))
    });
    let body = Body::from_stream(begin.chain(frames).map(Ok::<_, Infallible>));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// The next event or heartbeat; `None` at the end.
async fn next<R: Route>(
    items: &mut (impl Stream<Item = R::Answer> + Unpin),
    beats: &mut Interval,
) -> Option<Bytes> {
    tokio::select! {
        biased;
        item = items.next() => {
            beats.reset();
            frame::<R>(&item?)
        }
        _ = beats.tick() => Some(Bytes::from_static(HEARTBEAT)),
    }
}

/// `None` if the item cannot be written as JSON, which does not happen.
fn frame<R: Route>(item: &R::Answer) -> Option<Bytes> {
    let id = R::STREAM.map(|id| id(item)).unwrap_or_default();
    Some(format!("id: {id}\ndata: {}\n\n", serde_json::to_string(item).ok()?).into())
}
