//! Printed notifications: a line each.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use axum::http::StatusCode;
use nuncio_client::receiver::Notification;
use nuncio_protocol::{Artifact, Content, Event, Part, Task, TaskStatus, Timestamp};
use serde_json::json;

use crate::output::{self, Format, state};

/// Maximum number of characters of a text that are shown.
const MAX_EXCERPT_CHARS: usize = 100;

pub(super) fn notification(format: Format, notification: &Notification, answered: StatusCode) -> Result<()> {
    match format {
        Format::Human => output::line(&line(notification, now(), answered)),
        Format::Json => {
            let proofs: Vec<_> = notification.proofs.iter().map(ToString::to_string).collect();
            output::json(&json!({
                "receivedAt": now(),
                "id": notification.id,
                "attempt": notification.attempt,
                "sentAt": notification.timestamp.and_then(|seconds| Timestamp::from_parts(seconds, 0)),
                "version": notification.version.as_str(),
                "verifiedBy": proofs,
                "answered": answered.as_u16(),
                "event": notification.event,
            }))
        }
    }
}

fn now() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?)
}

/// Time, task and event; then attempt, proofs and answer.
fn line(notification: &Notification, now: Option<Timestamp>, answered: StatusCode) -> String {
    let now = now.map(|now| now.to_string()).unwrap_or_default();
    let task = notification.event.task_id().map_or("-", |id| id.as_str());
    let mut notes = Vec::new();
    if let Some(attempt) = notification.attempt {
        notes.push(format!("attempt {attempt}"));
    }
    let proofs: Vec<_> = notification.proofs.iter().map(ToString::to_string).collect();
    notes.push(format!("{} verified", proofs.join(" and ")));
    if !answered.is_success() {
        notes.push(format!("answered {}", answered.as_u16()));
    }
    one_line(&format!("{now}  {task}  {}  ({})", what(&notification.event), notes.join(", ")))
}

fn what(event: &Event) -> String {
    match event {
        Event::Task(task) => of_task(task),
        Event::Message(message) => format!("message{}", after_colon(&text(&message.parts))),
        Event::StatusUpdate(update) => of_status(&update.status),
        Event::ArtifactUpdate(update) => {
            let piece = if update.append || !update.last_chunk { "a piece of " } else { "" };
            format!("{piece}{}", of_artifact(&update.artifact))
        }
    }
}

fn of_task(task: &Task) -> String {
    let artifacts = task.artifacts.iter().map(|artifact| format!("; {}", of_artifact(artifact)));
    format!("{}{}", of_status(&task.status), artifacts.collect::<String>())
}

fn of_status(status: &TaskStatus) -> String {
    let said = status.message.as_ref().map(|message| text(&message.parts)).unwrap_or_default();
    format!("{}{}", state(status.state), after_colon(&said))
}

fn of_artifact(artifact: &Artifact) -> String {
    let name = if artifact.name.is_empty() { artifact.artifact_id.as_str() } else { &artifact.name };
    format!("artifact {name}{}", after_colon(&text(&artifact.parts)))
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// The beginning of the text of the parts.
fn text(parts: &[Part]) -> String {
    let words: Vec<_> = parts
        .iter()
        .map(|part| match &part.content {
            Content::Text(text) => text.clone(),
            Content::Data(value) => value.to_string(),
            Content::Url(url) => url.clone(),
            Content::Raw(bytes) => {
                format!("[{}: {} bytes]", part.filename.as_deref().unwrap_or("file"), bytes.len())
            }
        })
        .collect();
    let words = one_line(&words.join(" "));
    match words.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Replaces line breaks: an agent's text must not pass for another notification.
pub(super) fn one_line(text: &str) -> String {
    let is_break =
        |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    text.split(is_break).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use nuncio_client::receiver::Proof;
    use nuncio_protocol::Version;
    use serde_json::Value;

    use super::*;

    fn shown(event: Value) -> String {
        let notification = Notification {
            id: Some("d-1".to_owned()),
            attempt: Some(2),
            timestamp: None,
            version: Version::V1_0,
            event: serde_json::from_value(event).unwrap(),
            proofs: vec![Proof::Token, Proof::Key { kid: "k".to_owned() }],
        };
        line(&notification, Some(Timestamp::EPOCH), StatusCode::NO_CONTENT)
    }

    #[test]
    fn a_notification_is_one_line() {
        let said = |text: &str| {
            let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]});
            json!({"statusUpdate": {"taskId": "t-1", "status": {"state": "TASK_STATE_WORKING", "message": message}}})
        };
        let artifact =
            json!({"artifactId": "a", "name": "report", "parts": [{"text": "one"}, {"data": {"n": 1}}]});
        let long = "x".repeat(101);
        let cut = format!("working: {}…", "x".repeat(100));
        for (event, expected) in [
            (said("half way"), "working: half way"),
            (said("one\r\n\n  two\u{2028}three"), "working: one two three"),
            (said(&long), &cut),
            (
                json!({"artifactUpdate": {"taskId": "t-1", "artifact": artifact, "lastChunk": true}}),
                "artifact report: one {\"n\":1}",
            ),
            (
                json!({"artifactUpdate": {"taskId": "t-1", "artifact": artifact, "append": true}}),
                "a piece of artifact report: one {\"n\":1}",
            ),
            (
                json!({"task": {"id": "t-1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}}),
                "completed; artifact report: one {\"n\":1}",
            ),
            (json!({"task": {"id": "t-1", "status": {"state": "TASK_STATE_SUBMITTED"}}}), "submitted"),
        ] {
            let expected =
                format!("1970-01-01T00:00:00.000Z  t-1  {expected}  (attempt 2, token and key k verified)");
            assert_eq!(shown(event), expected);
        }
        let forged = json!({"task": {"id": "t-1\nfake", "status": {"state": "TASK_STATE_WORKING"}}});
        assert!(!shown(forged).contains('\n'));
    }
}
