//! The builder of a runtime, and its limits.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use nuncio_protocol::{AgentCard, Caller, Interceptor, Interceptors};

use super::{
    Core, Retention, Runtime,
    agent::{Current, ExtendedCard, Rules, RuntimeAgent},
    capacity::Capacity,
    cursor::Cursors,
    executor::Executor,
    handed_in,
    hooks::{self, Declared, WhenActive},
    in_flight::Sends,
    journal::Journal,
    lifecycle::Lifecycle,
    live::Registry,
    observer::CommitObserver,
    recover::{self, Recovery},
    watch,
};
#[cfg(feature = "push")]
use crate::push::{Push, PushOptions};
use crate::{
    CallerShare, MemoryAccount, TaskQuota,
    extension::Extension,
    push::AgentPush,
    store::{MemoryStore, Scope, Store},
};

/// The limits of a runtime. A call that exceeds one is refused with a protocol error.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Parts of a message.
    pub parts: usize,
    /// Bytes of an id that a caller chooses.
    pub id_bytes: usize,
    /// Referenced tasks that are read for a message.
    pub references: usize,
    /// Messages of one task.
    pub history: usize,
    /// Bytes of one task: all messages and artifacts, replaced ones included. A task that exceeds it ends as
    /// failed and keeps its earlier events.
    pub max_task_bytes: usize,
    /// Bytes of one page of a list. Such a page has fewer tasks, and its token leads to the next. A task that
    /// is larger gets a page of its own.
    pub max_page_bytes: usize,
    /// Messages that wait for their turn at one task.
    pub queue: usize,
    /// Concurrent executions.
    pub tasks: usize,
    /// Concurrent streams.
    pub streams: usize,
    /// The longest time that a blocking send waits before it returns the unfinished task.
    pub blocking_ceiling: Duration,
    /// The grace period of an executor that is being stopped, before it is dropped.
    pub cancel_grace: Duration,
    /// The longest time that an executor may be silent before its task fails; `None`: no limit.
    pub silence: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            parts: 100,
            id_bytes: 256,
            references: 16,
            history: 10_000,
            max_task_bytes: 64 << 20,
            max_page_bytes: 8 << 20,
            queue: 16,
            tasks: 10_000,
            streams: 50_000,
            blocking_ceiling: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            silence: None,
        }
    }
}

/// Builds a [`Runtime`].
#[must_use]
#[expect(missing_debug_implementations, reason = "an executor cannot be printed")]
pub struct RuntimeBuilder {
    card: AgentCard,
    executor: Arc<dyn Executor>,
    store: Option<Arc<dyn Store>>,
    limits: Limits,
    caller_share: CallerShare,
    memory: MemoryAccount,
    task_quota: TaskQuota,
    idempotent: bool,
    retention: Retention,
    agent: Option<Arc<str>>,
    extended_card: Option<ExtendedCard>,
    extended_card_is_open: bool,
    refused_media_types: Vec<String>,
    any_media_type: bool,
    cancel_on_disconnect: bool,
    dedupe_message_id: bool,
    declared: Declared,
    hooks: Interceptors,
    observer: Option<Arc<dyn CommitObserver>>,
    #[cfg(feature = "push")]
    push: Option<(Push, PushOptions)>,
}

impl RuntimeBuilder {
    pub(super) fn new(card: AgentCard, executor: Arc<dyn Executor>) -> Self {
        Self {
            card,
            executor,
            store: None,
            limits: Limits::default(),
            caller_share: CallerShare::default(),
            memory: MemoryAccount::default(),
            task_quota: TaskQuota::default(),
            idempotent: false,
            retention: Retention::default(),
            agent: None,
            extended_card: None,
            extended_card_is_open: false,
            refused_media_types: Vec::new(),
            any_media_type: false,
            cancel_on_disconnect: false,
            dedupe_message_id: false,
            declared: Declared::default(),
            hooks: Interceptors::default(),
            observer: None,
            #[cfg(feature = "push")]
            push: None,
        }
    }

