//! Server-sent events: a stream of events as a response body. All events that are ready go out in one write;
//! an idle stream sends heartbeats.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, header};
use http_body::Frame;
use nuncio_protocol::{
    Error, EventStream, Result, StreamItem,
    wire::{
        Dialect,
        jsonrpc::{self, ErrorData},
        sse, write_event,
    },
};
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep};

use super::{BindOptions, RequestId, answer};
use crate::{
    memory::{MemoryAccount, MemoryReservation, MemoryUse},
    size,
};

/// The approximate maximum size of one write.
const WRITE: usize = 64 * 1024;

/// The buffer space to reserve for an event: enough for a few of the usual size.
const WRITE_AHEAD: usize = 2048;

/// The envelope of each event, by binding.
pub(super) enum EventEnvelope {
    /// JSON-RPC: every frame is a whole response.
    JsonRpc {
        /// The response up to the result; the same in every frame.
        prefix: Box<[u8]>,
        /// The request's id as JSON, for an error frame.
        id: Box<str>,
        /// The form of `data` in an error frame.
        data: ErrorData,
    },
    /// HTTP+JSON: none.
    Bare {
        /// Encodes an error frame.
        error: fn(&Error, &mut Vec<u8>),
    },
}

impl EventEnvelope {
    pub(super) fn jsonrpc(id: Option<&RawValue>, data: ErrorData) -> Self {
        let id = id.map_or("null", RawValue::get);
        let prefix = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":").into_bytes().into();
        Self::JsonRpc { prefix, id: id.into(), data }
    }

    fn event(&self, dialect: &dyn Dialect, item: &StreamItem, out: &mut Vec<u8>) {
        match self {
            Self::JsonRpc { prefix, .. } => {
                out.extend_from_slice(prefix);
                write_event(dialect, item, out);
                out.push(b'}');
            }
            Self::Bare { .. } => write_event(dialect, item, out),
        }
    }

    fn error(&self, error: &Error, out: &mut Vec<u8>) {
        match self {
            Self::JsonRpc { id, data, .. } => {
                let id = RawValue::from_string(id.to_string()).ok();
                jsonrpc::encode_error(id.as_deref(), error, *data, out);
            }
            Self::Bare { error: write } => write(error, out),
        }
    }
}

/// The response that carries a stream.
pub(super) fn respond(
    stream: EventStream,
    dialect: &'static dyn Dialect,
    envelope: EventEnvelope,
    request_id: Option<&RequestId>,
    options: &BindOptions,
) -> Response {
    let body = SseBody {
        stream: Some(stream),
        dialect,
        envelope,
        request_id: request_id.cloned(),
        memory: options.memory.clone(),
        held: MemoryReservation::default(),
        waiting: None,
        heartbeat: options.heartbeat,
        sleep: None,
    };
    of_body(Body::new(body))
}

/// The response that carries one error instead of a stream.
pub(super) fn refuse(error: &Error, envelope: &EventEnvelope) -> Response {
    answer::log(error);
    let mut out = Vec::with_capacity(512);
    sse::encode_frame(None, &mut out, |out| envelope.error(error, out));
    of_body(Body::from(out))
}

fn of_body(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer::EVENT_STREAM));
    // Proxies must not cache, change or buffer the stream.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

struct SseBody {
    /// `None` when the stream has ended.
    stream: Option<EventStream>,
    dialect: &'static dyn Dialect,
    envelope: EventEnvelope,
    request_id: Option<RequestId>,
    memory: MemoryAccount,
    /// The memory of the last write.
    held: MemoryReservation,
    /// A large event that waits for memory.
    waiting: Option<PendingEvent>,
    heartbeat: Duration,
    /// Created when the stream is first idle: a short stream never needs it.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// An event, and the reservation that it waits for.
struct PendingEvent {
    item: StreamItem,
    memory: BoxFuture<'static, Result<MemoryReservation>>,
}

impl SseBody {
    /// Fills `out` with the events that are ready.
    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while out.len() < WRITE
            && let Poll::Ready(Some(next)) = self.poll_item(cx)
        {
            match next {
                Ok((item, held)) => {
                    self.held = held;
                    out.reserve(WRITE_AHEAD);
                    sse::encode_frame(item.seq(), out, |out| self.envelope.event(self.dialect, &item, out));
                }
                Err(error) => {
                    // The status line is sent already, so the error is the last frame (trap T-34).
                    answer::log(&error);
                    let error = RequestId::put(self.request_id.as_ref(), self.dialect.reword(error));
                    sse::encode_frame(None, out, |out| self.envelope.error(&error, out));
                    self.stream = None;
                }
            }
        }
    }

    /// The next event, with the memory to write it. A large event is the last of its write.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(StreamItem, MemoryReservation)>>> {
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            None => {
                let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
                let item = match ready!(stream.as_mut().poll_next(cx)) {
                    Some(Ok(item)) => item,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        self.stream = None;
                        return Poll::Ready(None);
                    }
                };
                let bytes = size::event(item.event());
                if let Some(held) = self.memory.try_reserve(MemoryUse::Responses, bytes) {
                    return Poll::Ready(Some(Ok((item, held))));
                }
                let memory = self.memory.clone();
                let memory = Box::pin(async move { memory.reserve(MemoryUse::Responses, bytes).await });
                self.waiting.insert(PendingEvent { item, memory })
            }
        };
        let held = ready!(waiting.memory.as_mut().poll(cx));
        let item = self.waiting.take().map(|waiting| waiting.item);
        Poll::Ready(item.map(|item| held.map(|held| (item, held))))
    }

    fn poll_heartbeat(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // No heartbeat, or one too far in the future to compute.
        let far = self.heartbeat.is_zero();
        let Some(next) = Instant::now().checked_add(self.heartbeat).filter(|_| !far) else {
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
        match sleep.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                sleep.as_mut().reset(next);
                Poll::Ready(())
            }
        }
    }
}

impl http_body::Body for SseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let mut out = Vec::new();
        // The previous write has been taken over by the connection.
        self.held = MemoryReservation::default();
        self.poll_events(cx, &mut out);
        if !out.is_empty() {
            let next = self.heartbeat;
            if let Some(sleep) = &mut self.sleep {
                // An event also shows that the stream is alive.
                sleep.as_mut().reset(Instant::now() + next);
            }
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        if self.stream.is_none() {
            return Poll::Ready(None);
        }
        match self.poll_heartbeat(cx) {
            Poll::Ready(()) => {
                // The timer must be polled again, or it would not wake this task.
                cx.waker().wake_by_ref();
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(sse::HEARTBEAT)))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
