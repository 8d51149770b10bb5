//! What happened to a task, a line for each event.

use nuncio_protocol::{Artifact, Content, Event, Part, Role, Timestamp};
use nuncio_server::store::StoredEvent;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::{answer::Problem, openapi::Time};

/// Something that happened.
#[derive(Serialize, JsonSchema)]
pub(super) struct Entry {
    /// Its number: the id of the event in streams.
    id: u64,
    #[schemars(with = "Time")]
    time: Timestamp,
    kind: Kind,
    /// What it was, without what was said.
    summary: String,
    /// The event as callers see it, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
}

/// What kinds of events there are.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Task,
    Message,
    Status,
    Artifact,
}

pub(super) fn entry(stored: &StoredEvent, content: bool) -> Result<Entry, Problem> {
    let (kind, summary) = summary(&stored.event);
    let content = content.then(|| serde_json::to_value(&*stored.event)).transpose();
    let content = content.map_err(|_| Problem::broken())?;
    Ok(Entry { id: stored.seq.0, time: stored.at, kind, summary, content })
}

fn summary(event: &Event) -> (Kind, String) {
    match event {
        Event::Task(task) => {
            let said = task.history.iter().map(|message| parts(&message.parts));
            let said = said.collect::<Vec<_>>().join("; ");
            (Kind::Task, join(&[task.status.state.as_str(), &said]))
        }
        Event::Message(message) => {
            let who = if message.role == Role::Agent { "the agent" } else { "the caller" };
            (Kind::Message, join(&[&format!("{who} said"), &parts(&message.parts)]))
        }
        Event::StatusUpdate(update) => {
            let said =
                update.status.message.as_ref().map(|message| parts(&message.parts)).unwrap_or_default();
            (Kind::Status, join(&[update.status.state.as_str(), &said]))
        }
        Event::ArtifactUpdate(update) => {
            let Artifact { artifact_id, parts: pieces, .. } = &*update.artifact;
            let how = match (update.append, update.last_chunk) {
                (true, true) => "appended, the last",
                (true, false) => "appended",
                (false, true) => "whole",
                (false, false) => "begun",
            };
            (Kind::Artifact, join(&[&format!("{artifact_id} {how}"), &parts(pieces)]))
        }
    }
}

/// How much of what.
fn parts(parts: &[Part]) -> String {
    let one = |part: &Part| match &part.content {
        Content::Text(text) => format!("text of {} bytes", text.len()),
        Content::Raw(bytes) => format!("file of {} bytes", bytes.len()),
        Content::Url(_) => "file elsewhere".to_owned(),
        Content::Data(_) => "data".to_owned(),
    };
    match parts {
        [] => String::new(),
        [only] => one(only),
        [first, others @ ..] => format!("{} and {} more parts", one(first), others.len()),
    }
}

fn join(words: &[&str]) -> String {
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", ")
}
