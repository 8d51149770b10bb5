//! The log: tasks as numbered entries, who works on them, and the keys under which repeats find them.

mod commit;
mod idempotency;
mod list;
mod reservation;
mod retention;
mod stored;
mod turn;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Seq, Task, TaskId, Timestamp};

pub(crate) use self::{commit::references, list::PageBytes};
pub use self::{
    commit::{Commit, busy_after},
    idempotency::{Answer, IdempotencyKey, Outcome},
    list::{Keyset, Projection, TaskPage, TaskQuery},
    reservation::Reservation,
    retention::{Prune, Pruned},
    stored::{Links, MOST_CHILDREN, StoredEvent, StoredTask},
    turn::{Orphan, StoredTurn, TurnChange},
};
use super::{Refused, Scope, StoreError};

/// An append-only log per task.
///
/// ```text
/// task t-1   seq:  1            2               3               4
///                  task         status working  artifact a      status completed
///                  └ creation                                   └ with a snapshot of the whole task
/// ```
///
/// Implementors keep, and [`conformance`](crate::store) proves:
/// - **Order.** Sequence numbers of a task begin at 1 and have no gap; an entry is refused unless the log is exactly at
///   the version it expects.
/// - **Durability.** After `commit` has returned, the entry is there for every reader, and stays.
/// - **Batches.** A batch is one transaction; each entry stands or falls alone.
/// - **Scopes.** A task is found only in the scope it was made in. Not yours is not found.
/// - **Names.** Ids, keys and the names of a scope are any text, told apart and ordered by their bytes; none is not the
///   empty one. Moments have milliseconds.
/// - **Owners.** A handle is one owner. An owner that makes a task, or appends to one that no owner has in hand, owns
///   it. A task is in hand while it is in progress, and while a turn waits to begin; then entries and turns of other
///   owners are refused, unless they take it over. A task is in progress from its creation, and again from each message
///   of its caller, to the next status that is terminal or interrupted ([`busy_after`]).
/// - **Adoption.** What an owner that is gone has left in progress is given to one other owner, once.
/// - **Keys.** A key belongs to one [`Reservation`], task or reply. A reservation is its owner's until the owner is gone.
/// - **Deliveries.** What the webhooks of a task are owed of an entry is written in the entry's transaction
///   ([`Outbox`](super::Outbox)).
#[async_trait]
pub trait TaskLog: Send + Sync + 'static {
    /// Appends entries. One result per entry, in order, each checked against what those before it have left. The first
    /// of these that applies is its refusal:
    ///
    /// | refusal | entry | creation |
    /// |---|---|---|
    /// | [`NotFound`](Refused::NotFound) | the task is unknown, or of another scope | |
    /// | [`Held`](Refused::Held) | another owner has the task in hand, and it is not [taken](Commit::take) | |
    /// | [`Version`](Refused::Version) | the log is at another number, or the task has ended | the id is there, in whatever scope |
    /// | [`NotFound`](Refused::NotFound) | | it is [reserved](Commit::reserved), and there is no reservation |
    /// | [`Held`](Refused::Held) | | the reservation is another owner's, and it is not taken |
    /// | [`KeyTaken`](Refused::KeyTaken) | the key has an answer or a reservation | the same, unless it is reserved |
    ///
    /// An error says nothing about any of them: they may be there or not.
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// The task as its log tells it, and the number of its last entry.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// Those of these tasks whose logs go on after the number that is known of each. StoreOp only where owners
    /// share the store.
    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<TaskId>, StoreError>;

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

    /// The answer under an idempotency key.
    async fn idempotent_outcome(&self, scope: &Scope, key: &str) -> Result<Option<Answer>, StoreError>;

    /// Keeps a direct reply under an idempotency key, in place of this owner's reservation of the key if there is
    /// one. A key that has an answer already, or that another owner has reserved, stays as it is. Tasks are kept by
    /// their first [`Commit`].
    async fn put_reply(
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
    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError>;

    /// Takes over at most so many tasks of this agent that an owner left behind when it went: those in
    /// progress, and those with a turn that has not begun.
    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError>;

    /// Forgets at most so many tasks or replies that are past their time, oldest first over all callers; says how many.
    /// Tasks in progress are never forgotten, and none with a turn that waits. Nothing stays of a task that is
    /// forgotten: its log, its keys, its turns, its links, its memo and its webhooks go with it, and the counts of lists.
    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError>;
}
