//! Where tasks are kept: an append-only log per task.
//!
//! ```text
//! task t-1   seq:  1            2               3               4
//!                  task         status working  artifact a      status completed
//!                  └ creation                                   └ with a snapshot of the whole task
//! ```

pub mod memory;
pub mod open;
pub mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod records;
pub mod reservation;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod codec;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod failing;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod survey;
pub mod watched;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_protocol::{ContextId, Event, Message, PushConfigId, Seq, Task, TaskId, TaskState, Timestamp};

#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteOptions, SqliteStore};
pub use self::{
    memory::MemoryStore,
    open::{Durability, OpenError},
    outbox::{
        Attempt, Backlog, Delivery, DeliveryId, DeliveryOutcome, DeliveryQuery, DeliveryState, Lease, Leased,
        Leases, MOST_WEBHOOKS, Owed, Redrive, Settled, Then, Webhook,
    },
    records::{Expect, PutRecord, Record, RecordQuery},
    reservation::Reservation,
    survey::{AdminTask, AdminTaskPage, AdminTaskQuery, TaskCount},
    watched::{Asked, Watch, watched},
};

/// Keeps tasks.
///
/// What implementors keep, and [`conformance`](crate::store) proves:
/// - Sequence numbers of a task begin at 1 and have no gap; an entry is refused unless the log is
///   exactly at the version it expects.
/// - After `commit` has returned, the entry is there for every reader, and stays.
/// - A batch is one transaction; each entry stands or falls alone.
/// - A task is found only in the scope it was made in. Not yours is not found.
/// - Ids, keys and the names of a scope are any text, told apart and ordered by their bytes; none is not
///   the empty one. Moments have milliseconds.
/// - A handle is one owner. Whoever makes a task, or appends to one that nobody has in hand, owns it. In
///   hand is a task while it is in progress, and while a turn waits to begin; then entries and turns of
///   other owners are refused, unless they take it over. In progress is a task from its creation, and again
///   from each thing that its caller says, to the next status that is terminal or interrupted
///   ([`busy_after`]).
/// - What an owner that is gone has left in progress is given to one other, once.
/// - A key belongs to one [`Reservation`], task or reply. A reservation is its owner's until the owner is gone.
/// - A record is changed only by a writer that expects what is there, and of several at once one wins.
/// - What a webhook is owed is there from the same moment as the entry, and stays until it is settled. A
///   webhook is in one owner's hands at a time; those of an owner that is gone are free.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// True if `commit` never waits: its future is done when it is first polled.
    fn is_immediate(&self) -> bool {
        false
    }

    /// True if other owners may write at the same time: what is known here about a task at rest may be old.
    fn is_shared(&self) -> bool {
        true
    }

    /// Appends entries. One result per entry, in order, each checked against what those before it have
    /// left: an unknown task or another's scope is [`Refused::NotFound`]; then [`Refused::Held`], then
    /// [`Refused::Version`] (also of a creation whose id is there, in whatever scope, and of whatever comes after a
    /// status that is terminal), then [`Refused::KeyTaken`]. A creation that is [reserved](Commit::reserved) is [`Refused::NotFound`] without its
    /// reservation, and [`Refused::Held`] if that is another owner's and is not taken over.
    /// An error says nothing about any of them: they may be there or not.
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// The task as its log tells it, and the number of its last entry.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// Those of these tasks whose logs go on after the number that is known of each. Asked only where owners
    /// share the store.
    async fn moved(&self, known: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError>;

    /// The task, without what is not to be shown of it.
    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError>;

    /// A page of tasks, newest status first.
    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Entries of a task's log after `after`, at most `limit`; none if the task is not found.
    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError>;

    /// The tasks that a task refers to, and those that refer to it, as far as they are in this scope.
    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError>;

    /// What was answered under an idempotency key.
    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError>;

    /// Keeps a direct reply under an idempotency key, in place of this owner's reservation of the key if there is
    /// one. A key that has an answer already, or that another owner has reserved, stays as it is. Tasks are kept by
    /// their first [`Commit`].
    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Reserves a task and its key. [`Refused::KeyTaken`] if the key has an answer, or is reserved for another task.
    /// The same reservation once more is no error, so that one whose answer was lost may be repeated.
    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError>;

    /// Drops a reservation of this owner, and frees its key: nothing came of it. One that is not there is no error.
    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError>;

    /// At most so many reservations of this agent whose owners are gone. They stay where they are, until an entry
    /// [takes](Commit::take) them.
    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError>;

    /// Keeps a turn that waits, marks it as begun or drops it. Refused as [`Refused::Held`] unless this
    /// owner has the task, in progress or not; one that begins and is not there is not found.
    async fn turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError>;

    /// Takes over at most so many tasks of this agent that an owner left behind when it went: those in
    /// progress, and those with a turn that has not begun.
    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError>;

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

    /// Forgets a webhook and all it is owed; says its uid, if there was one. [`Refused::NotFound`] without
    /// the task.
    async fn drop_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError>;

    /// Takes webhooks that are due into the hands of this owner.
    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError>;

    /// Records what became of webhooks that are in the hands of this owner.
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError>;

    /// A page of deliveries, and whether there are more after them.
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError>;

    /// How much is pending, over all agents.
    async fn backlog(&self) -> Result<Backlog, StoreError>;

    /// Makes deliveries pending, as if they were owed since now and had not been tried, and their webhooks
    /// due; says how many.
    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError>;

    /// A record.
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError>;

    /// Records of a kind, in the order of their keys.
    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// Writes records: one transaction, in which each stands or falls alone, checked against what those before
    /// it have left. One result for each: its new version, or [`Refused::Version`] with the one that is there
    /// (0: none). An error says nothing about any of them.
    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError>;

    /// Forgets a record; says whether there was one. Refused as in [`Self::put_records`].
    async fn drop_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError>;

    /// Forgets at most so many records of a kind that were written before this moment, oldest first; says how
    /// many.
    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// A page of tasks, whoever owns them, newest status first. For operators: it crosses scopes.
    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError>;

    /// A task and whose it is. For operators: it crosses scopes.
    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError>;

    /// How many tasks are in each state, by agent, in this order; states without tasks are left out. Cheap
    /// enough to be asked all the time.
    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError>;

    /// Forgets at most so many of what is past its time, oldest first over all callers; says how many.
    /// Tasks in progress are never forgotten, and none with a turn that waits. Of what is forgotten nothing
    /// stays: its log, its keys, its turns, its links, its memo and its webhooks go with it, and the counts of lists.
    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError>;

    /// Forgets at most so many tasks, replies and reservations of a caller, whatever their state; says how many.
    async fn erase(&self, whose: &Whose, limit: usize) -> Result<usize, StoreError>;

    /// A random value that stays the same as long as the data; made when it is first asked for.
    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError>;

    /// Fails if the store cannot be read at present, or not be written to.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Does what it was given and lets go, so that nobody has to wait until this owner counts as gone. Nothing
    /// is asked of it afterwards.
    async fn close(&self) {}
}

