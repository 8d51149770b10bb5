//! Turns that another server hands over: this server runs the executor, the other one keeps the task.
//!
//! ```text
//! other server ──► HandedTurn ──► Runtime::run_turn ──► TurnRun::next: TurnEntry … ──► other server
//!                  message, task so far, memo            events and memos, in order
//! ```
//! Each turn runs in a runtime of its own, over a store in memory that has the task as it was handed over. The
//! store ends with the turn: the other server's log is the task.

use std::{fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{
    AgentCard, CallContext, ContextId, Event, Message, Metadata, Result, SendMessageConfiguration, Task,
    TaskId,
};
use tokio::sync::{mpsc, oneshot};

use super::{
    Core, Runtime, RuntimeBuilder, execution,
    live::LiveTaskRef,
    record::Recorder,
    state::Stop,
    turn::{ExecutionInput, FollowUpTurn, OpeningTurn, Turn},
};
use crate::store::{Commit, Scope};

/// A turn of a task that another server keeps.
#[derive(Clone, Debug)]
pub struct HandedTurn {
    /// The id of the task.
    pub task_id: TaskId,
    /// The context of the task.
    pub context_id: ContextId,
    /// The caller's message.
    pub message: Message,
    /// The task as it is: before the message, or, if `resumed`, with the message and with what an earlier run has
    /// emitted. `None` if the message begins the task.
    pub task: Option<Task>,
    /// The conversation before the task: see [`ExecContext::earlier`](crate::ExecContext::earlier).
    pub earlier: Vec<Task>,
    /// The tasks that the message refers to.
    pub references: Vec<Task>,
    /// The caller's configuration of the send.
    pub configuration: SendMessageConfiguration,
    /// Free-form data of the request.
    pub metadata: Metadata,
    /// The call that brought the message: its caller decides whose task it is.
    pub call: CallContext,
    /// See [`Execution::repeat_id`](crate::Execution::repeat_id).
    pub repeat_id: Option<Arc<str>>,
    /// True if an earlier run of this turn had begun.
    pub resumed: bool,
    /// The memo that an earlier run or turn has left.
    pub memo: Option<Bytes>,
}

/// An entry that a handed turn has recorded.
#[derive(Clone, Debug)]
pub struct TurnEntry {
    /// The event of the agent, or the end that the runtime has recorded for it.
    pub event: Arc<Event>,
    /// The memo that belongs to the event, if the agent has set a new one.
    pub memo: Option<Bytes>,
}

/// Sends the entries of a turn to its [`TurnRun`].
pub(super) type Entries = mpsc::UnboundedSender<TurnEntry>;

impl TurnEntry {
    pub(super) fn new(commit: &Commit) -> Self {
        Self { event: Arc::clone(&commit.event), memo: commit.attached.memo.clone() }
    }

    /// False for the creation of the task and for messages of the caller, which the other server has.
    fn is_news(&self) -> bool {
        matches!(*self.event, Event::StatusUpdate(_) | Event::ArtifactUpdate(_))
    }
}

/// A handed turn that runs. If it is dropped, the execution stops as at a shutdown.
pub struct TurnRun {
    live: LiveTaskRef,
    entries: mpsc::UnboundedReceiver<TurnEntry>,
    /// The end of the execution.
    ended: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    has_ended: bool,
}

impl fmt::Debug for TurnRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnRun").field(&self.live.id).finish()
    }
}

impl TurnRun {
    /// The next entry, in the order of the task's log; `None` when the turn is over. Cancel-safe.
    pub async fn next(&mut self) -> Option<TurnEntry> {
        loop {
            if self.has_ended {
                match self.entries.try_recv() {
                    Ok(entry) if entry.is_news() => return Some(entry),
                    Ok(_) => continue,
                    Err(_) => return None,
                }
            }
            tokio::select! {
                biased;
                entry = self.entries.recv() => match entry {
                    Some(entry) if entry.is_news() => return Some(entry),
                    Some(_) => {}
                    None => self.has_ended = true,
                },
                () = &mut self.ended => self.has_ended = true,
            }
        }
    }

