//! The lines that a worker writes: the forms that a `cmd+json` program writes as well, and the memo.

use bytes::Bytes;
use nuncio_protocol::{Artifact, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent};
use serde::Serialize;
use serde_json::json;

/// One line: an event of the task, or a memo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line(Bytes);

impl Line {
    /// A line of this JSON object, for forms that have no constructor here.
    ///
    /// # Errors
    /// The value cannot be serialized.
    pub fn json(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Self> {
        serde_json::to_vec(value).map(|line| Self(line.into()))
    }

    fn of(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }

    /// A piece of the text of the answer.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(&json!({ "text": text.into() }))
    }

    /// The last piece of the text of the answer.
    #[must_use]
    pub fn last_text(text: impl Into<String>) -> Self {
        Self::of(&json!({ "text": text.into(), "last": true }))
    }

    /// The state working.
    #[must_use]
    pub fn working() -> Self {
        Self::of(&json!({ "status": "working" }))
    }

    /// The task is done. The text is the message of the status; empty: none.
    #[must_use]
    pub fn completed(text: impl Into<String>) -> Self {
        Self::of(&json!({ "completed": text.into() }))
    }

    /// The task has failed, for this reason.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::of(&json!({ "failed": reason.into() }))
    }

    /// The agent will not do it, for this reason.
    #[must_use]
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self::of(&json!({ "rejected": reason.into() }))
    }

    /// A question to the caller. The lease ends with it: the answer is a new turn.
    #[must_use]
    pub fn input_required(question: impl Into<String>) -> Self {
        Self::of(&json!({ "inputRequired": question.into() }))
    }

    /// A whole artifact.
    #[must_use]
    pub fn artifact(artifact: &Artifact) -> Self {
        Self::of(&json!({ "artifact": artifact }))
    }

    /// A status in the shape of the A2A specification.
    #[must_use]
    pub fn status_update(update: &TaskStatusUpdateEvent) -> Self {
        Self::of(&json!({ "statusUpdate": update }))
    }

    /// A piece of an artifact in the shape of the A2A specification.
    #[must_use]
    pub fn artifact_update(update: &TaskArtifactUpdateEvent) -> Self {
        Self::of(&json!({ "artifactUpdate": update }))
    }

    /// A memo: any value of up to 16 KiB that the next lease of this task gets. A lease with a memo that is lost is offered again.
    ///
    /// # Errors
    /// The value cannot be serialized.
    pub fn memo(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Self> {
        #[derive(Serialize)]
        struct Memo<'a, T: ?Sized> {
            memo: &'a T,
        }
        Self::json(&Memo { memo: value })
    }

    /// A state without a message.
    #[must_use]
    pub fn state(state: TaskState) -> Self {
        Self::of(&json!({ "status": state.as_str() }))
    }

    /// The line as it is sent, without its line break.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
