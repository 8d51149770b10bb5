//! The index of settled tasks for lists: newest status first, then by id, descending.

use std::{cmp::Ordering, collections::BTreeSet};

use nuncio_protocol::{ContextId, TaskId, TaskState, Timestamp};

use crate::store::{Keyset, TaskQuery};

/// Sets in ascending order, read backwards.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_time: BTreeSet<(Timestamp, TaskId)>,
    by_state: BTreeSet<(TaskState, Timestamp, TaskId)>,
    by_context: BTreeSet<(ContextId, Timestamp, TaskId, TaskState)>,
    /// The number of tasks in each state.
    counts: [usize; TaskState::ALL.len()],
}

/// The order of the list.
pub(super) fn order(a: &Keyset, b: &Keyset) -> Ordering {
    (b.timestamp, &b.id).cmp(&(a.timestamp, &a.id))
}

/// True if `place` comes after `cursor` in the list.
pub(super) fn comes_after(place: &Keyset, cursor: &Keyset) -> bool {
    order(cursor, place) == Ordering::Less
}

impl Index {
    pub(super) fn insert(&mut self, id: &TaskId, context_id: &ContextId, at: Timestamp, state: TaskState) {
        self.by_time.insert((at, id.clone()));
        self.by_state.insert((state, at, id.clone()));
        self.by_context.insert((context_id.clone(), at, id.clone(), state));
        self.counts[state as usize] += 1;
    }

    pub(super) fn remove(&mut self, id: &TaskId, context_id: &ContextId, at: Timestamp, state: TaskState) {
        self.by_time.remove(&(at, id.clone()));
        self.by_state.remove(&(state, at, id.clone()));
        self.by_context.remove(&(context_id.clone(), at, id.clone(), state));
        self.counts[state as usize] -= 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// The tasks in this state with a status before this time, oldest first.
    pub(super) fn oldest(
        &self,
        state: TaskState,
        before: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, &TaskId)> {
        let from = (state, Timestamp::MIN, TaskId::default());
        let to = (state, before, TaskId::default());
        self.by_state.range(from..to).map(|(_, at, id)| (*at, id))
    }

    /// The number of tasks that match the filters; the cursor is ignored.
    pub(super) fn count(&self, query: &TaskQuery) -> usize {
        match (&query.context_id, query.since, query.state) {
            (None, None, None) => self.by_time.len(),
            (None, None, Some(state)) => self.counts[state as usize],
            _ => self.page(&TaskQuery { after: None, ..query.clone() }).count(),
        }
    }

    /// The matching positions after the query's cursor, in the order of the list. Reads only the range of the
    /// index that the narrowest filter leaves.
    pub(super) fn page<'a>(&'a self, query: &'a TaskQuery) -> Box<dyn Iterator<Item = Keyset> + 'a> {
        let low = (query.since.unwrap_or(Timestamp::MIN), TaskId::default());
        let high = match &query.after {
            Some(after) => (after.timestamp, after.id.clone()),
            None => (Timestamp::MAX, TaskId::default()),
        };
        if low >= high {
            return Box::new(std::iter::empty());
        }
        let place = |timestamp: &Timestamp, id: &TaskId| Keyset { timestamp: *timestamp, id: id.clone() };
        match (&query.context_id, query.state) {
            (Some(context), state) => {
                let bound = |(at, id): (Timestamp, TaskId)| (context.clone(), at, id, TaskState::Unspecified);
                let entries = self.by_context.range(bound(low)..bound(high)).rev();
                let entries =
                    entries.filter(move |(.., actual)| state.is_none_or(|wanted| wanted == *actual));
                Box::new(entries.map(move |(_, at, id, _)| place(at, id)))
            }
            (None, Some(state)) => {
                let entries = self.by_state.range((state, low.0, low.1)..(state, high.0, high.1)).rev();
                Box::new(entries.map(move |(_, at, id)| place(at, id)))
            }
            (None, None) => Box::new(self.by_time.range(low..high).rev().map(move |(at, id)| place(at, id))),
        }
    }
}
