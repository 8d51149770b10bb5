//! The rules for accepting a write, as pure functions.
//!
//! Every store reads the facts ([`TaskFacts`], [`ReservationFacts`]) under its own lock and calls this
//! module; none has rules of its own. The stores differ in this:
//!
//! | store | facts are read | the rule is also in SQL, as a condition of the write |
//! |---|---|---|
//! | memory | from its maps, under its lock | no |
//! | SQLite | by the one writer, in its transaction | no; only the uniqueness of ids and keys is checked by inserting them |
//! | PostgreSQL | `FOR UPDATE`, after a write was not accepted (`postgres/judge.rs`) | for entries, reservations and turns: `free_for!` |
//!
//! The SQL only ever accepts; the reason of a refusal always comes from this module. The check
//! `judge::every_write_is_judged_by_the_one_rule` shows that both agree: it tries every combination of facts
//! on every store. Records have a rule of their own, [`Expect::check`](super::Expect).

use nuncio_protocol::Seq;

use super::{RecordChange, Refused, StoreError};

/// The use of the key under which a turn is handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyUse {
    /// It has no answer.
    Free,
    /// It has the answer of the same send to the same task.
    Same,
    /// It has the answer, or the reservation, of another send.
    Other,
}

/// Accepted, or the reason of the refusal.
pub(super) type Judgement = Result<(), Refused>;

/// A task, as seen by the owner that wants to write to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskFacts {
    /// The number of its last entry.
    pub(super) seq: Seq,
    /// True if it is in the scope that the writer names.
    pub(super) in_scope: bool,
    /// True if the writer owns it.
    pub(super) is_mine: bool,
    /// True if it is in progress, or has a turn that waits to begin.
    pub(super) in_hand: bool,
    /// True if its state is terminal.
    pub(super) has_ended: bool,
}

impl TaskFacts {
    /// True if another owner holds it: no one else may write to it before it is adopted or taken.
    pub(super) fn is_held(&self) -> bool {
        self.in_hand && !self.is_mine
    }
}

/// A reservation, as seen by the owner that wants to use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservationFacts {
    /// True if it is in the scope that the writer names.
    pub(super) in_scope: bool,
    /// True if the writer made it.
    pub(super) is_mine: bool,
}

/// Checks an entry that creates a task; `existing` is the last number of the task with this id.
pub(super) fn creation(existing: Option<Seq>) -> Judgement {
    existing.map_or(Ok(()), |seq| Err(Refused::Version(seq)))
}

/// Checks an entry of an existing task.
pub(super) fn entry(task: Option<TaskFacts>, expected: Seq, take: bool) -> Judgement {
    let task = found(task)?;
    if task.is_held() && !take {
        return Err(Refused::Held);
    }
    if task.seq != expected || task.has_ended {
        return Err(Refused::Version(task.seq));
    }
    Ok(())
}

/// Checks a change of a turn.
pub(super) fn turn(task: Option<TaskFacts>) -> Judgement {
    if found(task)?.is_held() { Err(Refused::Held) } else { Ok(()) }
}

/// Checks a turn that is handed in to the owner of a task at which `waiting` turns wait. True if an earlier
/// attempt has stored it.
pub(super) fn hand_in(
    task: Option<TaskFacts>,
    key: KeyUse,
    waiting: usize,
    max_waiting: usize,
) -> Result<bool, Refused> {
    let task = found(task)?;
    match key {
        KeyUse::Same => return Ok(true),
        KeyUse::Other => return Err(Refused::KeyTaken),
        KeyUse::Free => {}
    }
    if task.has_ended {
        return Err(Refused::Version(task.seq));
    }
    if !task.is_held() {
        return Err(Refused::NotHeld);
    }
    if waiting >= max_waiting { Err(Refused::Full) } else { Ok(false) }
}

/// Checks an entry that creates the task of a reservation.
pub(super) fn reserved_creation(reservation: Option<ReservationFacts>, take: bool) -> Judgement {
    match reservation.filter(|reservation| reservation.in_scope) {
        None => Err(Refused::NotFound),
        Some(reservation) if !reservation.is_mine && !take => Err(Refused::Held),
        Some(_) => Ok(()),
    }
}

