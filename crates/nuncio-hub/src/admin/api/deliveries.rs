//! Deliveries: notifications for webhooks, pending or done.

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    delivery_hosts::DeliveryCause,
    paging::{ListRoute, Page, Paging},
    route::routes,
    schema::Time,
};

routes! {
    /// Lists deliveries to webhooks, the newest webhook first.
    ListDeliveries: GET "/deliveries", "deliveries.list" { query filter: DeliveryFilter, } -> DeliveryPage,
        redact DeliveryPage::redact;

    /// Shows a delivery with its last attempts.
    ShowDelivery: GET "/deliveries/{id}", "deliveries.show" { path id, } -> Delivery, redact Delivery::redact;

    /// Delivers once more, in any state of the delivery.
    ReplayDelivery: POST "/deliveries/{id}:replay", "deliveries.replay" { path id, } -> Delivery,
        trail DeliveryReplayed;

    /// Retries dead deliveries.
    RedriveDeliveries: POST "/deliveries:redrive", "deliveries.redrive" { body filter: RedriveFilter, } -> Redriven,
        trail DeliveryReplayed;
}

/// A filter of deliveries.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeliveryFilter {
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only of this task.
    pub task: Option<String>,
    /// Only to this host and port, such as `hooks.example.com:443`.
    pub host: Option<String>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only of events since this time.
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// The state of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// It will be attempted, perhaps again.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// It was given up.
    Dead,
}

/// A page of deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryPage {
    pub deliveries: Vec<Delivery>,
    /// Value for `after` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl DeliveryPage {
    fn redact(&mut self) {
        self.deliveries.iter_mut().for_each(Delivery::redact);
    }
}

impl Delivery {
    /// Removes what receivers have answered: it may quote the content of the notification.
    fn redact(&mut self) {
        self.attempts
            .iter_mut()
            .filter(|attempt| attempt.code.is_some())
            .for_each(|attempt| attempt.error = None);
    }
}

impl ListRoute for ListDeliveries {
    type Item = Delivery;

    fn paging(&mut self) -> &mut Paging {
        &mut self.filter.paging
    }

    fn page(DeliveryPage { deliveries, next }: DeliveryPage) -> Page<Delivery> {
        Page { items: deliveries, next }
    }
}

/// A notification for a webhook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    pub id: String,
    pub agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub task_id: String,
    /// The id of the webhook.
    pub webhook: String,
    /// The origin of the webhook: its path or query may be secret.
    pub url: String,
    pub event_id: u64,
    pub state: DeliveryState,
    /// The time of the event.
    #[schemars(with = "Time")]
    pub since: Timestamp,
    /// The time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub next_attempt: Option<Timestamp>,
    pub attempt_count: u64,
    /// The last attempts.
    pub attempts: Vec<Attempt>,
}

/// An attempt to deliver.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    #[schemars(with = "Time")]
    pub time: Timestamp,
    pub duration_ms: u64,
    /// The HTTP status of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The reason why it failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<DeliveryCause>,
    /// The failure in words, or the beginning of the receiver's answer, which a viewer does not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A filter of dead deliveries to retry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedriveFilter {
    /// Of events since this time.
    #[schemars(with = "Time")]
    pub since: Timestamp,
    /// Only of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The outcome of a redrive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Redriven {
    /// Number of deliveries that are retried.
    pub redriven: usize,
}
