//! Webhook deliveries. The commit of an entry also stores the deliveries that it causes. This module sends
//! them, in order per webhook, until the receiver accepts them or they are given up.
//!
//! ```text
//! commit ─► wake ─► dispatcher: lease ─► worker per webhook: payload, headers, post ─► settle
//!                      ▲  ring of targets, a few at a time each          │ in batches
//!                      └──────────── the next is due, a slot is free ◄───┘
//! ```
//! Reading order: `config` and `seal` (the stored form), `dispatch`, `leases`, `worker`, `payload`,
//! `request`, `web` (the HTTP client), `schedule`, `breaker`, `large_bodies`, `settle`; `paused` has the
//! receivers that an operator has paused, `agent` the settings of an agent, `courier` the trait of the way out,
//! `onward` the notifications of remote agents that are forwarded; `ask` is for deliveries that the caller keeps, and
//! that are answered.

mod agent;
mod ask;
mod breaker;
mod config;
mod courier;
mod dispatch;
mod large_bodies;
mod leases;
mod onward;
mod paused;
mod payload;
mod request;
mod schedule;
mod seal;
mod settle;
mod web;
mod worker;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use nuncio_protocol::{Result, Timestamp};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::{sync::Notify, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub(crate) use self::agent::AgentPush;
pub use self::{
    agent::PushOptions,
    ask::{Ask, NoAnswer},
    config::shown_url,
    courier::{Courier, Failure, ReceiverAnswer, ReceiverResponse},
    onward::{Onward, Said},
    paused::MAX_PAUSED,
    payload::Dialect,
    request::{Sign, Unsigned},
    schedule::Retry,
    seal::{RootKey, Vault},
    web::{sign_by_key, sign_by_secrets},
};
use self::{
    breaker::Breakers, dispatch::Dispatcher, large_bodies::LargeBodies, leases::LeaseTable,
    paused::PausedTargets,
};
use crate::{
    clock::now,
    store::{Store, StoreError},
};

/// Limits on concurrent deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushLimits {
    /// Maximum number of webhooks served at a time, over all targets.
    pub at_once: usize,
    /// Maximum number of webhooks served at a time for one target (host and port).
    pub per_target: usize,
}

impl Default for PushLimits {
    fn default() -> Self {
        Self { at_once: 512, per_target: 32 }
    }
}

/// The delivery engine for webhooks, shared by any number of agents with one store. Cheap to clone; the
/// engine stops when the last clone is dropped.
#[derive(Clone)]
pub struct Push {
    engine: Arc<Engine>,
    running: TaskTracker,
    _guard: Arc<DropGuard>,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("agents", &self.engine.agents()).finish_non_exhaustive()
    }
}

/// State shared by the dispatcher, the workers and the API.
struct Engine {
    store: Arc<dyn Store>,
    courier: Arc<dyn Courier>,
    vault: Vault,
    sign: Option<Sign>,
    retry: Retry,
    limits: PushLimits,
    deadline: Duration,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    agents: RwLock<HashMap<Arc<str>, Arc<PushOptions>>>,
    breakers: Mutex<Breakers>,
    leases: Mutex<LeaseTable>,
    large: LargeBodies,
    paused: PausedTargets,
    /// Notified when a delivery may be due.
    wake: Notify,
    draining: CancellationToken,
    over: CancellationToken,
}

impl Engine {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn agents(&self) -> Vec<Arc<str>> {
        self.agents.read().keys().cloned().collect()
    }

    fn options(&self, agent: &str) -> Option<Arc<PushOptions>> {
        self.agents.read().get(agent).cloned()
    }

    fn breakers(&self) -> MutexGuard<'_, Breakers> {
        self.breakers.lock()
    }

    fn leases(&self) -> MutexGuard<'_, LeaseTable> {
        self.leases.lock()
    }
}

