//! The outbox: webhooks, and the deliveries that they are owed.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{PushConfigId, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Refused, Scope, StoreError};

/// Webhooks of tasks, and deliveries of entries to them.
///
/// ```text
/// task t-1    seq:  1        2        3        4
/// webhook A         dead     sent     pending  pending        one delivery per entry, in order
/// webhook B                           sent     pending        registered after entry 2
/// ```
///
/// Implementors keep, and [`conformance`](crate::store) proves:
/// - A delivery is there from the same moment as its entry, by the same transaction ([`Commit::push`](super::Commit)),
///   and stays until it is settled.
/// - A webhook with a pending delivery is *due* at a moment. The owner that leases it has it in hand, with all that it is
///   owed, until it is settled or released: deliveries of one webhook are never on the way side by side.
/// - A webhook is in one owner's hands at a time; those of an owner that is gone are free.
/// - Webhooks are found in the scope of their task, and forgotten with it.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Keeps a webhook; one of the same id is replaced, and what it was owed is owed to the new one, at once.
    /// [`Refused::NotFound`] without the task, [`Refused::Full`] with [`MOST_WEBHOOKS`] others.
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

    /// The webhooks of a task in the order of their ids, at most so many after this one; `None` without the
    /// task.
    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError>;

    /// Deletes a webhook and all it is owed; says its uid, if there was one. [`Refused::NotFound`] without
    /// the task.
    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError>;

    /// Takes webhooks that are due into the hands of this owner.
    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError>;

    /// Records the outcomes of webhooks that are in the hands of this owner.
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError>;
}

/// The most webhooks of a task.
pub const MOST_WEBHOOKS: usize = 32;

/// The most attempts of a delivery that are told; all are counted.
pub(super) const MOST_ATTEMPTS: usize = 8;

/// A push configuration as it is kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its name in the ids of deliveries: unique, in the order of time. One that is replaced keeps it.
    pub uid: Arc<str>,
    /// Its name for the caller, unique within the task.
    pub id: PushConfigId,
    /// The receiving end, such as `example.com:443`: the turns go around these.
    pub target: Arc<str>,
    /// The rest, as JSON; the store does not look inside.
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

/// Asks for webhooks that are due.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Of these agents.
    pub agents: Vec<Arc<str>>,
    /// At this moment.
    pub now: Timestamp,
    /// Targets are looked at in the order of their names, those after this one first; then the others.
    pub after: Arc<str>,
    /// Targets to leave out.
    pub except: Vec<Arc<str>>,
    /// The webhooks that this owner knows it has in hand. Others that count as its own were leased by a call
    /// whose answer was lost: they are free.
    pub in_hand: Vec<Arc<str>>,
    /// At most so many.
    pub limit: usize,
    /// At most so many of one target; those that have been due for longest.
    pub each: usize,
    /// At most so many deliveries of each, the oldest.
    pub owed: usize,
}

/// Webhooks that are due.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// In the hands of this owner from now on, in the order of their targets.
    pub leased: Vec<Leased>,
    /// When the next of the others falls due, of those targets that were not left out; `None`: never, or the
    /// limit was reached.
    pub next: Option<Timestamp>,
}

/// A webhook in the hands of this owner.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The webhook.
    pub webhook: Webhook,
    /// The deliveries it is owed, oldest entry first.
    pub owed: Vec<Owed>,
}

/// A delivery that is pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owed {
    /// The entry.
    pub seq: Seq,
    /// Since when: its age counts from here.
    pub since: Timestamp,
    /// The number of attempts since then.
    pub attempts: u32,
}

/// The outcome of a webhook that was in hand. Ignored if it is in other hands by now, or gone.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The webhook, by its uid.
    pub webhook: Arc<str>,
    /// The outcomes of its deliveries.
    pub outcomes: Vec<DeliveryOutcome>,
    /// And then.
    pub then: Then,
}

/// The outcome of a delivery. Ignored if that is not pending any more.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    /// The entry.
    pub seq: Seq,
    /// Its state.
    pub state: DeliveryState,
    /// The attempt that was made.
    pub attempt: Attempt,
}

/// The state of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// It will be tried, perhaps again.
    Pending,
    /// The receiver has taken it.
    Delivered,
    /// It was given up.
    Dead,
}

impl DeliveryState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// As a database keeps it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn code(self) -> i16 {
        self as i16
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

/// One try to deliver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began.
    pub at: Timestamp,
    /// The time it took, in milliseconds.
    pub took: u32,
    /// The HTTP status of the receiver's answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason why it did not succeed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
}

/// The next step of a webhook after it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It stays in hand.
    Keep,
    /// It is free; due at this moment, if it is owed anything.
    Release(Timestamp),
    /// The receiver wants no more: what is pending is dead, and it is owed nothing from now on. It is not
    /// found any more, until it is put again or something is redriven.
    Stop,
}

/// A delivery, for people.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The receiver.
    pub webhook: Webhook,
    /// The entry.
    pub seq: Seq,
    /// Its state.
    pub state: DeliveryState,
    /// Since when it is, or was, owed.
    pub since: Timestamp,
    /// The number of attempts since then.
    pub attempts: u32,
    /// The last attempts, oldest first.
    pub recent: Vec<Attempt>,
    /// When its webhook is due, if it is pending and the webhook is in nobody's hands.
    pub due: Option<Timestamp>,
}

/// Names a delivery: the webhook's uid and the entry. Written `UID-SEQ`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeliveryId {
    /// The webhook.
    pub webhook: Arc<str>,
    /// The entry.
    pub seq: Seq,
}

impl DeliveryId {
    /// Reads `UID-SEQ`.
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
    /// Its name.
    #[must_use]
    pub fn id(&self) -> DeliveryId {
        DeliveryId { webhook: Arc::clone(&self.webhook.uid), seq: self.seq }
    }
}

/// A query for deliveries. Filters combine by AND. In the order of their ids, newest webhook first, then newest
/// entry.
#[derive(Clone, Debug, Default)]
pub struct DeliveryQuery {
    /// Only this one.
    pub id: Option<DeliveryId>,
    /// Only of this agent.
    pub agent: Option<Arc<str>>,
    /// Only of this task.
    pub task_id: Option<TaskId>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only owed since this moment or later.
    pub since: Option<Timestamp>,
    /// Only those after this one in the order of the list.
    pub after: Option<DeliveryId>,
    /// At most so many.
    pub limit: usize,
}

/// The deliveries that webhooks are owed, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backlog {
    /// The number of pending deliveries.
    pub pending: u64,
    /// Since when the oldest of them is owed.
    pub oldest: Option<Timestamp>,
}

/// The deliveries that are to be tried again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redrive {
    /// This one, whatever became of it.
    One(DeliveryId),
    /// All that were given up and are owed since this moment or later, but for those of receivers that want no more
    /// (410).
    Dead {
        /// Only of this agent.
        agent: Option<Arc<str>>,
        /// Since when.
        since: Timestamp,
    },
}
