//! The server side of [`A2aService`]: admits calls, runs the executor, records what it says, and answers
//! from what is recorded.

mod hooks;

mod service;

mod admit;

mod in_flight;

mod execution;

mod record;

mod journal;

mod kept;

mod reserve;

mod recover;

mod watch;

mod live;

mod feed;

mod cursor;

mod builder;

mod webhooks;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use nuncio_protocol::{
    A2aService, AgentCard, CallContext, Caller, Error, ErrorKind, Result, SendMessageResponse, Seq, Task,
    TaskId, wire::excerpt,
};
use tokio::{
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(feature = "push")]
pub(crate) use self::record::now;
pub(crate) use self::{admit::new_id, record::Recorder};
pub use self::{
    builder::{Limits, RuntimeBuilder},
    recover::Retention,
};
use self::{
    cursor::CursorKey,
    hooks::Declared,
    in_flight::{InFlight, Names, Slot},
    journal::Journal,
    live::{Live, LiveRef, Registry, State, Stop},
};
use crate::{
    CallerKey, CallerPermit, CallerPool, CountedTask, TaskQuota,
    executor::Executor,
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

/// How much is forgotten in one transaction.
const ERASE_AT_A_TIME: usize = 256;

/// An agent's runtime. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
    /// The operations, with the author's hooks around them if there are any.
    service: Arc<dyn A2aService>,
}

/// The card for a caller; `None` if there is none for this one.
type ExtendedCard = Box<dyn Fn(&Caller) -> Option<AgentCard> + Send + Sync>;

/// So often others begin first before an execution begins.
const TOGETHER: usize = 4;

/// What all parts of a runtime share.
pub(crate) struct Shared {
    agent: Arc<str>,
    /// What new calls and executions see.
    present: ArcSwap<Present>,
    /// What every card of this agent says.
    declared: Declared,
    extended_card: Option<ExtendedCard>,
    extended_card_is_open: bool,
    refused_media_types: Vec<String>,
    /// Whatever the card says.
    any_media_type: bool,
    store: Arc<dyn Store>,
    /// Its webhooks, if it has some.
    push: Option<Arc<AgentPush>>,
    limits: Limits,
    /// The agent may be asked the same again.
    idempotent: bool,
    retention: Retention,
    /// The scope of the anonymous caller without a tenant, which is the most frequent one.
    anonymous: Arc<Scope>,
    registry: Arc<Registry>,
    in_flight: Mutex<HashMap<Slot, InFlight>>,
    /// Writes to the store.
    journal: Journal,
    cursor_key: OnceCell<CursorKey>,
    names: OnceCell<Names>,
    /// Held while what others have left behind is taken up.
    taking_up: tokio::sync::Mutex<()>,
    /// For executions.
    tasks: CallerPool,
    /// Over all agents that share it.
    quota: TaskQuota,
    streams: Arc<Semaphore>,
    /// No new work is taken.
    draining: CancellationToken,
    tracker: TaskTracker,
}

/// Held by an execution until it is over.
struct TaskPermit {
    _counted: CountedTask,
    _permit: CallerPermit,
}

/// What may be replaced while the runtime runs.
struct Present {
    card: Arc<AgentCard>,
    executor: Arc<dyn Executor>,
    /// At most so many parts in a message.
    parts: usize,
    /// At most so many bytes in a task.
    max_task_bytes: usize,
}

