//! Timeouts of relayed answers: the first event, and the rest of an event that has begun.
//!
//! A stream may be silent for any time between events. An event that has begun has to end within the
//! timeout: a client would wait for the rest of it for ever. The first event of an answer, or the whole of
//! an answer that is no stream, has to arrive within the time to answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use super::relay_stream::Framing;

/// The part of an answer that has a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// The whole answer.
    Answer,
    /// The first event, and afterwards the rest of each event that has begun.
    First,
    /// The rest of each event that has begun.
    Rest,
}

/// Watches the events of one stream.
pub(super) struct Progress {
    due: Due,
    patience: Duration,
    position: Position,
    /// Runs while a part of the answer is due.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The position of the last byte within an event.
enum Position {
    Sse { line: Line, in_event: bool },
    Grpc { head: usize, length: [u8; 4], missing: usize },
}

/// The position of the last byte within a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Begins,
    /// A line feed here belongs to the line before.
    AfterReturn,
    Comment,
    Field,
}

impl Progress {
    pub(super) fn new(framing: Framing, due: Due, patience: Duration) -> Self {
        let position = match framing {
            Framing::Sse => Position::Sse { line: Line::Begins, in_event: false },
            Framing::Grpc => Position::Grpc { head: 0, length: [0; 4], missing: 0 },
        };
        let timer = (due != Due::Rest).then(|| Box::pin(sleep(patience)));
        Self { due, patience, position, timer }
    }

    /// Processes received data.
    pub(super) fn push(&mut self, data: &[u8]) {
        let (ended, in_event) = self.position.advance(data);
        match self.due {
            Due::Answer => return,
            Due::First if !ended => return,
            Due::First | Due::Rest => self.due = Due::Rest,
        }
        if !in_event {
            self.timer = None;
        } else if ended || self.timer.is_none() {
            self.timer = Some(Box::pin(sleep(self.patience)));
        }
    }

    /// Ready when a part of the answer is late.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Position {
    /// Advances over the data. Returns whether an event has ended in it, and whether it ends within an
    /// event.
    fn advance(&mut self, data: &[u8]) -> (bool, bool) {
        match self {
            Self::Sse { line, in_event } => {
                let ended = advance_lines(line, in_event, data);
                (ended, *in_event)
            }
            Self::Grpc { head, length, missing } => {
                let ended = advance_frames(head, length, missing, data);
                (ended, *head > 0)
            }
        }
    }
}

/// SSE: an empty line ends an event; comments stand between events.
fn advance_lines(line: &mut Line, in_event: &mut bool, mut data: &[u8]) -> bool {
    let mut ended = false;
    while let Some((&byte, rest)) = data.split_first() {
        data = rest;
        *line = match (*line, byte) {
            (Line::AfterReturn, b'\n') => Line::Begins,
            (Line::Begins | Line::AfterReturn, b'\n' | b'\r') => {
                ended |= std::mem::take(in_event);
                if byte == b'\r' { Line::AfterReturn } else { Line::Begins }
            }
            (Line::Begins | Line::AfterReturn, b':') => Line::Comment,
            (Line::Begins | Line::AfterReturn, _) => {
                *in_event = true;
                Line::Field
            }
            (Line::Comment | Line::Field, b'\n') => Line::Begins,
            (Line::Comment | Line::Field, b'\r') => Line::AfterReturn,
            (Line::Comment | Line::Field, _) => {
                // Skips the rest of the line in one step.
                let end = data.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(data.len());
                data = &data[end..];
                *line
            }
        };
    }
    ended
}

