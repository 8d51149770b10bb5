//! Where tasks are kept: an append-only log per task.
//!
//! ```text
//! task t-1   seq:  1            2               3               4
//!                  task         status working  artifact a      status completed
//!                  └ creation                                   └ with a snapshot of the whole task
//! ```

pub mod memory;

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod failing;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{ContextId, Event, Message, Seq, Task, TaskId, TaskState, Timestamp};

pub use self::memory::MemoryStore;

/// Keeps tasks.
///
/// What implementors keep, and [`conformance`](crate::store) proves:
/// - Sequence numbers of a task begin at 1 and have no gap; an entry is refused unless the log is
///   exactly at the version it expects.
/// - After `commit` has returned, the entry is there for every reader, and stays.
/// - A batch is one transaction; each entry stands or falls alone.
/// - A task is found only in the scope it was made in. Not yours is not found.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Appends entries. One result per entry, in order.
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// The task as its log tells it, and the number of its last entry.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// A page of tasks, newest status first.
    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Entries of a task's log after `after`, at most `limit`; none if the task is not found.
    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Arc<Event>)>, StoreError>;

    /// What was answered under an idempotency key.
    async fn answer(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError>;

    /// Keeps a direct reply under an idempotency key, unless the key has an answer already. Tasks are
    /// kept by their first [`Commit`].
    async fn keep_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
    ) -> Result<(), StoreError>;
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
    /// The whole task after this entry, when it is terminal or interrupted: read instead of the log.
    pub snapshot: Option<Task>,
    /// A repeat of the send that caused this entry finds the task under this key.
    pub idempotency: Option<IdempotencyKey>,
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

/// A task or a direct reply.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The task that the send made.
    Task(TaskId),
    /// The direct reply.
    Reply(Arc<Message>),
}

/// A task and the number of its last entry.
#[derive(Clone, Debug)]
pub struct StoredTask {
    /// The task.
    pub task: Task,
    /// The number of its last entry.
    pub seq: Seq,
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
    /// Also count all that match.
    pub count: bool,
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
    /// The log is at another version: somebody else wrote.
    Version(Seq),
    /// The task does not exist in this scope.
    NotFound,
    /// The idempotency key is taken.
    KeyTaken,
    /// There is no room for another task.
    Full,
}

/// The store itself failed. The words are for the log, never for a caller.
#[derive(Debug)]
pub struct StoreError(pub Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task store failed: {}", self.0)
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for nuncio_protocol::Error {
    fn from(error: StoreError) -> Self {
        // A store that is down may be up again: the caller is told to come back, the log gets the cause.
        Self::from(nuncio_protocol::ErrorKind::Unavailable).with_source(error)
    }
}