/// The error of an event for which the server has no memory.
fn out_of_memory() -> Error {
    let why = "the task was stopped: the server is short of memory (memory_limit_bytes)";
    Error::new(ErrorKind::ResourceExhausted, why)
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("agent", &self.shared.agent).finish_non_exhaustive()
    }
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<Slot, InFlight>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets an execution for the caller of this scope begin; it counts for as long as the permit is kept.
    fn task_permit(&self, scope: &Scope) -> Result<TaskPermit> {
        let caller = CallerKey::from(scope);
        let full = |why| Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(RETRY_AFTER);
        let counted = self.quota.begin(&caller).ok_or_else(|| full("too many unfinished tasks of yours"))?;
        let permit = self.tasks.try_acquire(&caller).ok_or_else(|| full("too many tasks are running"))?;
        Ok(TaskPermit { _counted: counted, _permit: permit })
    }

    fn stream_permit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::ResourceExhausted, "too many streams are open")
                .with_retry_after(RETRY_AFTER)
        })
    }

    /// The error of what would make a task larger than it may be.
    fn too_large(&self) -> Error {
        let most = self.present.load().max_task_bytes;
        let why = format!("the task has reached its limit of {most} bytes (max_task_bytes) and was stopped");
        Error::new(ErrorKind::ResourceExhausted, why)
    }

    fn check_open(&self) -> Result<()> {
        if self.draining.is_cancelled() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down")
                .with_retry_after(RETRY_AFTER));
        }
        Ok(())
    }

    /// Whose tasks this call may see.
    fn scope(&self, cx: &CallContext, tenant: Option<&str>) -> Arc<Scope> {
        // What was proved beats what is said.
        let tenant = cx.caller.tenant().map(|tenant| &**tenant).or(tenant).or(cx.tenant.as_deref());
        if tenant.is_none() && cx.caller.principal().is_none() {
            return Arc::clone(&self.anonymous);
        }
        Arc::new(Scope {
            agent: Arc::clone(&self.agent),
            tenant: tenant.map(Into::into),
            owner: cx.caller.principal().cloned(),
        })
    }

    /// Before anything else: the extensions that the agent demands (REQ-077).
    fn check_extensions(&self, cx: &CallContext) -> Result<()> {
        let present = self.present.load();
        let required = present.card.capabilities.extensions.iter().filter(|extension| extension.required);
        let missing: Vec<&str> =
            required.map(|extension| &*extension.uri).filter(|uri| !cx.declares(uri)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(",");
        Err(Error::new(ErrorKind::ExtensionSupportRequired, format!("declare in A2A-Extensions: {missing}"))
            .with_metadata("requiredExtensions", missing)
            .with_metadata("declaredExtensions", excerpt(cx.extensions.join(","))))
    }

    /// REQ-132.
    fn check_streaming(&self) -> Result<()> {
        if self.present.load().card.capabilities.streaming == Some(true) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::UnsupportedOperation, "this agent does not stream"))
    }

    /// The key of page tokens: kept with the tasks, so that a list may go on after a restart, and elsewhere.
    async fn cursor_key(&self) -> Result<&CursorKey> {
        let make = || async { Ok(CursorKey::new(self.store.secret("cursor").await?)) };
        self.cursor_key.get_or_try_init(make).await
    }

    /// Waits until a live task is in the store up to this entry.
    async fn until_committed(&self, live: &Live, seq: Seq) -> Result<()> {
        let committed = |state: &State| state.broken || state.committed.seq >= seq;
        if !committed(&live.lock()) && timeout(COMMIT_PATIENCE, live.until(committed)).await.is_err() {
            return Err(unavailable());
        }
        if live.lock().broken { Err(unavailable()) } else { Ok(()) }
    }

    /// The task as it stands, as far as it is shown.
    async fn read(&self, scope: &Arc<Scope>, id: &TaskId, shown: Projection) -> Result<Task> {
        if let Some(live) = self.registry.get(scope, id) {
            let known = {
                let state = live.lock();
                let task = state.task.clone().filter(|_| state.committed.seq > Seq::ZERO);
                // At rest, it may have gone on elsewhere.
                let elsewhere = self.store.is_shared() && state.running.is_none() && state.is_committed();
                (!state.broken && !elsewhere).then(|| (task, state.folded.seq))
            };
            if let Some((task, seq)) = known {
                let mut task = task.ok_or_else(|| Error::task_not_found(id))?;
                shown.apply(&mut task);
                match self.until_committed(&live, seq).await {
                    // Another owner has just taken it: the store tells.
                    Err(_) if live.lock().broken => {}
                    committed => return committed.map(|()| task),
                }
            }
        }
        self.store.shown(scope, id, shown).await?.ok_or_else(|| Error::task_not_found(id))
    }

    /// Lets an execution that was just started go first: a quick agent has then said all it has to say
    /// before we look, and nobody needs to be woken.
    async fn let_it_run(&self) {
        if self.journal.is_immediate() && !self.present.load().executor.is_elsewhere() {
            tokio::task::yield_now().await;
        }
    }

    /// True if many messages are better taken up step by step than one after the other. A message to an agent that is
    /// elsewhere is taken up in several steps, and to take one step with many messages is a good deal cheaper than to
    /// take all steps with one: the code of all of them does not fit into the caches next to the core. (Whoever waits
    /// for a disk is woken together with others anyway.)
    fn takes_steps(&self) -> bool {
        self.journal.is_immediate() && self.present.load().executor.is_elsewhere()
    }

    /// Lets those go first who are ready for what we have just done.
    async fn let_others_go_first(&self) {
        if self.takes_steps() {
            tokio::task::yield_now().await;
        }
    }

    /// The same for an execution that begins, as long as others begin as well.
    async fn begin_together(&self) {
        self.journal.begins();
        if !self.takes_steps() {
            return;
        }
        let mut begun = self.journal.begun();
        for _ in 0..TOGETHER {
            tokio::task::yield_now().await;
            let now = self.journal.begun();
            if now == begun {
                return;
            }
            begun = now;
        }
    }

    /// How long a caller may be kept waiting.
    fn patience(&self, cx: &CallContext) -> Instant {
        let ceiling = Instant::now() + self.limits.blocking_ceiling;
        cx.deadline.map_or(ceiling, |deadline| ceiling.min(deadline.into()))
    }

    /// What a send answers when its task has settled, or the time is up.
    async fn answer(
        self: &Arc<Self>,
        live: &LiveRef,
        turn: Seq,
        cx: &CallContext,
        wait: bool,
    ) -> Result<SendMessageResponse> {
        if wait {
            self.let_it_run().await;
            let settled = |state: &State| state.broken || state.answers(turn);
            // Looked at once without a timer: a quick agent is done by now.
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
        }
        let (answer, seq) = {
            let state = live.lock();
            if state.broken {
                return Err(unavailable());
            }
            if let Some(refused) = &state.refused {
                return Err(once_more(refused));
            }
            let answer = match (&state.reply, &state.task) {
                (Some(reply), _) if state.replied => SendMessageResponse::Message(Arc::clone(reply)),
                // It is on its way to the store.
                (Some(_), _) => return Err(unavailable()),
                (None, Some(task)) => SendMessageResponse::Task(task.clone()),
                (None, None) => return Err(Error::internal("a settled execution without task and reply")),
            };
            (answer, state.folded.seq)
        };
        // It may have gone on since it settled; what is told is in the store.
        self.until_committed(live, seq).await?;
        if wait {
            self.let_others_go_first().await;
        }
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
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The agent's public card.
    #[must_use]
    pub fn card(&self) -> Arc<AgentCard> {
        Arc::clone(&self.shared.present.load().card)
    }

    /// From now on this is the agent: new calls and executions see this card and this executor, those that run
    /// keep theirs. What the runtime declares on its first card it declares on this one, too. Its name, limits
    /// and hooks stay as they were built.
    pub fn replace(&self, mut card: AgentCard, executor: Arc<dyn Executor>) {
        self.shared.declared.on(&mut card);
        let Present { parts, max_task_bytes, .. } = **self.shared.present.load();
        let present = Present { card: Arc::new(card), executor, parts, max_task_bytes };
        self.shared.present.store(Arc::new(present));
    }

    /// True until [`Self::drain`] is called.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.shared.draining.is_cancelled()
    }

    /// False while the store does not take in what was said: new work is refused until it does.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.shared.journal.check().is_ok()
    }

    /// How many executions run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.tracker.len()
    }

    /// Ends in good order: no new work; running tasks get `grace`, and what still runs then is recorded as
    /// failed with the reason, or left to the next server where a crash would leave it, too: a turn that has
    /// not begun, and those of an agent that is idempotent. Streams of running tasks show that end; others
    /// close at once, so that clients come back elsewhere.
    pub async fn drain(&self, grace: Duration) {
        self.shared.draining.cancel();
        self.shared.tracker.close();
        if timeout(grace, self.shared.tracker.wait()).await.is_ok() {
            return;
        }
        // More than once: a message that was let in just before may begin to run just after.
        let patience = self.shared.limits.cancel_grace + RETRY_AFTER;
        loop {
            for live in self.shared.registry.all() {
                execution::stop(&live, Stop::Shutdown);
            }
            if timeout(patience, self.shared.tracker.wait()).await.is_ok() {
                return;
            }
            // The store may be down: whoever waits for it is told that it was not to be.
            self.shared.journal.abandon();
        }
    }

    /// Forgets all that a caller has said and was told here, whatever state it is in; says how many tasks and
    /// replies that were. What runs is stopped.
    ///
    /// # Errors
    /// The store is not there. What was forgotten until then stays forgotten; ask again.
    pub async fn erase(&self, tenant: Option<&str>, caller: &Caller) -> Result<usize> {
        let whose = ErasureTarget {
            agent: Some(Arc::clone(&self.shared.agent)),
            tenant: tenant.map(Into::into),
            owner: caller.principal().cloned(),
        };
        for live in self.shared.registry.all().into_iter().filter(|live| whose.is(&live.scope)) {
            live.break_off();
        }
        // What is on its way to the store would come there after it was emptied.
        if timeout(COMMIT_PATIENCE, self.shared.journal.quiet()).await.is_err() {
            return Err(unavailable());
        }
        let mut erased = 0;
        loop {
            let some = self.shared.store.erase(&whose, ERASE_AT_A_TIME).await?;
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
        self.shared.registry.len()
    }
}