/// gRPC: a frame has a header of five bytes, with the length of the message.
fn advance_frames(head: &mut usize, length: &mut [u8; 4], missing: &mut usize, mut data: &[u8]) -> bool {
    let mut ended = false;
    while !data.is_empty() {
        if *head < 5 {
            // The first byte is the compression flag.
            if let Some(at) = head.checked_sub(1) {
                length[at] = data[0];
            }
            (*head, data) = (*head + 1, &data[1..]);
            *missing = u32::from_be_bytes(*length) as usize;
        } else {
            let taken = data.len().min(*missing);
            (*missing, data) = (*missing - taken, &data[taken..]);
        }
        if *head == 5 && *missing == 0 {
            (*head, ended) = (0, true);
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whatever pieces the bytes come, they end in the same place.
    fn check(framing: Framing, data: &[u8], expected: (bool, bool)) {
        for cut in 0..=data.len() {
            let mut position = Progress::new(framing, Due::Rest, Duration::MAX).position;
            let (first, second) = data.split_at(cut);
            let (before, _) = position.advance(first);
            let (after, in_event) = position.advance(second);
            assert_eq!((before || after, in_event), expected, "{:?} {cut}", String::from_utf8_lossy(data));
        }
    }

    #[tokio::test]
    async fn where_the_bytes_end() {
        for (text, ended, in_event) in [
            ("", false, false),
            (": note\n", false, false),
            (": note\n\n: note\r\n\r\n", false, false),
            (": not", false, false),
            ("d", false, true),
            ("data: x\n", false, true),
            ("data: x\r\n", false, true),
            ("data: x\n\n", true, false),
            ("data: x\r\n\r\n", true, false),
            ("data: x\r\r", true, false),
            ("data: x\n: note\n", false, true),
            ("data: x\n\nid: 7\n", true, true),
            ("data: x\n\n: note\n", true, false),
            ("\n\ndata:\n\n\n", true, false),
        ] {
            check(Framing::Sse, text.as_bytes(), (ended, in_event));
        }
        for (bytes, ended, in_event) in [
            (&[][..], false, false),
            (&[0], false, true),
            (&[0, 0, 0, 0], false, true),
            (&[0, 0, 0, 0, 0], true, false),
            (&[0, 0, 0, 0, 2], false, true),
            (&[0, 0, 0, 0, 2, 9], false, true),
            (&[0, 0, 0, 0, 2, 9, 9], true, false),
            (&[0, 0, 0, 0, 1, 9, 0, 0], true, true),
            (&[0, 0, 0, 0, 1, 9, 1, 0, 0, 0, 1, 9], true, false),
            (&[0, 0, 0, 1, 0, 9], false, true),
        ] {
            check(Framing::Grpc, bytes, (ended, in_event));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_in_time() {
        const TEST_TIMEOUT: Duration = Duration::from_secs(10);
        /// Each after a while that is long, but in time.
        async fn is_late(due: Due, pieces: &[&str]) -> bool {
            let mut progress = Progress::new(Framing::Sse, due, TEST_TIMEOUT);
            let mut late = false;
            for piece in pieces {
                progress.push(piece.as_bytes());
                tokio::time::advance(TEST_TIMEOUT * 2 / 3).await;
                late |= std::future::poll_fn(|cx| Poll::Ready(progress.poll_late(cx).is_ready())).await;
            }
            late
        }
        for (due, pieces, expected) in [
            (Due::Rest, &[": ping\n", ": ping\n", ": ping\n"][..], false),
            (Due::Rest, &["", "", "data: x\n\n", "", "", ""], false),
            (Due::Rest, &["data: ", "x\n\ndata: ", "y\n\ndata: ", "z\n\n"], false),
            (Due::Rest, &["data: ", "x", "y"], true),
            (Due::Rest, &["data: x\n\nda", "t", "a"], true),
            (Due::First, &[": ping\n", ": ping\n"], true),
            (Due::First, &["data: x\n\n", "", "", ""], false),
            (Due::First, &["data: x\n\n", "data", ": ", "x"], true),
            (Due::Answer, &["data: x\n\n", "", ""], true),
        ] {
            assert_eq!(is_late(due, pieces).await, expected, "{due:?} {pieces:?}");
        }
    }
}
