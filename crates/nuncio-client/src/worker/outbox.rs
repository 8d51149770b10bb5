//! The lines of a lease that the hub does not have yet. Pure.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::Line;

/// Bytes of lines that are sent in one request, unless a single line has more.
const MAX_BODY: usize = 1 << 20;

/// Lines in one request.
const MAX_LINES: usize = 1000;

/// Lines with their numbers, from the first one that the hub does not have.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The number of the first line.
    first: u64,
    lines: VecDeque<Line>,
    /// The hub has stored a final line, or takes none any more.
    closed: bool,
    /// The maximum number of bytes of the next body.
    max_body: usize,
}

/// Lines to be sent: the number of the first one, and their text.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) first: u64,
    pub(super) lines: usize,
    pub(super) body: Bytes,
}

impl Outbox {
    /// The lines after those that the hub has already.
    pub(super) fn after(have: u64) -> Self {
        Self { first: have + 1, lines: VecDeque::new(), closed: false, max_body: MAX_BODY }
    }

    /// Adds a line; false if the hub takes no more.
    pub(super) fn push(&mut self, line: Line) -> bool {
        if !self.closed {
            self.lines.push_back(line);
        }
        !self.closed
    }

    /// The next lines to send.
    pub(super) fn batch(&self) -> Option<Batch> {
        let mut body = BytesMut::new();
        let mut lines = 0;
        for line in self.lines.iter().take(MAX_LINES) {
            if lines > 0 && body.len() + line.as_bytes().len() >= self.max_body {
                break;
            }
            body.extend_from_slice(line.as_bytes());
            body.extend_from_slice(b"\n");
            lines += 1;
        }
        (lines > 0).then(|| Batch { first: self.first, lines, body: body.freeze() })
    }

    /// Drops the lines that the hub has; false if it lacks lines that it had acknowledged.
    #[must_use]
    pub(super) fn stored(&mut self, have: u64) -> bool {
        if have + 1 < self.first {
            return false;
        }
        while self.first <= have && self.lines.pop_front().is_some() {
            self.first += 1;
        }
        self.max_body = MAX_BODY;
        true
    }

    /// Sends less at once; false if one line alone is too large.
    pub(super) fn shrink(&mut self, sent: &Batch) -> bool {
        self.max_body = sent.body.len() / 2;
        sent.lines > 1
    }

    /// Replaces this line and all after it: the hub cannot read it.
    pub(super) fn replace_from(&mut self, number: u64, end: Line) {
        let keep = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.lines.truncate(keep);
        self.lines.push_back(end);
    }

    /// Takes no more lines.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.lines.clear();
    }

    /// True if the hub has all lines.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(have: u64, lines: usize) -> Outbox {
        let mut outbox = Outbox::after(have);
        (0..lines).for_each(|number| assert!(outbox.push(Line::text(number.to_string()))));
        outbox
    }

    fn sent(outbox: &Outbox) -> Option<(u64, usize)> {
        outbox.batch().map(|batch| (batch.first, batch.lines))
    }

    /// The next body begins after the last line that the hub has, for any answer of the hub.
    #[test]
    fn lines_go_on_after_those_that_the_hub_has() {
        for (before, lines, have, expected) in [
            (0, 3, 0, Some((1, 3))),
            (0, 3, 2, Some((3, 1))),
            (0, 3, 3, None),
            // A repeated claim: the hub has lines of this lease.
            (5, 2, 6, Some((7, 1))),
            // An answer that came late.
            (5, 2, 5, Some((6, 2))),
        ] {
            let mut outbox = filled(before, lines);
            assert!(outbox.stored(have), "{before} {lines} {have}");
            assert_eq!(sent(&outbox), expected, "{before} {lines} {have}");
        }
        assert!(!filled(5, 2).stored(4), "line 5 was acknowledged and is gone");
    }

    #[test]
    fn a_body_that_is_too_large_is_sent_in_halves() {
        let mut outbox = filled(0, 4);
        let whole = outbox.batch().unwrap();
        assert!(outbox.shrink(&whole));
        assert_eq!(sent(&outbox), Some((1, 2)));
        let half = outbox.batch().unwrap();
        assert!(outbox.shrink(&half));
        let one = outbox.batch().unwrap();
        assert_eq!(one.lines, 1);
        assert!(!outbox.shrink(&one), "a line cannot be divided");
        assert!(outbox.stored(1));
        assert_eq!(sent(&outbox), Some((2, 3)), "what follows is sent as before");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_replaced_with_all_after_it() {
        let mut outbox = filled(2, 4);
        outbox.replace_from(4, Line::failed("no"));
        let batch = outbox.batch().unwrap();
        assert_eq!((batch.first, batch.lines), (3, 2));
        assert_eq!(batch.body, "{\"text\":\"0\"}\n{\"failed\":\"no\"}\n");
    }

    #[test]
    fn after_the_end_nothing_is_taken() {
        let mut outbox = filled(0, 2);
        outbox.close();
        assert!(!outbox.push(Line::working()) && outbox.is_empty() && outbox.batch().is_none());
    }
}
