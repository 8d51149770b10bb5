//! The waiting turns that this server has in hand, of those that the store has. A waiting turn of our task that
//! is not among them was handed in by another server, or was left behind here; it is taken (`handed_in`).
//!
//! A turn is noted before it is stored, and until its beginning is committed or it is dropped.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// The ids of the turns.
#[derive(Default)]
pub(super) struct TurnsInHand {
    ids: Mutex<Ids>,
}

#[derive(Default)]
struct Ids {
    noted: HashSet<Arc<str>>,
    /// Those that went out of hand since the store was asked, while its answer is worked on: the answer may
    /// still have them.
    gone: Option<HashSet<Arc<str>>>,
}

/// A turn in hand, until this is dropped.
pub(super) struct TurnInHand {
    all: Arc<TurnsInHand>,
    pub(super) id: Arc<str>,
}

/// A look at the waiting turns of the store, until this is dropped.
pub(super) struct TurnsLook(Arc<TurnsInHand>);

impl TurnsInHand {
    /// Notes a turn; `None` if it is in hand already, or was when the store was asked.
    pub(super) fn note(self: &Arc<Self>, id: &Arc<str>) -> Option<TurnInHand> {
        let mut ids = self.ids.lock();
        let is_new =
            !ids.gone.as_ref().is_some_and(|gone| gone.contains(id)) && ids.noted.insert(Arc::clone(id));
        is_new.then(|| TurnInHand { all: Arc::clone(self), id: Arc::clone(id) })
    }

    /// The turns in hand. As long as the look lasts, those that go out of hand are not noted again. One look
    /// at a time.
    pub(super) fn look(self: &Arc<Self>) -> (TurnsLook, Vec<Arc<str>>) {
        let mut ids = self.ids.lock();
        ids.gone = Some(HashSet::new());
        (TurnsLook(Arc::clone(self)), ids.noted.iter().cloned().collect())
    }
}

impl Drop for TurnsLook {
    fn drop(&mut self) {
        self.0.ids.lock().gone = None;
    }
}

impl Drop for TurnInHand {
    fn drop(&mut self) {
        let mut ids = self.all.ids.lock();
        ids.noted.remove(&self.id);
        if let Some(gone) = &mut ids.gone {
            gone.insert(Arc::clone(&self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_was_in_hand_when_the_store_was_asked_is_not_taken_from_its_answer() {
        let turns: Arc<TurnsInHand> = Arc::default();
        let id = Arc::from("1");
        let first = turns.note(&id).unwrap();
        assert!(turns.note(&id).is_none());
        let (look, except) = turns.look();
        assert_eq!(except, [Arc::clone(&id)]);
        drop(first);
        assert!(turns.note(&id).is_none(), "the answer may have it as it was");
        drop(look);
        assert!(turns.note(&id).is_some());
        assert!(turns.look().1.is_empty(), "it was dropped at once");
    }
}
