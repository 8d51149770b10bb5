//! The trail: stored rows about refused calls and operators' changes. Writing them never delays a request.
//!
//! Denials and requests for consent of the same kind within a minute are one row with a count. It is written at the first denial and
//! again at the end of the minute, so that refused callers cannot fill the store.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use nuncio_protocol::Timestamp;
use nuncio_server::store::{Expect, PutRecord, RecordQuery, Store, StoreError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use uuid::Uuid;

use crate::{
    clock,
    events::{EventKind, EventLog, HubEvent},
    network::subscriber_network,
    telemetry::Metrics,
};

/// Record kind of operators' changes; denials never displace them, however many there are.
const ACTS: &str = "audit";
/// Record kind of denials.
const DENIALS: &str = "audit-denial";
/// Capacity of the queue of rows; rows beyond it are lost, and their number is logged.
const QUEUE_CAPACITY: usize = 4096;
/// The part of the queue that is reserved for operators' changes, so that refused callers cannot displace
/// them.
const RESERVED: usize = 1024;
/// The time for which denials of the same kind are one row.
const FOLD: Duration = Duration::from_secs(60);
/// Maximum number of kinds that are counted at a time, and so of rows per minute. Denials beyond are counted
/// without principal and address.
const OPEN: usize = 1_000;
/// Interval at which finished minutes are written.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which old and excess rows are removed.
const TIDY: Duration = Duration::from_secs(60 * 60);
/// The time for which rows are kept, and the maximum number of denials.
const KEEP: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const MAX_ROWS: usize = 100_000;
const PAGE: usize = 1000;

/// The event of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The credential is wrong, expired or revoked.
    CredentialsRefused,
    /// Too many wrong credentials came from one address: further wrong ones are answered with "wait".
    AttemptsLimited,
    /// The caller may not see this agent.
    AgentDenied,
    /// The caller may not call this operation.
    OperationDenied,
    /// The caller waits for the consent of an agent's owner.
    AccessRequested,
    AccessAccepted,
    AccessDeclined,
    AccessBlocked,
    AccessRevoked,
    KeyCreated,
    KeyRotated,
    KeyRevoked,
    KeyDeleted,
    AgentAdded,
    AgentChanged,
    AgentRemoved,
    AgentRefreshed,
    MailboxCreated,
    MailboxRotated,
    MailboxRemoved,
    MailboxRetried,
    /// The webhook of a mailbox answered 410: nothing more is posted to it.
    MailboxDisabled,
    MailboxEnabled,
    InvitationCreated,
    InvitationRevoked,
    InvitationRedeemed,
    LeasesTakenOver,
    AgentAudited,
    TaskCanceled,
    DataErased,
    DeliveryReplayed,
    DeliveriesPaused,
    DeliveriesResumed,
    ConfigReloaded,
    AdminTokenCreated,
    AdminTokenRevoked,
    /// A one-time code for the dashboard was made.
    DashboardOpened,
    /// The content of a task was shown or exported.
    ContentShown,
    RoomAdded,
    RoomRemoved,
    RoomReset,
    /// A person has joined a seat of a room.
    RoomJoined,
    /// A seat of a room was taken over.
    RoomTakenOver,
    RoomLeft,
    /// A person has said something in a room.
    RoomSaid,
    /// The payloads of a room are recorded, for a time.
    RoomRecorded,
    /// A message was sent from the playground, as the principal `operator`.
    TrialSent,
    TrialCanceled,
}

impl What {
    /// The label of a denial in metrics; `None` for operators' changes.
    fn denial(self) -> Option<&'static str> {
        match self {
            Self::CredentialsRefused => Some("credentials_refused"),
            Self::AttemptsLimited => Some("attempts_limited"),
            Self::AgentDenied => Some("agent_denied"),
            Self::OperationDenied => Some("operation_denied"),
            _ => None,
        }
    }

    /// The kind of record it is stored as.
    fn kind(self) -> &'static str {
        if self.folds() { DENIALS } else { ACTS }
    }

    /// The subject of the event that tells of a row.
    fn subject(self) -> EventKind {
        match self {
            Self::KeyCreated | Self::KeyRotated | Self::KeyRevoked | Self::KeyDeleted => EventKind::Key,
            Self::AgentAdded | Self::AgentChanged | Self::AgentRemoved | Self::AgentRefreshed => {
                EventKind::Agent
            }
            Self::ConfigReloaded => EventKind::Config,
            _ => EventKind::Trail,
        }
    }

    /// True if several of the same kind share a row.
    fn folds(self) -> bool {
        matches!(
            self,
            Self::CredentialsRefused
                | Self::AttemptsLimited
                | Self::AgentDenied
                | Self::OperationDenied
                | Self::AccessRequested
        )
    }
}