/// Whose tasks: every read and write names it, so that forgetting it does not compile.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Scope {
    /// The agent.
    pub agent: Arc<str>,
    /// The tenant within the agent, where the agent has some.
    pub tenant: Option<Arc<str>>,
    /// The principal that made the task; `None` for the anonymous caller.
    pub owner: Option<Arc<str>>,
}

/// One entry to append.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Whose task.
    pub scope: Arc<Scope>,
    /// The task.
    pub task_id: TaskId,
    /// The number of the last entry; [`Seq::ZERO`] creates the task.
    pub expected: Seq,
    /// The entry.
    pub event: Arc<Event>,
    /// When it was recorded.
    pub at: Timestamp,
    /// The whole task after this entry, when it is terminal or interrupted: read instead of the log.
    pub snapshot: Option<Task>,
    /// A repeat of the send that caused this entry finds the task under this key. A task that is reserved has the key
    /// of its reservation.
    pub idempotency: Option<IdempotencyKey>,
    /// The entry creates the task of a [`Reservation`], which ends with it.
    pub reserved: bool,
    /// The turn that the task is to work on, or works on: kept with the entry, in place of what is kept
    /// under its id.
    pub turn: Option<StoredTurn>,
    /// Take the task, or its reservation, from whoever owns it.
    pub take: bool,
    /// Kept with the entry, in place of one of the same id.
    pub webhook: Option<Webhook>,
    /// The webhooks of the task are owed this entry.
    pub push: bool,
    /// Kept with the task from this entry on, in place of what it had.
    pub memo: Option<Bytes>,
}

/// Whether a task is in progress after this entry; `None`: as before.
#[must_use]
pub fn busy_after(event: &Event) -> Option<bool> {
    match event {
        Event::Task(_) | Event::StatusUpdate(_) => event.status().map(|status| !status.state.is_settled()),
        // The caller has said something: whoever recorded it works on it.
        Event::Message(_) => Some(true),
        Event::ArtifactUpdate(_) => None,
    }
}