    /// Sets the store of the tasks. Default: in memory.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Supports push notifications, delivered from the same store, and declares them on the card.
    #[cfg(feature = "push")]
    pub fn push(mut self, push: &Push, options: PushOptions) -> Self {
        self.push = Some((push.clone(), options));
        self
    }

    /// Tells this observer of every commit.
    pub fn observer(mut self, observer: Arc<dyn CommitObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Counts live tasks in this account, which other runtimes and [`BindOptions`](crate::bind::BindOptions)
    /// may share.
    pub fn memory(mut self, account: MemoryAccount) -> Self {
        self.memory = account;
        self
    }

    /// Sets the share of [`Limits::tasks`] that one caller may use while others wait for a permit. Default:
    /// all.
    pub fn caller_share(mut self, share: CallerShare) -> Self {
        self.caller_share = share;
        self
    }

    /// Sets the number of unfinished tasks that a caller may have, over all agents with this quota. Default:
    /// no limit.
    pub fn task_quota(mut self, quota: TaskQuota) -> Self {
        self.task_quota = quota;
        self
    }

    /// Sets the maximum number of parts of a message.
    pub fn parts(mut self, max: usize) -> Self {
        self.limits.parts = max;
        self
    }

    /// Sets the maximum number of bytes of a task.
    pub fn max_task_bytes(mut self, max: usize) -> Self {
        self.limits.max_task_bytes = max;
        self
    }

    /// The longest time that a blocking send waits: see [`Limits::blocking_ceiling`].
    pub fn blocking_ceiling(mut self, ceiling: Duration) -> Self {
        self.limits.blocking_ceiling = ceiling;
        self
    }

    /// The longest time that an executor may say nothing: see [`Limits::silence`].
    pub fn silence(mut self, limit: Option<Duration>) -> Self {
        self.limits.silence = limit;
        self
    }

    /// Cancels a task when the caller that waits for it has left: the connection of a blocking or streaming send
    /// closes while the task runs, and nobody else follows it. Otherwise tasks go on, and their callers come back.
    pub fn cancel_on_disconnect(mut self, cancel: bool) -> Self {
        self.cancel_on_disconnect = cancel;
        self
    }

    /// Takes a message whose `messageId` its caller has used before for a repeat, as under an `Idempotency-Key`. One
    /// with other content is refused. Only for callers that make a new id for each message.
    pub fn dedupe_message_id(mut self, dedupe: bool) -> Self {
        self.dedupe_message_id = dedupe;
        self
    }

    /// Marks the agent as idempotent, regardless of [`Executor::is_idempotent`]: a message that was being
    /// executed when the server stopped is executed again. Without this its task ends as failed.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Sets the time for which tasks are kept. Default: for ever.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Changes the card before the runtime is built.
    pub fn card(mut self, change: impl FnOnce(&mut AgentCard)) -> Self {
        change(&mut self.card);
        self
    }

    /// Puts another executor around the agent's, for example one that decides which messages it gets.
    pub fn wrap_executor(mut self, wrap: impl FnOnce(Arc<dyn Executor>) -> Arc<dyn Executor>) -> Self {
        self.executor = wrap(self.executor);
        self
    }

    /// Sets the name under which tasks are stored, where several agents share a store. Default: the card's
    /// name.
    pub fn agent(mut self, name: impl Into<Arc<str>>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Sets one extended card for all authenticated callers.
    pub fn extended_card(self, card: AgentCard) -> Self {
        self.extended_card_for(move |_| Some(card.clone()))
    }

    /// Sets the extended card for each authenticated caller. `None` is answered with the error that no
    /// extended card is configured (spec 3.1.11).
    pub fn extended_card_for(
        mut self,
        card: impl Fn(&Caller) -> Option<AgentCard> + Send + Sync + 'static,
    ) -> Self {
        self.extended_card = Some(Box::new(card));
        self
    }

    /// Shows the extended card to anonymous callers too.
    pub fn open_extended_card(mut self) -> Self {
        self.extended_card_is_open = true;
        self
    }

    /// Refuses parts of this media type even if the card's input modes accept it. The pattern may end in `*`.
    pub fn refuse_media_type(mut self, pattern: impl Into<String>) -> Self {
        self.refused_media_types.push(pattern.into());
        self
    }

    /// Accepts parts of any media type. The card's input modes are then only a hint: the agent checks each
    /// part itself.
    pub fn any_media_type(mut self) -> Self {
        self.any_media_type = true;
        self
    }

    /// Adds an interceptor around every call that declares the extensions which the card requires. It runs
    /// inside of the interceptors and extensions that were added before.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.hooks.push(interceptor);
        self
    }

    /// Adds an extension. It is declared on the cards, unless they declare it themselves, and intercepts the
    /// calls for which it is active.
    pub fn extension(mut self, extension: impl Extension) -> Self {
        let declaration = extension.declaration();
        self.hooks.push(WhenActive { uri: declaration.uri.clone(), extension });
        self.declared.push(declaration);
        self
    }

    /// Gives the card, the executor, the bounds on parts and on bytes of a task, and the rules on waiting, silence,
    /// callers that leave and repeated message ids to a runtime that is there, in place of its own, and leaves
    /// everything else there as it is: see [`Runtime::replace`].
    pub fn give_to(self, runtime: &Runtime) {
        let rules = self.rules();
        runtime.core.agent.replace(self.card, self.executor, rules);
    }

    fn rules(&self) -> Rules {
        Rules {
            parts: self.limits.parts,
            max_task_bytes: self.limits.max_task_bytes,
            blocking_ceiling: self.limits.blocking_ceiling,
            silence: self.limits.silence,
            cancel_on_disconnect: self.cancel_on_disconnect,
            dedupe_message_id: self.dedupe_message_id,
        }
    }

    /// Builds the runtime. With a durable store, or with a [`Retention`], it spawns recovery and pruning, so
    /// it must be called within Tokio.
    #[must_use]
    pub fn build(mut self) -> Runtime {
        let rules = self.rules();
        let name = self.agent.unwrap_or_else(|| self.card.name.as_str().into());
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::default()));
        #[cfg(feature = "push")]
        let push = self.push.map(|(push, options)| Arc::new(AgentPush::new(&push, &name, options)));
        #[cfg(not(feature = "push"))]
        let push: Option<Arc<AgentPush>> = None;
        self.declared.pushes(push.is_some());
        self.declared.on(&mut self.card);
        let core = Arc::new(Core {
            agent: RuntimeAgent {
                anonymous: Arc::new(Scope { agent: Arc::clone(&name), tenant: None, owner: None }),
                name,
                current: ArcSwap::from_pointee(Current {
                    card: Arc::new(self.card),
                    executor: self.executor,
                    rules,
                }),
                declared: self.declared,
                extended_card: self.extended_card,
                extended_card_is_open: self.extended_card_is_open,
                refused_media_types: self.refused_media_types,
                any_media_type: self.any_media_type,
                idempotent: self.idempotent,
            },
            capacity: Capacity::new(&self.limits, self.caller_share, self.task_quota),
            limits: self.limits,
            registry: Arc::new(Registry::new(self.memory)),
            sends: Arc::new(Sends::new(&store)),
            turns: Arc::default(),
            journal: Journal::new(Arc::clone(&store), push.clone(), self.observer),
            cursors: Cursors::new(&store),
            store,
            push,
            recovery: Recovery::new(self.retention),
            lifecycle: Lifecycle::default(),
        });
        recover::spawn_maintenance(&core);
        watch::spawn_watch(&core);
        handed_in::spawn_take(&core);
        Runtime { service: hooks::around(&core, self.hooks), core }
    }
}
