//! The runtime of one agent: the server side of [`A2aService`]. It admits calls, runs the executor, records
//! its events, and answers from the record.
//!
//! Read the path of a message: `service` (the operations), `admit` and `follow_up` (a message becomes a turn), `execution`
//! (the turn runs), `emitter` and `record` (its events become entries of the log), `journal` (entries reach
//! the store), `feed` (streams read the log). `live` and `state` hold a task in memory meanwhile. `reserve`,
//! `stored_turn` and `recover` are for crashes, `watch` and `handed_in` for stores that several servers share, `handover` for
//! turns of tasks that another server keeps.
//!
//! Every change to a task goes through `record`, and no caller sees an entry before it is committed.

mod hooks;

mod service;

mod agent;

mod admit;

mod attendance;

mod capacity;

mod lifecycle;

mod in_flight;

mod turn;

mod turns_in_hand;

mod executor;

mod conversation;

mod execution;

mod emitter;

mod text_stream;

mod parked;
mod record;

mod journal;

mod observer;

mod stored_turn;

mod reserve;

mod recover;

mod handover;

mod watch;

mod live;

mod state;

mod feed;

mod follow_up;

mod handed_in;

mod cursor;

mod builder;

mod webhooks;

use std::{fmt, sync::Arc, time::Duration};

use nuncio_protocol::{
    A2aService, AgentCard, CallContext, Caller, ContextId, Error, ErrorKind, Result, SendMessageResponse,
    Seq, Task, TaskId,
};
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    agent::RuntimeAgent,
    capacity::Capacity,
    conversation::Conversation,
    cursor::Cursors,
    in_flight::Sends,
    journal::Journal,
    lifecycle::Lifecycle,
    live::{LiveTask, LiveTaskRef, Registry},
    record::Recorder,
    recover::Recovery,
    state::{LiveState, Phase, Stop},
    turns_in_hand::TurnsInHand,
};
pub use self::{
    builder::{Limits, RuntimeBuilder},
    conversation::{Earlier, EarlierLimit},
    emitter::Emitter,
    executor::{ExecContext, Execution, Executor},
    handover::{HandedTurn, TurnEntry, TurnRun},
    observer::{CommitObserver, Committed},
    parked::HeldMessage,
    recover::Retention,
    text_stream::{DEFAULT_PACE, TextStream},
};
use crate::{
    push::AgentPush,
    store::{ErasureTarget, Projection, Scope, Store},
};

/// The `Retry-After` of calls that are refused because of a limit or an outage.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error for a caller that should try again: the store is down, or another server owns the task.
fn unavailable() -> Error {
    Error::from(ErrorKind::Unavailable).with_retry_after(RETRY_AFTER)
}

/// The longest time that a response waits for its last entry to be committed.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a send with `returnImmediately` waits for the agent's first event. An agent that
/// replies with a message does so within this time; for a slower one the runtime creates the task.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_millis(25);

/// The number of tasks that one transaction erases.
const ERASE_BATCH: usize = 256;

/// The runtime of one agent. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    /// The operations, inside the author's interceptors and extensions if there are any.
    service: Arc<dyn A2aService>,
}

/// The parts of a runtime. Each owns its own state.
pub(crate) struct Core {
    agent: RuntimeAgent,
    limits: Limits,
    store: Arc<dyn Store>,
    /// The webhooks of this agent; `None` if it does not support push notifications.
    push: Option<Arc<AgentPush>>,
    registry: Arc<Registry>,
    sends: Arc<Sends>,
    turns: Arc<TurnsInHand>,
    journal: Journal,
    cursors: Cursors,
    recovery: Recovery,
    capacity: Capacity,
    lifecycle: Lifecycle,
}

/// The error of an event that does not fit into the memory account.
fn out_of_memory() -> Error {
    let why = "the task was stopped: the server is short of memory (memory_limit_bytes)";
    Error::new(ErrorKind::ResourceExhausted, why)
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("agent", &self.core.agent.name).finish_non_exhaustive()
    }
}

