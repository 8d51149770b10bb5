//! Checks that every store applies the rules of `judge`, for every combination of facts.

use std::sync::Arc;

use nuncio_protocol::{Seq, TaskState};

use super::{Handles, Writer, commit_one, opening, owner::turn, reserve::reservation, scope, works};
use crate::store::{
    Commit, HandIn, Store, TurnChange,
    judge::{self, KeyUse, ReservationFacts, TaskFacts},
};

/// The condition of a task before the write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    InProgress,
    AtRest,
    /// At rest, with a turn that waits to begin.
    Waiting,
    Ended,
}

/// One combination of facts, and its task.
struct Case {
    id: String,
    is_mine: bool,
    condition: Condition,
    in_scope: bool,
    /// The difference between the expected number and the last one.
    off: i64,
    take: bool,
}

const BOTH: [bool; 2] = [false, true];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for condition in [Condition::InProgress, Condition::AtRest, Condition::Waiting, Condition::Ended] {
        for (is_mine, in_scope, take) in combinations() {
            for off in [-1, 0, 1] {
                let id = format!("t-{}", cases.len());
                cases.push(Case { id, is_mine, condition, in_scope, off, take });
            }
        }
    }
    cases
}

fn combinations() -> impl Iterator<Item = (bool, bool, bool)> {
    BOTH.into_iter()
        .flat_map(|a| BOTH.into_iter().flat_map(move |b| BOTH.into_iter().map(move |c| (a, b, c))))
}

/// Creates the task of a case; returns the number of its last entry.
async fn prepare(store: &Arc<dyn Store>, case: &Case) -> Seq {
    let mut writer = Writer::create(store, &scope("ann"), &case.id, "c-1", 1).await;
    writer.status(TaskState::Working, 2).await;
    match case.condition {
        Condition::InProgress => {}
        Condition::AtRest | Condition::Waiting => writer.status(TaskState::InputRequired, 3).await,
        Condition::Ended => writer.status(TaskState::Completed, 3).await,
    }
    if case.condition == Condition::Waiting {
        let queued = store.update_turn(&writer.scope, &writer.task.id, TurnChange::Queue(turn("1"))).await;
        assert_eq!(works(queued), Ok(()));
    }
    writer.seq
}

/// Entries, turns and creations from a reservation, in every combination of scope, owner, condition, number
/// and take-over: each store agrees with `judge`.
pub async fn every_write_is_judged_by_the_one_rule<H: Handles>(handles: &H) {
    let (cases, mut last) = (cases(), Vec::new());
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    for case in cases.iter().filter(|case| !case.is_mine) {
        prepare(&store, case).await;
    }
    for (number, (_, is_mine, take)) in combinations().enumerate().filter(|(_, (_, is_mine, _))| !is_mine) {
        let reserved = store.reserve(reservation(&scope("ann"), &format!("r-{number}"), None)).await;
        assert_eq!(works(reserved), Ok(()), "{is_mine} {take}");
    }
    drop(store);
    handles.die(gone).await;
    let store: Arc<dyn Store> = handles.open().await;
    for case in &cases {
        last.push(match case.is_mine {
            true => prepare(&store, case).await,
            false => Seq(if case.condition == Condition::InProgress { 2 } else { 3 }),
        });
    }
    for (case, seq) in cases.iter().zip(last) {
        let facts = TaskFacts {
            seq,
            in_scope: case.in_scope,
            is_mine: case.is_mine,
            in_hand: matches!(case.condition, Condition::InProgress | Condition::Waiting),
            has_ended: case.condition == Condition::Ended,
        };
        let scope = scope(if case.in_scope { "ann" } else { "bob" });
        let told = format!("{facts:?}, off by {}, taken: {}", case.off, case.take);
        // First a change that has no effect if it is accepted: deleting a missing turn.
        let dropped =
            store.update_turn(&scope, &case.id.as_str().into(), TurnChange::Drop("none".into())).await;
        assert_eq!(works(dropped), judge::turn(Some(facts)), "a turn: {told}");
        let name = super::key(&case.id, 1);
        let turn = HandIn { turn: turn("9"), key: name, at: super::at(1), max_waiting: 9 };
        let verdict = judge::hand_in(Some(facts), KeyUse::Free, 0, 9).map(drop);
        let handed = store.hand_in(&scope, &case.id.as_str().into(), turn).await;
        assert_eq!(works(handed), verdict, "a turn that is handed in: {told}");
        let writer = Writer::open(&store, &scope, super::creation(&case.id, "c-1", 1), seq);
        let entry = Commit {
            expected: Seq(seq.0.saturating_add_signed(case.off)),
            event: Arc::new(writer.chunk_event("a", "x")),
            take: case.take,
            ..opening(&scope, &case.id, None)
        };
        let verdict = judge::entry(Some(facts), entry.expected, entry.take);
        assert_eq!(commit_one(&*store, entry).await, verdict, "an entry: {told}");
    }
    for (number, (in_scope, is_mine, take)) in combinations().enumerate() {
        let id = format!("r-{number}");
        if is_mine {
            assert_eq!(works(store.reserve(reservation(&scope("ann"), &id, None)).await), Ok(()));
        }
        let scope = scope(if in_scope { "ann" } else { "bob" });
        let verdict = judge::reserved_creation(Some(ReservationFacts { in_scope, is_mine }), take);
        let entry = Commit { take, ..opening(&scope, &id, None) }.attach(|with| with.reserved = true);
        let told = format!("in scope: {in_scope}, mine: {is_mine}, taken: {take}");
        assert_eq!(commit_one(&*store, entry).await, verdict, "a creation by a reservation: {told}");
    }
}
