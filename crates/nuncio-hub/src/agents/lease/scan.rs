//! The turn for a claim: the first one, in the order of arrival, that no earlier turn of its conversation precedes.

use std::collections::HashSet;

use nuncio_protocol::ContextId;

use super::row::{Owner, Stage, TurnRow};

/// The turns of a mailbox, seen one after the other from the oldest.
pub(in crate::agents) struct Scan {
    serial: bool,
    /// Conversations with an earlier turn.
    seen: HashSet<(Owner, ContextId)>,
}

/// A turn, for a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::agents) enum Found {
    /// It may be handed out.
    Free,
    /// A worker has it, or an earlier turn comes first.
    Busy,
}

impl Scan {
    pub(in crate::agents) fn new(serial: bool) -> Self {
        Self { serial, seen: HashSet::new() }
    }

    /// Looks at the next turn.
    pub(in crate::agents) fn next(&mut self, row: &TurnRow) -> Found {
        let is_first = !self.serial || self.seen.insert((row.owner.clone(), row.context.clone()));
        if is_first && row.stage == Stage::Waiting && !row.canceled { Found::Free } else { Found::Busy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::lease::rules::tests::row;

    #[test]
    fn turns_of_one_conversation_go_out_one_at_a_time() {
        use Stage::{Begun, Offered, Waiting};
        // Owner, context, stage; free in order, free without order.
        let cases = [
            ("a", "1", Begun, false, false),
            ("a", "1", Waiting, false, true),
            ("b", "1", Waiting, true, true),
            ("a", "2", Waiting, true, true),
            ("a", "2", Waiting, false, true),
            ("c", "1", Offered, false, false),
            ("c", "1", Waiting, false, true),
        ];
        for serial in [true, false] {
            let mut scan = Scan::new(serial);
            for (owner, context, stage, in_order, without) in cases {
                let owner = Owner { principal: Some(owner.into()), ..Owner::default() };
                let row = TurnRow { owner, context: context.into(), stage, ..row() };
                let free = if serial { in_order } else { without };
                let expected = if free { Found::Free } else { Found::Busy };
                assert_eq!(scan.next(&row), expected, "{row:?} {serial}");
            }
        }
    }

    #[test]
    fn a_canceled_turn_is_not_handed_out() {
        let row = TurnRow { canceled: true, ..row() };
        assert_eq!(Scan::new(true).next(&row), Found::Busy);
    }
}
