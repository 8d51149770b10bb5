//! Totals of lists: counted up to a number of tasks, and estimated from their times beyond it.
//!
//! ```text
//! first            oldest                newest
//!   ├─── estimated ───┼───── counted ──────┤      time of the status
//! ```
//! The newest tasks are counted, one index entry each. The rest is estimated: where the number of all tasks is
//! known, as the part of the rest that is not too old; otherwise with as many tasks in the same time.

/// The newest tasks of a range of an index, as many as were counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedTasks {
    /// The number of tasks that were looked at.
    pub(crate) looked: usize,
    /// The number of those that match the whole query.
    pub(crate) matches: usize,
    /// The times of the newest and the oldest one.
    pub(crate) newest: i64,
    pub(crate) oldest: i64,
}

impl CountedTasks {
    /// Estimates the matches since a time, of `all` tasks of which the first is of the time `first`.
    pub(crate) fn of_all(self, all: usize, first: i64, since: i64) -> usize {
        if since <= first {
            return all.max(self.looked);
        }
        let rest = all.saturating_sub(self.looked);
        self.looked + scaled(rest, span(since, self.oldest), span(first, self.oldest))
    }

    /// Estimates the matches in a range whose first task is of the time `first`; they are at most `all`.
    pub(crate) fn of_range(self, all: usize, first: i64) -> usize {
        let more = scaled(self.matches, span(first, self.oldest), span(self.oldest, self.newest));
        self.matches.saturating_add(more).min(all.max(self.matches))
    }
}

/// The length of a time; at least one, so that tasks of one moment are not infinitely dense.
fn span(from: i64, to: i64) -> u64 {
    u64::try_from(i128::from(to) - i128::from(from)).unwrap_or_default().max(1)
}

fn scaled(number: usize, part: u64, whole: u64) -> usize {
    let scaled = number as u128 * u128::from(part) / u128::from(whole);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: CountedTasks =
        CountedTasks { looked: 1_000, matches: 1_000, newest: 5_000, oldest: 4_000 };

    #[test]
    fn the_rest_is_estimated_by_time() {
        // 5,000 tasks from 0 to 5,000, one at a time.
        for (since, wanted) in [(-1, 5_000), (0, 5_000), (1_000, 4_000), (3_999, 1_001), (i64::MIN, 5_000)] {
            assert_eq!(COUNTED.of_all(5_000, 0, since), wanted, "{since}");
        }
        // Fewer than were counted: the counters are behind.
        assert_eq!(COUNTED.of_all(900, 0, 2_000), 1_000);
        for (matches, first, all, wanted) in
            [(1_000, 0, 9_000, 5_000), (10, 0, 9_000, 50), (1_000, 0, 2_000, 2_000), (0, 0, 9_000, 0)]
        {
            let counted = CountedTasks { matches, ..COUNTED };
            assert_eq!(counted.of_range(all, first), wanted, "{matches} {first} {all}");
        }
        let burst = CountedTasks { oldest: 5_000, ..COUNTED };
        assert_eq!(burst.of_range(7_000, 0), 7_000, "of one moment: at most all");
        assert_eq!(burst.of_all(7_000, 5_000, 5_000), 7_000);
        let ends = CountedTasks { newest: i64::MAX, oldest: i64::MIN, ..COUNTED };
        assert_eq!((ends.of_range(9_000, i64::MIN), ends.of_all(9_000, i64::MIN, 0)), (1_000, 9_000));
    }
}
