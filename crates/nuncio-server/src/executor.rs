//! What the author of an agent writes, and what the author is given.

use std::{fmt, ops::Deref, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{
    AgentCard, AgentExtension, Artifact, ArtifactId, CallContext, ContextId, Event, Message, Metadata, Part,
    Result, Role, SendMessageConfiguration, Seq, Task, TaskArtifactUpdateEvent, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use tokio_util::sync::CancellationToken;

use crate::runtime::{Recorder, new_id};

/// An agent.
///
/// `execute` is called for each message. What it emits is recorded and shown in that order. When it
/// returns:
/// - `Ok` with the task still in progress completes the task;
/// - `Ok` after `input_required` or `auth_required` leaves it there until the next message;
/// - `Err`, or a panic, fails the task with a reason.
///
/// The words of an `Err` are shown to the caller, its source only to the log (`tracing`).
/// A follow-up has the task as it was in [`Execution::task`]; what an agent wants to keep between the
/// messages of a task it keeps under the task's id.
///
/// A caller that goes away does not stop it. A cancel does: the token fires, `cancel` is called, and
/// after a grace period ([`Limits::cancel_grace`](crate::Limits)) the future is dropped. Whatever
/// `execute` returns then, the task ends as canceled.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Handles a message.
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()>;

    /// Is told that the task of `cx` is being canceled, beside the token in `cx`.
    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        let _ = cx;
        Ok(())
    }
}

/// What an execution is about. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ExecContext(Arc<Execution>);

impl Deref for ExecContext {
    type Target = Execution;

    fn deref(&self) -> &Execution {
        &self.0
    }
}

impl From<Execution> for ExecContext {
    fn from(execution: Execution) -> Self {
        Self(Arc::new(execution))
    }
}

/// What an [`ExecContext`] holds.
#[derive(Debug)]
pub struct Execution {
    /// The task: the one of the message, or the one that will be made by the first event.
    pub task_id: TaskId,
    /// The conversation.
    pub context_id: ContextId,
    /// What the caller said.
    pub message: Arc<Message>,
    /// The task as it was before this message; `None` if the message began it.
    pub task: Option<Task>,
    /// True if the agent had begun with this message when the server stopped. What it had said until then
    /// is in `task`. Only agents that are marked as idempotent see this.
    pub again: bool,
    /// The tasks that the message refers to, as far as they are the caller's.
    pub references: Vec<Task>,
    /// How the caller wants it done.
    pub configuration: SendMessageConfiguration,
    /// Free-form data of the request.
    pub metadata: Metadata,
    /// Who calls, in which version, with which extensions.
    pub call: CallContext,
    /// The agent's own card.
    pub card: Arc<AgentCard>,
    /// Fires when the task is being canceled or the server ends.
    pub cancellation: CancellationToken,
}

impl Execution {
    /// The text of the message.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        self.message.text()
    }

    /// The extension of this URI as the card declares it, if it is active: the caller has declared it, too
    /// (spec 4.6).
    #[must_use]
    pub fn extension(&self, uri: &str) -> Option<&AgentExtension> {
        self.card.extension(uri).filter(|_| self.call.declares(uri))
    }
}

/// Says what happens. When a call returns, the event has its place in the task's log; it is shown to
/// callers when it is in the store ([`Self::flush`] waits for that). Parts of an agent may emit concurrently
/// through clones.
///
/// The first event decides: [`Self::message`] is a direct reply without a task; anything else makes the
/// task. An error means that the execution is over (canceled, or the store is gone): return it.
#[derive(Clone)]
pub struct Emitter {
    recorder: Recorder,
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("task_id", self.recorder.task_id()).finish_non_exhaustive()
    }
}

impl Emitter {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder }
    }

    /// Makes the task, as submitted, without saying more yet.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn submitted(&self) -> Result<()> {
        self.recorder.create().await.map(drop)
    }

    /// The task is being worked on.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn working(&self) -> Result<Seq> {
        self.status(TaskState::Working, Vec::new()).await
    }

    /// The task is done.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn completed(&self) -> Result<Seq> {
        self.status(TaskState::Completed, Vec::new()).await
    }

    /// The task has failed, for this reason. Returning an error says the same.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn failed(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Failed, vec![reason.into()]).await
    }

    /// The agent will not do it, for this reason.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn rejected(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Rejected, vec![reason.into()]).await
    }

    /// The task cannot go on without an answer to this.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn input_required(&self, question: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::InputRequired, vec![question.into()]).await
    }

    /// The task cannot go on without an authorisation, explained here.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn auth_required(&self, explanation: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::AuthRequired, vec![explanation.into()]).await
    }

    /// A new status, with what the agent says about it (nothing if `parts` is empty).
    ///
    /// # Errors
    /// The execution is over.
    pub async fn status(&self, state: TaskState, parts: Vec<Part>) -> Result<Seq> {
        let message = (!parts.is_empty()).then(|| Arc::new(self.own_message(parts)));
        self.recorder
            .record(Event::StatusUpdate(TaskStatusUpdateEvent {
                task_id: self.recorder.task_id().clone(),
                context_id: self.recorder.context_id().clone(),
                status: TaskStatus { state, message, timestamp: None },
                metadata: Metadata::new(),
            }))
            .await
    }

    /// A whole artifact.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn artifact(&self, artifact: Artifact) -> Result<Seq> {
        self.chunk(artifact, false, true).await
    }

    /// A whole artifact of one text.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn text(&self, name: impl Into<String>, text: impl Into<String>) -> Result<Seq> {
        let id: ArtifactId = new_id();
        self.artifact(Artifact::new(id, Part::text(text)).with_name(name)).await
    }

    /// A piece of an artifact: `append` adds to the artifact of the same id, `last` completes it.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn chunk(&self, artifact: Artifact, append: bool, last: bool) -> Result<Seq> {
        self.recorder
            .record(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: self.recorder.task_id().clone(),
                context_id: self.recorder.context_id().clone(),
                artifact: Arc::new(artifact),
                append,
                last_chunk: last,
                metadata: Metadata::new(),
            }))
            .await
    }

    /// A direct reply: no task is made, and nothing more may be said. Where there is a task already (it is
    /// a follow-up, or the caller would not wait) the reply becomes the words of its completion.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn message(&self, parts: impl Into<Vec<Part>>) -> Result<()> {
        let mut message = self.own_message(parts.into());
        message.task_id = None;
        self.recorder.reply(message).await
    }

    /// Waits until all that was said is safely in the store. Emits return when an event has its place in the
    /// order, and a disk takes longer: an agent that is about to do what cannot be undone waits here first.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn flush(&self) -> Result<()> {
        self.recorder.flush().await
    }

    fn own_message(&self, parts: Vec<Part>) -> Message {
        Message {
            message_id: new_id(),
            context_id: Some(self.recorder.context_id().clone()),
            task_id: Some(self.recorder.task_id().clone()),
            role: Role::Agent,
            parts,
            ..Message::default()
        }
    }
}
