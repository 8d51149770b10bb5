//! What webhooks are owed: looked at, and tried again.
//!
//! Of a webhook its name and origin are told, never what it is shown.

use std::sync::Arc;

use http::Method;
use nuncio_protocol::Timestamp;
use nuncio_server::{
    push::shown_url,
    store::{self, DeliveryId, DeliveryQuery, DeliveryState, Redrive},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Desk,
    answer::Problem,
    openapi::Time,
    query::{LARGEST_PAGE, USUAL_PAGE},
    route::{Call, Reply, Route, route},
};
use crate::{clock::now, trail::What};

pub(super) fn routes() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    vec![
        route(
            get.clone(),
            "/deliveries",
            "deliveries.list",
            "What webhooks are or were owed, newest webhook first.",
            list,
        ),
        route(get, "/deliveries/{id}", "deliveries.show", "One delivery, with its last attempts.", show),
        route(
            post.clone(),
            "/deliveries/{id}:replay",
            "deliveries.replay",
            "Delivers it once more, whatever became of it.",
            replay,
        )
        .noted(What::DeliveryReplayed),
        route(post, "/deliveries:redrive", "deliveries.redrive", "Tries again what was given up.", redrive)
            .noted(What::DeliveryReplayed),
    ]
}

/// Which deliveries.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Wanted {
    /// Only of this agent.
    agent: Option<String>,
    /// Only of this task.
    task: Option<String>,
    /// Only in this state.
    #[schemars(with = "Option<State>")]
    state: Option<DeliveryState>,
    /// Only owed since then.
    #[schemars(with = "Option<Time>")]
    since: Option<Timestamp>,
    /// At most so many.
    #[schemars(range(min = 1, max = LARGEST_PAGE))]
    limit: Option<usize>,
    /// From here on: what `next` of the page before says.
    after: Option<String>,
}

/// What became of a delivery.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "for its schema: the type itself is the store's")]
enum State {
    Pending,
    Delivered,
    Dead,
}

/// Some deliveries.
#[derive(Serialize, JsonSchema)]
struct Page {
    deliveries: Vec<Delivery>,
    /// For `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What a webhook is owed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Delivery {
    id: String,
    agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    task_id: String,
    /// The webhook's own id.
    webhook: String,
    /// Where it goes, without what may be secret of it.
    url: String,
    event_id: u64,
    #[schemars(with = "State")]
    state: DeliveryState,
    /// Owed since then.
    #[schemars(with = "Time")]
    since: Timestamp,
    /// When it is tried next.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    next_attempt: Option<Timestamp>,
    attempt_count: u64,
    /// The last ones.
    attempts: Vec<Attempt>,
}

/// A try.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    #[schemars(with = "Time")]
    time: Timestamp,
    duration_ms: u64,
    /// What HTTP said.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

async fn list(desk: Arc<Desk>, call: Call<Wanted>) -> Result<Reply<Page>, Problem> {
    let Wanted { agent, task, state, since, limit, after } = call.query;
    let after = after.map(|after| {
        let expected = "after: expected the id of a delivery, from next of the page before";
        DeliveryId::parse(&after).ok_or_else(|| Problem::invalid(expected))
    });
    let query = DeliveryQuery {
        agent: agent.map(Into::into),
        task_id: task.map(Into::into),
        state,
        since,
        limit: limit.unwrap_or(USUAL_PAGE),
        after: after.transpose()?,
        ..DeliveryQuery::default()
    };
    let (deliveries, more) = desk.store.deliveries(&query).await?;
    let next = deliveries.last().filter(|_| more).map(|last| last.id().to_string());
    Ok(Reply::new(Page { deliveries: deliveries.iter().map(told).collect(), next }))
}

async fn show(desk: Arc<Desk>, call: Call) -> Result<Reply<Delivery>, Problem> {
    Ok(Reply::new(told(&find(&desk, &parse(call.name())?).await?)))
}

async fn replay(desk: Arc<Desk>, call: Call) -> Result<Reply<Delivery>, Problem> {
    let id = parse(call.name())?;
    if desk.store.redrive(&Redrive::One(id.clone()), now()).await? == 0 {
        return Err(missing(&id));
    }
    (desk.wake)();
    Ok(Reply::new(told(&find(&desk, &id).await?)))
}

/// What is to be tried again.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Since {
    /// What was owed since then.
    #[schemars(with = "Time")]
    since: Timestamp,
    /// Only of this agent.
    #[serde(default)]
    agent: Option<String>,
}

/// What is tried again.
#[derive(Serialize, JsonSchema)]
struct Redriven {
    /// How many.
    redriven: usize,
}

async fn redrive(desk: Arc<Desk>, call: Call<(), Since>) -> Result<Reply<Redriven>, Problem> {
    let Since { since, agent } = call.body;
    let about =
        format!("since {since}{}", agent.as_ref().map(|agent| format!(" of {agent}")).unwrap_or_default());
    let what = Redrive::Dead { agent: agent.as_deref().map(Into::into), since };
    let redriven = desk.store.redrive(&what, now()).await?;
    if redriven > 0 {
        (desk.wake)();
    }
    Ok(Reply::new(Redriven { redriven }).about(about))
}

async fn find(desk: &Desk, id: &DeliveryId) -> Result<store::Delivery, Problem> {
    let query = DeliveryQuery { id: Some(id.clone()), limit: 1, ..DeliveryQuery::default() };
    let (deliveries, _) = desk.store.deliveries(&query).await?;
    deliveries.into_iter().next().ok_or_else(|| missing(id))
}

fn parse(text: &str) -> Result<DeliveryId, Problem> {
    DeliveryId::parse(text).ok_or_else(|| missing(text))
}

fn missing(id: impl std::fmt::Display) -> Problem {
    Problem::not_found(format!("there is no delivery {id}; it may have gone with its task or its webhook"))
}

/// As it is told.
fn told(delivery: &store::Delivery) -> Delivery {
    Delivery {
        id: delivery.id().to_string(),
        agent: delivery.scope.agent.to_string(),
        tenant: delivery.scope.tenant.as_deref().map(str::to_owned),
        task_id: delivery.task_id.to_string(),
        webhook: delivery.webhook.id.to_string(),
        url: shown_url(&delivery.webhook),
        event_id: delivery.seq.0,
        state: delivery.state,
        since: delivery.since,
        next_attempt: delivery.due,
        attempt_count: delivery.attempts.into(),
        attempts: delivery.recent.iter().map(attempt).collect(),
    }
}

fn attempt(attempt: &store::Attempt) -> Attempt {
    let store::Attempt { at, took, status, error } = attempt;
    Attempt {
        time: *at,
        duration_ms: (*took).into(),
        code: *status,
        error: error.as_deref().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
