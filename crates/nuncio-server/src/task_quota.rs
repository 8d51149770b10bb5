//! A quota of unfinished tasks per caller, over all agents that share it. Tasks that run, also in the
//! background, and tasks that wait to run count. A task that waits for its caller does not.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::CallerKey;

/// A limit on the unfinished tasks of each caller. Clones are one quota, for several agents.
#[derive(Clone, Debug, Default)]
pub struct TaskQuota(Arc<QuotaInner>);

#[derive(Debug, Default)]
struct QuotaInner {
    /// 0: no limit, and nothing is counted.
    max: AtomicU32,
    counts: Mutex<HashMap<CallerKey, u32, RandomState>>,
}

/// A counted task. It counts until this is dropped.
#[derive(Debug, Default)]
#[must_use = "a task counts for as long as this is kept"]
pub struct CountedTask(Option<(TaskQuota, CallerKey)>);

impl TaskQuota {
    /// A quota of this many tasks for each caller; 0 is no limit.
    #[must_use]
    pub fn new(max: u32) -> Self {
        let quota = Self::default();
        quota.set(max);
        quota
    }

    /// Changes the limit. Tasks that began while there was none do not count.
    pub fn set(&self, max: u32) {
        self.0.max.store(max, Ordering::Relaxed);
    }

    /// Counts a task that begins; `None` if the caller has reached the limit.
    pub(crate) fn begin(&self, caller: &CallerKey) -> Option<CountedTask> {
        let max = self.0.max.load(Ordering::Relaxed);
        if max == 0 {
            return Some(CountedTask::default());
        }
        let mut counts = self.counts();
        let count = counts.get(caller).copied().unwrap_or_default();
        if count >= max {
            return None;
        }
        counts.insert(caller.clone(), count + 1);
        Some(CountedTask(Some((self.clone(), caller.clone()))))
    }

    /// Counts a task that began before the server started. It continues even beyond the limit.
    pub(crate) fn resume(&self, caller: &CallerKey) -> CountedTask {
        if self.0.max.load(Ordering::Relaxed) == 0 {
            return CountedTask::default();
        }
        *self.counts().entry(caller.clone()).or_default() += 1;
        CountedTask(Some((self.clone(), caller.clone())))
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<CallerKey, u32, RandomState>> {
        self.0.counts.lock()
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        let Some((quota, caller)) = self.0.take() else { return };
        let mut counts = quota.counts();
        match counts.get_mut(&caller) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&caller)),
        }
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Caller;

    use super::*;

    fn caller(name: &str) -> CallerKey {
        CallerKey::from(&Caller::authenticated(name))
    }

    #[test]
    fn each_caller_has_so_many_and_no_more() {
        let quota = TaskQuota::new(2);
        let begin = |who: &str| quota.begin(&caller(who));
        let held = [begin("ann"), begin("ann")].map(Option::unwrap);
        assert!(begin("ann").is_none());
        assert!(begin("bob").is_some(), "others are not concerned");
        let resumed = quota.resume(&caller("ann"));
        drop(held);
        assert!(begin("ann").is_some(), "one of two");
        drop(resumed);
        assert!(quota.counts().is_empty(), "nobody is remembered");
    }

    #[test]
    fn what_began_without_a_bound_does_not_count() {
        let quota = TaskQuota::default();
        let (before, resumed) = (quota.begin(&caller("ann")), quota.resume(&caller("ann")));
        quota.set(1);
        let one = quota.begin(&caller("ann"));
        assert!(one.is_some());
        drop((before, resumed));
        assert!(quota.begin(&caller("ann")).is_none(), "nor is it given back");
        quota.set(0);
        assert!(quota.begin(&caller("ann")).is_some());
    }
}
