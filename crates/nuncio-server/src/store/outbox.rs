//! Webhooks, and what they are owed.
//!
//! ```text
//! task t-1    seq:  1        2        3        4
//! webhook A         dead     sent     pending  pending        one delivery per entry, in order
//! webhook B                           sent     pending        registered after entry 2
//! ```
//! A webhook with something pending is *due* at a moment. Whoever leases it has it in hand, with all that it
//! is owed, until it is settled: so deliveries of one webhook are never on the way side by side.

use std::{fmt, sync::Arc};

use nuncio_protocol::{PushConfigId, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Scope;

/// How many webhooks a task may have.
pub const MOST_WEBHOOKS: usize = 32;

/// How many attempts of a delivery are told; all are counted.
pub const MOST_ATTEMPTS: usize = 8;

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

/// What is due.
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
    /// Whose task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The webhook.
    pub webhook: Webhook,
    /// What it is owed, oldest entry first.
    pub owed: Vec<Owed>,
}

/// A delivery that is pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owed {
    /// The entry.
    pub seq: Seq,
    /// Since when: its age counts from here.
    pub since: Timestamp,
    /// How many attempts there have been since then.
    pub attempts: u32,
}

/// What became of a webhook that was in hand. Ignored if it is in other hands by now, or gone.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The webhook, by its uid.
    pub webhook: Arc<str>,
    /// What became of its deliveries.
    pub outcomes: Vec<DeliveryOutcome>,
    /// And then.
    pub then: Then,
}

/// What became of a delivery. Ignored if that is not pending any more.
#[derive(Clone, Debug)]
pub struct DeliveryOutcome {
    /// The entry.
    pub seq: Seq,
    /// Where it stands.
    pub state: DeliveryState,
    /// The attempt that was made.
    pub attempt: Attempt,
}

/// Where a delivery stands.
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
    /// How many milliseconds it took.
    pub took: u32,
    /// What the receiver answered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it did not succeed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
}

/// What happens to a webhook after it is settled.
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
    /// Whose task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// To whom.
    pub webhook: Webhook,
    /// The entry.
    pub seq: Seq,
    /// Where it stands.
    pub state: DeliveryState,
    /// Since when it is, or was, owed.
    pub since: Timestamp,
    /// How many attempts there have been since then.
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

/// Which deliveries. Filters combine by AND. In the order of their ids, newest webhook first, then newest
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

/// What webhooks are owed, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backlog {
    /// How many deliveries are pending.
    pub pending: u64,
    /// Since when the oldest of them is owed.
    pub oldest: Option<Timestamp>,
}

/// What is to be tried again.
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
