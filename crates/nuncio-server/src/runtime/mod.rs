//! The server side of [`A2aService`]: admits calls, runs the executor, records what it says, and answers
//! from what is recorded.

mod hooks;

mod service;

mod agent;

mod admit;

mod attendance;

mod capacity;

mod lifecycle;

mod in_flight;

mod turn;

mod executor;

mod execution;

mod emitter;

mod record;

mod journal;

mod stored_turn;

mod reserve;

mod recover;

mod watch;

mod live;

mod state;

mod feed;

mod cursor;

mod builder;

mod webhooks;

use std::{fmt, sync::Arc, time::Duration};

use nuncio_protocol::{
    A2aService, AgentCard, CallContext, Caller, Error, ErrorKind, Result, SendMessageResponse, Seq, Task,
    TaskId,
};
use tokio::time::{Instant, timeout, timeout_at};

use self::{
    agent::Agent,
    capacity::Capacity,
    cursor::Cursors,
    in_flight::Sends,
    journal::Journal,
    lifecycle::Lifecycle,
    live::{LiveTask, LiveTaskRef, Registry},
    record::Recorder,
    recover::Recovery,
    state::{Phase, State, Stop},
};
pub use self::{
    builder::{Limits, RuntimeBuilder},
    emitter::Emitter,
    executor::{ExecContext, Execution, Executor},
    recover::Retention,
};
use crate::{
    push::AgentPush,
    store::{ErasureTarget, Projection, Scope, Store},
};

/// What a caller is told to wait when a limit is reached.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error of whoever is to come back: the store is away, or the task is in other hands.
fn unavailable() -> Error {
    Error::from(ErrorKind::Unavailable).with_retry_after(RETRY_AFTER)
}

/// How long an answer waits for the store to take in what it tells.
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);

/// The longest time that a send with `returnImmediately` waits for the agent's first event: an agent that answers with a
/// message does so within it, and a task that begins later than that is made by the runtime.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_millis(25);

/// How much is forgotten in one transaction.
const ERASE_AT_A_TIME: usize = 256;

/// An agent's runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    core: Arc<Core>,
    /// The operations, with the author's hooks around them if there are any.
    service: Arc<dyn A2aService>,
}

/// The parts of a runtime.
pub(crate) struct Core {
    agent: Agent,
    limits: Limits,
    store: Arc<dyn Store>,
    /// Its webhooks, if it has some.
    push: Option<Arc<AgentPush>>,
    registry: Arc<Registry>,
    sends: Arc<Sends>,
    /// Writes to the store.
    journal: Journal,
    cursors: Cursors,
    recovery: Recovery,
    capacity: Capacity,
    lifecycle: Lifecycle,
}

/// The error of an event for which the server has no memory.
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
    /// Waits until a live task is in the store up to this entry.
    async fn until_committed(&self, live: &LiveTask, seq: Seq) -> Result<()> {
        let committed = |state: &State| state.is_lost() || state.committed().seq >= seq;
        if !committed(&live.lock()) && timeout(COMMIT_PATIENCE, live.until(committed)).await.is_err() {
            return Err(unavailable());
        }
        live.lock().check_kept()
    }

    /// The task as it stands, as far as it is shown.
    async fn read(&self, scope: &Arc<Scope>, id: &TaskId, shown: Projection) -> Result<Task> {
        if let Some(live) = self.registry.get(scope, id) {
            let known = {
                let state = live.lock();
                let task = state.task().filter(|_| state.committed().seq > Seq::ZERO).cloned();
                // At rest, it may have gone on elsewhere.
                let elsewhere = self.store.is_shared() && state.running.is_none() && state.is_committed();
                (!state.is_lost() && !elsewhere).then(|| (task, state.folded().seq))
            };
            if let Some((task, seq)) = known {
                let mut task = task.ok_or_else(|| Error::task_not_found(id))?;
                shown.apply(&mut task);
                match self.until_committed(&live, seq).await {
                    // Another owner has just taken it: the store tells.
                    Err(_) if live.lock().is_lost() => {}
                    committed => return committed.map(|()| task),
                }
            }
        }
        self.store.shown(scope, id, shown).await?.ok_or_else(|| Error::task_not_found(id))
    }

    /// How long a caller may be kept waiting.
    fn patience(&self, cx: &CallContext) -> Instant {
        let ceiling = Instant::now() + self.agent.rules().blocking_ceiling;
        cx.deadline.map_or(ceiling, |deadline| ceiling.min(deadline.into()))
    }

    /// Waits a moment until the agent's first event tells whether it answers with a task or with a message, then makes
    /// the task.
    async fn until_first_event(self: &Arc<Self>, live: &LiveTaskRef) -> Result<()> {
        let has_begun = |state: &State| {
            matches!(state.phase, Phase::Task(_) | Phase::Lost(_)) || state.answers(Seq::ZERO)
        };
        if has_begun(&live.lock()) {
            return Ok(());
        }
        if timeout(FIRST_EVENT_TIMEOUT, live.until(has_begun)).await.is_ok() {
            return Ok(());
        }
        Recorder::new(self, live).ensure().await?;
        // A reply that came at the last moment is on its way to the store.
        timeout(COMMIT_PATIENCE, live.until(has_begun)).await.map_err(|_| unavailable())
    }

    /// What a send answers when its task has settled, or the time is up.
    async fn answer(
        self: &Arc<Self>,
        live: &LiveTaskRef,
        turn: Seq,
        cx: &CallContext,
        wait: bool,
    ) -> Result<SendMessageResponse> {
        if wait {
            let settled = |state: &State| state.answers(turn);
            // Looked at once without a timer.
            let in_time = settled(&live.lock())
                || tokio::select! {
                    settled = timeout_at(self.patience(cx), live.until_settled(settled)) => settled.is_ok(),
                    () = self.journal.stays_down() => {
                        return Err(unavailable());
                    }
                };
            if !in_time {
                // The agent has said nothing yet: then the task begins here, so that there is one to
                // come back to.
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
                // It is on its way to the store.
                Phase::Replied { stored: false, .. } => return Err(unavailable()),
                Phase::Refused(error) => return Err(once_more(error)),
                Phase::Lost(_) => return Err(unavailable()),
                Phase::Opening(_) => {
                    return Err(Error::internal("a settled execution without task and reply"));
                }
            }
        };
        // It may have gone on since it settled; what is told is in the store.
        self.until_committed(live, seq).await?;
        Ok(answer)
    }
}

