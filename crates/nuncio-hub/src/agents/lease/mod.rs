//! Leases: work that waits as a row until a worker takes it, for a time, and gives its answer in numbered lines.
//!
//! ```text
//!            claim              first line             last line
//! WAITING ──────────► OFFERED ─────────────► BEGUN ─────────────► (gone; a tombstone for repeats)
//!    ▲                   │ expires, released    │ expires, and may be repeated
//!    └───────────────────┴──────────────────────┘          otherwise the task fails
//! ```
//! Reading order: `row` is a turn of a task as it is stored, `rules` decides over values, `scan` finds the turn for a
//! claim, `book` reads and writes rows, `wakes` wakes who waits for one. `agents/mailbox` serves them to workers.
//!
//! **Invariant:** a turn is one record, and every change of it is a compare-and-set. A line of a worker is one
//! transaction with the row that it changes, so that a lease that is over writes nothing (decision 0015).

mod book;
mod row;
mod rules;
mod scan;
mod wakes;

pub(super) use self::{
    book::{Book, FIRST_PAGE, Kept, PAGE, Poison, Tombstone, TurnPage, changes, key, now_millis},
    row::{CallData, LeaseId, NewMemo, Owner, Stage, Trace, TurnId, TurnRow},
    rules::{Due, Rules, millis},
    scan::{Found, Scan},
    wakes::Wakes,
};
