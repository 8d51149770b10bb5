//! A layer that breaks one thing of a correct agent.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

/// A request as the layer sees it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    /// The body as JSON; null if it is none.
    pub(crate) json: Value,
    pub(crate) body: Bytes,
}

impl Asked {
    /// The method of JSON-RPC, in either version.
    pub(crate) fn rpc(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// An answer as the layer changes it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The JSON of the body, or of each event of a stream.
    pub(crate) json: Vec<Value>,
    pub(crate) is_stream: bool,
}

impl Told {
    /// The only body.
    pub(crate) fn body(&mut self) -> &mut Value {
        if self.json.is_empty() {
            self.json.push(Value::Null);
        }
        &mut self.json[0]
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &'static str) {
        self.headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A way to break an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaker {
    /// Changes the request before the agent sees it.
    pub(crate) before: Option<fn(&mut Asked)>,
    /// Answers instead of the agent.
    pub(crate) instead: Option<fn(&Asked) -> Option<Response>>,
    /// Changes the answer.
    pub(crate) after: Option<fn(&Asked, &mut Told)>,
    /// Streams that are changed, too: they arrive as a whole.
    pub(crate) streams: fn(&Asked) -> bool,
    /// Streams that stay open after their end.
    pub(crate) hangs: fn(&Asked) -> bool,
    /// Streams that break off before the agent has finished.
    pub(crate) breaks_off: fn(&Asked) -> bool,
    /// Changes gRPC headers and trailers.
    pub(crate) trailers: Option<fn(&Asked, &mut HeaderMap)>,
}

/// Breaks nothing.
pub(crate) const WHOLE: Breaker = Breaker {
    before: None,
    instead: None,
    after: None,
    streams: |_| false,
    hangs: |_| false,
    breaks_off: |_| false,
    trailers: None,
};

const MAX: usize = 16 << 20;
/// The life of a stream that breaks off.
const BREAK_OFF: Duration = Duration::from_millis(200);

/// Passes a request and its answer.
pub(crate) async fn pass(breaker: Breaker, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX).await.unwrap_or_default();
    let mut asked = Asked {
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.clone(),
        json: serde_json::from_slice(&body).unwrap_or_default(),
        body,
    };
    if let Some(before) = breaker.before {
        before(&mut asked);
    }
    if let Some(response) = breaker.instead.and_then(|instead| instead(&asked)) {
        return response;
    }
    let mut again = Request::from_parts(parts, Body::from(asked.body.clone()));
    *again.headers_mut() = asked.headers.clone();
    again.headers_mut().remove("content-length");
    let mut response = next.run(again).await;
    let media_type =
        response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if media_type.starts_with("application/grpc") {
        if let Some(change) = breaker.trailers {
            change(&asked, response.headers_mut());
        }
        return response;
    }
    let is_stream = media_type == "text/event-stream";
    if is_stream && (breaker.hangs)(&asked) {
        let (parts, body) = response.into_parts();
        let open = body.into_data_stream().chain(futures_util::stream::pending());
        return Response::from_parts(parts, Body::from_stream(open));
    }
    if is_stream && (breaker.breaks_off)(&asked) {
        let (parts, body) = response.into_parts();
        let short = body.into_data_stream().take_until(tokio::time::sleep(BREAK_OFF));
        return Response::from_parts(parts, Body::from_stream(short));
    }
    let Some(after) = breaker.after.filter(|_| !is_stream || (breaker.streams)(&asked)) else {
        return response;
    };
    change(&asked, response, after).await
}

async fn change(asked: &Asked, response: Response, after: fn(&Asked, &mut Told)) -> Response {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, MAX).await.unwrap_or_default();
    let is_stream = parts.headers.get("content-type").is_some_and(|value| value == "text/event-stream");
    let json = if is_stream { events(&body) } else { serde_json::from_slice(&body).into_iter().collect() };
    let mut told = Told { status: parts.status, headers: parts.headers, json, is_stream };
    let before = told.json.clone();
    after(asked, &mut told);
    told.headers.remove("content-length");
    let bytes = match (told.is_stream, told.json == before) {
        (_, true) => body,
        (true, _) => told.json.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into(),
        (false, _) => told.json.first().map(Value::to_string).unwrap_or_default().into(),
    };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = told.status;
    *response.headers_mut() = told.headers;
    response
}

fn events(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}
