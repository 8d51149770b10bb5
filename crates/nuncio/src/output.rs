//! Output: data to stdout, everything else to stderr; as text or JSON.
#![expect(clippy::print_stderr, reason = "the one place that prints")]

use std::{
    borrow::Cow,
    io::{IsTerminal as _, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Result;
use nuncio_protocol::{
    Content, Event, Message, Part, SendMessageResponse, StreamItem, Task, TaskState, TaskStatus,
};
use serde::Serialize;

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    #[default]
    Human,
    /// JSON for programs, one document per line; of agents in the form of A2A 1.0.
    Json,
}

/// True while stdout ends in an unfinished line of text.
static OPEN_LINE: AtomicBool = AtomicBool::new(false);

/// Prints a message to stderr. Much of it comes from agents: control characters are escaped and further lines
/// indented, so that an agent's text cannot pass for a message of nuncio.
pub(crate) fn note(text: &str) {
    // Not in a pipe or file: the data there may be in the middle of an artifact.
    if std::io::stdout().is_terminal() {
        end_line();
    }
    eprintln!("{}", escaped(text, acts).replace('\n', "\n  "));
}

/// Prints an error to stderr: as text with its hint on a line of its own, or as one JSON document.
pub(crate) fn error(format: Format, message: &str, hint: Option<&str>, document: &impl Serialize) {
    end_line();
    match format {
        Format::Human => {
            note(&format!("error: {message}"));
            hint.into_iter().for_each(note);
        }
        Format::Json => eprintln!("{}", serde_json::json!({ "error": document })),
    }
}

/// Ends the unfinished line of text on stdout, if there is one.
pub(crate) fn end_line() {
    if OPEN_LINE.swap(false, Ordering::Relaxed) {
        let mut out = std::io::stdout();
        // Fails only if the reader has gone.
        let _ = out.write_all(b"\n").and_then(|()| out.flush());
    }
}

/// Prints a row of a table as one line, with any content of its cells.
pub(crate) fn row(text: &str) -> Result<()> {
    raw_line(&escaped(text, breaks_row))
}

/// Prints a line of data.
pub(crate) fn line(text: &str) -> Result<()> {
    raw_line(&for_stdout(text))
}

fn raw_line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// Draws lines from the top of the terminal, each cut to its width by the terminal, and clears the rest.
pub(crate) fn frame(lines: &[String]) -> Result<()> {
    const HOME: &str = "\u{1b}[H";
    const CLEAR_LINE: &str = "\u{1b}[K";
    const CLEAR_BELOW: &str = "\u{1b}[J";
    let mut frame = String::from(HOME);
    for line in lines {
        frame.push_str(&escaped(line, breaks_row));
        frame.push_str(CLEAR_LINE);
        frame.push_str("\r\n");
    }
    frame.push_str(CLEAR_BELOW);
    let mut out = std::io::stdout().lock();
    out.write_all(frame.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The terminal's second screen, without line wrap and cursor. The first one is back when this is dropped.
pub(crate) struct Screen(());

impl Screen {
    pub(crate) fn open() -> Self {
        Self::write("\u{1b}[?1049h\u{1b}[?7l\u{1b}[?25l");
        Self(())
    }

    fn write(codes: &str) {
        let mut out = std::io::stdout();
        // Fails only if the terminal has gone.
        let _ = out.write_all(codes.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::write("\u{1b}[?25h\u{1b}[?7h\u{1b}[?1049l");
    }
}

/// Prints bytes unchanged.
pub(crate) fn bytes(bytes: &[u8]) -> Result<()> {
    std::io::stdout().write_all(bytes)?;
    Ok(())
}

pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    raw_line(&serde_json::to_string(value)?)
}

pub(crate) fn pretty(value: &impl Serialize) -> Result<()> {
    raw_line(&serde_json::to_string_pretty(value)?)
}

/// Escapes text for a terminal, and leaves it unchanged elsewhere.
fn for_stdout(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { escaped(text, acts) } else { Cow::Borrowed(text) }
}

/// Escapes these characters. CRLF becomes LF unless ends of lines are escaped.
pub(crate) fn escaped(text: &str, is_escaped: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let text = if is_escaped('\n') { Cow::Borrowed(text) } else { Cow::Owned(text.replace("\r\n", "\n")) };
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// True for control characters and bidirectional overrides, except for newlines and tabs.
fn acts(c: char) -> bool {
    let turns_text =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns_text || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// True for characters that act on terminals, or that end a row or a column.
pub(crate) fn breaks_row(c: char) -> bool {
    acts(c) || matches!(c, '\n' | '\t' | '\u{2028}' | '\u{2029}')
}

pub(crate) fn response(format: Format, response: &SendMessageResponse) -> Result<()> {
    match (format, response) {
        (Format::Json, _) => json(response),
        (Format::Human, SendMessageResponse::Task(task)) => human_task(task),
        (Format::Human, SendMessageResponse::Message(message)) => human_message(message),
    }
}

pub(crate) fn task(format: Format, task: &Task) -> Result<()> {
    match format {
        Format::Json => json(task),
        Format::Human => human_task(task),
    }
}

/// Prints the id of a task to stdout, for a script to take, and its state to stderr.
pub(crate) fn task_id(task: &Task) -> Result<()> {
    row(task.id.as_str())?;
    human_status(&task.status);
    note(&format!("context {}", task.context_id));
    Ok(())
}

/// Prints artifacts to stdout and the status to stderr.
fn human_task(task: &Task) -> Result<()> {
    for artifact in &task.artifacts {
        human_parts(&artifact.parts)?;
    }
    human_status(&task.status);
    note(&format!("task {}  context {}", task.id, task.context_id));
    Ok(())
}

fn human_status(status: &TaskStatus) {
    if status.state.is_terminal() || status.state.is_interrupted() {
        // No more text follows.
        end_line();
    }
    match &status.message {
        Some(message) => note(&format!("{}: {}", state(status.state), message.text())),
        None => note(state(status.state)),
    }
}

fn human_message(message: &Message) -> Result<()> {
    human_parts(&message.parts)
}

fn human_parts(parts: &[Part]) -> Result<()> {
    write_parts(parts)?;
    end_line();
    Ok(())
}

/// Writes parts without line breaks between them, since they may be chunks of one artifact.
fn write_parts(parts: &[Part]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for part in parts {
        let text = part_text(part)?;
        out.write_all(for_stdout(&text).as_bytes())?;
        if !text.is_empty() {
            OPEN_LINE.store(!text.ends_with('\n'), Ordering::Relaxed);
        }
    }
    out.flush()?;
    Ok(())
}

fn part_text(part: &Part) -> Result<String> {
    Ok(match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(json) => serde_json::to_string_pretty(&json.get::<serde_json::Value>()?)? + "\n",
        Content::Url(url) => format!("{url}\n"),
        Content::Raw(bytes) => {
            let name = part.filename.as_deref().unwrap_or("file");
            format!("[{name}: {} bytes; -o json shows them]\n", bytes.len())
        }
    })
}

/// An event, and its id for `task watch --after` if the stream has one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Numbered<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<u64>,
}

/// The state that was last shown of a stream. One without a text is shown only when it changes.
#[derive(Default, Debug)]
pub(crate) struct ShownState(Option<TaskState>);

impl ShownState {
    fn is_news(&mut self, status: &TaskStatus) -> bool {
        self.0.replace(status.state) != Some(status.state) || status.message.is_some()
    }
}

/// Prints an event of a stream.
pub(crate) fn event(format: Format, item: &StreamItem, shown: &mut ShownState) -> Result<()> {
    let event: &Event = item.event();
    if format == Format::Json {
        return json(&Numbered { event, event_id: item.seq().map(|seq| seq.0) });
    }
    match event {
        Event::Task(task) => {
            note(&format!("task {}  context {}", task.id, task.context_id));
            for artifact in &task.artifacts {
                write_parts(&artifact.parts)?;
            }
            // An answered question is not shown again: its message has moved to the history.
            let is_shown = !task.status.state.is_interrupted() || task.status.message.is_some();
            if is_shown && shown.is_news(&task.status) {
                human_status(&task.status);
            }
        }
        Event::Message(message) => human_message(message)?,
        Event::StatusUpdate(update) => {
            if shown.is_news(&update.status) {
                human_status(&update.status);
            }
        }
        Event::ArtifactUpdate(update) => {
            write_parts(&update.artifact.parts)?;
            if update.last_chunk {
                end_line();
            }
        }
    }
    Ok(())
}

/// A number of things, in the singular or the plural.
pub(crate) fn count(n: impl TryInto<u64>, one: &str, many: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The name of a state for people.
pub(crate) fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unknown",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "authorization required",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_terminals_is_escaped() {
        for (text, expected) in [
            ("two\nlines\tand a tab, Grüße, 日本", "two\nlines\tand a tab, Grüße, 日本"),
            ("\u{1b}[2J\u{7}", "\\u{1b}[2J\\u{7}"),
            ("done\rerror", "done\\rerror"),
            ("one\r\ntwo\u{1b}", "one\ntwo\\u{1b}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("\u{202e}txt.exe\u{2066}", "\\u{202e}txt.exe\\u{2066}"),
        ] {
            assert_eq!(escaped(text, acts), expected);
        }
    }

    #[test]
    fn a_state_without_a_text_is_shown_when_it_changes() {
        let mut shown = ShownState::default();
        let mut is_news = |state, text: Option<&str>| {
            let message = text.map(|text| Message::user("m", vec![Part::text(text)]).into());
            shown.is_news(&TaskStatus { state, message, ..TaskStatus::default() })
        };
        for (state, text, expected) in [
            (TaskState::Submitted, None, true),
            (TaskState::Working, None, true),
            (TaskState::Working, None, false),
            (TaskState::Working, Some("half done"), true),
            (TaskState::Working, None, false),
            (TaskState::Completed, None, true),
        ] {
            assert_eq!(is_news(state, text), expected, "{state:?} {text:?}");
        }
    }

    #[test]
    fn one_thing_is_in_the_singular() {
        assert_eq!([0, 1, 2].map(|n| count(n, "key", "keys")), ["0 keys", "1 key", "2 keys"]);
    }

    /// An id with a line of its own in it would be another row.
    #[test]
    fn a_row_is_one_line() {
        for (text, expected) in [
            ("t-1  completed  Grüße", "t-1  completed  Grüße"),
            ("t-1\nt-2  completed", "t-1\\nt-2  completed"),
            ("t-1\r\nt-2\u{2028}\tx\u{1b}", "t-1\\r\\nt-2\\u{2028}\\tx\\u{1b}"),
        ] {
            assert_eq!(escaped(text, breaks_row), expected);
        }
    }
}
