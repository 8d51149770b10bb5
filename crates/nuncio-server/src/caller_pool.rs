//! Permits that callers share fairly: the executions of an agent, the processes of a program, the calls to a
//! remote agent.
//!
//! A caller gets more than its share only while a share stays free for others. So no caller can keep another
//! one from being served:
//!
//! | free permits | caller below its share | caller at or above its share |
//! |---|---|---|
//! | more than a share | granted | granted |
//! | up to a share | granted | waits, or is refused |
//! | none | waits, or is refused | waits, or is refused |
//!
//! A caller above its share keeps its permits; those that it releases go to others until it is back at its
//! share. A released permit goes to the waiting caller that holds the fewest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use foldhash::fast::RandomState;
use nuncio_protocol::Caller;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::store::Scope;

/// A caller as limits distinguish them: a principal within its tenant. All anonymous callers are one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CallerKey {
    tenant: Option<Arc<str>>,
    principal: Option<Arc<str>>,
}

impl From<&Caller> for CallerKey {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant().cloned(), principal: caller.principal().cloned() }
    }
}

impl From<&Scope> for CallerKey {
    fn from(scope: &Scope) -> Self {
        Self { tenant: scope.tenant.clone(), principal: scope.owner.clone() }
    }
}

/// The share of a pool that one caller may hold while others wait, in percent; 0 is no limit. Clones are one
/// setting: a change applies to all pools that have it.
#[derive(Clone, Debug, Default)]
pub struct CallerShare(Arc<AtomicU32>);

impl CallerShare {
    /// A share of this many percent.
    #[must_use]
    pub fn percent(percent: u32) -> Self {
        Self(Arc::new(AtomicU32::new(percent)))
    }

    /// Changes the share to this many percent.
    pub fn set(&self, percent: u32) {
        self.0.store(percent, Ordering::Relaxed);
    }

    /// The share in permits, at least one; all of them if there is no limit.
    fn of(&self, permits: usize) -> usize {
        match self.0.load(Ordering::Relaxed) as usize {
            0 => permits,
            percent => (permits.saturating_mul(percent) / 100).clamp(1, permits.max(1)),
        }
    }
}

/// A pool of permits. Cheap to clone; clones are one pool.
#[derive(Clone, Debug)]
pub struct CallerPool(Arc<PoolInner>);

#[derive(Debug)]
struct PoolInner {
    capacity: usize,
    share: CallerShare,
    /// Locked for short reads and changes, never across an await.
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// The number of permits that all callers hold.
    held: usize,
    /// The callers that hold a permit or wait for one.
    callers: HashMap<CallerKey, CallerEntry, RandomState>,
    /// The number of waiters so far.
    arrivals: u64,
}

#[derive(Debug, Default)]
struct CallerEntry {
    held: usize,
    /// The waiters in the order of their arrival, each with its number among all.
    waiting: VecDeque<(u64, oneshot::Sender<CallerPermit>)>,
}

/// A permit of a pool, released on drop.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub struct CallerPermit {
    pool: CallerPool,
    caller: CallerKey,
}

impl CallerPool {
    /// A pool of this many permits.
    #[must_use]
    pub fn new(capacity: usize, share: CallerShare) -> Self {
        Self(Arc::new(PoolInner { capacity, share, state: Mutex::default() }))
    }

    /// Takes a permit, if this caller may have one now.
    #[must_use]
    pub fn try_acquire(&self, caller: &CallerKey) -> Option<CallerPermit> {
        let mut state = self.lock();
        let (held, waits) = state.callers.get(caller).map_or((0, false), CallerEntry::standing);
        // Earlier requests of the same caller come first.
        if waits || !self.may_hold_another(&state, held) {
            return None;
        }
        state.grant(caller);
        drop(state);
        Some(CallerPermit { pool: self.clone(), caller: caller.clone() })
    }

    /// Waits for a permit for this caller. A future that is dropped leaves the queue.
    pub async fn acquire(&self, caller: &CallerKey) -> CallerPermit {
        loop {
            if let Some(permit) = self.try_acquire(caller) {
                return permit;
            }
            let Some(mut waiting) = self.enqueue(caller) else { continue };
            if let Ok(permit) = (&mut waiting.granted).await {
                return permit;
            }
        }
    }

