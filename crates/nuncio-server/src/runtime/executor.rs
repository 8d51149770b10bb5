//! The interface for authors of agents: the trait to implement, and the context of each execution.

use std::{ops::Deref, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_protocol::{
    AgentCard, AgentExtension, CallContext, ContextId, Message, Metadata, Result, SendMessageConfiguration,
    Task, TaskId,
};
use tokio_util::sync::CancellationToken;

use super::{
    conversation::{Conversation, Earlier, EarlierLimit},
    emitter::Emitter,
};

/// An agent.
///
/// `execute` is called for each message. Its events are recorded and shown in the order in which they are
/// emitted. When it returns:
/// - `Ok` with the task still in progress completes the task;
/// - `Ok` after `input_required` or `auth_required` leaves it there until the next message;
/// - `Err`, or a panic, fails the task with a reason.
///
/// The message of an `Err` is shown to the caller; its source goes only to the log (`tracing`).
/// A follow-up gets the task before this message in [`Execution::task`]. State that must survive between the
/// messages of a task, and a crash, is stored with [`Emitter::remember`]. [`ExecContext::earlier`] reads the
/// conversation so far: the earlier tasks of the same context.
///
/// A caller that disconnects does not stop the execution. A cancel does: the token fires, `cancel` is called,
/// and after a grace period ([`Limits::cancel_grace`](crate::Limits)) the future is dropped. The task then
/// ends as canceled, for any result of `execute`. An emit that would make the task larger than
/// [`Limits::max_task_bytes`](crate::Limits) fails and stops the execution in the same way; that task ends as
/// failed, with the reason.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Handles a message.
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()>;

    /// Handles the cancel of the task in `cx`. The token in `cx` fires as well.
    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        let _ = cx;
        Ok(())
    }

    /// The extended card for this caller, for a runtime that was built without one
    /// ([`RuntimeBuilder::extended_card`](crate::RuntimeBuilder)). The caller is authenticated, unless the
    /// runtime shows its extended card to anonymous callers. `None`: none is configured.
    async fn extended_card(&self, cx: &CallContext) -> Result<Option<AgentCard>> {
        let _ = cx;
        Ok(None)
    }

    /// True if the same message may be executed more than once without harm: after a crash, by a repeat under
    /// its `Idempotency-Key`, or by two servers at once.
    ///
    /// The default is false. Then a durable store gets a reservation of each message with a key before the
    /// message is executed, which costs such a send one more commit. A message that was interrupted by a
    /// crash is not executed again: its task fails with that reason.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// True if each execution must leave a task, even if it has no `Idempotency-Key` and a crash interrupts
    /// it. For executors that cost more to start than a commit, such as programs. Has no effect on an
    /// idempotent executor.
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

/// The context of an execution. Cheap to clone.
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

    /// The conversation so far: the tasks of this context that belong to this agent and this caller, oldest first by
    /// their last status. It contains neither this task nor direct replies, which are not stored.
    ///
    /// These are the newest tasks up to the limit, without a gap: a task that does not fit excludes all older ones. The
    /// history of a task has only its last turns, up to the limit of turns. Nothing is read beyond the limits.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn earlier(&self, limit: EarlierLimit) -> Result<Vec<Task>> {
        Ok(self.earlier_with_count(limit).await?.tasks)
    }

    /// As [`Self::earlier`], with the number of older tasks that the limit leaves out.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn earlier_with_count(&self, limit: EarlierLimit) -> Result<Earlier> {
        match &self.conversation {
            Some(conversation) => conversation.earlier(&self.context_id, &self.task_id, limit).await,
            None => Ok(Earlier::default()),
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

/// The content of an [`ExecContext`].
#[derive(Debug)]
pub struct Execution {
    /// The task of the message, or the one that the first event will make.
    pub task_id: TaskId,
    /// The context (conversation) of the task.
    pub context_id: ContextId,
    /// The caller's message.
    pub message: Arc<Message>,
    /// The task as it was before this message; `None` if the message began it.
    pub task: Option<Task>,
    /// An id of this message that is the same for each repeat under the caller's `Idempotency-Key`, even if
    /// the server stopped before anything was stored, and differs from that of any other message. Agents that
    /// this agent calls can recognise the repeat by it. `None` if the caller gave no key.
    pub repeat_id: Option<Arc<str>>,
    /// True if the agent had begun with this message when the server stopped. Its events until then are in
    /// `task`. Only idempotent agents see this.
    pub resumed: bool,
    /// The [memo](Emitter::remember) of the task, from an earlier message, or from this one before the server
    /// stopped.
    pub memo: Option<Bytes>,
    /// The tasks that the message refers to, if the caller may see them.
    pub references: Vec<Task>,
    /// The caller's configuration of the send.
    pub configuration: SendMessageConfiguration,
    /// Free-form data of the request.
    pub metadata: Metadata,
    /// The call: its caller, version and extensions.
    pub call: CallContext,
    /// The agent's own card.
    pub card: Arc<AgentCard>,
    /// Fires when the task is being canceled or the server is shutting down.
    pub cancellation: CancellationToken,
}

impl Execution {
    /// The text of the message.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        self.message.text()
    }

    /// The extension with this URI as the card declares it, if it is active: the caller must have declared it
    /// too (spec 4.6).
    #[must_use]
    pub fn extension(&self, uri: &str) -> Option<&AgentExtension> {
        self.card.extension(uri).filter(|_| self.call.declares(uri))
    }
}
