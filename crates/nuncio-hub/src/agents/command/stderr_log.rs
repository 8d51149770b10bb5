//! Standard error of a program: logged line by line; its last lines are the reason when the program fails.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use nuncio_protocol::TaskId;
use parking_lot::Mutex;
use tokio::{
    io::AsyncReadExt as _,
    process::ChildStderr,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of a line that are kept.
const LINE: usize = 1000;

/// Lines per second that are logged.
const LINES_A_SECOND: u32 = 50;

/// Lines and bytes of a failure reason.
const REASON_LINES: usize = 10;
const REASON: usize = 2000;

/// Reads the standard error of a program.
pub(super) struct StderrLog {
    last: Arc<Mutex<Last>>,
    listening: AbortOnDropHandle<()>,
}

impl StderrLog {
    /// Starts reading. The program is never blocked by a full pipe.
    pub(super) fn listen(stderr: ChildStderr, agent: Arc<str>, task: TaskId) -> Self {
        let last: Arc<Mutex<Last>> = Arc::default();
        let log = Log { agent, task, since: Instant::now(), lines: 0, left_out: 0 };
        let listening = AbortOnDropHandle::new(tokio::spawn(listen(stderr, log, Arc::clone(&last))));
        Self { last, listening }
    }

    /// The last lines, after the program has ended.
    pub(super) async fn last(self, patience: Duration) -> String {
        // A process outside of the program's group may hold the pipe open.
        let _ = timeout(patience, self.listening).await;
        self.last.lock().reason()
    }
}

async fn listen(mut stderr: ChildStderr, mut log: Log, last: Arc<Mutex<Last>>) {
    let mut lines = Lines::default();
    let mut buffer = Vec::with_capacity(4096);
    let mut open = true;
    while open {
        buffer.clear();
        open = stderr.read_buf(&mut buffer).await.is_ok_and(|count| count > 0);
        let whole = if open { lines.add(&buffer) } else { lines.rest() };
        for line in whole {
            log.line(&line);
            last.lock().line(line);
        }
    }
    log.close();
}

/// Splits bytes into lines. A long line is truncated to its beginning.
#[derive(Default)]
struct Lines {
    unfinished: Vec<u8>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        let mut lines = Vec::new();
        while let Some(piece) = pieces.next() {
            let room = LINE.saturating_sub(self.unfinished.len());
            self.unfinished.extend_from_slice(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                lines.extend(self.rest());
            }
        }
        lines
    }

    /// The unfinished line; none if it is empty.
    fn rest(&mut self) -> Vec<String> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.unfinished)).trim_end().to_owned();
        if line.is_empty() { Vec::new() } else { vec![line] }
    }
}

/// The rate-limited log of one program.
struct Log {
    agent: Arc<str>,
    task: TaskId,
    /// Start of the current second.
    since: Instant,
    /// Lines in this second.
    lines: u32,
    left_out: u64,
}

impl Log {
    fn line(&mut self, line: &str) {
        if self.has_room(Instant::now()) {
            tracing::info!(agent = %self.agent, task = %self.task, line, "program stderr");
        }
    }

    /// True if one more line may be logged in this second; otherwise counts it as left out.
    fn has_room(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            self.close();
            (self.since, self.lines) = (now, 0);
        }
        let fits = self.lines < LINES_A_SECOND;
        if fits {
            self.lines += 1;
        } else {
            self.left_out += 1;
        }
        fits
    }

    /// Logs the number of lines left out.
    fn close(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            tracing::info!(agent = %self.agent, task = %self.task, left_out, "program stderr: lines left out");
        }
    }
}

/// The last lines.
#[derive(Default)]
struct Last(VecDeque<String>);

impl Last {
    fn line(&mut self, line: String) {
        if self.0.len() == REASON_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// The last lines that fit into the limit, without control characters.
    fn reason(&self) -> String {
        let mut room = REASON;
        let fitting = self.0.iter().rev().take_while(|line| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        });
        let mut lines: Vec<String> =
            fitting.map(|line| line.chars().filter(|c| !c.is_control() || *c == '\t').collect()).collect();
        lines.reverse();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines() {
        for (pieces, expected) in [
            (&["a\nb\n"][..], &["a", "b"][..]),
            (&["a", "b\nc"], &["ab", "c"]),
            (&["\n\n \r\na\r\n"], &["a"]),
            (&["", "", "x"], &["x"]),
        ] {
            let mut lines = Lines::default();
            let mut seen: Vec<String> = pieces.iter().flat_map(|piece| lines.add(piece.as_bytes())).collect();
            seen.extend(lines.rest());
            assert_eq!(seen, expected, "{pieces:?}");
        }
    }

    #[test]
    fn of_a_long_line_the_beginning_is_kept() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for _ in 0..100 {
            seen.extend(lines.add("x".repeat(1000).as_bytes()));
        }
        seen.extend(lines.add(b"\nnext\n"));
        assert_eq!(seen, ["x".repeat(1000), "next".to_owned()], "as docs/operating.md says");
    }

    /// docs/operating.md says how many.
    #[test]
    fn a_second_has_room_for_fifty_lines() {
        let since = Instant::now();
        let mut log = Log { agent: "a".into(), task: "t".into(), since, lines: 0, left_out: 0 };
        for (after, lines, logged, left_out) in
            [(0, 49, 49, 0), (999, 11, 1, 10), (1000, 60, 50, 10), (2500, 1, 1, 0)]
        {
            let now = since + Duration::from_millis(after);
            let seen = (0..lines).filter(|_| log.has_room(now)).count();
            assert_eq!((seen, log.left_out), (logged, left_out), "{after}");
        }
    }

    #[test]
    fn a_reason_is_the_last_that_was_said() {
        let mut last = Last::default();
        for number in 1..=REASON_LINES + 1 {
            last.line(format!("\x1b[31mline {number}\x07"));
        }
        let reason = last.reason();
        assert!(reason.starts_with("[31mline 2\n"), "{reason:?}");
        assert!(reason.ends_with("line 11"), "{reason:?}");
        last.line("y".repeat(LINE));
        last.line("z".repeat(LINE));
        assert_eq!(last.reason(), format!("{}\n{}", "y".repeat(LINE), "z".repeat(LINE)));
    }
}
