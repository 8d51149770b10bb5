//! The mailboxes of a hub: the parts that they share, and those that are served now.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use nuncio_protocol::Timestamp;
use nuncio_server::{Runtime, store::Store};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::webhook::Webhook;
use crate::{
    agent_urls::AgentUrls,
    agents::{
        AgentFactory, ContextKey, Label,
        delegation::Hop,
        lease::{Book, Rules, Wakes, millis, now_millis},
    },
    clock,
    config::Mailbox as Settings,
    fleet::ServedAgent,
    telemetry::Metrics,
};

/// Workers that a mailbox remembers for its operator.
const MAX_WORKERS: usize = 256;

/// The age at which a count of turns is made anew before a message is refused because of it.
const RECOUNT_AGE: Duration = Duration::from_secs(2);

/// Hubs that may fill a mailbox of a shared store at the same time without exceeding its limit: each takes at most this
/// part of the room that it has counted, and then counts again.
const MAX_HUBS: usize = 8;

/// All mailboxes of a hub.
pub(crate) struct Mailboxes {
    pub(super) book: Book,
    pub(super) wakes: Wakes,
    pub(super) contexts: ContextKey,
    pub(super) metrics: Arc<Metrics>,
    /// The time at which this hub started: leases of before are good for one more lease time.
    started: i64,
    /// Notified when a mailbox is served from now on.
    pub(super) served_one: Notify,
    /// The hub shuts down: no turn is delivered any more.
    pub(super) closing: CancellationToken,
    /// The deliveries that are under way.
    pub(super) deliveries: TaskTracker,
    #[cfg(test)]
    pub(super) skew: std::sync::atomic::AtomicI64,
    served: Mutex<HashMap<String, Arc<Mailbox>>>,
}

/// A mailbox that is served.
pub(crate) struct Mailbox {
    pub(super) name: Arc<str>,
    pub(super) settings: ArcSwap<Settings>,
    pub(super) label: ArcSwap<Label>,
    pub(super) urls: AgentUrls,
    pub(super) hop: Hop,
    /// The webhook to which its messages are posted.
    pub(super) webhook: Option<Arc<Webhook>>,
    /// Its messages are posted by this hub.
    pub(super) is_delivering: AtomicBool,
    /// The agent, while the hub serves it.
    agent: Mutex<Weak<ServedAgent>>,
    /// The version of the stored card that is shown; 0: none is stored.
    pub(super) card: AtomicU64,
    /// Held while a claim looks for a turn: of many workers of this hub, one reads.
    pub(super) claiming: tokio::sync::Mutex<()>,
    /// Claims that wait.
    pub(super) waiting_claims: AtomicUsize,
    /// The turns, as far as they were counted.
    count: Mutex<Count>,
    workers: Mutex<HashMap<String, Timestamp>>,
}

#[derive(Default)]
struct Count {
    turns: usize,
    at: Option<Instant>,
    /// Messages that were accepted since.
    accepted: usize,
}

impl Mailboxes {
    pub(crate) fn new(store: &Arc<dyn Store>, contexts: ContextKey, metrics: Arc<Metrics>) -> Arc<Self> {
        let (wakes, served) = Default::default();
        let started = now_millis();
        Arc::new(Self {
            book: Book::new(store),
            wakes,
            contexts,
            metrics,
            started,
            served_one: Notify::new(),
            closing: CancellationToken::new(),
            deliveries: TaskTracker::new(),
            #[cfg(test)]
            skew: std::sync::atomic::AtomicI64::default(),
            served,
        })
    }

    /// The current time in milliseconds.
    #[cfg(not(test))]
    pub(super) fn now(&self) -> i64 {
        now_millis()
    }

    /// The current time in milliseconds, which tests put forward.
    #[cfg(test)]
    pub(super) fn now(&self) -> i64 {
        now_millis() + self.skew.load(Ordering::Relaxed)
    }

    /// The mailbox of this name, if it is served.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Mailbox>> {
        let mailbox = self.served.lock().get(name).cloned()?;
        mailbox.agent().is_some().then_some(mailbox)
    }

    /// The mailboxes that are served.
    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        let mut served = self.served.lock();
        served.retain(|_, mailbox| mailbox.agent().is_some());
        served.values().cloned().collect()
    }

    /// Serves the mailbox by this agent from now on.
    pub(super) fn serve(&self, mailbox: &Arc<Mailbox>, agent: &Arc<ServedAgent>) {
        *mailbox.agent.lock() = Arc::downgrade(agent);
        self.served.lock().insert(mailbox.name.to_string(), Arc::clone(mailbox));
        self.served_one.notify_one();
    }

    /// True while this mailbox is the one that is served under its name.
    pub(super) fn serves(&self, mailbox: &Arc<Mailbox>) -> bool {
        self.find(&mailbox.name).is_some_and(|served| Arc::ptr_eq(&served, mailbox))
    }

    /// The time before which no lease of these rules ends.
    pub(super) fn grace(&self, rules: &Rules) -> i64 {
        self.started.saturating_add(millis(rules.lease))
    }

    /// Tells claims on all hubs that a turn of the mailbox may be free.
    pub(super) fn announce(&self, mailbox: &str) {
        self.wakes.wake(mailbox);
        self.book.signal(mailbox);
    }

    /// Tells the holder of a lease on any hub that it has changed. `turn` is the key of its row.
    pub(super) fn announce_lease(&self, turn: &str) {
        self.wakes.wake(turn);
        self.book.signal(turn);
    }
}

