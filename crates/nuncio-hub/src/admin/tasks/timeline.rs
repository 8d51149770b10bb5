//! The timeline of a task: an entry for each event.

use nuncio_protocol::{Artifact, Content, Event, Part, Role};
use nuncio_server::store::StoredEvent;

use super::super::{
    api::{EntryKind, TimelineEntry},
    problem::AdminProblem,
};

pub(super) fn entry(stored: &StoredEvent, content: bool) -> Result<TimelineEntry, AdminProblem> {
    let (kind, summary) = summary(&stored.event);
    let content = content.then(|| serde_json::to_value(&*stored.event)).transpose();
    let content = content.map_err(|_| AdminProblem::internal())?;
    Ok(TimelineEntry { id: stored.seq.0, time: stored.at, kind, summary, content })
}

fn summary(event: &Event) -> (EntryKind, String) {
    match event {
        Event::Task(task) => {
            let said = task.history.iter().map(|message| parts(&message.parts));
            let said = said.collect::<Vec<_>>().join("; ");
            (EntryKind::Task, join(&[task.status.state.as_str(), &said]))
        }
        Event::Message(message) => {
            let who = if message.role == Role::Agent { "the agent" } else { "the caller" };
            (EntryKind::Message, join(&[&format!("{who} said"), &parts(&message.parts)]))
        }
        Event::StatusUpdate(update) => {
            let said =
                update.status.message.as_ref().map(|message| parts(&message.parts)).unwrap_or_default();
            (EntryKind::Status, join(&[update.status.state.as_str(), &said]))
        }
        Event::ArtifactUpdate(update) => {
            let Artifact { artifact_id, parts: pieces, .. } = &*update.artifact;
            let how = match (update.append, update.last_chunk) {
                (true, true) => "appended, the last",
                (true, false) => "appended",
                (false, true) => "whole",
                (false, false) => "begun",
            };
            (EntryKind::Artifact, join(&[&format!("{artifact_id} {how}"), &parts(pieces)]))
        }
    }
}

/// The number and size of parts, without their content.
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
