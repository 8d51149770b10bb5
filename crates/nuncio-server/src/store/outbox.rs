//! The outbox: webhooks, and the deliveries pending for them.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{PushConfigId, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Refused, Scope, StoreError};

/// Webhooks of tasks, and their deliveries.
///
/// ```text
/// task t-1    seq:  1        2        3        4
/// webhook A         dead     sent     pending  pending        one delivery per entry, in order
/// webhook B                           sent     pending        registered after entry 2
/// ```
///
/// Implementors guarantee, and [`conformance`](crate::store) tests:
/// - A delivery is stored in the transaction of its entry ([`Commit::push`](super::Commit)), and stays until
///   it is settled.
/// - A webhook with a pending delivery has a time at which it is *due*. The owner that leases the webhook
///   gets its pending deliveries too, and holds it until it is settled or released: deliveries of one webhook
///   never overlap.
/// - A webhook is leased by one owner at a time; the webhooks of a stopped owner are free.
/// - Webhooks are found in the scope of their task, and deleted with it.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Stores a webhook. It replaces one with the same id and takes over its pending deliveries, which become
    /// due at once. [`Refused::NotFound`] without the task, [`Refused::Full`] with [`MAX_WEBHOOKS`] others.
    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError>;

    /// A webhook of a task.
    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError>;

    /// The webhooks of a task in the order of their ids, at most `limit` after `after`; `None` without the
    /// task.
    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError>;

    /// Deletes a webhook and its deliveries; returns its uid, if it existed. [`Refused::NotFound`] without
    /// the task.
    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError>;

    /// Leases due webhooks to this owner.
    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError>;

    /// Stores the outcomes of webhooks that this owner has leased.
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError>;
}

/// The maximum number of webhooks of a task.
pub const MAX_WEBHOOKS: usize = 32;

/// The maximum number of attempts stored per delivery; all are counted.
pub(super) const MAX_ATTEMPTS: usize = 8;

/// A push notification config in its stored form.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The name in the ids of deliveries: unique, sorts by time. A replacement keeps it.
    pub uid: Arc<str>,
    /// The name for the caller, unique within the task.
    pub id: PushConfigId,
    /// The host and port of the receiver, such as `example.com:443`. Leases take targets in turn.
    pub target: Arc<str>,
    /// The rest as JSON; opaque to the store.
    pub body: Arc<str>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, id, target, .. } = self;
        f.debug_struct("Webhook")
            .field("uid", uid)
            .field("id", id)
            .field("target", target)
            .finish_non_exhaustive()
    }
}

/// A request for due webhooks.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Only webhooks of these agents.
    pub agents: Vec<Arc<str>>,
    /// The current time.
    pub now: Timestamp,
    /// Targets are taken in the order of their names, beginning after this one and wrapping around.
    pub after: Arc<str>,
    /// Targets to skip.
    pub except: Vec<Arc<str>>,
    /// The webhooks that this owner knows it has leased. Others that the store counts as its own were leased
    /// by a call whose result was lost: they are free.
    pub in_hand: Vec<Arc<str>>,
    /// The maximum number of webhooks.
    pub limit: usize,
    /// The maximum number of webhooks of one target; those that are due longest come first.
    pub each: usize,
    /// The maximum number of deliveries of each webhook, the oldest.
    pub owed: usize,
}

/// The result of a lease.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// The webhooks leased to this owner, in the order of their targets.
    pub leased: Vec<Leased>,
    /// The time at which the next webhook is due, of targets that were not skipped; `None` if there is none,
    /// or if the limit was reached.
    pub next: Option<Timestamp>,
}

/// A webhook leased to this owner.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The webhook.
    pub webhook: Webhook,
    /// The pending deliveries, oldest entry first.
    pub owed: Vec<Owed>,
}

/// A pending delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owed {
    /// The entry.
    pub seq: Seq,
    /// The time from which the age of the delivery counts.
    pub since: Timestamp,
    /// The number of attempts since then.
    pub attempts: u32,
}

/// The outcome of a leased webhook. Ignored if the webhook is deleted, or leased to another owner by now.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The webhook, by its uid.
    pub webhook: Arc<str>,
    /// The outcomes of its deliveries.
    pub outcomes: Vec<DeliveryOutcome>,
    /// The next step of the webhook.
    pub then: Then,
}

