//! What is printed: data to stdout, the rest to stderr; for people, or as JSON.
#![expect(clippy::print_stderr, reason = "the one place that prints")]

use std::io::Write as _;

use anyhow::Result;
use nuncio_protocol::{Content, Event, Message, Part, SendMessageResponse, Task, TaskState, TaskStatus};
use serde::Serialize;

/// For people, or for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Human,
    /// v1.0 JSON, one document a line.
    Json,
}

/// A line for people, beside the data.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// A line of data.
pub(crate) fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string(value)?)
}

pub(crate) fn pretty(value: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string_pretty(value)?)
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

/// The artifacts are the data; where it stands is told beside them.
fn human_task(task: &Task) -> Result<()> {
    for artifact in &task.artifacts {
        human_parts(&artifact.parts)?;
    }
    human_status(&task.status);
    note(&format!("task {}  context {}", task.id, task.context_id));
    Ok(())
}

fn human_status(status: &TaskStatus) {
    match &status.message {
        Some(message) => note(&format!("{}: {}", state(status.state), message.text())),
        None => note(state(status.state)),
    }
}

fn human_message(message: &Message) -> Result<()> {
    human_parts(&message.parts)
}

/// Text as it is: pieces of one artifact follow each other without a break.
fn human_parts(parts: &[Part]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if !write_parts(&mut out, parts)? {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// True if what was written ends a line.
fn write_parts(out: &mut impl std::io::Write, parts: &[Part]) -> Result<bool> {
    let mut ends_line = true;
    for part in parts {
        let text = part_text(part)?;
        ends_line = text.ends_with('\n');
        out.write_all(text.as_bytes())?;
    }
    Ok(ends_line)
}

fn part_text(part: &Part) -> Result<String> {
    Ok(match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(value) => serde_json::to_string_pretty(value)? + "\n",
        Content::Url(url) => format!("{url}\n"),
        Content::Raw(bytes) => {
            let name = part.filename.as_deref().unwrap_or("file");
            format!("[{name}: {} bytes; -o json shows them]\n", bytes.len())
        }
    })
}

/// An event of a stream, as it comes.
pub(crate) fn event(format: Format, event: &Event) -> Result<()> {
    if format == Format::Json {
        return json(event);
    }
    match event {
        Event::Task(task) => {
            note(&format!("task {}  context {}", task.id, task.context_id));
            let mut out = std::io::stdout().lock();
            for artifact in &task.artifacts {
                write_parts(&mut out, &artifact.parts)?;
            }
            out.flush()?;
            // A question that has been answered is no news; its words have moved to the history.
            if !task.status.state.is_interrupted() || task.status.message.is_some() {
                human_status(&task.status);
            }
        }
        Event::Message(message) => human_message(message)?,
        Event::StatusUpdate(update) => human_status(&update.status),
        Event::ArtifactUpdate(update) => {
            let mut out = std::io::stdout().lock();
            let ends_line = write_parts(&mut out, &update.artifact.parts)?;
            if update.last_chunk && !ends_line {
                out.write_all(b"\n")?;
            }
            out.flush()?;
        }
    }
    Ok(())
}

/// As people say it.
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
        TaskState::AuthRequired => "authorisation required",
    }
}
