//! The limit: a bare axum handler that reads typed JSON and writes the bytes that the echo agent would,
//! with new ids and the present time, and keeps nothing.

use std::{
    borrow::Cow,
    convert::Infallible,
    io::Write as _,
    pin::Pin,
    task::{Context, Poll},
    time::SystemTime,
};

use anyhow::Result;
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use bytes::Bytes;
use http_body::Frame;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

#[derive(Deserialize)]
struct RpcRequest<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Message<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    context_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    task_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Serialize, Deserialize, Clone)]
struct Part<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Task<'a> {
    id: &'a str,
    context_id: &'a str,
    status: Status<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    artifacts: &'a [Artifact<'a>],
    history: &'a [&'a Message<'a>],
}

#[derive(Serialize, Clone, Copy)]
struct Status<'a> {
    state: &'a str,
    timestamp: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifact<'a> {
    artifact_id: &'a str,
    name: &'a str,
    parts: &'a [Part<'a>],
}

pub(crate) async fn serve(listener: tokio::net::TcpListener) -> Result<()> {
    axum::serve(listener, Router::new().route("/", post(answer))).await?;
    Ok(())
}

async fn answer(headers: HeaderMap, body: Bytes) -> Response {
    // As any server must, it looks at the headers that matter.
    if headers.get(header::CONTENT_TYPE).is_none() || headers.get("a2a-version").is_none() {
        return axum::http::StatusCode::BAD_REQUEST.into_response();
    }
    let Ok(request) = serde_json::from_slice::<RpcRequest<'_>>(&body) else {
        return axum::http::StatusCode::BAD_REQUEST.into_response();
    };
    let timestamp = timestamp();
    let mut out = Vec::with_capacity(2048);
    match (&*request.method, request.params.message, request.params.id) {
        ("SendMessage", Some(message), _) => send(&mut out, request.id, message, &timestamp),
        ("SendStreamingMessage", Some(message), _) => {
            let hold = message.parts.first().is_some_and(|part| part.text.starts_with("hold"));
            stream(&mut out, request.id, message, &timestamp, hold);
            return event_stream(out, hold);
        }
        ("GetTask", None, Some(id)) => get(&mut out, request.id, &id, &timestamp),
        _ => return axum::http::StatusCode::BAD_REQUEST.into_response(),
    }
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], out).into_response()
}

fn timestamp() -> String {
    // The same length as an ISO time, and about the same work.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, day) = (now.as_secs() % 86_400, now.as_secs() / 86_400);
    format!(
        "2026-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        day % 12 + 1,
        day % 28 + 1,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        now.subsec_millis()
    )
}

fn head(out: &mut Vec<u8>, id: &RawValue) {
    let _ = write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.get());
}

fn send(out: &mut Vec<u8>, id: &RawValue, message: Message<'_>, timestamp: &str) {
    let (task, context, artifact) =
        (Uuid::now_v7().to_string(), Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
    let mut message = message;
    message.task_id = Some(Cow::Borrowed(&task));
    message.context_id = Some(Cow::Borrowed(&context));
    let artifacts = [Artifact { artifact_id: &artifact, name: "echo", parts: &message.parts }];
    let status = Status { state: "TASK_STATE_COMPLETED", timestamp };
    let task = Task { id: &task, context_id: &context, status, artifacts: &artifacts, history: &[&message] };
    head(out, id);
    out.extend_from_slice(b"{\"task\":");
    let _ = serde_json::to_writer(&mut *out, &task);
    out.extend_from_slice(b"}}");
}

fn get(out: &mut Vec<u8>, id: &RawValue, task: &str, timestamp: &str) {
    let text: Cow<'_, str> = Cow::Borrowed(GET_TEXT);
    let message = Message {
        message_id: Cow::Borrowed("00000000-0000-4000-8000-000000000000"),
        context_id: Some(Cow::Borrowed(task)),
        task_id: Some(Cow::Borrowed(task)),
        role: Cow::Borrowed("ROLE_USER"),
        parts: vec![Part { text }],
    };
    let artifacts = [Artifact { artifact_id: task, name: "echo", parts: &message.parts }];
    let status = Status { state: "TASK_STATE_COMPLETED", timestamp };
    let task = Task { id: task, context_id: task, status, artifacts: &artifacts, history: &[&message] };
    head(out, id);
    let _ = serde_json::to_writer(&mut *out, &task);
    out.push(b'}');
}

/// As long as the text that the generator sends.
pub(crate) const GET_TEXT: &str = "echo the quick brown fox jumps over the lazy dog and runs away the quick brown fox jumps over \
     the lazy dog and runs away the quick brown fox jumps over the lazy dog and runs away the quick brown fox jumps over \
     the lazy dog and runs away the quick brow";

fn stream(out: &mut Vec<u8>, id: &RawValue, message: Message<'_>, timestamp: &str, hold: bool) {
    let (task, context, artifact) =
        (Uuid::now_v7().to_string(), Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
    let mut message = message;
    message.task_id = Some(Cow::Borrowed(&task));
    message.context_id = Some(Cow::Borrowed(&context));
    let update = |out: &mut Vec<u8>, n: u8, state: &str| {
        let _ = write!(out, "id: {n}\ndata: ");
        head(out, id);
        let _ = write!(
            out,
            "{{\"statusUpdate\":{{\"taskId\":\"{task}\",\"contextId\":\"{context}\",\"status\":{{\"state\":\"{state}\",\"timestamp\":\"{timestamp}\"}}}}}}}}\n\n"
        );
    };
    out.extend_from_slice(b"id: 1\ndata: ");
    head(out, id);
    out.extend_from_slice(b"{\"task\":");
    let status = Status { state: "TASK_STATE_SUBMITTED", timestamp };
    let submitted = Task { id: &task, context_id: &context, status, artifacts: &[], history: &[&message] };
    let _ = serde_json::to_writer(&mut *out, &submitted);
    out.extend_from_slice(b"}}\n\n");
    update(out, 2, "TASK_STATE_WORKING");
    if hold {
        return;
    }
    out.extend_from_slice(b"id: 3\ndata: ");
    head(out, id);
    let _ =
        write!(out, "{{\"artifactUpdate\":{{\"taskId\":\"{task}\",\"contextId\":\"{context}\",\"artifact\":");
    let artifact = Artifact { artifact_id: &artifact, name: "echo", parts: &message.parts };
    let _ = serde_json::to_writer(&mut *out, &artifact);
    out.extend_from_slice(b",\"lastChunk\":true}}}\n\n");
    update(out, 4, "TASK_STATE_COMPLETED");
}

/// A frame for each event, as an ordinary handler has it; then the end, or never the end.
struct Events {
    frames: std::vec::IntoIter<Bytes>,
    hold: bool,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.frames.next() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.hold => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

fn event_stream(events: Vec<u8>, hold: bool) -> Response {
    let events = Bytes::from(events);
    let mut frames = Vec::with_capacity(4);
    let mut from = 0;
    while let Some(length) = crate::http1::find(&events[from..], b"\n\n") {
        frames.push(events.slice(from..from + length + 2));
        from += length + 2;
    }
    let mut response = Response::new(Body::new(Events { frames: frames.into_iter(), hold }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