impl Core {
    /// Waits until a live task is committed up to this entry.
    async fn until_committed(&self, live: &LiveTask, seq: Seq) -> Result<()> {
        let committed = |state: &LiveState| state.is_lost() || state.committed().seq >= seq;
        if !committed(&live.lock()) && timeout(COMMIT_TIMEOUT, live.until(committed)).await.is_err() {
            return Err(unavailable());
        }
        live.lock().check_kept()
    }

    /// Reads the current task, reduced to the parts that `shown` asks for.
    async fn read(&self, scope: &Arc<Scope>, id: &TaskId, shown: Projection) -> Result<Task> {
        if let Some(live) = self.registry.get(scope, id) {
            let known = {
                let state = live.lock();
                let task = state.task().filter(|_| state.committed().seq > Seq::ZERO).cloned();
                // The copy of a task that is not running may be out of date: another server may have
                // continued the task.
                let elsewhere = self.store.is_shared() && state.running.is_none() && state.is_committed();
                (!state.is_lost() && !elsewhere).then(|| (task, state.folded().seq))
            };
            if let Some((task, seq)) = known {
                let mut task = task.ok_or_else(|| Error::task_not_found(id))?;
                shown.apply(&mut task);
                match self.until_committed(&live, seq).await {
                    // Another server has just taken the task over: read it from the store.
                    Err(_) if live.lock().is_lost() => {}
                    committed => return committed.map(|()| task),
                }
            }
        }
        self.store.shown(scope, id, shown).await?.ok_or_else(|| Error::task_not_found(id))
    }

    /// The time until which a blocking call of this caller may wait.
    fn patience(&self, cx: &CallContext) -> Instant {
        let ceiling = Instant::now() + self.agent.rules().blocking_ceiling;
        cx.deadline.map_or(ceiling, |deadline| ceiling.min(deadline.into()))
    }

    /// Waits for the agent's first event, which decides between a task and a direct reply. Creates the task
    /// if the event does not come in time.
    async fn until_first_event(self: &Arc<Self>, live: &LiveTaskRef) -> Result<()> {
        let has_begun = |state: &LiveState| {
            matches!(state.phase, Phase::Task(_) | Phase::Lost(_)) || state.answers(Seq::ZERO)
        };
        if has_begun(&live.lock()) {
            return Ok(());
        }
        if timeout(FIRST_EVENT_TIMEOUT, live.until(has_begun)).await.is_ok() {
            return Ok(());
        }
        Recorder::new(self, live).ensure().await?;
        // A reply that came at the last moment may not be committed yet.
        timeout(COMMIT_TIMEOUT, live.until(has_begun)).await.map_err(|_| unavailable())
    }

    /// Makes the response of a send. With `wait` it comes when the task has settled or the time is up.
    async fn answer(
        self: &Arc<Self>,
        live: &LiveTaskRef,
        turn: Seq,
        cx: &CallContext,
        wait: bool,
    ) -> Result<SendMessageResponse> {
        if wait {
            let settled = |state: &LiveState| state.answers(turn);
            // The first check needs no timer.
            let in_time = settled(&live.lock())
                || tokio::select! {
                    settled = timeout_at(self.patience(cx), live.until_settled(settled)) => settled.is_ok(),
                    () = self.journal.stays_down() => {
                        return Err(unavailable());
                    }
                };
            if !in_time {
                // No event yet. Create the task, so that the caller has something to come back to.
                Recorder::new(self, live).ensure().await?;
            }
        } else {
            self.until_first_event(live).await?;
        }
        let (answer, seq) = {
            match &live.lock().phase {
                Phase::Task(tracked) => (SendMessageResponse::Task(tracked.task.clone()), tracked.folded.seq),
                Phase::Replied { reply, stored: true } => {
                    (SendMessageResponse::Message(Arc::clone(reply)), Seq::ZERO)
                }
                // The reply is not committed yet.
                Phase::Replied { stored: false, .. } => return Err(unavailable()),
                Phase::Refused(error) => return Err(once_more(error)),
                Phase::Lost(_) => return Err(unavailable()),
                Phase::Opening(_) => {
                    return Err(Error::internal("a settled execution without task and reply"));
                }
            }
        };
        // The task may have changed since it settled; the response shows only committed entries.
        self.until_committed(live, seq).await?;
        Ok(answer)
    }
}

