//! What webhooks are owed: looked at, and tried again.
//!
//! | | |
//! |---|---|
//! | `GET /deliveries?agent=&task=&state=&since=&limit=&after=` | a page, newest webhook first; `next` is for `after` |
//! | `GET /deliveries/{id}` | one |
//! | `POST /deliveries/{id}:replay` | delivers it once more, whatever became of it |
//! | `POST /deliveries:redrive` `{"since", "agent"?}` | tries again what was given up |
//!
//! Of a webhook its name and origin are told, never what it is shown.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, RawQuery, State},
    routing::{get, post},
};
use nuncio_protocol::Timestamp;
use nuncio_server::{
    push::shown_url,
    store::{Attempt, Delivery, DeliveryId, DeliveryQuery, DeliveryState, Redrive, Store},
};
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::answer::Problem;

/// How many are told at a time, if nobody says how many, and at most.
const USUAL_PAGE: usize = 50;
const LARGEST_PAGE: usize = 1000;

type Answer = Result<Json<Value>, Problem>;

/// Where deliveries are kept, and who is told that some are to be tried again.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
}

pub(super) fn router(outbox: Outbox) -> Router {
    Router::new()
        .route("/deliveries", get(list))
        .route("/deliveries/{id}", get(show).post(replay))
        .route("/deliveries:redrive", post(redrive))
        .with_state(outbox)
}

async fn list(State(outbox): State<Outbox>, RawQuery(query): RawQuery) -> Answer {
    let query = read(query.as_deref().unwrap_or_default())?;
    let (deliveries, more) = outbox.store.deliveries(&query).await?;
    let next = deliveries.last().filter(|_| more).map(|last| last.id().to_string());
    let mut page = json!({ "deliveries": deliveries.iter().map(told).collect::<Vec<_>>() });
    if let Some(next) = next {
        page["next"] = next.into();
    }
    Ok(Json(page))
}

/// What is asked for. What we do not know is refused: a filter that is not understood would show too much.
fn read(query: &str) -> Result<DeliveryQuery, Problem> {
    let mut wanted = DeliveryQuery { limit: USUAL_PAGE, ..DeliveryQuery::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong = |expected: &str| Problem::invalid(format!("{name}: expected {expected}"));
        match &*name {
            "agent" => wanted.agent = Some(value.as_ref().into()),
            "task" => wanted.task_id = Some(value.as_ref().into()),
            "state" => {
                let state = serde_json::from_value(Value::from(value.as_ref()));
                let state: DeliveryState = state.map_err(|_| wrong("pending, delivered or dead"))?;
                wanted.state = Some(state);
            }
            "since" => {
                wanted.since = Some(Timestamp::parse(&value).map_err(|_| wrong(A_TIME))?);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LARGEST_PAGE).contains(limit));
                wanted.limit = limit.ok_or_else(|| wrong(&format!("a number from 1 to {LARGEST_PAGE}")))?;
            }
            "after" => {
                let after = DeliveryId::parse(&value);
                wanted.after =
                    Some(after.ok_or_else(|| wrong("the id of a delivery, from next of the page before"))?);
            }
            _ => {
                let known = "agent, task, state, since, limit and after";
                return Err(Problem::invalid(format!("{name}: is no parameter; there are {known}")));
            }
        }
    }
    Ok(wanted)
}

const A_TIME: &str = "a time such as 2026-11-15T12:00:00Z; in an address, + is written %2B";

async fn show(State(outbox): State<Outbox>, Path(id): Path<String>) -> Answer {
    Ok(Json(told(&find(&outbox, &parse(&id)?).await?)))
}

async fn replay(State(outbox): State<Outbox>, Path(path): Path<String>) -> Answer {
    let id = path.strip_suffix(":replay").ok_or_else(|| {
        Problem::wrong_method(format!("to deliver once more, POST to /api/v1/deliveries/{path}:replay"))
    })?;
    let id = parse(id)?;
    let redriven = outbox.store.redrive(&Redrive::One(id.clone()), now()).await?;
    if redriven == 0 {
        return Err(missing(&id));
    }
    (outbox.wake)();
    tracing::info!(delivery = %id, "a delivery is tried again");
    Ok(Json(told(&find(&outbox, &id).await?)))
}

/// What is to be tried again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Timestamp,
    #[serde(default)]
    agent: Option<String>,
}

async fn redrive(State(outbox): State<Outbox>, body: Bytes) -> Answer {
    let Since { since, agent } = serde_json::from_slice(&body).map_err(|error| {
        Problem::invalid(format!(
            r#"expected {{"since": "2026-11-15T12:00:00Z"}}, and "agent" perhaps: {error}"#
        ))
    })?;
    let what = Redrive::Dead { agent: agent.as_deref().map(Into::into), since };
    let redriven = outbox.store.redrive(&what, now()).await?;
    if redriven > 0 {
        (outbox.wake)();
    }
    tracing::info!(redriven, %since, agent, "what was given up is tried again");
    Ok(Json(json!({ "redriven": redriven })))
}

async fn find(outbox: &Outbox, id: &DeliveryId) -> Result<Delivery, Problem> {
    let query = DeliveryQuery { id: Some(id.clone()), limit: 1, ..DeliveryQuery::default() };
    let (deliveries, _) = outbox.store.deliveries(&query).await?;
    deliveries.into_iter().next().ok_or_else(|| missing(id))
}

fn parse(text: &str) -> Result<DeliveryId, Problem> {
    DeliveryId::parse(text).ok_or_else(|| missing(text))
}

fn missing(id: impl std::fmt::Display) -> Problem {
    Problem::not_found(format!("there is no delivery {id}; it may have gone with its task or its webhook"))
}

/// As it is told.
fn told(delivery: &Delivery) -> Value {
    let mut told = json!({
        "id": delivery.id().to_string(),
        "agent": delivery.scope.agent,
        "taskId": delivery.task_id,
        "webhook": delivery.webhook.id,
        "url": shown_url(&delivery.webhook),
        "eventId": delivery.seq.0,
        "state": delivery.state,
        "since": delivery.since,
        "attemptCount": delivery.attempts,
        "attempts": delivery.recent.iter().map(attempt).collect::<Vec<_>>(),
    });
    if let Some(tenant) = &delivery.scope.tenant {
        told["tenant"] = tenant.as_ref().into();
    }
    if let Some(due) = delivery.due {
        told["nextAttempt"] = due.to_string().into();
    }
    told
}

fn attempt(attempt: &Attempt) -> Value {
    let Attempt { at, took, status, error } = attempt;
    let mut told = json!({ "time": at, "durationMs": took });
    if let Some(status) = status {
        told["code"] = (*status).into();
    }
    if let Some(error) = error {
        told["error"] = error.as_ref().into();
    }
    told
}

fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(millis).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