/// Checks the changes of records of an entry, each against what those before it leave. `version` finds the stored
/// version of a record, 0 for none.
pub(super) fn records(
    changes: &[RecordChange],
    mut version: impl FnMut(&RecordChange) -> Result<u64, StoreError>,
) -> Result<Judgement, StoreError> {
    let mut seen: Vec<(&RecordChange, u64)> = Vec::with_capacity(changes.len());
    for change in changes {
        let earlier = seen.iter().rfind(|(earlier, _)| earlier.name() == change.name());
        let found = match earlier {
            Some((_, found)) => *found,
            None => version(change)?,
        };
        if change.expect().check(found).is_err() {
            return Ok(Err(Refused::Record));
        }
        seen.push((change, change.version_after(found)));
    }
    Ok(Ok(()))
}

/// Checks an idempotency key for a task or for a reservation.
pub(super) fn key(is_taken: bool) -> Judgement {
    if is_taken { Err(Refused::KeyTaken) } else { Ok(()) }
}

/// A task of another scope counts as not found.
fn found(task: Option<TaskFacts>) -> Result<TaskFacts, Refused> {
    task.filter(|task| task.in_scope).ok_or(Refused::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: TaskFacts =
        TaskFacts { seq: Seq(2), in_scope: true, is_mine: false, in_hand: false, has_ended: false };

    #[test]
    fn the_first_reason_that_applies_is_told() {
        let held = TaskFacts { in_hand: true, ..FREE };
        let cases = [
            (None, Seq(2), false, Err(Refused::NotFound)),
            (Some(TaskFacts { in_scope: false, ..held }), Seq(9), true, Err(Refused::NotFound)),
            (Some(held), Seq(9), false, Err(Refused::Held)),
            (Some(held), Seq(9), true, Err(Refused::Version(Seq(2)))),
            (Some(held), Seq(2), true, Ok(())),
            (Some(TaskFacts { is_mine: true, ..held }), Seq(2), false, Ok(())),
            (Some(TaskFacts { has_ended: true, ..FREE }), Seq(2), true, Err(Refused::Version(Seq(2)))),
            (Some(FREE), Seq(2), false, Ok(())),
        ];
        for (task, expected, take, wanted) in cases {
            assert_eq!(entry(task, expected, take), wanted, "{task:?} {expected:?} {take}");
        }
        assert_eq!(turn(Some(held)), Err(Refused::Held));
        assert_eq!(turn(Some(FREE)), Ok(()));
    }

    #[test]
    fn a_turn_is_handed_in_where_another_owner_holds_the_task() {
        use KeyUse::{Free, Other, Same};
        let held = TaskFacts { in_hand: true, ..FREE };
        let mine = TaskFacts { is_mine: true, ..held };
        let ended = TaskFacts { has_ended: true, ..held };
        let cases = [
            (None, Same, 0, Err(Refused::NotFound)),
            (Some(TaskFacts { in_scope: false, ..held }), Same, 0, Err(Refused::NotFound)),
            (Some(held), Free, 0, Ok(false)),
            (Some(held), Free, 1, Ok(false)),
            (Some(held), Free, 2, Err(Refused::Full)),
            (Some(held), Other, 0, Err(Refused::KeyTaken)),
            (Some(mine), Free, 0, Err(Refused::NotHeld)),
            (Some(FREE), Free, 0, Err(Refused::NotHeld)),
            (Some(ended), Free, 0, Err(Refused::Version(Seq(2)))),
            // The same again, whatever has become of the task.
            (Some(held), Same, 2, Ok(true)),
            (Some(FREE), Same, 0, Ok(true)),
            (Some(ended), Same, 0, Ok(true)),
        ];
        for (task, key, waiting, wanted) in cases {
            assert_eq!(hand_in(task, key, waiting, 2), wanted, "{task:?} {key:?} {waiting}");
        }
    }
}
