//! Messages of callers, and earlier tasks of the conversation, as turns of a prompt. Pure.

use nuncio_protocol::{Content, Error, ErrorKind, Message, Part, Result, Role, Task, TaskState};

use serde_json::Value;

use super::{
    MODEL_EXTENSION, REASONING,
    dialect::{self, Item, Media, Source, Speaker, Turn},
    tool_loop::{CALL, QUESTION},
};
use crate::config::ModelDialect as Dialect;

/// The media types that the card lists.
pub(super) fn input_modes(dialect: Dialect) -> Vec<String> {
    let shared = ["text/plain", "application/json", "image/*", "application/pdf"];
    let audio: &[&str] = match dialect {
        Dialect::OpenAi => &["audio/wav", "audio/mpeg"],
        Dialect::Anthropic => &[],
    };
    shared.iter().chain(audio).map(|&mode| mode.to_owned()).collect()
}

/// The turn of a caller's message.
///
/// # Errors
/// `ContentTypeNotSupported` naming the part that no model of these dialects takes.
pub(super) fn turn_of(message: &Message, dialects: &[Dialect]) -> Result<Turn> {
    let items = message.parts.iter().enumerate().map(|(at, part)| {
        item(part).filter(|item| dialects.iter().all(|dialect| dialect::takes(*dialect, item))).ok_or_else(|| {
            let what = part.media_type.as_deref().unwrap_or("a file without a media type");
            Error::new(
                ErrorKind::ContentTypeNotSupported,
                format!("part {at} cannot be given to the model: {what} is not supported; see the input modes of the card"),
            )
        })
    });
    Ok(Turn { speaker: Speaker::User, items: items.collect::<Result<_>>()? })
}

/// The turns of the conversation so far. Tasks that failed, were canceled or rejected, or have no answer yet, are left
/// out; the second number says how many.
pub(super) fn earlier_turns(earlier: &[Task], dialects: &[Dialect]) -> (Vec<Turn>, usize) {
    let (mut turns, mut omitted) = (Vec::new(), 0);
    for task in earlier {
        match answered(task, dialects) {
            Some(more) => turns.extend(more),
            None => omitted += 1,
        }
    }
    (turns, omitted)
}

fn answered(task: &Task, dialects: &[Dialect]) -> Option<Vec<Turn>> {
    if task.status.state != TaskState::Completed {
        return None;
    }
    let mut turns: Vec<Turn> = Vec::new();
    let mut is_decision = false;
    for message in &task.history {
        // Talk about tools is between hub and caller.
        match about_tools(message) {
            Some(is_question) => {
                is_decision = is_question;
                continue;
            }
            None if std::mem::take(&mut is_decision) && message.role == Role::User => continue,
            None => {}
        }
        let speaker = match message.role {
            Role::User => Speaker::User,
            Role::Agent => Speaker::Model,
            Role::Unspecified => continue,
        };
        // What a model cannot take now was given to another one then; the rest of the turn is still worth having.
        let known = message.parts.iter().filter_map(item);
        let items: Vec<Item> =
            known.filter(|item| dialects.iter().all(|dialect| dialect::takes(*dialect, item))).collect();
        if !items.is_empty() {
            turns.push(Turn { speaker, items });
        }
    }
    turns.push(Turn { speaker: Speaker::Model, items: vec![Item::Text(answer_of(task)?)] });
    Some(turns)
}

/// True for a question whether a tool may be called, false for the news of a call, `None` for other messages.
fn about_tools(message: &Message) -> Option<bool> {
    let about = message.metadata.get(MODEL_EXTENSION).filter(|_| message.role == Role::Agent)?;
    let about = about.get::<Value>().ok()?;
    match (about.get(QUESTION).is_some(), about.get(CALL).is_some()) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// The agent's answer: its artifacts, else the message of its status.
fn answer_of(task: &Task) -> Option<String> {
    let parts = task
        .artifacts
        .iter()
        .filter(|artifact| artifact.name != REASONING)
        .flat_map(|artifact| &artifact.parts);
    let text = written(parts);
    if !text.is_empty() {
        return Some(text);
    }
    let message = task.status.message.as_ref()?;
    Some(written(message.parts.iter())).filter(|text| !text.is_empty())
}

fn written<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let texts = parts.filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.clone()),
        Content::Data(data) => Some(data.as_str().to_owned()),
        Content::Raw(_) | Content::Url(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A part as an item of a prompt; `None` if there is none for its media type.
fn item(part: &Part) -> Option<Item> {
    let source = match &part.content {
        Content::Text(text) => return Some(Item::Text(text.clone())),
        Content::Data(data) => return Some(Item::Text(data.as_str().to_owned())),
        Content::Raw(bytes) => Source::Bytes(bytes.clone()),
        Content::Url(url) => Source::Url(url.clone()),
    };
    let media_type = part.media_type.as_deref().unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let filename = part.filename.clone();
    match (media_type.split('/').next().unwrap_or_default(), media_type.as_str(), &source) {
        ("text", _, Source::Bytes(bytes)) | (_, "application/json", Source::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).ok()?;
            Some(Item::Text(match filename {
                Some(name) => format!("{name}:\n{text}"),
                None => text.to_owned(),
            }))
        }
        ("image", ..) => Some(Item::Image(Media { media_type, filename, source })),
        (_, "audio/wav" | "audio/x-wav" | "audio/mpeg" | "audio/mp3", _) => {
            Some(Item::Audio(Media { media_type, filename, source }))
        }
        (_, "application/pdf", _) => Some(Item::Document(Media { media_type, filename, source })),
        _ => None,
    }
}
