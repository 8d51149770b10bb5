//! The memo of a mailbox's task: the turns that wait or run, and the memo that a worker left.

use nuncio_protocol::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agents::lease::TurnId;

/// The memo of a task.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct TaskMemo {
    /// The turns with a row, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) turns: Vec<TurnId>,
    /// The worker's memo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memo: Option<Value>,
}

impl TaskMemo {
    /// Reads the memo of a task; that of another kind of agent, under the same name before, is none.
    pub(super) fn read(memo: Option<&[u8]>) -> Self {
        memo.and_then(|memo| serde_json::from_slice(memo).ok()).unwrap_or_default()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::internal)
    }

    /// This memo after a turn that left `memo`.
    pub(super) fn without(mut self, turn: TurnId, memo: Option<Value>) -> Self {
        self.turns.retain(|other| *other != turn);
        self.memo = memo;
        self
    }
}
