//! The webhooks that are in hand, so that what is on its way to one can be stopped.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

/// Who serves which webhook.
#[derive(Default)]
pub(super) struct LeaseTable {
    workers: HashMap<Arc<str>, LeaseHandle>,
    /// A lease is under way: what is forgotten now may be in it.
    leasing: bool,
    /// What was forgotten during the lease.
    forgotten: HashSet<Arc<str>>,
    /// What cannot be read, as far as it was told.
    unreadable: HashSet<Arc<str>>,
}

/// So many are told that cannot be read; it is the same with those beyond.
const MOST_UNREADABLE: usize = 10_000;

/// A worker, as others see it.
#[derive(Clone)]
pub(super) struct LeaseHandle {
    /// It is to stop.
    pub(super) over: CancellationToken,
    /// It has: nothing more is sent.
    pub(super) ended: CancellationToken,
    /// What became of the webhook is written down, and it is out of hand.
    pub(super) done: CancellationToken,
}

impl LeaseTable {
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Notes a webhook that cannot be read; true if that is to be told.
    pub(super) fn is_news(&mut self, uid: &Arc<str>) -> bool {
        self.unreadable.len() < MOST_UNREADABLE && self.unreadable.insert(Arc::clone(uid))
    }

    /// To be said before the store is asked.
    pub(super) fn begin_lease(&mut self) {
        self.leasing = true;
    }

    /// To be said when all that was leased has been taken.
    pub(super) fn end_lease(&mut self) {
        self.leasing = false;
        self.forgotten.clear();
    }

    /// A webhook has a worker from now on. If it was forgotten since it was leased, that worker is over before
    /// it begins. `None` if it has one already: the store was told that it is free, and the answer was lost. It
    /// stays in hand until the store has answered.
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

    /// A worker has ended. The webhook may have been leased again before this is known: then it has another.
    pub(super) fn let_go(&mut self, uid: &str) {
        if self.workers.get(uid).is_some_and(|hand| hand.done.is_cancelled()) {
            self.workers.remove(uid);
        }
    }

    /// Stops the worker of a webhook, now or as soon as it has one; to be waited for, if it has one.
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
