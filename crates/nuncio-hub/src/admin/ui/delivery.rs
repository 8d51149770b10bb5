//! A delivery to a webhook, with its last attempts.

use askama::Template;
use axum::extract::Path;

use super::{
    deliveries::DeliveryRow,
    shell::{Area, Shell, Theme, quoted},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{Attempt, ReplayDelivery, ShowDelivery},
    deliveries,
};

/// An attempt to deliver.
struct AttemptRow {
    time: String,
    code: String,
    duration_ms: u64,
    cause: String,
    error: String,
}

impl From<&Attempt> for AttemptRow {
    fn from(attempt: &Attempt) -> Self {
        Self {
            time: attempt.time.to_string(),
            code: attempt.code.map_or_else(|| "no answer".to_owned(), |code| code.to_string()),
            duration_ms: attempt.duration_ms,
            cause: attempt.cause.map(show::word).unwrap_or_default(),
            error: show::cell(attempt.error.as_deref().unwrap_or_default()),
        }
    }
}

#[derive(Template)]
#[template(path = "ui/delivery.html")]
struct DeliveryPage {
    shell: Shell,
    row: DeliveryRow,
    webhook: String,
    attempts: Vec<AttemptRow>,
    earlier: u64,
}

pub(super) async fn page(visit: Visit, Path(id): Path<String>) -> Answer {
    let command = format!("delivery show {}", quoted(&id));
    let request = ShowDelivery { id };
    let shell = visit.shell("Delivery", Area::Deliveries).with_route(&request, Some(command))?;
    let delivery = visit.call(deliveries::show, request).await?;
    render(&DeliveryPage {
        shell,
        row: DeliveryRow::from(&delivery),
        earlier: delivery.attempt_count.saturating_sub(delivery.attempts.len() as u64),
        attempts: delivery.attempts.iter().map(AttemptRow::from).collect(),
        webhook: show::cell(&delivery.webhook),
    })
}

pub(super) async fn replay(visit: Visit, Path(id): Path<String>) -> Answer {
    visit.call(deliveries::replay, ReplayDelivery { id: id.clone() }).await?;
    visit.done(&format!("/ui/deliveries/{}", show::segment(&id)), "It will be delivered again.")
}
