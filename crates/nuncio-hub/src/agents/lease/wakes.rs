//! Wakes who waits for a change: claims for a turn in their mailbox, heartbeats for a change of their lease.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The waiting ones, by the name that they wait for: a mailbox, or the key of a turn.
#[derive(Default)]
pub(in crate::agents) struct Wakes {
    waiting: Mutex<HashMap<String, Weak<Notify>>>,
}

/// A wait for changes of one name.
pub(in crate::agents) struct Wake {
    notify: Arc<Notify>,
}

impl Wakes {
    /// Waits for changes of this name from now on. Look after this, then wait.
    pub(in crate::agents) fn listen(&self, name: &str) -> Wake {
        let mut waiting = self.waiting.lock();
        if let Some(notify) = waiting.get(name).and_then(Weak::upgrade) {
            return Wake { notify };
        }
        waiting.retain(|_, notify| notify.strong_count() > 0);
        let notify = Arc::new(Notify::new());
        waiting.insert(name.to_owned(), Arc::downgrade(&notify));
        Wake { notify }
    }

    /// Wakes all who wait for this name.
    pub(in crate::agents) fn wake(&self, name: &str) {
        if let Some(notify) = self.waiting.lock().get(name).and_then(Weak::upgrade) {
            notify.notify_waiters();
        }
    }

    /// Wakes all.
    pub(in crate::agents) fn wake_all(&self) {
        self.waiting.lock().values().filter_map(Weak::upgrade).for_each(|notify| notify.notify_waiters());
    }
}

impl Wake {
    /// A future that is ready after the next change. A change after this call is not missed.
    pub(in crate::agents) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_change_between_look_and_wait_is_not_missed() {
        let wakes = Wakes::default();
        let wake = wakes.listen("coder");
        let changed = wake.changed();
        wakes.wake("other");
        wakes.wake("coder");
        assert!(changed.now_or_never().is_some());
        assert!(wake.changed().now_or_never().is_none());
    }
}
