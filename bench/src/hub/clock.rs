//! An agent that streams the time, every few milliseconds: JSON-RPC 1.0, and nothing is kept.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::{
    place::Place,
    request::AGENT,
    server::{GENERATOR_CORE, Server, Subject, announce},
};

/// Interval between two events, and their number.
pub(super) const TICK_INTERVAL: Duration = Duration::from_millis(5);
pub(super) const TICKS: u32 = 400;

/// Text before a time.
pub(crate) const TIME_PREFIX: &str = "it is ";

/// As a process beside the generator.
pub(super) fn start() -> Result<Server> {
    Server::run(Place::new(Subject::Nuncio)?, GENERATOR_CORE, &["clock"])
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The process: prints its address and serves until it is killed.
pub(crate) async fn serve() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let path = format!("/agents/{AGENT}");
    let router = Router::new()
        .route(&format!("{path}/.well-known/agent-card.json"), get(card))
        .route(&path, post(answer))
        .with_state(format!("http://{address}{path}"));
    announce(&address)?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn card(State(url): State<String>) -> Json<Value> {
    Json(json!({
        "name": AGENT,
        "description": "Tells the time.",
        "version": "1",
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": { "streaming": true },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "time", "name": "Time", "description": "Tells the time.", "tags": ["time"] }],
    }))
}

#[derive(Deserialize)]
struct PolledRequest<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

async fn answer(body: Bytes) -> Response {
    let id = serde_json::from_slice::<PolledRequest<'_>>(&body)
        .map_or("null", |request| request.id.get())
        .to_owned();
    let (task, context) = (Uuid::now_v7(), Uuid::now_v7());
    let mut ticks = interval(TICK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((0, ticks), move |(number, mut ticks)| {
        let id = id.clone();
        async move {
            let names = format!("\"taskId\":\"{task}\",\"contextId\":\"{context}\"");
            let result = match number {
                0 => format!(
                    "{{\"task\":{{\"id\":\"{task}\",\"contextId\":\"{context}\",\"status\":{{\"state\":\"TASK_STATE_WORKING\"}}}}}}"
                ),
                1..=TICKS => {
                    ticks.tick().await;
                    format!(
                        "{{\"artifactUpdate\":{{{names},\"artifact\":{{\"artifactId\":\"time\",\"parts\":[{{\"text\":\"{TIME_PREFIX}{} \"}}]}},\"append\":{}}}}}",
                        now(),
                        number > 1
                    )
                }
                _ if number == TICKS + 1 => {
                    format!(
                        "{{\"statusUpdate\":{{{names},\"status\":{{\"state\":\"TASK_STATE_COMPLETED\"}}}}}}"
                    )
                }
                _ => return None,
            };
            let frame = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n");
            Some((Ok::<_, Infallible>(Bytes::from(frame)), (number + 1, ticks)))
        }
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
