//! Permits that callers share: the executions of an agent, the processes of a program, the calls of an upstream agent.
//!
//! A caller holds more than its share only while a share stays free for others. So whatever one caller does, another
//! one is served at once:
//!
//! | free permits | to a caller below its share | to a caller that holds its share |
//! |---|---|---|
//! | more than a share | granted | granted |
//! | up to a share | granted | waits, or is refused |
//! | none | waits, or is refused | waits, or is refused |
//!
//! Nothing is taken away from a caller that holds more: what it gives back goes to others until it is back at its
//! share. A permit that is given back goes to the waiting caller that holds the fewest.

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

/// A caller as limits tell them apart: a principal within its tenant. All anonymous callers are one.
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

/// The part of a pool that one caller may hold while others want it, in percent; 0 is no bound. Clones are one setting:
/// it may be changed at any time, for all pools that have it.
#[derive(Clone, Debug, Default)]
pub struct CallerShare(Arc<AtomicU32>);

impl CallerShare {
    /// This many percent.
    #[must_use]
    pub fn percent(percent: u32) -> Self {
        Self(Arc::new(AtomicU32::new(percent)))
    }

    /// From now on this many percent.
    pub fn set(&self, percent: u32) {
        self.0.store(percent, Ordering::Relaxed);
    }

    /// That part of so many permits, and at least one; all of them if there is no bound.
    fn of(&self, permits: usize) -> usize {
        match self.0.load(Ordering::Relaxed) as usize {
            0 => permits,
            percent => (permits.saturating_mul(percent) / 100).clamp(1, permits.max(1)),
        }
    }
}

/// A pool of permits. Cheap to clone; clones are one pool.
#[derive(Clone, Debug)]
pub struct CallerPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    capacity: usize,
    share: CallerShare,
    /// Held for a look or a change, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many permits are held, by all callers.
    held: usize,
    /// Those that hold some, or wait.
    callers: HashMap<CallerKey, Entry, RandomState>,
    /// How many have waited so far.
    arrivals: u64,
}

#[derive(Debug, Default)]
struct Entry {
    held: usize,
    /// In the order in which they came, each with its number among all.
    waiting: VecDeque<(u64, oneshot::Sender<CallerPermit>)>,
}

/// A permit of a pool. It is given back when this is dropped.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub struct CallerPermit {
    pool: CallerPool,
    caller: CallerKey,
}

impl CallerPool {
    /// A pool of so many permits.
    #[must_use]
    pub fn new(capacity: usize, share: CallerShare) -> Self {
        Self(Arc::new(Inner { capacity, share, state: Mutex::default() }))
    }

    /// A permit, if there is one for this caller now.
    #[must_use]
    pub fn try_acquire(&self, caller: &CallerKey) -> Option<CallerPermit> {
        let mut state = self.lock();
        let (held, waits) = state.callers.get(caller).map_or((0, false), Entry::standing);
        // Nobody passes those of its own that came before.
        if waits || !self.may_hold_another(&state, held) {
            return None;
        }
        state.grant(caller);
        drop(state);
        Some(CallerPermit { pool: self.clone(), caller: caller.clone() })
    }

    /// A permit, when there is one for this caller. A future that is dropped leaves the queue.
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

    /// A place in the queue; `None` if a permit has just become free.
    fn enqueue(&self, caller: &CallerKey) -> Option<Waiting<'_>> {
        let mut state = self.lock();
        let (held, waits) = state.callers.get(caller).map_or((0, false), Entry::standing);
        if !waits && self.may_hold_another(&state, held) {
            return None;
        }
        state.arrivals += 1;
        let number = state.arrivals;
        let (sender, granted) = oneshot::channel();
        state.callers.entry(caller.clone()).or_default().waiting.push_back((number, sender));
        Some(Waiting { pool: self, caller: caller.clone(), number, granted })
    }

    /// Takes one out of the queue that does not wait any more.
    fn leave(&self, caller: &CallerKey, number: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.callers.get_mut(caller)
            && let Ok(at) = entry.waiting.binary_search_by_key(&number, |(number, _)| *number)
        {
            entry.waiting.remove(at);
        }
        state.forget_if_idle(caller);
    }

    fn may_hold_another(&self, state: &State, held: usize) -> bool {
        let (free, share) = (self.0.capacity.saturating_sub(state.held), self.0.share.of(self.0.capacity));
        free > 0 && (held < share || free > share)
    }

    /// Takes a permit back, and grants what may be granted now.
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
            // One that has left meanwhile gives it back at once.
            drop(sender.send(permit));
        }
    }

    /// Grants to those that wait, as long as one of them may have a permit.
    fn grant_waiting(&self, state: &mut State) -> Vec<(oneshot::Sender<CallerPermit>, CallerPermit)> {
        let mut granted = Vec::new();
        while let Some(caller) = self.next_waiting(state) {
            let next = state.callers.get_mut(&caller).and_then(|entry| entry.waiting.pop_front());
            let Some((_, sender)) = next else { break };
            state.grant(&caller);
            granted.push((sender, CallerPermit { pool: self.clone(), caller }));
        }
        granted
    }

    /// The waiting caller that holds the fewest, of several the one that has waited longest.
    fn next_waiting(&self, state: &State) -> Option<CallerKey> {
        let waiting = state.callers.iter().filter_map(|(caller, entry)| {
            let (number, _) = entry.waiting.front()?;
            self.may_hold_another(state, entry.held).then_some(((entry.held, *number), caller))
        });
        waiting.min_by_key(|(order, _)| *order).map(|(_, caller)| caller.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

impl State {
    fn grant(&mut self, caller: &CallerKey) {
        self.held += 1;
        match self.callers.get_mut(caller) {
            Some(entry) => entry.held += 1,
            None => drop(self.callers.insert(caller.clone(), Entry { held: 1, ..Entry::default() })),
        }
    }

    fn forget_if_idle(&mut self, caller: &CallerKey) {
        if self.callers.get(caller).is_some_and(|entry| entry.standing() == (0, false)) {
            self.callers.remove(caller);
        }
    }
}

impl Entry {
    /// How many permits it holds, and whether somebody waits.
    fn standing(&self) -> (usize, bool) {
        (self.held, !self.waiting.is_empty())
    }
}

/// A place in the queue of a pool.
struct Waiting<'a> {
    pool: &'a CallerPool,
    caller: CallerKey,
    number: u64,
    granted: oneshot::Receiver<CallerPermit>,
}

impl Drop for Waiting<'_> {
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
