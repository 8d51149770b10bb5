//! The most recent handled deliveries, and those being handled.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use super::{Rejected, proof::Sender};

/// A delivery by its id, separate for each sender.
type Key = Arc<(Sender, String)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A receipt exists and is not done.
    Pending,
    Done,
}

/// The deliveries of a receiver.
pub(super) struct SeenDeliveries {
    /// Maximum number of handled deliveries to remember.
    max_entries: usize,
    /// Never held across an await.
    state: Mutex<SeenState>,
}

#[derive(Default)]
struct SeenState {
    stages: HashMap<Key, Stage>,
    /// Handled deliveries, the oldest first.
    done: VecDeque<Key>,
}

impl SeenDeliveries {
    pub(super) fn new(max_entries: usize) -> Self {
        Self { max_entries, state: Mutex::default() }
    }

    /// Claims a delivery. A delivery without an id is always new.
    pub(super) fn claim(self: &Arc<Self>, sender: Sender, id: Option<&str>) -> Result<Receipt, Rejected> {
        let Some(id) = id.filter(|_| self.max_entries > 0) else { return Ok(Receipt { claimed: None }) };
        let key: Key = Arc::new((sender, id.to_owned()));
        let mut state = self.state();
        match state.stages.get(&key) {
            Some(Stage::Pending) => Err(Rejected::InProgress(id.to_owned())),
            Some(Stage::Done) => Err(Rejected::Duplicate(id.to_owned())),
            None => {
                state.stages.insert(Arc::clone(&key), Stage::Pending);
                Ok(Receipt { claimed: Some((Arc::clone(self), key)) })
            }
        }
    }

    fn done(&self, key: Key) {
        let mut state = self.state();
        state.stages.insert(Arc::clone(&key), Stage::Done);
        state.done.push_back(key);
        while state.done.len() > self.max_entries {
            if let Some(oldest) = state.done.pop_front() {
                state.stages.remove(&oldest);
            }
        }
    }

    fn forget(&self, key: &Key) {
        self.state().stages.remove(key);
    }

    fn state(&self) -> MutexGuard<'_, SeenState> {
        self.state.lock()
    }
}

/// A delivery that is being handled. While it exists, the same delivery is answered with a conflict; after
/// [`done`](Self::done), as a duplicate. If it is dropped before, the delivery is accepted again.
#[must_use = "dropped, the same delivery is handed over again"]
pub struct Receipt {
    claimed: Option<(Arc<SeenDeliveries>, Key)>,
}

impl Receipt {
    /// Marks the delivery as handled.
    pub fn done(mut self) {
        if let Some((seen, key)) = self.claimed.take() {
            seen.done(key);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some((seen, key)) = self.claimed.take() {
            seen.forget(&key);
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.claimed.as_ref().map(|(_, key)| &key.1)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(seen: &Arc<SeenDeliveries>, id: &str) -> Result<Receipt, Rejected> {
        seen.claim(Sender::default(), Some(id))
    }

    #[test]
    fn a_delivery_is_handled_once_and_not_before_it_is_done() {
        let seen = Arc::new(SeenDeliveries::new(10));
        let first = claim(&seen, "d-1").unwrap();
        assert_eq!(claim(&seen, "d-1").unwrap_err(), Rejected::InProgress("d-1".into()));
        drop(first);
        let again = claim(&seen, "d-1").unwrap();
        again.done();
        assert_eq!(claim(&seen, "d-1").unwrap_err(), Rejected::Duplicate("d-1".into()));
        assert!(claim(&seen, "d-2").is_ok());
    }

    #[test]
    fn the_last_deliveries_are_remembered() {
        let seen = Arc::new(SeenDeliveries::new(2));
        let held = claim(&seen, "held").unwrap();
        for id in ["1", "2", "3"] {
            claim(&seen, id).unwrap().done();
        }
        let is_known = |id: &str| claim(&seen, id).is_err();
        assert_eq!(["1", "2", "3", "held"].map(is_known), [false, true, true, true]);
        drop(held);
        assert_eq!(seen.state().stages.len(), 2);
        assert_eq!(seen.state().done.len(), 2);
    }

    #[test]
    fn without_an_id_or_a_memory_all_is_new() {
        let seen = Arc::new(SeenDeliveries::new(10));
        seen.claim(Sender::default(), None).unwrap().done();
        assert!(seen.claim(Sender::default(), None).is_ok());
        let forgetful = Arc::new(SeenDeliveries::new(0));
        claim(&forgetful, "d-1").unwrap().done();
        assert!(claim(&forgetful, "d-1").is_ok());
    }
}