/// The word of the trail, such as `key-created`.
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A row of the trail. It contains all that is known about the event, and nothing that the caller sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    pub(crate) what: What,
    /// Number of events within a minute.
    pub(crate) count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    /// The id of an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<String>,
    /// An explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

impl Row {
    /// A row for an event that happens now.
    pub(crate) fn of(what: What) -> Self {
        Self {
            at: clock::now(),
            what,
            count: 1,
            principal: None,
            key: None,
            peer: None,
            agent: None,
            operation: None,
            detail: None,
        }
    }
}

/// Queues rows for the writer. Clones share the queue.
#[derive(Clone)]
pub(crate) struct Trail {
    sender: mpsc::Sender<Row>,
    lost: Arc<AtomicU64>,
    metrics: Option<Arc<Metrics>>,
    store: Arc<dyn Store>,
}

impl Trail {
    /// A trail and its writer.
    pub(crate) fn new(store: &Arc<dyn Store>) -> (Self, TrailWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let lost = Arc::<AtomicU64>::default();
        let trail = Self { sender, lost: Arc::clone(&lost), metrics: None, store: Arc::clone(store) };
        let (store, events) = (Arc::clone(store), None);
        let writer = TrailWriter { receiver, lost, store, open: HashMap::new(), events };
        (trail, writer)
    }

    /// Also counts denials in these metrics.
    #[must_use]
    pub(crate) fn counted_by(mut self, metrics: &Arc<Metrics>) -> Self {
        self.metrics = Some(Arc::clone(metrics));
        self
    }

