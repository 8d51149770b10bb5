//! Webhooks that arrive: what a task's webhooks are owed is in the store from the same moment as the entry;
//! here it is delivered, in order per webhook, until the receiver has it or it is given up.
//!
//! ```text
//! commit ─► wake ─► dispatcher: lease ─► worker per webhook: payload, headers, post ─► settle
//!                      ▲  ring of targets, a few at a time each          │ in batches
//!                      └──────────── the next is due, a place is free ◄──┘
//! ```
//! Reading order: `config` and `seal` (what is kept), `dispatch`, `hands`, `worker`, `payload`, `request`, `web`
//! (the way out), `schedule`, `breaker`, `room`, `settle`.

mod agent;
mod breaker;
mod config;
mod courier;
mod dispatch;
mod leases;
mod onward;
mod payload;
mod request;
mod room;
mod schedule;
mod seal;
mod settle;
mod web;
mod worker;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

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
    config::shown_url,
    courier::{Answer, Courier, Failure},
    onward::{Onward, Said},
    payload::Dialect,
    request::{Sign, Unsigned},
    schedule::Retry,
    seal::{MasterKey, Vault},
    web::{sign_by_key, sign_by_secrets},
};
use self::{breaker::Breakers, dispatch::Dispatcher, leases::LeaseTable, room::Room};
use crate::{clock::now, store::Store};

/// How much is on its way at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushLimits {
    /// Webhooks that are served.
    pub at_once: usize,
    /// Those of one host and port.
    pub per_target: usize,
}

impl Default for PushLimits {
    fn default() -> Self {
        Self { at_once: 512, per_target: 32 }
    }
}

/// Delivers what webhooks are owed, of any number of agents that share a store. Cheap to clone; when the last
/// one is dropped, it ends.
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

/// What the parts share.
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
    large: Room,
    /// Something may be due.
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

/// Puts a [`Push`] together.
#[must_use]
#[expect(missing_debug_implementations, reason = "a courier cannot be printed")]
pub struct PushBuilder {
    store: Arc<dyn Store>,
    courier: Arc<dyn Courier>,
    key: MasterKey,
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

    /// How long and how often deliveries are tried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How much is on its way at a time.
    pub fn limits(mut self, limits: PushLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a receiver may take to answer; 15 seconds when not said (REQ-167).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Another clock than that of the system, for tests.
    #[cfg(any(test, feature = "test-util"))]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Begins to deliver, in the background: it needs to be built within Tokio.
    ///
    /// # Errors
    /// The library refuses the key.
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
            large: Room::default(),
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
    /// Delivers out of this store, by this courier. What callers confide is sealed with the key.
    pub fn builder(store: Arc<dyn Store>, courier: impl Courier, key: MasterKey) -> PushBuilder {
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

    /// Something may be due: for whoever has changed the store.
    pub fn wake(&self) {
        self.engine.wake.notify_one();
    }

    /// What is on its way to this webhook is stopped, and nothing more is sent of what was leased before.
    async fn forget(&self, uid: &Arc<str>) {
        let ended = self.engine.leases().forget(uid);
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    /// How many webhooks are being served.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.engine.leases().len()
    }

    /// Ends in good order: what is on its way gets `grace`, the rest stays owed. What is in memory only is
    /// still sent, as far as there is time.
    pub async fn drain(&self, grace: Duration) {
        self.engine.draining.cancel();
        if timeout(grace, self.running.wait()).await.is_err() {
            self.engine.over.cancel();
            self.running.wait().await;
        }
    }
}
