//! Turns: messages that an executor is to handle, one after the other for each task.

use std::sync::Arc;

use nuncio_protocol::{CallContext, Error, Message, Metadata, Result, SendMessageConfiguration, Seq, Task};
use tokio::sync::oneshot;

use super::in_flight::InFlightGuard;
use crate::store::{IdempotencyKey, Reservation, StoredTurn, Webhook};

/// What an executor is asked, and by whom.
pub(super) struct Job {
    pub(super) message: Arc<Message>,
    pub(super) configuration: SendMessageConfiguration,
    pub(super) metadata: Metadata,
    pub(super) references: Vec<Task>,
    pub(super) call: CallContext,
    /// The same for each repeat of the message under its key.
    pub(super) repeat_id: Option<Arc<str>>,
    /// Held until the turn is over, so that a repeat joins it.
    pub(super) in_flight: Option<InFlightGuard>,
}

/// A turn that is to run.
pub(super) enum Turn {
    Opening(Box<OpeningTurn>),
    FollowUp(Box<FollowUpTurn>),
    /// Begun before, by an owner that is gone; its message is in the log.
    Resumed(Box<Job>),
}

/// The turn of the message that begins a task. What is stored with the task travels with its first entry.
pub(super) struct OpeningTurn {
    pub(super) job: Job,
    /// The stored turn, if it was acknowledged before it begins.
    pub(super) acknowledged: Option<Arc<str>>,
    /// What the store knows of it until a task or a reply has come of it.
    pub(super) reservation: Option<Reservation>,
}

/// The turn of a message to a task.
pub(super) struct FollowUpTurn {
    pub(super) job: Job,
    /// Recorded with the message.
    pub(super) key: Option<IdempotencyKey>,
    /// Registered with the message.
    pub(super) webhook: Option<Webhook>,
    /// How it is kept in the store until it is done, if it is.
    pub(super) stored: Option<StoredTurn>,
    /// Told when the turn has come and the message is recorded, or why it never will be.
    pub(super) begun: oneshot::Sender<Result<Begun>>,
}

/// The beginning of a turn.
pub(super) struct Begun {
    /// The entry after which its events come.
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

    /// Tells whoever waits for the turn that it never comes.
    pub(super) fn refuse(self, error: Error) {
        match self {
            // Nobody waits any more: then nobody needs to know.
            Self::FollowUp(turn) => drop(turn.begun.send(Err(error))),
            Self::Opening(_) | Self::Resumed(_) => {}
        }
    }
}

impl FollowUpTurn {
    /// True if it was acknowledged before it begins.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| !stored.begun)
    }
}
