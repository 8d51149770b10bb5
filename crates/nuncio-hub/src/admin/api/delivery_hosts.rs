//! The hosts of webhooks: their waiting and dead deliveries, by cause, and pauses.

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{route::routes, schema::Time};

routes! {
    /// Shows the hosts with pending or dead deliveries, or with a pause: how many, for which causes.
    ListDeliveryHosts: GET "/delivery-hosts", "delivery-hosts.list" {} -> DeliveryHosts;

    /// Attempts no delivery to a host until it is resumed. Its deliveries stay pending, also over restarts.
    PauseDeliveryHost: POST "/delivery-hosts/{host}:pause", "delivery-hosts.pause" { path host, } -> PausedHost,
        trail DeliveriesPaused;

    /// Ends the pause of a host. What is due is attempted at once.
    ResumeDeliveryHost: POST "/delivery-hosts/{host}:resume", "delivery-hosts.resume" { path host, } -> PausedHost,
        trail DeliveriesResumed;
}

/// The hosts of webhooks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryHosts {
    /// The hosts, those with the most deliveries first.
    pub hosts: Vec<DeliveryHost>,
    /// The causes over all hosts, the most frequent first.
    pub causes: Vec<CauseCount>,
    /// False: there are more pending or dead deliveries than were counted, which are the newest 5000 of each.
    pub complete: bool,
}

/// A host, with its deliveries that have not arrived.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryHost {
    /// Host and port, such as `hooks.example.com:443`.
    pub host: String,
    pub pending: u64,
    pub dead: u64,
    /// The time since which the oldest pending delivery waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub oldest_pending: Option<Timestamp>,
    /// The time since which the host is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub paused: Option<Timestamp>,
    pub causes: Vec<CauseCount>,
}

/// Number of deliveries whose last attempt failed for this cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseCount {
    pub cause: DeliveryCause,
    pub deliveries: u64,
    /// The id of the newest of them.
    pub newest: String,
}

/// The reason why a delivery has not arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryCause {
    /// The name of the host does not resolve.
    Dns,
    /// No connection could be made.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// There was no answer in time.
    Timeout,
    /// The connection broke, or the answer was not HTTP.
    Broken,
    /// The rules of the hub do not allow the address.
    Blocked,
    /// The receiver answered 4xx.
    ClientError,
    /// The receiver answered 5xx.
    ServerError,
    /// The receiver answered with another status that accepts nothing, such as a redirect.
    OtherStatus,
    /// The hub itself failed.
    Internal,
    /// There was no attempt yet, or an earlier version of the hub made it.
    Unknown,
}

/// A host whose pause was changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PausedHost {
    /// Host and port, such as `hooks.example.com:443`.
    pub host: String,
    /// The time since which it is paused; absent: it is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub paused: Option<Timestamp>,
    /// False if it was in this state already.
    pub changed: bool,
}