/// The outcome of a delivery. Ignored if the delivery is not pending any more.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    /// The entry.
    pub seq: Seq,
    /// The new state of the delivery.
    pub state: DeliveryState,
    /// The attempt that was made.
    pub attempt: Attempt,
}

/// The state of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// To be sent, perhaps again.
    Pending,
    /// Accepted by the receiver.
    Delivered,
    /// Given up.
    Dead,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// The number that databases store.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn code(self) -> i16 {
        self as i16
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

/// One HTTP request of a delivery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The start of the attempt.
    pub at: Timestamp,
    /// The duration in milliseconds.
    pub took: u32,
    /// The HTTP status of the receiver's response, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason for a missing response; attempts of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCause>,
    /// The reason for the failure, as a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
}

/// The reason for which a request got no response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureCause {
    /// The name of the host does not resolve.
    Dns,
    /// No connection could be made.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// There was no response in time.
    Timeout,
    /// The connection broke, or the response was not HTTP.
    Broken,
    /// The address is not allowed.
    Blocked,
    /// The fault is ours: nothing was sent.
    Internal,
    /// A later version has another one.
    #[serde(other)]
    Other,
}

/// The next step of a webhook after it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It stays leased.
    Keep,
    /// It is released; due at this time, if a delivery is pending.
    Release(Timestamp),
    /// The receiver is gone (410): pending deliveries are dead, and new entries cause none. The webhook is
    /// not found any more, until it is put again or a delivery is redriven.
    Stop,
}

/// A delivery, for operators.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The webhook.
    pub webhook: Webhook,
    /// The entry.
    pub seq: Seq,
    /// The state of the delivery.
    pub state: DeliveryState,
    /// The time since which it is, or was, pending.
    pub since: Timestamp,
    /// The number of attempts since then.
    pub attempts: u32,
    /// The last attempts, oldest first.
    pub recent: Vec<Attempt>,
    /// The time at which its webhook is due, if the delivery is pending and the webhook is not leased.
    pub due: Option<Timestamp>,
}

/// The id of a delivery: the webhook's uid and the entry. Written `UID-SEQ`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeliveryId {
    /// The webhook.
    pub webhook: Arc<str>,
    /// The entry.
    pub seq: Seq,
}

impl DeliveryId {
    /// Parses `UID-SEQ`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (webhook, seq) = text.rsplit_once('-')?;
        let seq = seq.parse().ok().filter(|_| seq.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(Self { webhook: webhook.into(), seq: Seq(seq) })
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.webhook, self.seq)
    }
}

impl Delivery {
    /// The id of the delivery.
    #[must_use]
    pub fn id(&self) -> DeliveryId {
        DeliveryId { webhook: Arc::clone(&self.webhook.uid), seq: self.seq }
    }
}

/// A query for deliveries. Filters combine by AND. The order is that of the ids: newest webhook first, then
/// newest entry.
#[derive(Clone, Debug, Default)]
pub struct DeliveryQuery {
    /// Only this delivery.
    pub id: Option<DeliveryId>,
    /// Only deliveries of this agent.
    pub agent: Option<Arc<str>>,
    /// Only deliveries of this task.
    pub task_id: Option<TaskId>,
    /// Only deliveries to this host and port.
    pub target: Option<Arc<str>>,
    /// Only deliveries in this state.
    pub state: Option<DeliveryState>,
    /// Only pending since this time or later.
    pub since: Option<Timestamp>,
    /// Only those after this one in the list.
    pub after: Option<DeliveryId>,
    /// The maximum number of deliveries.
    pub limit: usize,
}

/// The number and age of pending deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backlog {
    /// The number of pending deliveries.
    pub pending: u64,
    /// The time since which the oldest of them is pending.
    pub oldest: Option<Timestamp>,
}

/// Selects deliveries to send again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redrive {
    /// This one, in any state.
    One(DeliveryId),
    /// All dead deliveries that were pending since this time or later, except those of receivers that are
    /// gone (410).
    Dead {
        /// Only deliveries of this agent.
        agent: Option<Arc<str>>,
        /// The earliest time.
        since: Timestamp,
    },
}