    /// Queues a row.
    pub(crate) fn note(&self, row: Row) {
        if let (Some(metrics), Some(reason)) = (&self.metrics, row.what.denial()) {
            metrics.denied(reason);
        }
        let is_full = row.what.folds() && self.sender.capacity() <= RESERVED;
        if is_full || self.sender.try_send(row).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Rows with their ids, newest first, after the given id.
    pub(crate) async fn page(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<(String, Row)>, StoreError> {
        let mut records = Vec::new();
        for kind in [ACTS, DENIALS] {
            let after = after.clone();
            let query =
                RecordQuery { after, descending: true, limit, kind: kind.into(), ..RecordQuery::default() };
            records.extend(self.store.records(&query).await?);
        }
        records.sort_by(|one, other| other.key.cmp(&one.key));
        records.truncate(limit);
        let row = |record: nuncio_server::store::Record| {
            let row = serde_json::from_slice(&record.value).map_err(StoreError::broken)?;
            Ok((record.key, row))
        };
        records.into_iter().map(row).collect()
    }
}

/// The fields by which denials are of the same kind.
#[derive(PartialEq, Eq, Hash)]
struct Fold {
    what: What,
    principal: Option<String>,
    peer: Option<IpAddr>,
    agent: Option<String>,
    operation: Option<String>,
}

impl Fold {
    fn of(row: &Row) -> Self {
        // Authenticated callers are distinguished by principal, others by address.
        let peer = if row.principal.is_none() { row.peer.map(subscriber_network) } else { None };
        let Row { what, principal, agent, operation, .. } = row.clone();
        Self { what, principal, peer, agent, operation }
    }
}

/// A row whose minute is not over.
struct OpenRow {
    id: String,
    row: Row,
    ends: Instant,
    /// The count that is stored.
    written: u64,
}

/// Stores the rows.
pub(crate) struct TrailWriter {
    receiver: mpsc::Receiver<Row>,
    lost: Arc<AtomicU64>,
    store: Arc<dyn Store>,
    open: HashMap<Fold, OpenRow>,
    events: Option<Arc<EventLog>>,
}

impl TrailWriter {
    /// Also tells this log of rows, once they are stored.
    #[must_use]
    pub(crate) fn told_to(mut self, events: &Arc<EventLog>) -> Self {
        self.events = Some(Arc::clone(events));
        self
    }

    /// Stores rows for as long as it is polled.
    pub(crate) async fn run(&mut self) -> Infallible {
        let mut looks = tokio::time::interval(WRITE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tidied = None::<Instant>;
        let mut rows = Vec::new();
        loop {
            tokio::select! {
                received = self.receiver.recv_many(&mut rows, PAGE) => {
                    if received == 0 {
                        // All senders are gone.
                        return std::future::pending().await;
                    }
                    self.write(&mut rows).await;
                }
                _ = looks.tick() => {
                    self.settle(Instant::now()).await;
                    if tidied.is_none_or(|tidied| tidied.elapsed() >= TIDY) {
                        tidied = Some(Instant::now());
                        self.tidy().await;
                    }
                }
            }
        }
    }

    /// Stores the rows that are left.
    pub(crate) async fn close(mut self) {
        self.receiver.close();
        let mut rows = Vec::new();
        while self.receiver.recv_many(&mut rows, PAGE).await > 0 {
            self.write(&mut rows).await;
        }
        self.settle(Instant::now() + FOLD).await;
    }

    async fn write(&mut self, rows: &mut Vec<Row>) {
        let now = Instant::now();
        let (mut puts, mut told) = (Vec::new(), Vec::new());
        for row in rows.drain(..) {
            if !row.what.folds() {
                told.push(event(&row));
                puts.extend(put(new_id(), &row));
                continue;
            }
            let (fold, row) = self.fold(row, now);
            if let Some(open) = self.open.get_mut(&fold).filter(|open| now < open.ends) {
                open.row.count += row.count;
                continue;
            }
            let open = OpenRow { id: new_id(), ends: now + FOLD, written: row.count, row };
            // Further denials of the same kind are told of by the row only.
            told.push(event(&open.row));
            puts.extend(put(open.id.clone(), &open.row));
            if let Some(before) = self.open.insert(fold, open).filter(OpenRow::is_news) {
                puts.extend(put(before.id, &before.row));
            }
        }
        self.put(puts).await;
        if let Some(events) = &self.events {
            told.into_iter().for_each(|event| events.add(event));
        }
    }

    /// The kind and the row under which a denial is counted.
    fn fold(&self, row: Row, now: Instant) -> (Fold, Row) {
        let fold = Fold::of(&row);
        let is_counted = self.open.get(&fold).is_some_and(|open| now < open.ends);
        if is_counted || self.open.len() < OPEN {
            return (fold, row);
        }
        let detail = Some("from further callers and addresses, which are not listed one by one".to_owned());
        let row = Row { at: row.at, count: row.count, detail, ..Row::of(row.what) };
        (Fold::of(&row), row)
    }

    /// Stores the final counts of rows whose minute is over.
    async fn settle(&mut self, now: Instant) {
        let over = self.open.extract_if(|_, open| open.ends <= now).map(|(_, open)| open);
        let puts: Vec<_> = over.filter(OpenRow::is_news).filter_map(|open| put(open.id, &open.row)).collect();
        self.put(puts).await;
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "the queue of audit rows was full; some rows are lost");
        }
    }

    async fn put(&self, puts: Vec<PutRecord>) {
        let count = puts.len();
        if count > 0
            && let Err(error) = self.store.put_records(puts).await
        {
            tracing::error!(%error, count, "audit rows could not be written; they are lost");
        }
    }

    async fn tidy(&self) {
        if let Err(error) = self.forget().await {
            tracing::warn!(%error, "old audit rows could not be removed");
        }
    }

    /// Removes rows that are too old, and the oldest denials beyond the maximum.
    async fn forget(&self) -> Result<(), StoreError> {
        let before = clock::earlier(clock::now(), KEEP);
        for kind in [ACTS, DENIALS] {
            self.prune(kind, before).await?;
        }
        let (mut count, mut after) = (0, None);
        loop {
            let query = RecordQuery {
                after,
                descending: true,
                limit: PAGE,
                kind: DENIALS.into(),
                ..RecordQuery::default()
            };
            let page = self.store.records(&query).await?;
            count += page.len();
            let Some(last) = page.last() else { return Ok(()) };
            if count >= MAX_ROWS {
                return self.prune(DENIALS, last.at).await;
            }
            after = Some(last.key.clone());
        }
    }

    async fn prune(&self, kind: &str, before: Timestamp) -> Result<(), StoreError> {
        while self.store.prune_records(kind, before, PAGE).await? == PAGE {}
        Ok(())
    }
}

impl OpenRow {
    fn is_news(&self) -> bool {
        self.row.count > self.written
    }
}

/// The event that tells of a row.
fn event(row: &Row) -> HubEvent {
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    HubEvent {
        at: row.at,
        agent: text(&row.agent),
        subject: text(&row.key),
        word: Some(row.what.to_string().into()),
        ..HubEvent::of(row.what.subject())
    }
}

/// Ids sort by time.
fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// `None` if the row cannot be encoded as JSON, which does not happen.
fn put(key: String, row: &Row) -> Option<PutRecord> {
    let value: Bytes = serde_json::to_vec(row).ok()?.into();
    Some(PutRecord {
        kind: row.what.kind().into(),
        key: key.into(),
        value,
        at: row.at,
        expect: Expect::Anything,
    })
}

#[cfg(test)]
mod tests;