    /// Enters the queue; `None` if a permit has just become free.
    fn enqueue(&self, caller: &CallerKey) -> Option<QueuePosition<'_>> {
        let mut state = self.lock();
        let (held, waits) = state.callers.get(caller).map_or((0, false), CallerEntry::standing);
        if !waits && self.may_hold_another(&state, held) {
            return None;
        }
        state.arrivals += 1;
        let number = state.arrivals;
        let (sender, granted) = oneshot::channel();
        state.callers.entry(caller.clone()).or_default().waiting.push_back((number, sender));
        Some(QueuePosition { pool: self, caller: caller.clone(), number, granted })
    }

    /// Removes a waiter from the queue.
    fn leave(&self, caller: &CallerKey, number: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.callers.get_mut(caller)
            && let Ok(at) = entry.waiting.binary_search_by_key(&number, |(number, _)| *number)
        {
            entry.waiting.remove(at);
        }
        state.forget_if_idle(caller);
    }

    fn may_hold_another(&self, state: &PoolState, held: usize) -> bool {
        let (free, share) = (self.0.capacity.saturating_sub(state.held), self.0.share.of(self.0.capacity));
        free > 0 && (held < share || free > share)
    }

    /// Takes a permit back, and grants permits to waiters.
    fn release(&self, caller: &CallerKey) {
        let mut state = self.lock();
        state.held -= 1;
        if let Some(entry) = state.callers.get_mut(caller) {
            entry.held -= 1;
        }
        let granted = self.grant_waiting(&mut state);
        state.forget_if_idle(caller);
        drop(state);
        for (sender, permit) in granted {
            // If the waiter has gone meanwhile, the permit is dropped here and thereby released.
            drop(sender.send(permit));
        }
    }

    /// Grants permits to waiters for as long as one of them may have one.
    fn grant_waiting(&self, state: &mut PoolState) -> Vec<(oneshot::Sender<CallerPermit>, CallerPermit)> {
        let mut granted = Vec::new();
        while let Some(caller) = self.next_waiting(state) {
            let next = state.callers.get_mut(&caller).and_then(|entry| entry.waiting.pop_front());
            let Some((_, sender)) = next else { break };
            state.grant(&caller);
            granted.push((sender, CallerPermit { pool: self.clone(), caller }));
        }
        granted
    }

    /// The waiting caller that holds the fewest permits; of several, the one that has waited longest.
    fn next_waiting(&self, state: &PoolState) -> Option<CallerKey> {
        let waiting = state.callers.iter().filter_map(|(caller, entry)| {
            let (number, _) = entry.waiting.front()?;
            self.may_hold_another(state, entry.held).then_some(((entry.held, *number), caller))
        });
        waiting.min_by_key(|(order, _)| *order).map(|(_, caller)| caller.clone())
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock()
    }
}

impl PoolState {
    fn grant(&mut self, caller: &CallerKey) {
        self.held += 1;
        match self.callers.get_mut(caller) {
            Some(entry) => entry.held += 1,
            None => {
                drop(self.callers.insert(caller.clone(), CallerEntry { held: 1, ..CallerEntry::default() }))
            }
        }
    }

    fn forget_if_idle(&mut self, caller: &CallerKey) {
        if self.callers.get(caller).is_some_and(|entry| entry.standing() == (0, false)) {
            self.callers.remove(caller);
        }
    }
}

impl CallerEntry {
    /// The number of permits that the caller holds, and whether it waits for one.
    fn standing(&self) -> (usize, bool) {
        (self.held, !self.waiting.is_empty())
    }
}

/// A position in the queue of a pool.
struct QueuePosition<'a> {
    pool: &'a CallerPool,
    caller: CallerKey,
    number: u64,
    granted: oneshot::Receiver<CallerPermit>,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.pool.leave(&self.caller, self.number);
    }
}

impl Drop for CallerPermit {
    fn drop(&mut self) {
        self.pool.release(&self.caller);
    }
}

#[cfg(test)]
mod tests;
