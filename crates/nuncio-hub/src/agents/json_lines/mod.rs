//! JSON lines: the wire of agents that read a message as one JSON object and write events, one per line.
//! Programs (`cmd+json`) and the workers of mailboxes speak it.
//!
//! Reading order: `input` is the message as the agent reads it, `event` parses a line that the agent writes.

pub(super) mod event;
pub(super) mod input;

/// Characters of an invalid line that are shown in the error.
const MAX_EXCERPT_CHARS: usize = 80;

/// The beginning of a line, without control characters.
pub(super) fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut excerpt: String = text.chars().filter(|c| !c.is_control()).take(MAX_EXCERPT_CHARS).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}
