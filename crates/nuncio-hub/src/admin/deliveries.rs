//! Deliveries to webhooks: listed, shown, retried. Only the id and the origin of a webhook are shown, never
//! secrets.

use std::sync::Arc;

use nuncio_server::{
    push::shown_url,
    store::{self, DeliveryId, DeliveryQuery, Redrive},
};

use super::{
    AdminState,
    api::{
        Attempt, Delivery, DeliveryFilter, DeliveryPage, DeliveryState, ListDeliveries, RedriveDeliveries,
        RedriveFilter, Redriven, ReplayDelivery, ShowDelivery,
    },
    delivery_hosts,
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::clock::now;

pub(super) async fn list(
    state: Arc<AdminState>,
    request: ListDeliveries,
) -> Result<Reply<DeliveryPage>, AdminProblem> {
    let DeliveryFilter { agent, task, host, state: in_state, since, paging } = request.filter;
    let limit = paging.limit();
    let after = paging.after.map(|after| {
        let expected = "after: expected the id of a delivery, from next of the previous page";
        DeliveryId::parse(&after).ok_or_else(|| AdminProblem::invalid(expected))
    });
    let query = DeliveryQuery {
        agent: agent.map(Into::into),
        task_id: task.map(Into::into),
        target: host.as_deref().map(delivery_hosts::target).transpose()?.map(Into::into),
        state: in_state.map(Into::into),
        since,
        limit,
        after: after.transpose()?,
        ..DeliveryQuery::default()
    };
    let (deliveries, more) = state.store.deliveries(&query).await?;
    let next = deliveries.last().filter(|_| more).map(|last| last.id().to_string());
    Ok(Reply::new(DeliveryPage { deliveries: deliveries.iter().map(shown).collect(), next }))
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowDelivery,
) -> Result<Reply<Delivery>, AdminProblem> {
    Ok(Reply::new(shown(&find(&state, &parse(&request.id)?).await?)))
}

pub(super) async fn replay(
    state: Arc<AdminState>,
    request: ReplayDelivery,
) -> Result<Reply<Delivery>, AdminProblem> {
    let id = parse(&request.id)?;
    if state.store.redrive(&Redrive::One(id.clone()), now()).await? == 0 {
        return Err(missing(&id));
    }
    (state.wake)();
    Ok(Reply::new(shown(&find(&state, &id).await?)))
}

pub(super) async fn redrive(
    state: Arc<AdminState>,
    request: RedriveDeliveries,
) -> Result<Reply<Redriven>, AdminProblem> {
    let RedriveFilter { since, agent } = request.filter;
    let subject =
        format!("since {since}{}", agent.as_ref().map(|agent| format!(" of {agent}")).unwrap_or_default());
    let dead = Redrive::Dead { agent: agent.as_deref().map(Into::into), since };
    let redriven = state.store.redrive(&dead, now()).await?;
    if redriven > 0 {
        (state.wake)();
    }
    Ok(Reply::new(Redriven { redriven }).subject(subject))
}

async fn find(state: &AdminState, id: &DeliveryId) -> Result<store::Delivery, AdminProblem> {
    let query = DeliveryQuery { id: Some(id.clone()), limit: 1, ..DeliveryQuery::default() };
    let (deliveries, _) = state.store.deliveries(&query).await?;
    deliveries.into_iter().next().ok_or_else(|| missing(id))
}

fn parse(text: &str) -> Result<DeliveryId, AdminProblem> {
    DeliveryId::parse(text).ok_or_else(|| missing(text))
}

fn missing(id: impl std::fmt::Display) -> AdminProblem {
    AdminProblem::not_found(format!(
        "there is no delivery {id}; it may have been deleted with its task or its webhook"
    ))
}

fn shown(delivery: &store::Delivery) -> Delivery {
    Delivery {
        id: delivery.id().to_string(),
        agent: delivery.scope.agent.to_string(),
        tenant: delivery.scope.tenant.as_deref().map(str::to_owned),
        task_id: delivery.task_id.to_string(),
        webhook: delivery.webhook.id.to_string(),
        url: shown_url(&delivery.webhook),
        event_id: delivery.seq.0,
        state: delivery.state.into(),
        since: delivery.since,
        next_attempt: delivery.due,
        attempt_count: delivery.attempts.into(),
        attempts: delivery.recent.iter().map(attempt).collect(),
    }
}

fn attempt(attempt: &store::Attempt) -> Attempt {
    let store::Attempt { at, took, status, cause: _, error } = attempt;
    let is_delivered = status.is_some_and(|status| (200..300).contains(&status));
    Attempt {
        time: *at,
        duration_ms: (*took).into(),
        code: *status,
        cause: (!is_delivered).then(|| delivery_hosts::cause_of(Some(attempt))),
        error: error.as_deref().map(str::to_owned),
    }
}

impl From<store::DeliveryState> for DeliveryState {
    fn from(state: store::DeliveryState) -> Self {
        match state {
            store::DeliveryState::Pending => Self::Pending,
            store::DeliveryState::Delivered => Self::Delivered,
            store::DeliveryState::Dead => Self::Dead,
        }
    }
}

impl From<DeliveryState> for store::DeliveryState {
    fn from(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending => Self::Pending,
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Dead => Self::Dead,
        }
    }
}

#[cfg(test)]
mod tests;
