//! The lines of a worker: those of a program that writes JSON, and its memo.

use std::sync::Arc;

use nuncio_protocol::{Event, Part, TaskArtifactUpdateEvent, TaskState};
use serde_json::Value;

use crate::agents::json_lines::{
    event::{self, Members, Said},
    excerpt,
};

/// Lines of one body.
const MAX_LINES: usize = 10_000;

/// Parts in the lines of one body. A part may take twenty times the memory of its text.
const MAX_PARTS: usize = 100_000;

/// Bytes of a memo, as JSON.
const MAX_MEMO_BYTES: usize = 16 << 10;

/// A line.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Line {
    /// The memo of the turn; null deletes it.
    Memo(Value),
    /// More of the artifact of plain text.
    Text { text: String, last: bool },
    /// The new status of the task.
    Status(TaskState, Vec<Part>),
    /// An event in the shape of the A2A specification: a status or an artifact.
    Event(Event),
}

/// A body that is refused: the number of the line within it, from 0, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongLine {
    pub(super) at: u64,
    pub(super) why: String,
}

/// Parses a body. Nothing of a body with a wrong line counts.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Line>, WrongLine> {
    let (mut lines, mut parts) = (Vec::new(), 0);
    let mut ended = false;
    let texts = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    for (at, text) in (0..).zip(texts) {
        let wrong = |why: String| WrongLine { at, why };
        if ended {
            return Err(wrong("comes after the last line of the turn".to_owned()));
        }
        if lines.len() == MAX_LINES {
            return Err(wrong(format!("is one too many: a body may have {MAX_LINES} lines")));
        }
        let line = parse_line(text).map_err(|why| wrong(format!("{why}: {}", excerpt(text))))?;
        parts += line.parts();
        if parts > MAX_PARTS {
            return Err(wrong(format!("is one too many: the lines of a body may have {MAX_PARTS} parts")));
        }
        ended = line.settles();
        lines.push(line);
    }
    Ok(lines)
}

fn parse_line(text: &[u8]) -> Result<Line, String> {
    let members = Members::read(text)?;
    let Some(memo) = members.only("memo") else { return event::said(members).map(Line::from) };
    let bytes = memo.get().len();
    if bytes > MAX_MEMO_BYTES {
        return Err(format!("has a memo of {bytes} bytes; at most {MAX_MEMO_BYTES} are kept"));
    }
    serde_json::from_str(memo.get()).map(Line::Memo).map_err(|error| format!("has a wrong memo: {error}"))
}

impl From<Said> for Line {
    /// A turn has a task already: a reply is the message of its completed status.
    fn from(said: Said) -> Self {
        match said {
            Said::Status(state, parts) => Self::Status(state, parts),
            Said::Text { text, last } => Self::Text { text, last },
            Said::Reply(parts) => Self::Status(TaskState::Completed, parts),
            Said::Event(Event::Message(message)) => {
                Self::Status(TaskState::Completed, Arc::unwrap_or_clone(message).parts)
            }
            Said::Event(event) => Self::Event(event),
            Said::Artifact { artifact, append, last } => {
                Self::Event(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                    artifact: Arc::new(artifact),
                    append,
                    last_chunk: last,
                    ..TaskArtifactUpdateEvent::default()
                }))
            }
        }
    }
}

impl Line {
    /// The number of its parts.
    fn parts(&self) -> usize {
        match self {
            Self::Memo(_) | Self::Text { .. } => 0,
            Self::Status(_, parts) => parts.len(),
            Self::Event(Event::ArtifactUpdate(update)) => update.artifact.parts.len(),
            Self::Event(event) => {
                event.status().and_then(|status| status.message.as_ref()).map_or(0, |said| said.parts.len())
            }
        }
    }

    /// True for the last line of a turn: a state that ends or interrupts the task.
    pub(super) fn settles(&self) -> bool {
        match self {
            Self::Status(state, _) => state.is_settled(),
            Self::Event(event) => event.status().is_some_and(|status| status.state.is_settled()),
            Self::Text { .. } | Self::Memo(_) => false,
        }
    }
}

/// The texts that these lines begin with as one, whether it is the last one, and their number.
pub(super) fn joined(lines: &[Line]) -> Option<(String, bool, usize)> {
    let mut joined: Option<(String, bool, usize)> = None;
    for line in lines {
        let Line::Text { text, last } = line else { break };
        let (all, is_last, count) = joined.get_or_insert_default();
        all.push_str(text);
        (*is_last, *count) = (*last, *count + 1);
        if *last {
            break;
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, last: bool) -> Line {
        Line::Text { text: text.to_owned(), last }
    }

    #[test]
    fn a_body_is_lines_of_a_program_and_memos() {
        let body = b"{\"text\":\"a\"}\r\n\n  {\"memo\":{\"id\":7}}\n{\"completed\":\"\"}";
        let memo = Line::Memo(serde_json::json!({"id": 7}));
        assert_eq!(parse(body), Ok(vec![text("a", false), memo, Line::Status(TaskState::Completed, vec![])]));
        assert_eq!(parse(b""), Ok(Vec::new()));
        let reply = Line::Status(TaskState::Completed, vec![Part::text("hi")]);
        assert_eq!(parse(b"{\"message\":\"hi\"}"), Ok(vec![reply]));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let long = format!("{{\"memo\":\"{}\"}}", "x".repeat(MAX_MEMO_BYTES));
        let many = "{\"text\":\"a\"}\n".repeat(MAX_LINES + 1);
        for (body, at, expected) in [
            ("nonsense", 0, "is no JSON object"),
            ("{\"text\":\"a\"}\n\n{\"txt\":\"b\"}", 1, "unknown key \"txt\""),
            ("{\"completed\":\"\"}\n{\"text\":\"a\"}", 1, "after the last line"),
            ("{\"inputRequired\":\"?\"}\n{\"text\":\"a\"}", 1, "after the last line"),
            ("{\"memo\":1,\"text\":\"a\"}", 0, "unknown key \"memo\""),
            (&*long, 0, "at most 16384"),
            (&*many, 10_000, "one too many"),
            ("{\"status\":\"canceled\"}", 0, "has the status"),
            ("{\"task\":{}}", 0, "the hub makes the task"),
        ] {
            let wrong = parse(body.as_bytes()).unwrap_err();
            assert_eq!(wrong.at, at, "{}", wrong.why);
            assert!(wrong.why.contains(expected), "{}", wrong.why);
        }
    }

    #[test]
    fn texts_in_a_row_are_one_piece() {
        let memo = Line::Memo(Value::Null);
        for (lines, expected) in [
            (vec![], None),
            (vec![memo.clone(), text("a", false)], None),
            (vec![text("a", false), text("b", false), memo], Some(("ab".to_owned(), false, 2))),
            (vec![text("a", false), text("b", true), text("c", false)], Some(("ab".to_owned(), true, 2))),
        ] {
            assert_eq!(joined(&lines), expected);
        }
    }
}
