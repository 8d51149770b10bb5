//! What is printed: data to stdout, the rest to stderr; for people, or as JSON.
#![expect(clippy::print_stderr, reason = "the one place that prints")]

use std::io::Write as _;

use anyhow::Result;
use nuncio_protocol::{Content, Event, Message, Part, SendMessageResponse, Task, TaskState};
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
    if let Some(message) = &task.status.message {
        note(&format!("{}: {}", state(task.status.state), message.text()));
    } else {
        note(state(task.status.state));
    }
    note(&format!("task {}  context {}", task.id, task.context_id));
    Ok(())
}

fn human_message(message: &Message) -> Result<()> {
    human_parts(&message.parts)
}

/// Text as it is: pieces of one artifact follow each other without a break.
fn human_parts(parts: &[Part]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut ends_line = true;
    for part in parts {
        let text = part_text(part)?;
        ends_line = text.ends_with('\n');
        out.write_all(text.as_bytes())?;
    }
    if !ends_line {
        out.write_all(b"\n")?;
    }
    Ok(())
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
            for artifact in &task.artifacts {
                human_parts(&artifact.parts)?;
            }
            note(state(task.status.state));
        }
        Event::Message(message) => human_message(message)?,
        Event::StatusUpdate(update) => match &update.status.message {
            Some(message) => note(&format!("{}: {}", state(update.status.state), message.text())),
            None => note(state(update.status.state)),
        },
        Event::ArtifactUpdate(update) => {
            let mut out = std::io::stdout().lock();
            for part in &update.artifact.parts {
                out.write_all(part_text(part)?.as_bytes())?;
            }
            if update.last_chunk {
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
