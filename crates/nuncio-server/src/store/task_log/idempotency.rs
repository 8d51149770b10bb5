//! Idempotency keys and their answers.

use std::sync::Arc;

use nuncio_protocol::{Message, TaskId};

use super::Reservation;

/// The key by which a repeated send is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The caller's key.
    pub key: Arc<str>,
    /// A digest of the request, to detect a different request with the same key.
    pub digest: [u8; 32],
}

/// The answer under an idempotency key.
#[derive(Clone, Debug)]
pub struct IdempotentAnswer {
    /// A digest of the request that was answered.
    pub digest: [u8; 32],
    /// The answer.
    pub outcome: Outcome,
}

/// The outcome of a send with a key.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The task that the send created.
    Task(TaskId),
    /// The direct reply.
    Reply(Arc<Message>),
    /// The message may be in progress; there is no answer yet.
    Reserved {
        /// The reservation.
        reservation: Box<Reservation>,
        /// True if its owner has stopped: there will be no answer.
        abandoned: bool,
    },
}
