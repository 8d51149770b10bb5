//! Delegation: another agent works on a task of ours. The message is sent to it once, its task is followed
//! over any `A2aService`, and each change is emitted as a change of our task.
//!
//! ```text
//! ExecContext ──► Hop::pass ──► Delegation: send ──► follow ──► Emitter
//!                 no circle     Delegate: the service, its ids, its health
//! ```
//! Remote agents are called over the network, agents of the same hub in memory.
//!
//! Reading order: this file (one delegation), `send` (sends the message), `follow` (follows the task),
//! `diff` (finds the changes in a snapshot), `ids` (translates ids), `hops`.
//!
//! **Invariant:** there is no delegation without a [`Passage`]: every call has the hop of the delegating
//! agent, so that agents cannot call each other in an endless circle.

mod diff;
mod follow;
mod hops;
mod ids;
mod send;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, ContextId, Error, ErrorKind, Event, Message, MessageId, Part,
    Result, Task, TaskId, TaskStatus, TaskStatusUpdateEvent,
};
use nuncio_server::{CallerPermit, Emitter, ExecContext};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

pub(crate) use self::hops::{Hop, Passage, hub_id};
use self::ids::LocalIds;
pub(super) use self::{
    ids::RemoteIds,
    send::{LateAnswer, SendOutcome},
};
use super::hex::random_hex;
use crate::config::Follow;

/// The agent that a task is delegated to.
///
/// Only the service is required; an agent of the same hub needs nothing else.
pub(super) trait Delegate: Send + Sync {
    /// The service that calls go through.
    fn service(&self) -> Arc<dyn A2aService>;

    /// The context of a call to the agent, made for this call. The delegation sets hops, trace and
    /// deadline.
    fn context(&self, call: &CallContext) -> CallContext {
        CallContext { caller: call.caller.clone(), ..CallContext::new(call.version) }
    }

    /// True if the agent should be asked for a stream.
    fn streams(&self) -> bool {
        true
    }

    /// Remembers that the agent does not stream, even if its card says so.
    fn note_no_streams(&self) {}

    /// Records the outcome of a call: `None` is an answer.
    fn record_outcome(&self, _error: Option<&Error>) {}

    /// Handles a refused version; true if the next call uses another version.
    fn switch_version(&self) -> bool {
        false
    }

    /// Binds the agent's task to ours, before any event of it is emitted.
    ///
    /// # Errors
    /// The task belongs to another caller; none of its events are emitted.
    fn bind_task(&self, _task: &TaskIds) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Stores the agent's context id of the conversation.
    fn bind_context(&self, _context: &ContextId) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Cancels the remote task of an answer that arrives after our task was canceled; `None` if there is no
    /// need. It runs detached, because the turn has ended.
    fn late_answer(&self) -> Option<LateAnswer> {
        None
    }
}

/// The agent's ids of a task and its context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TaskIds {
    pub(super) task: TaskId,
    pub(super) context: ContextId,
}

impl TaskIds {
    /// Returns the task if it is the requested one. Some agents leave out its id.
    pub(super) fn check(&self, task: Task) -> Result<Task> {
        if task.id.is_empty() || task.id == self.task {
            return Ok(task);
        }
        Err(Error::new(ErrorKind::InvalidAgentResponse, "the agent answered with another task"))
    }
}

/// Timeouts and intervals of a delegation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The way to follow a task.
    pub(super) follow: Follow,
    /// Timeout for the answer to a message.
    pub(super) send_timeout: Duration,
    /// Timeout for any other answer.
    pub(super) timeout: Duration,
    /// First pause between two polls of a task.
    pub(super) poll_interval: Duration,
    /// Time without an answer after which a task has failed.
    pub(super) give_up: Duration,
}

/// One task of ours that another agent works on.
pub(super) struct Delegation<'a, D> {
    pub(super) to: D,
    pub(super) cx: &'a ExecContext,
    pub(super) out: &'a Emitter,
    pace: Pace,
    passage: Passage<'a>,
    local: LocalIds,
    /// The agent's task, once it is known.
    remote: Mutex<Option<TaskIds>>,
    /// The caller was notified in this turn that the agent needs an authorisation.
    auth_required: AtomicBool,
}

impl<'a, D: Delegate> Delegation<'a, D> {
    /// Delegates the work on a message. Its call has passed the hop of our agent.
    pub(super) fn new(
        passage: Passage<'a>,
        cx: &'a ExecContext,
        out: &'a Emitter,
        pace: Pace,
        to: D,
    ) -> Self {
        let local = LocalIds { task_id: cx.task_id.clone(), context_id: cx.context_id.clone() };
        let (remote, auth_required) = Default::default();
        Self { to, cx, out, pace, passage, local, remote, auth_required }
    }

    /// The context of a call with this timeout.
    pub(super) fn context(&self, timeout: Option<Duration>) -> CallContext {
        let call = &self.cx.call;
        CallContext {
            trace: Some(self.passage.trace(call.trace.as_ref())),
            hops: self.passage.hops.clone(),
            deadline: timeout.map(|timeout| (Instant::now() + timeout).into_std()),
            ..self.to.context(call)
        }
    }

