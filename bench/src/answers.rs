//! Answers of models: 64 at a time, 400 tokens at 50 tokens a second each, from a provider of our own through the hub.
//!
//! | figure | by |
//! |---|---|
//! | CPU of the hub per token | the time of its process |
//! | delay of the first token | the provider writes the time of each token into it |
//! | bytes written per answer | what its process has written to the disk |

use std::{cell::RefCell, convert::Infallible, rc::Rc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use axum::{
    Json, Router,
    body::Body,
    http::{HeaderValue, header},
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use clap::Args as ClapArgs;
use futures_util::stream;
use hdrhistogram::Histogram;
use nuncio_hub::{
    Hub,
    config::{Agent, AgentKind, AgentOrigin, Config, Model, Storage},
};
use serde_json::{Value, json};
use tokio::{
    task::LocalSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    Args,
    http1::Connection,
    hub::{TIME_PREFIX, now, times},
    place::Place,
    process,
    report::{Report, median},
    request::{AGENT, Template, Wire},
    server::{GENERATOR_CORE, SERVER_CORE, Server, Subject, announce, parse, tell},
};

/// Answers at a time, the tokens of each, and the time between two of them.
const ANSWERS: u64 = 64;
const TOKENS: u64 = 400;
const TOKEN_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum delay that the hub adds to the first token at the median in memory, in microseconds.
const MAX_ADDED_US: f64 = 2000.0;

/// Maximum number of bytes that are written per answer with SQLite.
const MAX_BYTES: f64 = 700_000.0;

/// The path of answers at the provider.
const COMPLETIONS: &str = "/v1/chat/completions";

/// The cost of the answers of one run.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// From the moment when the first token was made to its arrival, at the median, in microseconds.
    first_us: f64,
    /// CPU per token, in microseconds.
    cpu_us: f64,
    /// Bytes written to the disk per answer.
    bytes: f64,
}

/// Measures answers directly from the provider, through a hub in memory, and through one with SQLite.
pub(crate) async fn measure(args: &Args, report: &mut Report) -> Result<()> {
    let provider = Server::run(Place::new(Subject::Nuncio)?, GENERATOR_CORE, &["tokens"])?;
    let url = format!("http://{}/v1", provider.address);
    let mut direct = Vec::new();
    let mut costs = [(Subject::Nuncio, Vec::new()), (Subject::Sqlite, Vec::new())];
    for repetition in 0..args.repeat {
        let late = follow(&provider.address, &|_| Ok(completion(&provider.address))).await?;
        direct.push(late.value_at_quantile(0.5) as f64);
        for (subject, costs) in &mut costs {
            let cost = through(*subject, &url).await?;
            eprintln!("{repetition} {subject}: {cost:?}");
            costs.push(cost);
        }
    }
    let direct = median(direct.into_iter()).context("nothing was measured")?;
    for (subject, costs) in costs {
        let of = |figure: fn(&Cost) -> f64| median(costs.iter().map(figure)).unwrap_or_default();
        let (added, bytes) = (of(|cost| cost.first_us) - direct, of(|cost| cost.bytes));
        let is_met = match subject {
            Subject::Sqlite => bytes <= MAX_BYTES,
            _ => added <= MAX_ADDED_US,
        };
        report.note(format!(
            "{ANSWERS} answers of {TOKENS} tokens, {subject}: {:.1} µs CPU a token, the first token {:.2} ms later than from \
             the provider itself, {:.2} MB written an answer{}",
            of(|cost| cost.cpu_us),
            added / 1000.0,
            bytes / 1e6,
            if is_met { "" } else { " (TARGET MISSED)" }
        ));
    }
    Ok(())
}

async fn through(subject: Subject, provider: &str) -> Result<Cost> {
    let place = Place::new(subject)?;
    let data = place.data.clone();
    let hub = Server::run(place, SERVER_CORE, &["model", provider, &data])?;
    // The first answers open connections and files.
    let ask = |number: u64| -> Result<Vec<u8>> {
        Ok(Template::send(hub.path, Wire::JsonRpcV1, "what time is it?", true)?.fill(number).to_vec())
    };
    follow(&hub.address, &ask).await?;
    let (cpu, written) = (hub.cpu_ns()?, process::written(hub.pid())?);
    let late = follow(&hub.address, &ask).await?;
    Ok(Cost {
        first_us: late.value_at_quantile(0.5) as f64,
        cpu_us: (hub.cpu_ns()? - cpu) as f64 / 1000.0 / (ANSWERS * TOKENS) as f64,
        bytes: (process::written(hub.pid())? - written) as f64 / ANSWERS as f64,
    })
}

/// Asks for all answers at once; returns the delays of their first tokens.
async fn follow(address: &str, request: &dyn Fn(u64) -> Result<Vec<u8>>) -> Result<Histogram<u64>> {
    let local = LocalSet::new();
    let late = Rc::new(RefCell::new(Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?));
    let mut answers = Vec::new();
    for number in 0..ANSWERS {
        let mut connection = Connection::open(address).await?;
        let (request, late) = (request(number)?, Rc::clone(&late));
        answers.push(local.spawn_local(async move {
            let mut tokens = 0;
            let piece = |piece: &[u8]| {
                let now = now();
                for time in times(piece) {
                    if tokens == 0 {
                        late.borrow_mut().saturating_record(now.saturating_sub(time) / 1000);
                    }
                    tokens += 1;
                }
            };
            connection.follow(&request, piece).await?;
            ensure!(tokens == TOKENS, "{tokens} of {TOKENS} tokens came");
            anyhow::Ok(())
        }));
    }
    local.await;
    for answer in answers {
        answer.await??;
    }
    let late = late.borrow().clone();
    Ok(late)
}

/// A request to the provider itself.
fn completion(address: &str) -> Vec<u8> {
    let body = r#"{"model":"clock","stream":true,"messages":[{"role":"user","content":"what time is it?"}]}"#;
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    format!("{head}{body}").into_bytes()
}

/// The process of the provider: prints its address and serves until it is killed.
pub(crate) async fn provide() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let models = || async { Json(json!({ "object": "list", "data": [{ "id": "clock" }] })) };
    let router = Router::new().route("/v1/models", get(models)).route(COMPLETIONS, post(tokens));
    announce(&address)?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn tokens() -> Response {
    let mut ticks = interval(TOKEN_INTERVAL);
    // A late token does not delay those after it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let events = stream::unfold((0, ticks), |(number, mut ticks)| async move {
        let chunk = |choice: Value| json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "clock", "choices": [choice] });
        let data = match number {
            0..TOKENS => {
                ticks.tick().await;
                let text = format!("{TIME_PREFIX}{} ", now());
                chunk(json!({ "index": 0, "delta": { "content": text }, "finish_reason": null })).to_string()
            }
            TOKENS => chunk(json!({ "index": 0, "delta": {}, "finish_reason": "stop" })).to_string(),
            _ if number == TOKENS + 1 => {
                json!({ "choices": [], "usage": { "prompt_tokens": 9, "completion_tokens": TOKENS } })
                    .to_string()
            }
            _ if number == TOKENS + 2 => "[DONE]".to_owned(),
            _ => return None,
        };
        Some((Ok::<_, Infallible>(Bytes::from(format!("data: {data}\n\n"))), (number + 1, ticks)))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// The process of a hub with a model.
#[derive(ClapArgs)]
pub(crate) struct Modelled {
    /// The address of the provider.
    url: String,
    data: String,
}

impl Modelled {
    /// Prints its address; serves until it is killed.
    pub(crate) async fn serve(self) -> Result<()> {
        let target = format!("openai:{}#clock", self.url).parse().map_err(anyhow::Error::msg)?;
        let name = AGENT.parse().map_err(anyhow::Error::msg)?;
        let agent = Agent::new(name, AgentKind::Model(Box::new(Model::new(target))), AgentOrigin::Flag);
        let config = Config {
            data: Storage::of(parse(&self.data)?),
            agents: vec![agent],
            drain_grace: Duration::ZERO,
            ..Config::new(([127, 0, 0, 1], 0).into())
        };
        let hub = Hub::bind(config).await.context("the hub does not start")?;
        if hub.served().is_empty() {
            bail!("the model is not served");
        }
        tell(&hub, false).await?;
        Box::pin(hub.run(std::future::pending())).await
    }
}