/// The same error for another caller: several may wait for one send.
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
    /// Begins a runtime for this agent. What its card says, it does.
    pub fn builder(card: AgentCard, executor: impl Executor) -> RuntimeBuilder {
        RuntimeBuilder::new(card, Arc::new(executor))
    }

    /// True if the other one is the same agent with the same tasks.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The agent's public card.
    #[must_use]
    pub fn card(&self) -> Arc<AgentCard> {
        Arc::clone(&self.core.agent.current().card)
    }

    /// From now on this is the agent: new calls and executions see this card and this executor, those that run
    /// keep theirs. What the runtime declares on its first card it declares on this one, too. Its name, limits
    /// and hooks stay as they were built.
    pub fn replace(&self, card: AgentCard, executor: Arc<dyn Executor>) {
        self.core.agent.replace(card, executor, self.core.agent.rules());
    }

    /// True until [`Self::drain`] is called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.core.lifecycle.is_open()
    }

    /// False while the store does not take in what was said: new work is refused until it does.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.core.journal.check().is_ok()
    }

    /// How many executions run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.core.lifecycle.executions.len()
    }

    /// Ends in good order: no new work; running tasks get `grace`, and what still runs then is recorded as
    /// failed with the reason, or left to the next server where a crash would leave it, too: a turn that has
    /// not begun, and those of an agent that is idempotent. Streams of running tasks show that end; others
    /// close at once, so that clients come back elsewhere.
    pub async fn drain(&self, grace: Duration) {
        let executions = &self.core.lifecycle.executions;
        self.core.lifecycle.close();
        if timeout(grace, executions.wait()).await.is_ok() {
            return;
        }
        // More than once: a message that was let in just before may begin to run just after.
        let patience = self.core.limits.cancel_grace + RETRY_AFTER;
        loop {
            for live in self.core.registry.all() {
                execution::stop(&live, Stop::Shutdown);
            }
            if timeout(patience, executions.wait()).await.is_ok() {
                return;
            }
            // The store may be down: whoever waits for it is told that it was not to be.
            self.core.journal.abandon();
        }
    }

    /// Forgets all that a caller has said and was told here, whatever state it is in; says how many tasks and
    /// replies that were. What runs is stopped.
    ///
    /// # Errors
    /// The store is not there. What was forgotten until then stays forgotten; ask again.
    pub async fn erase(&self, tenant: Option<&str>, caller: &Caller) -> Result<usize> {
        let whose = ErasureTarget {
            agent: Some(Arc::clone(&self.core.agent.name)),
            tenant: tenant.map(Into::into),
            owner: caller.principal().cloned(),
        };
        for live in self.core.registry.all().into_iter().filter(|live| whose.is(&live.scope)) {
            live.evict();
        }
        // What is on its way to the store would come there after it was emptied.
        if timeout(COMMIT_PATIENCE, self.core.journal.quiet()).await.is_err() {
            return Err(unavailable());
        }
        let mut erased = 0;
        loop {
            let some = self.core.store.erase(&whose, ERASE_AT_A_TIME).await?;
            if some == 0 {
                return Ok(erased);
            }
            erased += some;
        }
    }

    /// How many tasks are in memory beside the store: none, when nothing runs and nobody watches.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn live_tasks(&self) -> usize {
        self.core.registry.len()
    }
}