/// Copies an error: several callers may wait for the same send.
fn once_more(error: &Error) -> Error {
    let mut again =
        Error::from_details(error.kind(), error.message(), error.details()).with_fault(error.fault());
    if let Some(after) = error.retry_after() {
        again = again.with_retry_after(after);
    }
    match std::error::Error::source(error) {
        Some(source) => again.with_source(source.to_string()),
        None => again,
    }
}

impl Runtime {
    /// Starts a builder for an agent with this card and executor. The runtime offers the capabilities that
    /// the card declares.
    pub fn builder(card: AgentCard, executor: impl Executor) -> RuntimeBuilder {
        RuntimeBuilder::new(card, Arc::new(executor))
    }

    /// True if both handles belong to the same runtime, with the same tasks.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The agent's public card.
    #[must_use]
    pub fn card(&self) -> Arc<AgentCard> {
        Arc::clone(&self.core.agent.current().card)
    }

    /// Replaces the card and the executor. New calls and executions use the new ones, running executions keep
    /// theirs. Extensions that the runtime declared on its first card are declared on this one too. Name,
    /// limits and hooks stay as built.
    pub fn replace(&self, card: AgentCard, executor: Arc<dyn Executor>) {
        self.core.agent.replace(card, executor, self.core.agent.rules());
    }

    /// True until [`Self::drain`] is called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.core.lifecycle.is_open()
    }

    /// False while the store is down. New work is refused meanwhile.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.core.journal.check().is_ok()
    }

    /// The number of running executions.
    #[must_use]
    pub fn running(&self) -> usize {
        self.core.lifecycle.executions.len()
    }

    /// Drains the runtime. No new work is admitted, and running tasks get `grace` to finish. Tasks that still
    /// run then are recorded as failed, with the reason. Turns that would survive a crash are left to the
    /// next server instead: turns that have not begun, and turns of an idempotent agent. Streams of running
    /// tasks stay open until the task ends; other streams close at once, so that their clients reconnect
    /// elsewhere.
    pub async fn drain(&self, grace: Duration) {
        let executions = &self.core.lifecycle.executions;
        self.core.lifecycle.close();
        if timeout(grace, executions.wait()).await.is_ok() {
            return;
        }
        // Repeated, because a message that was admitted just before the drain may start to run just after it.
        let patience = self.core.limits.cancel_grace + RETRY_AFTER;
        loop {
            for live in self.core.registry.all() {
                execution::stop(&live, Stop::Shutdown);
            }
            if timeout(patience, executions.wait()).await.is_ok() {
                return;
            }
            // The store may be down: tasks that wait for it are given up.
            self.core.journal.abandon();
        }
    }

    /// Erases all tasks and stored replies of a caller at this agent, in any state, and stops running
    /// executions. Returns the number of erased tasks and replies.
    ///
    /// # Errors
    /// The store is down. A part may have been erased; call this again.
    pub async fn erase(&self, tenant: Option<&str>, caller: &Caller) -> Result<usize> {
        let whose = ErasureTarget {
            agent: Some(Arc::clone(&self.core.agent.name)),
            tenant: tenant.map(Into::into),
            owner: caller.principal().cloned(),
        };
        for live in self.core.registry.all().into_iter().filter(|live| whose.is(&live.scope)) {
            live.evict();
        }
        // Entries that are still queued would be stored after the erasure.
        if timeout(COMMIT_TIMEOUT, self.core.journal.quiet()).await.is_err() {
            return Err(unavailable());
        }
        let mut erased = 0;
        loop {
            let some = self.core.store.erase(&whose, ERASE_BATCH).await?;
            if some == 0 {
                return Ok(erased);
            }
            erased += some;
        }
    }

    /// The conversation before a task, for code that hands its message to an agent outside of an execution: see
    /// [`ExecContext::earlier`].
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn earlier(
        &self,
        scope: &Arc<Scope>,
        context_id: &ContextId,
        except: &TaskId,
        limit: EarlierLimit,
    ) -> Result<Vec<Task>> {
        Ok(Conversation::new(&self.core.store, scope).earlier(context_id, except, limit).await?.tasks)
    }

    /// The number of live tasks; zero when nothing runs and no stream is open.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn live_tasks(&self) -> usize {
        self.core.registry.len()
    }
}
