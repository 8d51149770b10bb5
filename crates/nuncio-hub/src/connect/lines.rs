//! Entries of a task as lines of a lease. Pure.

use nuncio_client::worker::Line;
use nuncio_protocol::{Event, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent};
use nuncio_server::TurnEntry;

/// The lines of an entry.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct EntryLines {
    pub(super) lines: Vec<Line>,
    /// The state that ends the lease: a terminal or an interrupted one.
    pub(super) end: Option<TaskState>,
}

/// Translates an entry. A cancel has no line: the hub ends the task when the lease is released.
pub(super) fn of(entry: &TurnEntry) -> EntryLines {
    let memo = entry.memo.as_deref().and_then(|memo| {
        let memo: serde_json::Value = serde_json::from_slice(memo).ok()?;
        Line::memo(&memo).ok()
    });
    let (line, end) = match &*entry.event {
        Event::StatusUpdate(update) => {
            let state = update.status.state;
            (status(update), Some(state).filter(|state| state.is_terminal() || state.is_interrupted()))
        }
        Event::ArtifactUpdate(update) => (Some(artifact(update)), None),
        Event::Task(_) | Event::Message(_) => (None, None),
    };
    EntryLines { lines: memo.into_iter().chain(line).collect(), end }
}

fn status(update: &TaskStatusUpdateEvent) -> Option<Line> {
    match update.status.state {
        TaskState::Canceled => None,
        // The task was submitted at the hub long ago; only the words are news.
        TaskState::Submitted | TaskState::Unspecified => {
            update.status.message.as_ref()?;
            let mut update = update.clone();
            update.status.state = TaskState::Working;
            Some(Line::status_update(&update))
        }
        TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Rejected
        | TaskState::InputRequired
        | TaskState::AuthRequired => Some(Line::status_update(update)),
    }
}

/// Text that grows stays one text at the hub; other pieces keep their parts.
fn artifact(update: &TaskArtifactUpdateEvent) -> Line {
    if !update.joins {
        return Line::artifact_update(update);
    }
    let text = update.artifact.text().into_owned();
    if update.last_chunk { Line::last_text(text) } else { Line::text(text) }
}

/// The first lines of a lease, which mark it as begun before the agent gets the message: if this worker is lost, the
/// message is not sent again. Where the agent may get it again, an empty memo tells so.
pub(super) fn begin(may_repeat: bool, has_memo: bool) -> Vec<Line> {
    let memo = (may_repeat && !has_memo).then(|| Line::memo(&serde_json::Map::new()).ok()).flatten();
    memo.into_iter().chain([Line::working()]).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nuncio_protocol::{Artifact, Message, Part, TaskStatus};

    use super::*;

    fn entry(event: Event, memo: Option<&'static str>) -> TurnEntry {
        TurnEntry { event: Arc::new(event), memo: memo.map(Into::into) }
    }

    fn state(state: TaskState, words: Option<&str>) -> Event {
        let message = words.map(|words| Arc::new(Message::agent("m", Part::text(words))));
        let status = TaskStatus { state, message, timestamp: None };
        Event::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() })
    }

    fn piece(joins: bool, last_chunk: bool) -> Event {
        let artifact = Arc::new(Artifact::new("output", Part::text("x")));
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact,
            append: true,
            last_chunk,
            joins,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    #[test]
    fn each_entry_is_told_in_the_words_of_a_worker() {
        use TaskState::{AuthRequired, Canceled, Completed, InputRequired, Submitted, Working};
        for (event, memo, forms, end) in [
            (state(Working, None), None, &["statusUpdate"][..], None),
            (state(Working, None), Some(r#"{"task":"up-1"}"#), &["memo", "statusUpdate"], None),
            (state(Submitted, None), None, &[], None),
            (state(Submitted, None), Some("{}"), &["memo"], None),
            (state(Submitted, Some("in the queue")), None, &["statusUpdate"], None),
            (state(InputRequired, Some("which?")), None, &["statusUpdate"], Some(InputRequired)),
            (state(AuthRequired, None), None, &["statusUpdate"], Some(AuthRequired)),
            (state(Completed, None), None, &["statusUpdate"], Some(Completed)),
            (state(Canceled, None), None, &[], Some(Canceled)),
            (piece(false, false), None, &["artifactUpdate"], None),
            (piece(true, false), None, &["text"], None),
            // Keys are in the order of the alphabet: `last` comes before `text`.
            (piece(true, true), None, &["last"], None),
        ] {
            let told = of(&entry(event.clone(), memo));
            let keys: Vec<String> = told.lines.iter().map(first_key).collect();
            assert_eq!(
                (keys.iter().map(String::as_str).collect::<Vec<_>>(), told.end),
                (forms.to_vec(), end),
                "{event:?}"
            );
        }
        let submitted = of(&entry(state(Submitted, Some("x")), None));
        assert!(format!("{:?}", submitted.lines).contains("TASK_STATE_WORKING"));
    }

    fn first_key(line: &Line) -> String {
        let text = std::str::from_utf8(line.as_bytes()).unwrap();
        text.split('"').nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_lease_begins_before_the_agent_is_asked() {
        for (may_repeat, has_memo, expected) in [(false, false, 1), (true, false, 2), (true, true, 1)] {
            assert_eq!(begin(may_repeat, has_memo).len(), expected, "{may_repeat} {has_memo}");
        }
    }
}
