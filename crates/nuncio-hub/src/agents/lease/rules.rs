//! The life of a turn, as pure functions of its row and the time.

use std::time::Duration;

use super::row::{LeaseId, Stage, TurnRow};
use crate::config::{Mailbox, Serial};

/// The settings that decide about turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::agents) struct Rules {
    /// The time for which a turn waits for a worker.
    pub(in crate::agents) wait: Duration,
    /// The time after which a silent worker loses its lease.
    pub(in crate::agents) lease: Duration,
    pub(in crate::agents) max_attempts: u32,
    /// A turn that had begun may be offered again.
    pub(in crate::agents) redeliver: bool,
    /// Turns of one conversation are handed out one at a time.
    pub(in crate::agents) serial: bool,
}

impl From<&Mailbox> for Rules {
    fn from(settings: &Mailbox) -> Self {
        let Mailbox { wait, lease, max_attempts, redeliver, serial, .. } = *settings;
        Self { wait, lease, max_attempts, redeliver, serial: serial == Serial::Context }
    }
}

/// The step that is due for a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::agents) enum Due {
    /// No worker came in time: the task fails.
    Unclaimed,
    /// The turn is offered again.
    Return,
    /// The worker was lost after it had begun: the task fails.
    Lost,
    /// The turn was offered too often: the task fails, and operators are told.
    Poison,
}

impl TurnRow {
    /// The step that is due at this time. `grace` is the time before which no lease ends, because the hub could not be
    /// reached until a while before.
    pub(in crate::agents) fn due(&self, rules: &Rules, now: i64, grace: i64) -> Option<Due> {
        match self.stage {
            Stage::Waiting => (self.deadline <= now).then_some(Due::Unclaimed),
            Stage::Offered | Stage::Begun => {
                (self.expires.max(grace) <= now).then(|| self.after_lease(rules))
            }
        }
    }

    /// The step that follows the end of the lease, if that is not the worker's own.
    pub(in crate::agents) fn after_lease(&self, rules: &Rules) -> Due {
        let may_repeat = self.stage != Stage::Begun || rules.redeliver || self.has_memo();
        if !may_repeat {
            Due::Lost
        } else if self.attempt >= rules.max_attempts {
            Due::Poison
        } else {
            Due::Return
        }
    }

    /// True if a worker left a memo in this turn, with which another can go on.
    fn has_memo(&self) -> bool {
        self.memo.as_ref().is_some_and(|memo| memo.value.is_some())
    }

    /// Gives the turn to a worker.
    pub(in crate::agents) fn offer(&mut self, holder: &str, claim: Option<&str>, rules: &Rules, now: i64) {
        self.stage = Stage::Offered;
        self.generation += 1;
        self.attempt += 1;
        self.holder = Some(holder.to_owned());
        self.claim = claim.map(str::to_owned);
        self.have = 0;
        self.open_text = false;
        self.renew(rules, now);
    }

    /// Lets the lease go on.
    pub(in crate::agents) fn renew(&mut self, rules: &Rules, now: i64) {
        self.expires = now.saturating_add(millis(rules.lease));
    }

    /// Lets the turn wait again.
    pub(in crate::agents) fn put_back(&mut self, rules: &Rules, now: i64) {
        self.resumed |= self.stage == Stage::Begun;
        self.stage = Stage::Waiting;
        (self.holder, self.claim, self.expires) = (None, None, 0);
        self.deadline = now.saturating_add(millis(rules.wait));
    }

    /// Takes the turn back from a worker that has not begun; the offer does not count.
    pub(in crate::agents) fn hand_back(&mut self, rules: &Rules, now: i64) {
        self.attempt = self.attempt.saturating_sub(1);
        self.put_back(rules, now);
    }

    /// True if this lease holds the turn.
    pub(in crate::agents) fn is_held_by(&self, lease: &LeaseId) -> bool {
        self.stage != Stage::Waiting && self.generation == lease.generation
    }
}