    /// Cancels the task, as its caller would: the executor gets its grace, and the last entry is the end.
    pub fn cancel(&self) {
        execution::stop(&self.live, Stop::Cancel);
    }
}

impl Drop for TurnRun {
    fn drop(&mut self) {
        execution::stop(&self.live, Stop::Shutdown);
    }
}

impl Runtime {
    /// Runs a turn that another server hands over, with the executor and the limits of this runtime. The events are
    /// returned to the caller and recorded nowhere else; the task is not among the tasks of this runtime.
    ///
    /// # Errors
    /// The runtime is draining, or the task has ended.
    pub async fn run_turn(&self, turn: HandedTurn) -> Result<TurnRun> {
        self.core.lifecycle.check_open()?;
        let core = self.core.for_one_turn();
        let scope = core.agent.scope(&turn.call, None);
        let HandedTurn { task_id, context_id, message, task, earlier, memo, resumed, .. } = turn;
        for task in earlier {
            core.restore_task(&scope, Arc::default(), task).await?;
        }
        let message = Arc::new(message);
        let opens = task.is_none();
        let live = match task {
            Some(task) => core.restore_task(&scope, Arc::clone(&message), task).await?,
            None => {
                let opening = Arc::clone(&message);
                let live = core.registry.begin(task_id, context_id, Arc::clone(&scope), opening, None);
                Recorder::new(&core, &live).create().await?;
                live
            }
        };
        let job = ExecutionInput {
            message,
            configuration: turn.configuration,
            metadata: turn.metadata,
            references: turn.references,
            call: turn.call,
            repeat_id: turn.repeat_id,
            in_flight: None,
        };
        let next = if resumed {
            Turn::Resumed(Box::new(job))
        } else if opens {
            Turn::Opening(Box::new(OpeningTurn { job, acknowledged: None, reservation: None }))
        } else {
            // Nobody waits for the beginning: the other server has recorded the message.
            let (begun, _) = oneshot::channel();
            Turn::FollowUp(Box::new(FollowUpTurn {
                job,
                key: None,
                webhook: None,
                stored: None,
                in_hand: None,
                begun,
            }))
        };
        let (entries, received) = mpsc::unbounded_channel();
        let permit = core.capacity.task_permit(&scope)?;
        {
            let mut state = live.lock();
            if state.state().is_terminal() {
                return Err(execution::terminal());
            }
            (state.memo, state.entries) = (memo, Some(entries));
            state.running = Some(execution::running());
        }
        core.start(&live, next, permit);
        let executions = core.lifecycle.executions.clone();
        executions.close();
        let ended = Box::pin(async move { executions.wait().await });
        Ok(TurnRun { live, entries: received, ended, has_ended: false })
    }
}

impl Core {
    /// A runtime for one turn: the same agent over an empty store.
    fn for_one_turn(&self) -> Arc<Self> {
        let current = self.agent.current.load_full();
        let rules = current.rules;
        let limits = super::Limits {
            parts: rules.parts,
            max_task_bytes: rules.max_task_bytes,
            silence: rules.silence,
            ..self.limits.clone()
        };
        let runtime = RuntimeBuilder::new(AgentCard::clone(&current.card), Arc::clone(&current.executor))
            .agent(Arc::clone(&self.agent.name))
            .idempotent(self.agent.idempotent)
            .memory(self.registry.memory.clone())
            .limits(limits)
            .build();
        runtime.core
    }

    /// Records a task as another server has handed it over.
    async fn restore_task(
        self: &Arc<Self>,
        scope: &Arc<Scope>,
        message: Arc<Message>,
        task: Task,
    ) -> Result<LiveTaskRef> {
        let (id, context) = (task.id.clone(), task.context_id.clone());
        let live = self.registry.begin(id, context, Arc::clone(scope), message, None);
        Recorder::new(self, &live).snapshot(task).await?;
        Ok(live)
    }
}
