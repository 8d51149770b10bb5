//! The time that a durable hub adds before an agent that cannot stream: the hub must poll for the end of the task.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use hdrhistogram::Histogram;
use nuncio_protocol::Binding;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::middle::{
    Callers::Anybody,
    Middle::{self, Durable, Nobody},
    start as start_middle,
};
use crate::{
    http1::{Connection, find},
    place::Place,
    report::{Report, median},
    request::{AGENT, Template, Wire},
    server::{GENERATOR_CORE, Server, Subject, announce},
};

/// The time that the agent works on a message, in milliseconds.
const WORK_MS: [u64; 4] = [0, 5, 20, 50];

/// The callers' ways to the agent.
const WAYS: [Middle; 3] = [Nobody, Durable(Subject::Nuncio, Anybody), Durable(Subject::Sqlite, Anybody)];

/// Milliseconds that the hub may add at the median.
const MAX_ADDED_MS: f64 = 5.0;

/// Messages per measurement, one after the other.
const MESSAGES: f64 = 100.0;

pub(super) async fn measure(repeat: usize, scale: f64, report: &mut Report) -> Result<()> {
    let agent = Server::run(Place::new(Subject::Nuncio)?, GENERATOR_CORE, &["polled"])?;
    let mut times: BTreeMap<(u64, Middle), Vec<f64>> = BTreeMap::new();
    for way in WAYS {
        let hub = start_middle(way, Binding::JsonRpc, &agent.address).await?;
        let server = hub.as_ref().unwrap_or(&agent);
        for work_ms in WORK_MS {
            for repetition in 0..repeat {
                let time = median_ms(server, work_ms, scale).await?;
                eprintln!("{repetition} {way}, {work_ms} ms of work: {time:.2} ms");
                times.entry((work_ms, way)).or_default().push(time);
            }
        }
    }
    report.table(table(&times)?);
    Ok(())
}

fn table(times: &BTreeMap<(u64, Middle), Vec<f64>>) -> Result<String> {
    let mut table = String::from(
        "| a send to an agent that cannot stream and works for | by | p50 | added |\n|--:|---|--:|--:|\n",
    );
    let of = |key| times.get(&key).and_then(|times| median(times.iter().copied())).unwrap_or_default();
    for work_ms in WORK_MS {
        for way in WAYS {
            let (own, direct) = (of((work_ms, way)), of((work_ms, Nobody)));
            let added = match way {
                Nobody => String::new(),
                _ => format!("{:.2} ms (≤ {MAX_ADDED_MS})", own - direct),
            };
            writeln!(table, "| {work_ms} ms | {way} | {own:.2} ms | {added} |")?;
        }
    }
    Ok(table)
}

/// The median time of a blocking send, in milliseconds.
async fn median_ms(server: &Server, work_ms: u64, scale: f64) -> Result<f64> {
    let mut connection = Connection::open(&server.address).await?;
    let mut request = Template::send(server.path, Wire::JsonRpcV1, &work_ms.to_string(), false)?;
    let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    for number in 0..(MESSAGES * scale).ceil() as u64 {
        let begun = Instant::now();
        connection.call(request.fill(number)).await?;
        times.saturating_record(u64::try_from(begun.elapsed().as_micros())?);
        let completed = find(&connection.body, Wire::JsonRpcV1.completed()).is_some();
        ensure!(completed, "unexpected answer: {}", String::from_utf8_lossy(&connection.body));
    }
    Ok(times.value_at_quantile(0.5) as f64 / 1000.0)
}

/// The tasks of the agent, each with the time of its end.
type Tasks = Arc<Mutex<HashMap<Uuid, Instant>>>;

#[derive(Clone)]
struct Agent {
    url: String,
    tasks: Tasks,
}

/// The process of the agent: prints its address and serves until it is killed.
pub(crate) async fn serve() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let path = format!("/agents/{AGENT}");
    let router = Router::new()
        .route(&format!("{path}/.well-known/agent-card.json"), get(card))
        .route(&path, post(answer))
        .with_state(Agent { url: format!("http://{address}{path}"), tasks: Tasks::default() });
    announce(&address)?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn card(State(agent): State<Agent>) -> Json<Value> {
    let interface = json!({ "url": agent.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    Json(json!({
        "name": AGENT,
        "description": "Works for the milliseconds in the message.",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "work", "name": "Work", "description": "Works.", "tags": ["work"] }],
    }))
}

/// Answers `SendMessage` and `GetTask`.
async fn answer(State(agent): State<Agent>, Json(request): Json<Value>) -> Json<Value> {
    let (id, params) = (&request["id"], &request["params"]);
    let result = match request["method"].as_str() {
        Some("SendMessage") => agent.send(params).await.map(|task| json!({ "task": task })),
        _ => agent.find(params).map(|(task, end)| view(task, end)),
    };
    Json(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": error.to_string() } })
        }
    })
}

impl Agent {
    async fn send(&self, params: &Value) -> Result<Value> {
        let text = params["message"]["parts"][0]["text"].as_str().context("a message without text")?;
        let end = Instant::now() + Duration::from_millis(text.parse()?);
        let task = Uuid::now_v7();
        self.tasks.lock().insert(task, end);
        if params["configuration"]["returnImmediately"] != json!(true) {
            sleep_until(end).await;
        }
        Ok(view(task, end))
    }

    fn find(&self, params: &Value) -> Result<(Uuid, Instant)> {
        let task: Uuid = params["id"].as_str().context("no id")?.parse()?;
        let tasks = self.tasks.lock();
        let end = tasks.get(&task).context("no such task")?;
        Ok((task, *end))
    }
}

fn view(task: Uuid, end: Instant) -> Value {
    let state = if Instant::now() < end { "TASK_STATE_WORKING" } else { "TASK_STATE_COMPLETED" };
    let id = task.to_string();
    json!({ "id": id, "contextId": id, "status": { "state": state } })
}