    /// The agent's task, once it is known.
    pub(super) fn remote(&self) -> Option<TaskIds> {
        self.remote_slot().clone()
    }

    fn remote_slot(&self) -> MutexGuard<'_, Option<TaskIds>> {
        self.remote.lock()
    }

    /// Continues with a task that the agent already works on.
    pub(super) fn resume(&self, task: TaskIds) {
        *self.remote_slot() = Some(task);
    }

    /// Emits the result of a message. `permit` is held while the agent works within the answer: a reply or
    /// a stream.
    pub(super) async fn follow_answer(
        &self,
        answer: SendOutcome,
        permit: Option<CallerPermit>,
    ) -> Result<()> {
        match answer {
            // Boxed to keep this future small: agents that stream never give these answers.
            SendOutcome::Reply(message) => Box::pin(self.reply(message)).await,
            SendOutcome::Task(task) => {
                drop(permit);
                Box::pin(self.follow_task(task)).await
            }
            // Boxed, too: its memory is not needed before the agent has answered.
            SendOutcome::Events(_, events) => Box::pin(self.follow(Some(events), permit)).await,
        }
    }

    /// Emits a reply without a task.
    async fn reply(&self, message: Arc<Message>) -> Result<()> {
        if let Some(context) = &message.context_id {
            self.bind_context(context).await;
        }
        let mut message = Arc::unwrap_or_clone(message);
        message.reference_task_ids.clear();
        self.out.emit(Event::Message(Arc::new(message))).await
    }

    async fn follow_task(&self, task: Task) -> Result<()> {
        if !self.accept(&task.id, &task.context_id).await? || !self.emit_snapshot(task).await?.is_settled() {
            return self.follow(None, None).await;
        }
        Ok(())
    }

    /// Sets the agent's task from the first event that names it; false if the event is about another task.
    async fn accept(&self, task: &TaskId, context: &ContextId) -> Result<bool> {
        if let Some(remote) = &*self.remote_slot() {
            let is_it = task.is_empty() || remote.task == *task;
            if !is_it {
                tracing::warn!(task = %self.cx.task_id, theirs = %task, "the agent sent an event of another task; ignored");
            }
            return Ok(is_it);
        }
        if task.is_empty() {
            return Ok(true);
        }
        let remote = TaskIds { task: task.clone(), context: context.clone() };
        self.to.bind_task(&remote).await?;
        *self.remote_slot() = Some(remote);
        self.bind_context(context).await;
        Ok(true)
    }

    async fn bind_context(&self, context: &ContextId) {
        if !context.is_empty() {
            self.to.bind_context(context).await;
        }
    }

    /// Asks the agent to cancel its task, and returns the task afterwards.
    ///
    /// # Errors
    /// The agent did not cancel it.
    pub(super) async fn cancel(&self, remote: &TaskIds, timeout: Duration) -> Result<Task> {
        let req = CancelTaskRequest { id: remote.task.clone(), ..CancelTaskRequest::default() };
        let outcome = self.to.service().cancel_task(&self.context(Some(timeout)), req).await;
        let outcome = outcome.and_then(|task| remote.check(task));
        self.to.record_outcome(outcome.as_ref().err());
        match outcome {
            Err(error) if error.kind() == ErrorKind::TaskNotCancelable => {
                self.poll_once(remote).await.and_then(|task| remote.check(task))
            }
            outcome => outcome,
        }
    }

    /// Emits the terminal status of a task that is being stopped, if nothing else is new: the runtime
    /// accepts no other event.
    pub(super) async fn emit_end(&self, task: Task) -> Result<()> {
        if !task.status.state.is_terminal() {
            return Ok(());
        }
        let mut events = diff::diff(self.out.task().as_ref(), &self.local.task(task));
        match (events.pop(), events.is_empty()) {
            (Some(end @ Event::StatusUpdate(_)), true) => self.out.emit(end).await,
            _ => Ok(()),
        }
    }
}

/// Refuses the message. Without a task the caller gets the error; an interrupted task keeps its state and
/// question; any other task fails.
pub(super) async fn refuse(cx: &ExecContext, out: &Emitter, error: Error) -> Result<()> {
    let asked = cx.task.as_ref().map(|task| &task.status);
    let Some(asked) = asked.filter(|status| status.state.is_interrupted()) else { return out.refuse(error) };
    let question = asked.message.iter().flat_map(|message| message.parts.iter().cloned());
    let parts: Vec<_> = [Part::text(error.message())].into_iter().chain(question).collect();
    let id: MessageId = random_hex::<16>().into();
    let local = LocalIds { task_id: cx.task_id.clone(), context_id: cx.context_id.clone() };
    let message = Some(local.message(Arc::new(Message::agent(id, parts))));
    let status = TaskStatus { state: asked.state, message, timestamp: None };
    let update = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
    out.emit(Event::StatusUpdate(update)).await
}

/// True if the agent does not support the operation, so it has done nothing.
pub(super) fn lacks_operation(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound)
}
