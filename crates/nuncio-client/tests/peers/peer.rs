//! A peer that plays a script: it answers each request with what a function makes of it, and remembers
//! what it was asked.

use std::{
    convert::Infallible,
    fmt::Debug,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, StatusCode},
    response::Response,
    serve::Listener,
};
use futures_util::{StreamExt as _, stream};
use nuncio_client::{
    Client, ClientBuilder, RetryPolicy,
    protocol::{Error, Event, EventStream},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// A request as the peer got it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The address of the peer, for cards.
    pub(crate) base: String,
    /// The number of earlier requests to the same path.
    pub(crate) before: usize,
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    /// `null` if there was none, or it was no JSON.
    pub(crate) body: Value,
    #[cfg(feature = "grpc")]
    pub(crate) bytes: Bytes,
    /// The body as it came.
    pub(crate) text: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) struct Peer {
    pub(crate) base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    server: JoinHandle<()>,
}

impl Peer {
    /// Starts a peer on a free port.
    pub(crate) async fn start(script: impl Fn(&Asked) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(base, listener, script)
    }

    /// Starts a peer that is reached at `base`.
    pub(crate) fn serve<L>(
        base: String,
        listener: L,
        script: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self
    where
        L: Listener<Addr: Debug>,
    {
        let asked = Arc::new(Mutex::new(Vec::<Asked>::new()));
        let (script, log, home) = (Arc::new(script), Arc::clone(&asked), base.clone());
        let router = Router::new().fallback(move |request: Request| {
            let (script, log, base) = (Arc::clone(&script), Arc::clone(&log), home.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let (verb, path) = (parts.method.to_string(), parts.uri.path().to_owned());
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let before = log.lock().unwrap().iter().filter(|asked| asked.path == path).count();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let headers = parts.headers;
                let asked = Asked {
                    base,
                    before,
                    verb,
                    path,
                    query,
                    headers,
                    body,
                    text,
                    #[cfg(feature = "grpc")]
                    bytes,
                };
                log.lock().unwrap().push(asked.clone());
                Ok::<_, Infallible>(script(&asked))
            }
        });
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base, asked, server }
    }

