//! Storage of tasks: an append-only log per task, its webhooks and deliveries, and records.
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
//! To write a store, begin with [`TaskLog`]: the other contracts refer to it. Then [`Outbox`], which shares
//! its transactions. [`Records`] and [`OperatorQueries`] are independent. [`conformance`](crate::store) tests
//! all four. Code that needs one part takes that part, such as `&dyn Records`; an `Arc<dyn Store>` is each of
//! them.
//!
//! - `task_log`, `outbox`, `records`, `operator_queries`: a trait each, with its types
//! - `scope`, `error`: types that they share
//! - `signals`: hints between the servers that share a store
//! - `judge`: the rules for accepting a write, the same for all stores
//! - `memory`, `sqlite`, `postgres`: the stores; `codec`: code shared by the two databases; `open`: options
//!   and errors of opening a database
//! - `instrumented`: a store with measurements

mod error;
mod instrumented;
mod judge;
mod open;
mod operator_queries;
mod outbox;
mod records;
mod scope;
mod signals;
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

use std::sync::Arc;

use async_trait::async_trait;

#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteOptions, SqliteStore};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use self::task_log::CountedTasks;
pub(crate) use self::task_log::{PageBytes, references};
pub use self::{
    error::{Refused, StoreError},
    instrumented::{StoreOp, Watch, instrumented},
    memory::MemoryStore,
    open::{Durability, OpenError},
    operator_queries::{AdminTask, AdminTaskPage, AdminTaskQuery, ErasureTarget, OperatorQueries, TaskCount},
    outbox::{
        Attempt, Backlog, Delivery, DeliveryId, DeliveryOutcome, DeliveryQuery, DeliveryState, FailureCause,
        Lease, Leased, Leases, MAX_WEBHOOKS, Outbox, Owed, Redrive, Settled, Then, Webhook,
    },
    records::{Expect, PutRecord, Record, RecordChange, RecordQuery, Records},
    scope::Scope,
    signals::{Heard, NET_INTERVAL, POLL_INTERVAL, Polling, Signals, Subscription, Topic},
    task_log::{
        Attached, Commit, HandIn, IdempotencyKey, IdempotentAnswer, Keyset, Links, MAX_CHILDREN, Moved,
        Orphan, Outcome, Projection, Prune, Pruned, Reservation, StoredEvent, StoredTask, StoredTurn,
        TaskLog, TaskPage, TaskQuery, TurnChange, WaitingQuery, WaitingTurn, busy_after,
    },
};

/// A store: the four parts over the same data, and the handle that opened it.
///
/// Each handle is one owner, as defined in [`TaskLog`]: two handles of the same data are two owners.
#[async_trait]
pub trait Store: TaskLog + Outbox + Records + OperatorQueries {
    /// True if `commit` never waits: its future is ready at the first poll.
    fn is_immediate(&self) -> bool {
        false
    }

    /// True if other owners may write at the same time: an idle task may then have changed since it was read.
    fn is_shared(&self) -> bool {
        true
    }

    /// The number of commits that may be under way at a time. Those of one task come one after the other.
    fn concurrent_commits(&self) -> usize {
        1
    }

    /// The signals between the owners of the data. Default: none, and subscribers poll.
    fn signals(&self) -> Arc<dyn Signals> {
        Arc::new(Polling::default())
    }

    /// A random value with this name, stored with the data; created at the first call.
    async fn secret(&self, name: &str) -> Result<[u8; 32], StoreError>;

    /// Fails if the store cannot be read or written now.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Finishes queued work and releases this owner's tasks, so that other owners need not wait until it
    /// counts as stopped. No other call may follow.
    async fn close(&self) {}
}