impl Mailbox {
    pub(super) fn new(
        name: &str,
        settings: &Settings,
        label: Label,
        webhook: Option<Arc<Webhook>>,
        factory: &AgentFactory,
    ) -> Self {
        let (agent, card, claiming, waiting_claims, count, workers) = Default::default();
        Self {
            name: name.into(),
            settings: ArcSwap::from_pointee(settings.clone()),
            label: ArcSwap::from_pointee(label),
            urls: factory.urls.clone(),
            hop: Hop::new(&factory.hub, name),
            webhook,
            is_delivering: AtomicBool::new(false),
            agent,
            card,
            claiming,
            waiting_claims,
            count,
            workers,
        }
    }

    pub(super) fn rules(&self) -> Rules {
        Rules::from(&**self.settings.load())
    }

    pub(super) fn agent(&self) -> Option<Arc<ServedAgent>> {
        self.agent.lock().upgrade()
    }

    pub(super) fn runtime(&self) -> Option<Runtime> {
        self.agent()?.runtime().cloned()
    }

    /// False while the hub shuts down, or does not serve the mailbox any more: waits end.
    pub(super) fn is_open(&self) -> bool {
        self.runtime().is_some_and(|runtime| runtime.is_ready())
    }

    /// Notes that a worker has called.
    pub(super) fn saw(&self, worker: &str) {
        let mut workers = self.workers.lock();
        if workers.len() >= MAX_WORKERS
            && !workers.contains_key(worker)
            && let Some(oldest) = workers.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone())
        {
            workers.remove(&oldest);
        }
        workers.insert(worker.to_owned(), clock::now());
    }

    /// The workers that have called this hub, with the time of their last call.
    pub(super) fn workers(&self) -> Vec<(String, Timestamp)> {
        let mut workers: Vec<_> = self.workers.lock().iter().map(|(name, at)| (name.clone(), *at)).collect();
        workers.sort();
        workers
    }

    /// Notes the number of turns, as counted now.
    pub(super) fn counted(&self, turns: usize) {
        *self.count.lock() = Count { turns, at: Some(Instant::now()), accepted: 0 };
    }

    /// Notes a change of the number of turns. For a shared store they are counted there.
    pub(super) fn count(&self, change: isize) {
        let mut count = self.count.lock();
        count.turns = count.turns.saturating_add_signed(change);
    }

    /// True if the mailbox is full by a count that may be old. In a shared store other hubs fill it as well, and empty
    /// it.
    pub(super) fn seems_full(&self, is_shared: bool) -> Fullness {
        let (mut count, most) = (self.count.lock(), self.settings.load().max_waiting);
        if is_shared {
            let own = most.saturating_sub(count.turns) / MAX_HUBS;
            let is_recent = count.at.is_some_and(|at| at.elapsed() < RECOUNT_AGE);
            if !is_recent || count.accepted >= own {
                return Fullness::Unknown;
            }
            count.accepted += 1;
            return Fullness::Room;
        }
        match count.at {
            Some(_) if count.turns < most => Fullness::Room,
            Some(at) if at.elapsed() < RECOUNT_AGE => Fullness::Full,
            Some(_) | None => Fullness::Unknown,
        }
    }
}

/// The answer to whether a mailbox is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fullness {
    Room,
    Full,
    /// The turns have to be counted.
    Unknown,
}

/// A place among the claims that wait.
pub(super) struct ClaimPermit(Arc<Mailbox>);

impl ClaimPermit {
    /// `None` if too many claims wait.
    pub(super) fn take(mailbox: &Arc<Mailbox>, most: usize) -> Option<Self> {
        let before = mailbox.waiting_claims.fetch_add(1, Ordering::Relaxed);
        let permit = Self(Arc::clone(mailbox));
        (before < most).then_some(permit)
    }
}

impl Drop for ClaimPermit {
    fn drop(&mut self) {
        self.0.waiting_claims.fetch_sub(1, Ordering::Relaxed);
    }
}
