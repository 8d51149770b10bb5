//! The contract of an agent's author: the trait to implement, and the context of each execution.

use std::{ops::Deref, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_protocol::{
    AgentCard, AgentExtension, CallContext, ContextId, Message, Metadata, Result, SendMessageConfiguration,
    Task, TaskId,
};
use tokio_util::sync::CancellationToken;

use super::{
    conversation::{Conversation, EarlierLimit},
    emitter::Emitter,
};

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
/// messages of a task, and over a crash, it [remembers](Emitter::remember). The tasks before it in the same context
/// are the conversation so far ([`ExecContext::earlier`]).
///
/// A caller that goes away does not stop it. A cancel does: the token fires, `cancel` is called, and
/// after a grace period ([`Limits::cancel_grace`](crate::Limits)) the future is dropped. Whatever
/// `execute` returns then, the task ends as canceled. An emit that would make the task larger than
/// [`Limits::max_task_bytes`](crate::Limits) fails and stops the execution in the same way; the task then ends as
/// failed, with the reason.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Handles a message.
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()>;

    /// Is told that the task of `cx` is being canceled, beside the token in `cx`.
    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        let _ = cx;
        Ok(())
    }

    /// The card for this caller, who has said who it is, of a runtime that was given none
    /// ([`RuntimeBuilder::extended_card`](crate::RuntimeBuilder)). `None`: none is configured.
    async fn extended_card(&self, cx: &CallContext) -> Result<Option<AgentCard>> {
        let _ = cx;
        Ok(None)
    }

    /// True if the same message may be executed more than once without harm: after a crash, by a repeat under its
    /// `Idempotency-Key`, or by two servers at once.
    ///
    /// Of an executor that is not idempotent, which is the default, a durable store knows each message with a key
    /// before it is executed. That costs such a send one more commit. A message that a crash cuts short is not
    /// executed again: its task has failed, and says why.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// True if each execution is to leave a task, also one without an `Idempotency-Key` that a crash cuts short. For
    /// executors whose start costs more than a commit, such as those that start a program. Of no effect for one
    /// that is idempotent.
    fn always_leaves_task(&self) -> bool {
        false
    }
}

#[async_trait]
impl<E: Executor + ?Sized> Executor for Arc<E> {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        (**self).execute(cx, out).await
    }

    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        (**self).cancel(cx).await
    }

    async fn extended_card(&self, cx: &CallContext) -> Result<Option<AgentCard>> {
        (**self).extended_card(cx).await
    }

    fn is_idempotent(&self) -> bool {
        (**self).is_idempotent()
    }

    fn always_leaves_task(&self) -> bool {
        (**self).always_leaves_task()
    }
}

/// What an execution is about. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ExecContext {
    execution: Arc<Execution>,
    /// `None` outside of a runtime.
    conversation: Option<Conversation>,
}

impl ExecContext {
    pub(super) fn new(execution: Execution, conversation: Conversation) -> Self {
        Self { execution: Arc::new(execution), conversation: Some(conversation) }
    }

    /// The conversation so far: tasks of this context, of this agent and of this caller, never of another one, oldest
    /// first by their last status. This task is not among them, nor are direct replies, which nobody keeps.
    ///
    /// They are the newest ones up to the limit, without a gap: what is older than a task that does not fit is left
    /// out, too. Of a task with more turns than are wanted, the last turns are in its history. Nothing is read beyond
    /// the limit.
    ///
    /// # Errors
    /// The store is not there.
    pub async fn earlier(&self, limit: EarlierLimit) -> Result<Vec<Task>> {
        match &self.conversation {
            Some(conversation) => conversation.earlier(&self.context_id, &self.task_id, limit).await,
            None => Ok(Vec::new()),
        }
    }
}

impl Deref for ExecContext {
    type Target = Execution;

    fn deref(&self) -> &Execution {
        &self.execution
    }
}

impl From<Execution> for ExecContext {
    /// A context outside of a runtime, for tests of an executor: there is no conversation before it.
    fn from(execution: Execution) -> Self {
        Self { execution: Arc::new(execution), conversation: None }
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
    /// The same for each repeat of this message under its caller's `Idempotency-Key`, also if the server stopped before
    /// anything was stored, and for no other message: by this others that the agent asks may know the repeat again.
    /// `None` if the caller gave no key.
    pub name: Option<Arc<str>>,
    /// True if the agent had begun with this message when the server stopped. What it had said until then
    /// is in `task`. Only agents that are marked as idempotent see this.
    pub again: bool,
    /// What was [remembered](Emitter::remember) with the task: with an earlier message, or with this one before
    /// the server stopped.
    pub memo: Option<Bytes>,
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
