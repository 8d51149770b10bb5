//! Reservations: a message is about to be executed, and has no task or reply yet.
//!
//! ```text
//! reserve ─► entry that creates the task   the key finds the task
//!         ├► put_reply                     the key finds the reply
//!         ├► release                       the key is free
//!         └► the owner has stopped         abandoned: another owner creates the task as failed
//! ```

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{TaskId, Timestamp};

use super::IdempotencyKey;
use crate::store::Scope;

/// The id of a task that does not exist yet, reserved with its idempotency key before its message is
/// executed.
///
/// A reservation is not a task: no read, list, count or log shows it. It belongs to the owner that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The id of the future task.
    pub task_id: TaskId,
    /// The key by which a repeated send finds the reservation, then the task or reply; `None` if the caller
    /// gave none.
    pub idempotency: Option<IdempotencyKey>,
    /// The time at which it was made.
    pub at: Timestamp,
    /// Data from which the runtime creates the task; opaque to the store.
    pub body: Bytes,
}
