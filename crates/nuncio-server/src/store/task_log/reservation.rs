//! Reservations: a message is about to be executed, and nothing came of it yet.
//!
//! ```text
//! reserve ─► entry that creates the task   the key finds the task
//!         ├► put_reply                    the key finds the reply
//!         ├► release                       the key is free
//!         └► the owner is gone             abandoned: whoever finds it makes the task, which has failed
//! ```

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{TaskId, Timestamp};

use super::IdempotencyKey;
use crate::store::Scope;

/// The id of a task that does not exist yet, reserved with its idempotency key before its message is executed.
///
/// A reservation is no task: no read, list, count or log shows it. It belongs to the owner that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The scope of the task.
    pub scope: Arc<Scope>,
    /// The id it will have.
    pub task_id: TaskId,
    /// The key under which a repeat finds the reservation, then what came of it; `None` if the caller gave none.
    pub idempotency: Option<IdempotencyKey>,
    /// When it was made.
    pub at: Timestamp,
    /// For the runtime, which makes the task of it; the store does not look inside.
    pub body: Bytes,
}