pub(in crate::agents) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::agents::lease::row::{NewMemo, Owner, TurnId};

    pub(in crate::agents::lease) fn row() -> TurnRow {
        TurnRow {
            owner: Owner::default(),
            task: "t".into(),
            context: "c".into(),
            message: 1,
            repeat: "r".to_owned(),
            stage: Stage::Waiting,
            arrived: 0,
            deadline: 1_000_000,
            generation: 0,
            attempt: 0,
            holder: None,
            claim: None,
            expires: 0,
            rest: None,
            have: 0,
            open_text: false,
            resumed: false,
            canceled: false,
            memo: None,
            trace: None,
            has_call: false,
        }
    }

    fn rules() -> Rules {
        Rules { wait: Duration::from_secs(1000), ..Rules::from(&Mailbox::default()) }
    }

    #[test]
    fn every_end_of_a_wait_and_of_a_lease() {
        use Stage::{Begun, Offered, Waiting};
        let memo = || Some(NewMemo { value: Some(serde_json::json!({"task": 1})) });
        for (stage, attempt, redeliver, memo, now, expected) in [
            (Waiting, 0, false, None, 999_999, None),
            (Waiting, 0, false, None, 1_000_000, Some(Due::Unclaimed)),
            (Offered, 1, false, None, 60_000, None),
            (Offered, 1, false, None, 61_000, Some(Due::Return)),
            (Offered, 2, false, None, 61_000, Some(Due::Return)),
            (Offered, 3, false, None, 61_000, Some(Due::Poison)),
            (Begun, 1, false, None, 60_000, None),
            (Begun, 1, false, None, 61_000, Some(Due::Lost)),
            (Begun, 3, false, None, 61_000, Some(Due::Lost)),
            (Begun, 1, true, None, 61_000, Some(Due::Return)),
            (Begun, 3, true, None, 61_000, Some(Due::Poison)),
            (Begun, 1, false, memo(), 61_000, Some(Due::Return)),
            (Begun, 3, false, memo(), 61_000, Some(Due::Poison)),
            (Begun, 1, false, Some(NewMemo { value: None }), 61_000, Some(Due::Lost)),
        ] {
            let row = TurnRow { stage, attempt, memo, expires: 61_000, ..row() };
            let due = row.due(&Rules { redeliver, ..rules() }, now, 0);
            assert_eq!(due, expected, "{row:?} {redeliver} {now}");
        }
    }

    #[test]
    fn after_the_start_of_a_hub_a_lease_has_some_time_left() {
        let row = TurnRow { stage: Stage::Offered, expires: 10, ..row() };
        assert_eq!(row.due(&rules(), 100, 200), None);
        assert_eq!(row.due(&rules(), 200, 200), Some(Due::Return));
    }

    #[test]
    fn each_offer_is_another_lease_and_a_release_is_no_attempt() {
        let rules = rules();
        let turn = TurnId::now();
        let lease = |generation| LeaseId { turn, generation };
        let mut row = row();
        row.offer("w1", Some("k"), &rules, 5);
        assert_eq!((row.generation, row.attempt, row.expires), (1, 1, 60_005));
        assert!(row.is_held_by(&lease(1)) && !row.is_held_by(&lease(2)));
        row.hand_back(&rules, 6);
        assert_eq!((row.stage, row.attempt, row.resumed), (Stage::Waiting, 0, false));
        assert!(!row.is_held_by(&lease(1)), "a lease that was handed back is over");
        row.offer("w2", None, &rules, 7);
        (row.stage, row.have, row.open_text) = (Stage::Begun, 4, true);
        row.put_back(&rules, 8);
        assert_eq!((row.attempt, row.resumed, row.deadline), (1, true, 1_000_008));
        row.offer("w3", None, &rules, 9);
        assert_eq!((row.generation, row.attempt, row.have, row.open_text), (3, 2, 0, false));
    }
}
