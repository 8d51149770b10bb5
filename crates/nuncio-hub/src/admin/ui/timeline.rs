//! The timeline of a task: an entry per event, with runs of chunks folded into one.

use nuncio_protocol::{Content, Event, Part, Role};

use super::show;
use crate::admin::api::{EntryKind, TimelineEntry};

/// Number of chunks from which on a run is folded.
const MIN_RUN: usize = 3;
/// Maximum length of one shown part.
const MAX_PART_CHARS: usize = 16 * 1024;
/// Maximum length of all content on a page, so that it stays below a megabyte however it is escaped.
pub(super) const MAX_PAGE_CHARS: usize = 128 * 1024;

/// An entry, or a run of entries.
pub(super) struct Group {
    /// The numbers and the number of a run of chunks; none if it is one entry.
    pub(super) run: Option<String>,
    pub(super) entries: Vec<Entry>,
}

/// An event as it is shown.
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) time: String,
    pub(super) kind: String,
    pub(super) summary: String,
    pub(super) content: Option<Said>,
}

/// The content of an event.
pub(super) struct Said {
    /// `agent` or `caller`.
    pub(super) speaker: &'static str,
    pub(super) parts: Vec<ShownPart>,
}

/// A part of a message or an artifact.
pub(super) struct ShownPart {
    /// Its kind with what is known about it, such as `file report.pdf, application/pdf, 12.0 KiB`.
    pub(super) label: String,
    /// The text of it; none for a file.
    pub(super) text: Option<String>,
}

/// The entries of a page of a timeline.
pub(super) fn groups(entries: &[TimelineEntry]) -> Vec<Group> {
    let mut budget = MAX_PAGE_CHARS;
    let mut groups: Vec<Group> = Vec::new();
    let mut rest = entries;
    while let [first, ..] = rest {
        let length = rest.iter().take_while(|entry| entry.kind == EntryKind::Artifact).count();
        let length = if first.kind == EntryKind::Artifact && length >= MIN_RUN { length } else { 1 };
        let (group, others) = rest.split_at(length);
        rest = others;
        let run = (length > 1).then(|| {
            let last = group.last().map_or(first.id, |entry| entry.id);
            format!("{length} pieces of artifacts, events {} to {last}", first.id)
        });
        groups.push(Group { run, entries: group.iter().map(|entry| shown(entry, &mut budget)).collect() });
    }
    groups
}

fn shown(entry: &TimelineEntry, budget: &mut usize) -> Entry {
    let event =
        entry.content.as_ref().and_then(|content| serde_json::from_value::<Event>(content.clone()).ok());
    Entry {
        id: entry.id,
        time: entry.time.to_string(),
        kind: show::word(entry.kind),
        summary: show::cell(&entry.summary.replace("TASK_STATE_", "").replace('_', "-").to_lowercase()),
        content: event.map(|event| said(&event, budget)).filter(|said| !said.parts.is_empty()),
    }
}

fn said(event: &Event, budget: &mut usize) -> Said {
    let (speaker, parts): (_, Vec<&Part>) = match event {
        Event::Task(task) => {
            let messages = task.history.iter().flat_map(|message| &message.parts);
            ("caller", messages.chain(task.artifacts.iter().flat_map(|artifact| &artifact.parts)).collect())
        }
        Event::Message(message) => {
            let speaker = if message.role == Role::Agent { "agent" } else { "caller" };
            (speaker, message.parts.iter().collect())
        }
        Event::StatusUpdate(update) => {
            ("agent", update.status.message.iter().flat_map(|message| &message.parts).collect())
        }
        Event::ArtifactUpdate(update) => ("agent", update.artifact.parts.iter().collect()),
    };
    Said { speaker, parts: parts.into_iter().map(|part| shown_part(part, budget)).collect() }
}

pub(super) fn shown_part(part: &Part, budget: &mut usize) -> ShownPart {
    let name = part.filename.as_deref().map(|name| format!(" {}", show::cell(name))).unwrap_or_default();
    let media =
        part.media_type.as_deref().map(|media| format!(", {}", show::cell(media))).unwrap_or_default();
    let mut take = |text: &str| {
        let shown = show::text(text, MAX_PART_CHARS.min(*budget));
        *budget = budget.saturating_sub(shown.chars().count());
        shown
    };
    match &part.content {
        Content::Text(text) => ShownPart {
            label: format!("text{name}{media}, {}", show::bytes(text.len() as u64)),
            text: Some(take(text)),
        },
        Content::Raw(bytes) => {
            ShownPart { label: format!("file{name}{media}, {}", show::bytes(bytes.len() as u64)), text: None }
        }
        Content::Url(url) => {
            ShownPart { label: format!("file elsewhere{name}{media}"), text: Some(take(url.as_str())) }
        }
        Content::Data(data) => ShownPart {
            label: format!("data{name}{media}"),
            text: Some(take(&serde_json::to_string_pretty(data).unwrap_or_default())),
        },
    }
}
