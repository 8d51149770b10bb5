//! The dispatcher: leases due webhooks, in turn over all targets, and starts a worker for each.
//!
//! Only a few webhooks per target are leased at a time; the others stay in the store. So a receiver that
//! hangs does not delay the others.

use std::{collections::HashMap, sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{Engine, paused, schedule::until, settle::Settler, worker::Worker};
use crate::store::{Lease, Leased, Leases, StoreError, Subscription, Topic};

/// The maximum number of deliveries leased with a webhook.
const MAX_LEASED_DELIVERIES: usize = 64;

/// The pause when a webhook is due but was not leased: another server has the lease.
const CONTENTION_PAUSE: Duration = Duration::from_millis(20);

/// The pause after a failed read of the store.
const STORE_RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Dispatcher {
    engine: Arc<Engine>,
    settler: Settler,
    workers: JoinSet<()>,
    /// The leased webhooks, by worker: uid and target.
    in_hand: HashMap<Id, (Arc<str>, Arc<str>)>,
    /// The number of running workers per target.
    busy: HashMap<Arc<str>, usize>,
    /// The target leased last; the next lease begins after it.
    after: Arc<str>,
    /// True if the last lease failed.
    failing: bool,
}

impl Dispatcher {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let settler = Settler::start(engine.store.clone(), engine.over.clone());
        Self {
            engine,
            settler,
            workers: JoinSet::new(),
            in_hand: HashMap::new(),
            busy: HashMap::new(),
            after: "".into(),
            failing: false,
        }
    }

    /// Runs until `over` is cancelled, or until the engine is drained.
    pub(super) async fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        let (over, draining) = (engine.over.clone(), engine.draining.clone());
        let (mut looks, mut next) = (true, None);
        // Other servers write to a shared store as well.
        let store = &engine.store;
        let mut others = store.is_shared().then(|| store.signals().subscribe(Topic::Deliveries));
        let mut pauses = store.is_shared().then(|| store.signals().subscribe(paused::topic()));
        loop {
            // A memory store is lost with the process: its deliveries are sent while there is time.
            let goes_on = !draining.is_cancelled() || engine.store.is_immediate();
            if !goes_on {
                next = None;
            } else if looks {
                next = self.fill().await.and_then(|pause| Instant::now().checked_add(pause));
            }
            if over.is_cancelled() || (draining.is_cancelled() && self.workers.is_empty()) {
                break;
            }
            tokio::select! {
                () = over.cancelled() => break,
                () = draining.cancelled(), if !draining.is_cancelled() => looks = true,
                () = engine.wake.notified() => looks = true,
                () = heard(&mut others) => looks = true,
                () = heard(&mut pauses) => looks = self.read_paused().await,
                Some(ended) = self.workers.join_next_with_id() => looks = self.ended(&ended),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => looks = true,
            }
            while let Some(ended) = self.workers.try_join_next_with_id() {
                looks |= self.ended(&ended);
            }
        }
        // Workers see `over` themselves, and release their webhooks.
        while let Some(ended) = self.workers.join_next_with_id().await {
            self.ended(&ended);
        }
    }

    /// Reads which targets are paused; false while the store is down. If it answers with another fault, the list stays
    /// as it is known: deliveries of others do not wait for its repair.
    async fn read_paused(&mut self) -> bool {
        let Err(error) = self.engine.paused.read(&*self.engine.store).await else { return true };
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "cannot read the paused receivers from the store; trying again");
        }
        !error.is_down()
    }

    /// Leases webhooks up to the limits; returns the pause until the next lease, `None` to wait for a
    /// wake-up.
    async fn fill(&mut self) -> Option<Duration> {
        if !self.engine.paused.is_read() && !self.read_paused().await {
            return Some(STORE_RETRY_PAUSE);
        }
        loop {
            let capacity = self.engine.limits.at_once.saturating_sub(self.in_hand.len());
            let agents = self.engine.agents();
            if capacity == 0 || agents.is_empty() {
                return None;
            }
            let now = self.engine.now();
            let lease = self.lease(agents, capacity, now);
            let (taken, next) = match self.take(&lease).await {
                Ok(taken) => taken,
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::error!(%error, "cannot read webhooks from the store; trying again");
                    }
                    return Some(STORE_RETRY_PAUSE);
                }
            };
            if std::mem::take(&mut self.failing) {
                tracing::info!("webhooks can be read from the store again");
            }
            let pause = next.map(|next| until(next, now));
            // If nothing else is due, `next` has shown it.
            let is_all = taken == 0 || (taken < capacity && pause.is_none_or(|pause| !pause.is_zero()));
            if is_all {
                return pause.map(|pause| pause.max(CONTENTION_PAUSE));
            }
        }
    }

    /// Leases webhooks and starts their workers; returns their number, and when the next webhook is due.
    async fn take(&mut self, lease: &Lease) -> Result<(usize, Option<Timestamp>), StoreError> {
        self.engine.leases().begin_lease();
        let leases = self.engine.store.lease(lease).await;
        let taken = leases.map(|Leases { leased, next }| {
            let taken = leased.len();
            leased.into_iter().for_each(|leased| self.serve(leased));
            (taken, next)
        });
        self.engine.leases().end_lease();
        taken
    }

    /// Makes a lease request. It takes at most half of a target's limit, and only for targets that are at
    /// most half full, so that no target exceeds its limit.
    fn lease(&self, agents: Vec<Arc<str>>, limit: usize, now: Timestamp) -> Lease {
        let full = self.busy.iter().filter(|(_, busy)| self.is_full(**busy)).map(|(target, _)| target);
        let paused = self.engine.paused.all();
        Lease {
            agents,
            now,
            after: Arc::clone(&self.after),
            except: full.chain(paused.keys()).cloned().collect(),
            in_hand: self.in_hand.values().map(|(uid, _)| Arc::clone(uid)).collect(),
            limit,
            each: self.half(),
            owed: MAX_LEASED_DELIVERIES,
        }
    }

    fn half(&self) -> usize {
        self.engine.limits.per_target.div_ceil(2)
    }

    fn is_full(&self, busy: usize) -> bool {
        busy + self.half() > self.engine.limits.per_target
    }

    fn serve(&mut self, leased: Leased) {
        let (uid, target) = (Arc::clone(&leased.webhook.uid), Arc::clone(&leased.webhook.target));
        let over = self.engine.over.child_token();
        let Some(hand) = self.engine.leases().take(&uid, over) else { return };
        let worker = Worker { engine: Arc::clone(&self.engine), settler: self.settler.clone(), leased, hand };
        let id = self.workers.spawn(worker.run()).id();
        *self.busy.entry(Arc::clone(&target)).or_default() += 1;
        self.after = Arc::clone(&target);
        self.in_hand.insert(id, (uid, target));
    }

    /// Removes an ended worker. Returns true if this freed capacity that was exhausted: only then can more be
    /// leased.
    fn ended(&mut self, ended: &Result<(Id, ()), JoinError>) -> bool {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let was_full = self.in_hand.len() >= self.engine.limits.at_once;
        let Some((uid, target)) = self.in_hand.remove(&id) else { return false };
        self.engine.leases().let_go(&uid);
        let busy = self.busy.get(&target).map_or(0, |busy| busy.saturating_sub(1));
        if busy == 0 {
            self.busy.remove(&target);
        } else {
            self.busy.insert(target, busy);
        }
        was_full || !self.is_full(busy)
    }
}

/// Waits until another server has signalled; for ever if no other server has the store.
async fn heard(others: &mut Option<Subscription>) {
    match others {
        Some(others) => drop(others.next().await),
        None => std::future::pending().await,
    }
}