/// The tasks that an entry refers to.
pub(crate) fn references(event: &Event) -> impl Iterator<Item = &TaskId> {
    let said: &[Arc<Message>] = match event {
        Event::Task(task) => &task.history,
        Event::Message(message) => std::slice::from_ref(message),
        Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => &[],
    };
    said.iter().flat_map(|message| &message.reference_task_ids)
}

/// A message that a task is to work on, kept so that it outlives the process. A status that is terminal
/// drops all turns of its task, one that is interrupted those that have begun; that of its own entry, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTurn {
    /// In the order of time. A turn of the task that has the same one is replaced.
    pub id: Arc<str>,
    /// True once the agent may have begun with it.
    pub begun: bool,
    /// What the runtime needs to run it; the store does not look inside.
    pub body: Bytes,
}

/// What happens to a turn besides the entries of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TurnChange {
    /// It waits behind others.
    Queue(StoredTurn),
    /// It begins.
    Begin(Arc<str>),
    /// It is not to be run after all. One that is gone already is no error.
    Drop(Arc<str>),
}

/// A task that its owner has left behind, now of this owner.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// Whose task.
    pub scope: Arc<Scope>,
    /// The task and the number of its last entry.
    pub stored: StoredTask,
    /// True if it was in progress; else only a turn waits.
    pub busy: bool,
    /// Its turns, oldest first: in the order of their ids.
    pub turns: Vec<StoredTurn>,
}

/// An entry of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredEvent {
    /// Its number.
    pub seq: Seq,
    /// When it was recorded.
    pub at: Timestamp,
    /// What happened.
    pub event: Arc<Event>,
}

/// How tasks refer to each other, by the `referenceTaskIds` of what callers say.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Links {
    /// The tasks that this one refers to, in the order of their ids.
    pub parents: Vec<TaskId>,
    /// The tasks that refer to this one, in the order of their ids; at most [`MOST_CHILDREN`].
    pub children: Vec<TaskId>,
}

/// How many children of a task are told.
pub const MOST_CHILDREN: usize = 1_000;

/// What is past its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prune {
    /// Of this agent.
    pub agent: Arc<str>,
    /// What it is.
    pub what: Pruned,
    /// In this state, or given, since before this moment.
    pub before: Timestamp,
}

/// Kinds of what is forgotten by age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruned {
    /// Tasks in this state, with all that belongs to them.
    Tasks(TaskState),
    /// Direct replies under idempotency keys.
    Replies,
}

/// A caller, for the deletion of its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whose {
    /// At this agent only; `None`: at all.
    pub agent: Option<Arc<str>>,
    /// In this tenant; `None`: in all, and without one.
    pub tenant: Option<Arc<str>>,
    /// The principal; `None`: the anonymous caller.
    pub owner: Option<Arc<str>>,
}

impl Whose {
    /// True if what is kept in this scope is theirs.
    #[must_use]
    pub fn is(&self, scope: &Scope) -> bool {
        scope.owner == self.owner
            && (self.agent.is_none() || self.agent.as_ref() == Some(&scope.agent))
            && (self.tenant.is_none() || self.tenant == scope.tenant)
    }
}

/// What a repeated send is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The caller's key.
    pub key: Arc<str>,
    /// A digest of the request, to tell a repeat from a misuse.
    pub digest: [u8; 32],
}

/// What was answered under an idempotency key.
#[derive(Clone, Debug)]
pub struct Answer {
    /// A digest of the request that was answered.
    pub digest: [u8; 32],
    /// The answer.
    pub outcome: Outcome,
}

/// What a key stands for.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The task that the send made.
    Task(TaskId),
    /// The direct reply.
    Reply(Arc<Message>),
    /// The message may be at work; there is no answer yet.
    Reserved {
        /// What is reserved.
        reservation: Box<Reservation>,
        /// True if its owner is gone: there will be no answer.
        abandoned: bool,
    },
}

/// A task and the number of its last entry.
#[derive(Clone, Debug)]
pub struct StoredTask {
    /// The task.
    pub task: Task,
    /// The number of its last entry.
    pub seq: Seq,
    /// True if another owner has it in hand, which may be gone: nobody else may write to it before it is
    /// adopted or taken.
    pub held: bool,
    /// True if it has webhooks.
    pub pushes: bool,
    /// What the agent keeps with it.
    pub memo: Option<Bytes>,
}

