//! A limit on large bodies in flight, because they are in memory.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The size in bytes above which a body counts as large.
pub(super) const LARGE: usize = 1 << 20;

/// The maximum number of large bodies in flight.
const MAX_LARGE_BODIES: usize = 8;

/// The maximum for one target, so that a target that hangs does not block all others.
const MAX_LARGE_BODIES_PER_TARGET: usize = 2;

pub(super) struct LargeBodies {
    all: Arc<Semaphore>,
    targets: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Default for LargeBodies {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_LARGE_BODIES)), targets: Mutex::default() }
    }
}

/// Permits of one large body in flight; released on drop.
pub(super) struct LargeBodyPermit {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl LargeBodies {
    /// Waits for the permits. The semaphores are never closed.
    pub(super) async fn enter(&self, target: &Arc<str>) -> LargeBodyPermit {
        let own = self.of(target).acquire_owned().await.ok();
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        LargeBodyPermit { _own: own, _all: all }
    }

    fn of(&self, target: &Arc<str>) -> Arc<Semaphore> {
        let mut targets = self.targets.lock();
        // Removes targets whose permits nobody holds or waits for.
        targets.retain(|_, places| Arc::strong_count(places) > 1);
        let own = targets
            .entry(Arc::clone(target))
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_LARGE_BODIES_PER_TARGET)));
        Arc::clone(own)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_target_has_few_places_and_all_together_a_few_more() {
        let large_bodies = LargeBodies::default();
        let enter = |target: String| large_bodies.enter(&target.into()).now_or_never();
        let first: Vec<_> = (0..MAX_LARGE_BODIES_PER_TARGET + 1).filter_map(|_| enter("a".into())).collect();
        assert_eq!(first.len(), MAX_LARGE_BODIES_PER_TARGET);
        let others: Vec<_> = (0..MAX_LARGE_BODIES).filter_map(|number| enter(format!("b{number}"))).collect();
        assert_eq!(others.len(), MAX_LARGE_BODIES - MAX_LARGE_BODIES_PER_TARGET);
        drop((first, others));
        assert!(enter("a".into()).is_some());
        assert_eq!(large_bodies.targets.lock().len(), 1, "those that are not used are forgotten");
    }
}
