//! The log: tasks as numbered entries, their owners, their turns, and idempotency keys.

mod commit;
mod idempotency;
mod list;
mod reservation;
mod retention;
mod stored;
mod total;
mod turn;

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{Message, Seq, Task, TaskId, Timestamp};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use self::total::CountedTasks;
pub(crate) use self::{commit::references, list::PageBytes};
pub use self::{
    commit::{Attached, Commit, busy_after},
    idempotency::{IdempotencyKey, IdempotentAnswer, Outcome},
    list::{Keyset, Projection, TaskPage, TaskQuery},
    reservation::Reservation,
    retention::{Prune, Pruned},
    stored::{Links, MAX_CHILDREN, Moved, StoredEvent, StoredTask},
    turn::{HandIn, Orphan, StoredTurn, TurnChange, WaitingQuery, WaitingTurn},
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
/// Implementors guarantee, and [`conformance`](crate::store) tests:
/// - **Order.** Sequence numbers of a task begin at 1 and have no gap; an entry is refused unless the log is
///   exactly at the version that it expects.
/// - **Durability.** After `commit` has returned, the entry is visible to every reader, and stays.
/// - **Batches.** A batch is one transaction; each entry in it is accepted or refused by itself.
/// - **Scopes.** A task is found only in the scope in which it was created. A task of another scope is not
///   found.
/// - **Names.** Ids, keys and the names of a scope are any text, compared and ordered by their bytes; an
///   absent name differs from an empty one. Times have a precision of milliseconds.
/// - **Owners.** A handle is one owner. An owner that creates a task, or appends to a task that no owner
///   holds, owns it. The owner holds its task while the task is in progress, and while a turn waits to begin;
///   then entries and turns of other owners are refused, unless they take the task over. A task is in
///   progress from its creation, and again from each message of its caller, to the next status that is
///   terminal or interrupted ([`busy_after`]), or to an entry that [parks](Attached::park) it.
/// - **Adoption.** A task that a stopped owner left in progress is given to one other owner, once.
/// - **Keys.** A key belongs to one [`Reservation`], task or reply. A reservation belongs to its owner until
///   that has stopped.
/// - **Deliveries.** The deliveries that an entry causes are stored in the entry's transaction
///   ([`Outbox`](super::Outbox)).
#[async_trait]
pub trait TaskLog: Send + Sync + 'static {
    /// Appends entries. Returns one result per entry, in order; each entry is checked against the state that
    /// those before it have left. The result is the first refusal of this table that applies:
    ///
    /// | refusal | entry | creation |
    /// |---|---|---|
    /// | [`NotFound`](Refused::NotFound) | the task is unknown, or of another scope | |
    /// | [`Held`](Refused::Held) | another owner holds the task, and it is not [taken](Commit::take) | |
    /// | [`Version`](Refused::Version) | the log is at another number, or the task has ended | the id exists, in any scope |
    /// | [`Record`](Refused::Record) | a [record](Attached::records) is of another version than expected | the same |
    /// | [`NotFound`](Refused::NotFound) | | it is [reserved](Attached::reserved), and there is no reservation |
    /// | [`Held`](Refused::Held) | | the reservation is another owner's, and it is not taken |
    /// | [`KeyTaken`](Refused::KeyTaken) | the key has an answer or a reservation | the same, unless it is reserved |
    ///
    /// After an error it is unknown which entries were stored.
    async fn commit(&self, batch: Vec<Commit>) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// The task, folded from its log, and the number of its last entry.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// Returns those of these tasks that have entries after the given number. Used only where owners share
    /// the store.
    async fn changed_since(&self, known: &[(TaskId, Seq)]) -> Result<Vec<Moved>, StoreError>;

    /// The parts of a task that the projection includes.
    async fn shown(&self, scope: &Scope, id: &TaskId, shown: Projection) -> Result<Option<Task>, StoreError>;

    /// A page of tasks, newest status first. Totals are exact up to [`TaskQuery::max_counted`]; beyond it a
    /// store may estimate them.
    async fn tasks(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Entries of a task's log after `after`, at most `limit`; none if the task is not found.
    async fn events(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError>;

    /// The tasks that a task refers to, and those that refer to it, within this scope.
    async fn links(&self, scope: &Scope, id: &TaskId) -> Result<Links, StoreError>;

    /// The stored answer of an idempotency key.
    async fn idempotent_outcome(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError>;

    /// Stores a direct reply under an idempotency key, and ends this owner's reservation of the key, if any.
    /// Does nothing if the key already has an answer or is reserved by another owner. (The key of a task is
    /// stored by its first [`Commit`].)
    async fn put_reply(
        &self,
        scope: &Arc<Scope>,
        key: IdempotencyKey,
        reply: Arc<Message>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Reserves a task and its key. [`Refused::KeyTaken`] if the key has an answer, or is reserved for
    /// another task. Repeating the same reservation is no error, so that it can be retried when its result
    /// was lost.
    async fn reserve(&self, reservation: Reservation) -> Result<Result<(), Refused>, StoreError>;

    /// Deletes a reservation of this owner that led to no task, and frees its key. A missing reservation is
    /// no error.
    async fn release(&self, scope: &Scope, id: &TaskId) -> Result<(), StoreError>;

    /// At most `limit` reservations of this agent whose owners have stopped. They stay in the store until an
    /// entry [takes](Commit::take) them.
    async fn abandoned(&self, agent: &str, limit: usize) -> Result<Vec<Reservation>, StoreError>;

    /// Stores a waiting turn, marks a turn as begun, or deletes it. [`Refused::Held`] if another owner holds
    /// the task; [`Refused::NotFound`] if a turn to begin does not exist.
    async fn update_turn(
        &self,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError>;

    /// Stores a turn that waits, for a task that another owner holds, whether that owner is alive or has
    /// stopped. It stays the owner. The result is the first of this table that applies:
    ///
    /// | result | if |
    /// |---|---|
    /// | [`NotFound`](Refused::NotFound) | the task is unknown, or of another scope |
    /// | accepted, nothing changes | the key has this task as its answer, with the same digest |
    /// | [`KeyTaken`](Refused::KeyTaken) | the key has another answer, or a reservation |
    /// | [`Version`](Refused::Version) | the task has ended |
    /// | [`NotHeld`](Refused::NotHeld) | no other owner holds the task |
    /// | [`Full`](Refused::Full) | `max_waiting` turns wait already |
    async fn hand_in(
        &self,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<Result<(), Refused>, StoreError>;

    /// The turns that wait at tasks of this owner, by task in the order of their ids. They are its own, those
    /// that others have handed in, and those of tasks that it has adopted.
    async fn waiting_turns(&self, query: &WaitingQuery) -> Result<Vec<WaitingTurn>, StoreError>;

    /// Takes over at most `limit` tasks of this agent whose owners have stopped: tasks in progress, and tasks
    /// with a turn that has not begun.
    async fn adopt(&self, agent: &str, limit: usize) -> Result<Vec<Orphan>, StoreError>;

    /// Deletes at most `limit` expired tasks or replies, oldest first over all callers; returns their number.
    /// Tasks in progress, and tasks with a waiting turn, are never deleted. A task is deleted with its log,
    /// keys, turns, links, memo and webhooks, and leaves the counts of lists.
    async fn prune(&self, what: &Prune, limit: usize) -> Result<usize, StoreError>;
}