/// Builder of a [`Push`].
#[must_use]
#[expect(missing_debug_implementations, reason = "a courier cannot be printed")]
pub struct PushBuilder {
    store: Arc<dyn Store>,
    courier: Arc<dyn Courier>,
    key: RootKey,
    sign: Option<Sign>,
    retry: Retry,
    limits: PushLimits,
    deadline: Duration,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl PushBuilder {
    /// Signs every notification in the server's name (`A2A-Notification-Signature`).
    pub fn sign(mut self, sign: Sign) -> Self {
        self.sign = Some(sign);
        self
    }

    /// Sets the pauses between attempts and the age at which a delivery is given up.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the limits on concurrent deliveries.
    pub fn limits(mut self, limits: PushLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the timeout for a receiver's response; default: 15 seconds (REQ-167).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Replaces the system clock, for tests.
    #[cfg(any(test, feature = "test-util"))]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts delivering in the background. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The cryptography library refuses the key.
    pub fn build(self) -> Result<Push> {
        let over = CancellationToken::new();
        let engine = Arc::new(Engine {
            vault: Vault::new(&self.key, "webhook credentials")?,
            store: self.store,
            courier: self.courier,
            sign: self.sign,
            retry: self.retry,
            limits: self.limits,
            deadline: self.deadline,
            clock: self.clock,
            agents: RwLock::default(),
            breakers: Mutex::default(),
            leases: Mutex::default(),
            large: LargeBodies::default(),
            paused: PausedTargets::default(),
            wake: Notify::new(),
            draining: CancellationToken::new(),
            over: over.clone(),
        });
        let running = TaskTracker::new();
        running.spawn(Dispatcher::new(Arc::clone(&engine)).run());
        running.close();
        Ok(Push { engine, running, _guard: Arc::new(over.drop_guard()) })
    }
}

impl Push {
    /// Creates a builder of an engine that reads deliveries from `store` and sends them by `courier`.
    /// Credentials of callers are sealed with `key`.
    pub fn builder(store: Arc<dyn Store>, courier: impl Courier, key: RootKey) -> PushBuilder {
        PushBuilder {
            store,
            courier: Arc::new(courier),
            key,
            sign: None,
            retry: Retry::default(),
            limits: PushLimits::default(),
            deadline: Duration::from_secs(15),
            clock: Arc::new(now),
        }
    }

    fn register(&self, agent: &Arc<str>, options: &Arc<PushOptions>) {
        let mut agents = self.engine.agents.write();
        agents.insert(Arc::clone(agent), Arc::clone(options));
        drop(agents);
        self.wake();
    }

    /// Makes the dispatcher look for due deliveries; to be called after a change to the store.
    pub fn wake(&self) {
        self.engine.wake.notify_one();
    }

    /// Attempts no delivery to this target (host and port) until [`Self::resume`], also after a restart and by other
    /// servers of the same store. Attempts that are under way end. Returns false if it is paused already.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn pause(&self, target: &str) -> std::result::Result<bool, StoreError> {
        let is_new = paused::put(&*self.engine.store, target, self.engine.now()).await?;
        self.engine.paused.read(&*self.engine.store).await?;
        Ok(is_new)
    }

    /// Ends a pause: what is due is attempted at once. Returns false if there was none.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn resume(&self, target: &str) -> std::result::Result<bool, StoreError> {
        let was_paused = paused::delete(&*self.engine.store, target).await?;
        self.engine.paused.read(&*self.engine.store).await?;
        self.wake();
        Ok(was_paused)
    }

    /// The paused targets, each with the time since which it is paused.
    #[must_use]
    pub fn paused(&self) -> Arc<BTreeMap<Arc<str>, Timestamp>> {
        self.engine.paused.all()
    }

    /// Stops the worker of this webhook, and waits until it sends nothing more.
    async fn forget(&self, uid: &Arc<str>) {
        let ended = self.engine.leases().forget(uid);
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    /// The number of webhooks that have a worker now.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.engine.leases().len()
    }

    /// Shuts down in good order: running attempts get `grace`, all other deliveries stay pending in the
    /// store. With a memory store, pending deliveries are still sent until `grace` is over.
    pub async fn drain(&self, grace: Duration) {
        self.engine.draining.cancel();
        if timeout(grace, self.running.wait()).await.is_err() {
            self.engine.over.cancel();
            self.running.wait().await;
        }
    }
}