    /// A peer with a card that declares these extensions; `rpc` answers calls.
    pub(crate) async fn agent(
        extensions: &'static [&'static str],
        rpc: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked| match &*asked.path {
            "/.well-known/agent-card.json" => json_answer(&card(&asked.base, extensions)),
            "/rpc" => rpc(asked),
            _ => status(404, &[]),
        })
        .await
    }

    /// A peer with a card that declares these extensions and has one interface, at `url` below the peer's
    /// address or, if that is empty, at its host and port; `script` answers calls.
    pub(crate) async fn of(
        (binding, version, url): (&'static str, &'static str, &'static str),
        extensions: &'static [&'static str],
        script: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked| {
            if asked.path != "/.well-known/agent-card.json" {
                return script(asked);
            }
            let mut card = card(&asked.base, extensions);
            let url =
                if url.is_empty() { asked.base.replace("http://", "") } else { asked.base.clone() + url };
            card["supportedInterfaces"][0] =
                json!({ "url": url, "protocolBinding": binding, "protocolVersion": version });
            json_answer(&card)
        })
        .await
    }

    /// The requests as verb, path and query, without those for the card.
    pub(crate) fn calls(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let calls = asked.iter().filter(|asked| !asked.path.starts_with("/.well-known/"));
        calls
            .map(|asked| format!("{} {}?{}", asked.verb, asked.path, asked.query))
            .map(|call| call.trim_end_matches('?').to_owned())
            .collect()
    }

    /// The requests to a path.
    pub(crate) fn asked(&self, path: &str) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.path == path).cloned().collect()
    }

    /// The methods that were called, in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        let calls = self.asked("/rpc");
        calls.iter().map(|asked| asked.body["method"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) async fn client(&self) -> Client {
        builder().connect(&self.base).await.unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Retries that cost no time.
pub(crate) fn builder() -> ClientBuilder {
    let millisecond = Duration::from_millis(1);
    Client::builder().retry(RetryPolicy { retries: 3, base: millisecond, cap: millisecond })
}

/// A v1.0 card with one JSON-RPC interface at `/rpc`.
pub(crate) fn card(base: &str, extensions: &[&str]) -> Value {
    let extensions: Vec<_> = extensions.iter().map(|uri| json!({ "uri": uri })).collect();
    json!({
        "name": "peer", "description": "d", "version": "1",
        "supportedInterfaces": [
            { "url": format!("{base}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
        ],
        "capabilities": { "streaming": true, "extensions": extensions },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [],
    })
}

pub(crate) fn task(state: &str) -> Value {
    json!({ "id": "t-1", "contextId": "c-1", "status": { "state": state } })
}

pub(crate) fn update(state: &str) -> Value {
    json!({ "statusUpdate": { "taskId": "t-1", "contextId": "c-1", "status": { "state": state } } })
}

pub(crate) fn answer(code: u16, headers: &[(&str, &str)], body: Body) -> Response {
    let mut builder = Response::builder().status(StatusCode::from_u16(code).unwrap());
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).unwrap()
}

pub(crate) fn status(code: u16, headers: &[(&str, &str)]) -> Response {
    answer(code, headers, Body::empty())
}

pub(crate) fn json_answer(json: &Value) -> Response {
    answer(200, &[("content-type", "application/json")], json.to_string().into())
}

/// A JSON-RPC result.
pub(crate) fn result(asked: &Asked, result: &Value) -> Response {
    json_answer(&json!({ "jsonrpc": "2.0", "id": asked.body["id"], "result": result }))
}

/// A JSON-RPC error.
pub(crate) fn error(asked: &Asked, code: i32, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    json_answer(&json!({ "jsonrpc": "2.0", "id": asked.body["id"], "error": error }))
}

/// A frame with a result, and with a number if it is not 0.
pub(crate) fn frame(seq: u64, result: &Value) -> String {
    bare_frame(seq, &json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

/// The same without an envelope.
pub(crate) fn bare_frame(seq: u64, data: &Value) -> String {
    let id = if seq == 0 { String::new() } else { format!("id: {seq}\n") };
    format!("{id}data: {data}\n\n")
}

/// The events of a stream: the state and number of each, or the kind of the error.
pub(crate) async fn seen(events: Result<EventStream, Error>) -> String {
    let mut events = match events {
        Ok(events) => events,
        Err(error) => return format!("refused {:?}: {error}", error.kind()),
    };
    let mut seen = Vec::new();
    while let Some(item) = events.next().await {
        seen.push(match item {
            Err(error) => format!("{:?}: {error}", error.kind()),
            Ok(item) => {
                let what = match (&**item.event(), item.event().status()) {
                    (Event::Task(_), Some(status)) => format!("task:{}", status.state),
                    (_, Some(status)) => status.state.to_string(),
                    (Event::Message(message), None) => message.text().into_owned(),
                    (_, None) => "artifact".to_owned(),
                };
                item.seq().map_or(what.clone(), |seq| format!("{seq}={what}"))
            }
        });
    }
    seen.join(" ").replace("TASK_STATE_", "")
}

/// The end of a stream after the written events.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// It ends.
    End,
    /// The connection breaks.
    Break,
    /// The same again, for ever.
    Repeat,
}

/// A stream of events.
pub(crate) fn events(text: String, then: Then) -> Response {
    let text = Bytes::from(text);
    let body = match then {
        Then::End => Body::from(text),
        Then::Break => {
            // The pause between the two lets the first reach the other end.
            let broken = stream::once(async {
                tokio::task::yield_now().await;
                Err(io::Error::other("cut"))
            });
            Body::from_stream(stream::iter([Ok::<_, io::Error>(text)]).chain(broken))
        }
        Then::Repeat => Body::from_stream(stream::repeat_with(move || Ok::<_, io::Error>(text.clone()))),
    };
    answer(200, &[("content-type", "text/event-stream; charset=utf-8")], body)
}
