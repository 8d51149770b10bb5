//! Turns: one message and the work it causes. The turns of a task run one after the other.

use std::sync::Arc;

use nuncio_protocol::{CallContext, Error, Message, Metadata, Result, SendMessageConfiguration, Seq, Task};
use tokio::sync::oneshot;

use super::{in_flight::InFlightGuard, turns_in_hand::TurnInHand};
use crate::store::{IdempotencyKey, Reservation, StoredTurn, Webhook};

/// The input of an execution: the message, its call, and their data.
pub(super) struct ExecutionInput {
    pub(super) message: Arc<Message>,
    pub(super) configuration: SendMessageConfiguration,
    pub(super) metadata: Metadata,
    pub(super) references: Vec<Task>,
    pub(super) call: CallContext,
    /// The same for each repeat of the message under its idempotency key.
    pub(super) repeat_id: Option<Arc<str>>,
    /// Held until the turn is over, so that a repeat joins it.
    pub(super) in_flight: Option<InFlightGuard>,
}

/// A turn that is ready to run.
pub(super) enum Turn {
    Opening(Box<OpeningTurn>),
    FollowUp(Box<FollowUpTurn>),
    /// A turn that a stopped server had begun; its message is already in the log.
    Resumed(Box<ExecutionInput>),
}

/// The turn of the message that begins a task. Its stored turn and webhook are committed with the task's
/// first entry.
pub(super) struct OpeningTurn {
    pub(super) job: ExecutionInput,
    /// The stored turn, if the turn was acknowledged before it begins.
    pub(super) acknowledged: Option<TurnInHand>,
    /// The reservation of the task in the store, until the turn has made a task or a reply.
    pub(super) reservation: Option<Reservation>,
}

/// The turn of a message to an existing task.
pub(super) struct FollowUpTurn {
    pub(super) job: ExecutionInput,
    /// Recorded with the message.
    pub(super) key: Option<IdempotencyKey>,
    /// Registered with the message.
    pub(super) webhook: Option<Webhook>,
    /// The turn in the store, if it is stored until it is done.
    pub(super) stored: Option<StoredTurn>,
    /// Held while the stored turn waits.
    pub(super) in_hand: Option<TurnInHand>,
    /// Reports the beginning of the turn once the message is recorded, or the reason why it never will be.
    pub(super) begun: oneshot::Sender<Result<Begun>>,
}

/// The beginning of a turn.
pub(super) struct Begun {
    /// The entry after which the turn's events come.
    pub(super) turn: Seq,
    /// The task at that entry; `None` if the turn makes it.
    pub(super) task: Option<Task>,
}

impl Turn {
    pub(super) fn message(&self) -> &Message {
        match self {
            Self::Opening(turn) => &turn.job.message,
            Self::FollowUp(turn) => &turn.job.message,
            Self::Resumed(job) => &job.message,
        }
    }

    /// Reports to the waiting caller that the turn never comes.
    pub(super) fn refuse(self, error: Error) {
        match self {
            // Sending fails if the caller has gone; then nobody needs the error.
            Self::FollowUp(turn) => drop(turn.begun.send(Err(error))),
            Self::Opening(_) | Self::Resumed(_) => {}
        }
    }
}

impl FollowUpTurn {
    /// True if the turn was acknowledged before it begins.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| !stored.begun)
    }
}
