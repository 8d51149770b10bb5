//! Storage of tasks: an append-only log per task, and what belongs to it.
//!
//! ```text
//!            Store            one handle, one owner: ready, close, secrets
//!              │ is
//!   ┌──────────┼────────────┬─────────────────┐
//! TaskLog    Outbox       Records      OperatorQueries
//! tasks,     webhooks,    small        tasks and deliveries
//! entries,   deliveries,  documents    over all callers
//! turns,     leases
//! keys
//! ```
//! To write a store, begin with [`TaskLog`], whose contract the others refer to; then [`Outbox`], which shares its
//! transactions; [`Records`] and [`OperatorQueries`] stand alone. [`conformance`](crate::store) proves all four.
//! Code that needs one part takes that part, such as `&dyn Records`; an `Arc<dyn Store>` is each of them.
//!
//! - `task_log`, `outbox`, `records`, `operator_queries`: a trait each, with its types
//! - `scope`, `error`: what they share
//! - `judge`: who may write, decided once for all stores
//! - `memory`, `sqlite`, `postgres`: the stores; `codec`: what the two databases share; `open`: how they are opened
//! - `instrumented`: any store, with measurements

mod error;
mod instrumented;
mod judge;
mod open;
mod operator_queries;
mod outbox;
mod records;
mod scope;
mod task_log;

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod codec;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod failing;

use async_trait::async_trait;

#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteOptions, SqliteStore};
pub(crate) use self::task_log::{PageBytes, references};
pub use self::{
    error::{Refused, StoreError},
    instrumented::{StoreOp, Watch, instrumented},
    memory::MemoryStore,
    open::{Durability, OpenError},
    operator_queries::{AdminTask, AdminTaskPage, AdminTaskQuery, ErasureTarget, OperatorQueries, TaskCount},
    outbox::{
        Attempt, Backlog, Delivery, DeliveryId, DeliveryOutcome, DeliveryQuery, DeliveryState, Lease, Leased,
        Leases, MOST_WEBHOOKS, Outbox, Owed, Redrive, Settled, Then, Webhook,
    },
    records::{Expect, PutRecord, Record, RecordQuery, Records},
    scope::Scope,
    task_log::{
        Answer, Commit, IdempotencyKey, Keyset, Links, MOST_CHILDREN, Orphan, Outcome, Projection, Prune,
        Pruned, Reservation, StoredEvent, StoredTask, StoredTurn, TaskLog, TaskPage, TaskQuery, TurnChange,
        busy_after,
    },
};

/// A store: the four parts over the same data, and the handle that opened it.
///
/// A handle is one owner, as [`TaskLog`] says: two handles of the same data are two owners.
#[async_trait]
pub trait Store: TaskLog + Outbox + Records + OperatorQueries {
    /// True if `commit` never waits: its future is done when it is first polled.
    fn is_immediate(&self) -> bool {
        false
    }

    /// True if other owners may write at the same time: what is known here about a task at rest may be old.
    fn is_shared(&self) -> bool {
        true
    }

    /// A random value that stays the same as long as the data; made when it is first asked for.
    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError>;

    /// Fails if the store cannot be read at present, or not be written to.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Finishes the work that was queued and releases this owner's tasks, so that other owners need not wait until it
    /// counts as gone. No call follows.
    async fn close(&self) {}
}
