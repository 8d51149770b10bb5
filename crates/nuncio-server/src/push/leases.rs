//! The webhooks that have a worker, so that a worker can be stopped.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

/// The workers by webhook.
#[derive(Default)]
pub(super) struct LeaseTable {
    workers: HashMap<Arc<str>, LeaseHandle>,
    /// True while a lease is requested: a webhook that is deleted meanwhile may be in the result.
    leasing: bool,
    /// The webhooks that were deleted or replaced during the lease.
    forgotten: HashSet<Arc<str>>,
    /// The webhooks that cannot be unsealed and were logged.
    unreadable: HashSet<Arc<str>>,
}

/// The maximum number of unreadable webhooks that are logged; more of them would say nothing new.
const MAX_LOGGED_UNREADABLE: usize = 10_000;

/// Handle to the worker of a webhook.
#[derive(Clone)]
pub(super) struct LeaseHandle {
    /// Tells the worker to stop.
    pub(super) over: CancellationToken,
    /// Cancelled when the worker has stopped: nothing more is sent.
    pub(super) ended: CancellationToken,
    /// Cancelled when the outcome is stored and the lease is released.
    pub(super) done: CancellationToken,
}

impl LeaseTable {
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Notes a webhook that cannot be unsealed; true if it is to be logged.
    pub(super) fn is_news(&mut self, uid: &Arc<str>) -> bool {
        self.unreadable.len() < MAX_LOGGED_UNREADABLE && self.unreadable.insert(Arc::clone(uid))
    }

    /// Marks the start of a lease; call it before asking the store.
    pub(super) fn begin_lease(&mut self) {
        self.leasing = true;
    }

    /// Marks the end of a lease; call it when all leased webhooks have their workers.
    pub(super) fn end_lease(&mut self) {
        self.leasing = false;
        self.forgotten.clear();
    }

    /// Registers a worker for a leased webhook. If [`Self::forget`] was called since it was leased, `over` is
    /// cancelled at once. Returns `None` if the webhook still has a worker: the store has applied its
    /// release, but the acknowledgement was lost. That worker keeps the webhook until the store acknowledges.
    pub(super) fn take(&mut self, uid: &Arc<str>, over: CancellationToken) -> Option<LeaseHandle> {
        if self.workers.get(uid).is_some_and(|hand| !hand.done.is_cancelled()) {
            return None;
        }
        let hand = LeaseHandle { over, ended: CancellationToken::new(), done: CancellationToken::new() };
        if self.forgotten.contains(uid) {
            hand.over.cancel();
        }
        self.workers.insert(Arc::clone(uid), hand.clone());
        Some(hand)
    }

    /// Removes an ended worker, unless the webhook was leased again meanwhile and has another one.
    pub(super) fn let_go(&mut self, uid: &str) {
        if self.workers.get(uid).is_some_and(|hand| hand.done.is_cancelled()) {
            self.workers.remove(uid);
        }
    }

    /// Stops the worker of a webhook, now or as soon as it starts; returns the token to wait for, if there is
    /// a worker.
    pub(super) fn forget(&mut self, uid: &Arc<str>) -> Option<CancellationToken> {
        if self.leasing {
            self.forgotten.insert(Arc::clone(uid));
        }
        let hand = self.workers.get(uid)?;
        hand.over.cancel();
        Some(hand.ended.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(leases: &mut LeaseTable) -> LeaseHandle {
        leases.take(&"w".into(), CancellationToken::new()).unwrap()
    }

    #[test]
    fn what_is_forgotten_while_it_is_leased_is_over_before_it_begins() {
        let mut leases = LeaseTable::default();
        leases.forget(&"w".into());
        leases.begin_lease();
        let first = take(&mut leases);
        assert!(!first.over.is_cancelled(), "it was leased after that");
        first.done.cancel();
        leases.end_lease();
        leases.begin_lease();
        leases.forget(&"w".into());
        let second = take(&mut leases);
        assert!(second.over.is_cancelled());
        second.done.cancel();
        leases.end_lease();
        leases.begin_lease();
        assert!(!take(&mut leases).over.is_cancelled(), "somebody has put it again");
    }

    #[test]
    fn a_webhook_that_is_leased_again_is_not_let_go_with_its_last_worker() {
        let mut leases = LeaseTable::default();
        let first = take(&mut leases);
        assert!(leases.take(&"w".into(), CancellationToken::new()).is_none(), "it is in hand");
        first.done.cancel();
        let second = take(&mut leases);
        leases.let_go("w");
        assert!(leases.forget(&"w".into()).is_some() && second.over.is_cancelled());
        second.done.cancel();
        leases.let_go("w");
        assert_eq!(leases.len(), 0);
    }
}