/// Which tasks. Filters combine by AND.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Only of this conversation.
    pub context_id: Option<ContextId>,
    /// Only in this state.
    pub state: Option<TaskState>,
    /// Only with a status from this moment or later.
    pub since: Option<Timestamp>,
    /// Only after this one in the order of the list.
    pub after: Option<Keyset>,
    /// At most so many.
    pub limit: usize,
    /// At most about so many bytes: there are fewer tasks on the page then, but always one if any matches. `None`: no
    /// limit.
    pub max_bytes: Option<usize>,
    /// Leave the artifacts out.
    pub without_artifacts: bool,
    /// At most so many messages of history, the newest; `None`: all.
    pub history: Option<usize>,
    /// Also count all that match.
    pub count: bool,
}

impl TaskQuery {
    /// How much of each task is shown.
    #[must_use]
    pub fn shown(&self) -> Projection {
        Projection { artifacts: !self.without_artifacts, history: self.history }
    }
}

/// How much of a task is shown. What is not, a store does not load, as far as it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Projection {
    /// With its artifacts.
    pub artifacts: bool,
    /// At most so many messages of history, the newest; `None`: all.
    pub history: Option<usize>,
}

impl Projection {
    /// All of it.
    pub const WHOLE: Self = Self { artifacts: true, history: None };

    /// Takes away what is not shown.
    pub fn apply(self, task: &mut Task) {
        if !self.artifacts {
            task.artifacts = Vec::new();
        }
        if let Some(length) = self.history {
            let surplus = task.history.len().saturating_sub(length);
            task.history.drain(..surplus);
        }
    }
}

/// Fills a page as long as there is room in bytes.
pub(crate) struct PageBytes {
    left: Option<usize>,
    is_empty: bool,
}

impl PageBytes {
    pub(crate) fn new(max: Option<usize>) -> Self {
        Self { left: max, is_empty: true }
    }

    /// True if a task of so many bytes goes on the page. The first one always does.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.left.is_none_or(|left| bytes <= left);
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        std::mem::take(&mut self.is_empty) || fits
    }
}

/// A place in the list: newest status first, then by id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyset {
    /// When the status was recorded.
    pub timestamp: Timestamp,
    /// The task.
    pub id: TaskId,
}

/// A page of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// True if there are more after them.
    pub more: bool,
    /// How many match in all, if it was asked for.
    pub total: Option<usize>,
}

/// Why an entry was not appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The log, or the record, is at another version: somebody else wrote.
    Version(Seq),
    /// The task does not exist in this scope.
    NotFound,
    /// The task is in progress in the hands of another owner.
    Held,
    /// The idempotency key is taken.
    KeyTaken,
    /// There is no room for another task.
    Full,
}

/// The store itself failed. The words are for the log, never for a caller.
#[derive(Debug)]
pub struct StoreError {
    trouble: Trouble,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// What is to be expected of a store that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// It may be well again by itself.
    Down,
    /// It is well, and this question was too much for it at present.
    Busy,
    /// Nothing will help but people.
    Broken,
}

impl StoreError {
    /// It cannot be reached, or has no room, and may be well again by itself: whoever writes waits.
    pub fn down(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Down, source: source.into() }
    }

    /// It is well, but a question takes too long, or too many are asked at a time: that one fails alone, and may be
    /// asked again.
    pub fn busy(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Busy, source: source.into() }
    }

    /// It is damaged, or not what it should be: nothing will help but people.
    pub fn broken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { trouble: Trouble::Broken, source: source.into() }
    }

    /// True if it may be well again by itself.
    #[must_use]
    pub fn is_down(&self) -> bool {
        match self.trouble {
            Trouble::Down | Trouble::Busy => true,
            Trouble::Broken => false,
        }
    }

    /// True if only this question was too much for it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.trouble == Trouble::Busy
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task store failed: {}", self.source)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// What a caller is told whose question took too long.
const TOO_SLOW: &str = "the store took too long to answer this; try again later, or ask for less: fewer tasks on a page, \
                        or those of one context";

impl From<StoreError> for nuncio_protocol::Error {
    fn from(error: StoreError) -> Self {
        // A store that is down may be up again: the caller is told to come back, the log gets the cause.
        let kind = nuncio_protocol::ErrorKind::Unavailable;
        let told = match error.trouble {
            Trouble::Busy => Self::new(kind, TOO_SLOW),
            Trouble::Down | Trouble::Broken => Self::from(kind),
        };
        told.with_retry_after(std::time::Duration::from_secs(1)).with_source(error)
    }
}
