//! `nuncio send`: sends a message and shows the outcome.

use std::{
    io::{IsTerminal as _, Read as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use nuncio_client::was_not_sent;
use nuncio_protocol::{
    Error, ErrorKind, Event, EventStream, Json, Message, Metadata, Part, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, TaskId, TaskState,
};

use super::push;
use crate::{
    args::{Send, Target},
    exit,
    output::{self, Format, ShownState},
};

/// The time after which a waiting command says that it waits.
const LONG_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn run(send: Send, format: Format) -> Result<ExitCode> {
    // Options are checked before the agent is called.
    let request = request(&send)?;
    let client = send.target.connect().await?;
    if send.stream {
        let events = client.stream(request).await.map_err(|error| with_hint(error, &send.target))?;
        return follow(events, &send.target, Watch::default(), format).await;
    }
    let waits = !send.no_wait && format == Format::Human && std::io::stderr().is_terminal();
    let note = || {
        let list = send.target.list_command();
        output::note(&format!(
            "waiting for an answer; Ctrl-C stops waiting, and the task goes on, see: {list}"
        ));
    };
    let sent = noting(client.send(request), LONG_WAIT, || waits.then(note));
    let response = sent.await.map_err(|error| with_hint(error, &send.target))?;
    match &response {
        SendMessageResponse::Task(task) if send.no_wait && format == Format::Human => {
            output::task_id(task)?;
            if !task.status.state.is_terminal() && !task.status.state.is_interrupted() {
                output::note(&format!("watch it with: {}", send.target.watch_command(&task.id, None)));
            }
        }
        _ => output::response(format, &response)?,
    }
    if let SendMessageResponse::Task(task) = &response {
        how_to_answer(&send.target, &task.id, task.status.state);
    }
    Ok(ExitCode::from(match &response {
        SendMessageResponse::Task(task) => exit::of_state(task.status.state),
        SendMessageResponse::Message(_) => exit::OK,
    }))
}

/// Awaits a future, and makes a note if it takes longer than this.
async fn noting<T, N>(future: impl Future<Output = T>, limit: Duration, note: impl FnOnce() -> N) -> T {
    let mut future = std::pin::pin!(future);
    match tokio::time::timeout(limit, &mut future).await {
        Ok(outcome) => outcome,
        Err(_) => {
            note();
            future.await
        }
    }
}

/// Adds a hint to the error of a send: how to find the task that may exist, or another way to call.
fn with_hint(error: Error, target: &Target) -> anyhow::Error {
    let may_be = match error.kind() {
        ErrorKind::PushNotificationNotSupported => {
            let stream = target.stream_command();
            let hint = format!("this agent does not support webhooks; watch the updates instead: {stream}");
            return exit::hinted(error, hint);
        }
        ErrorKind::DeadlineExceeded => "the task may still be running",
        ErrorKind::Unavailable if error.is_undelivered() || was_not_sent(&error) => {
            let when = error
                .retry_after()
                .map(|after| format!(" in {}", output::count(after.as_secs().max(1), "second", "seconds")));
            let when = when.unwrap_or_else(|| " later".to_owned());
            return exit::hinted(error, format!("the message did not arrive; send it again{when}"));
        }
        ErrorKind::Unavailable => "the message may have arrived, and its task may be running",
        _ => return error.into(),
    };
    exit::hinted(error, format!("{may_be}; see: {}", target.list_command()))
}

/// The known state of a watched task.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Its id; `None` for a send until the stream has named it.
    pub(super) task: Option<TaskId>,
    /// The id of the last event that was seen.
    pub(super) after: Option<u64>,
}

/// Prints a stream to its end; the exit code is that of the last state. A request for input ends it as well: for a
/// watcher at once, for a sender only if it comes after its message.
pub(super) async fn follow(
    mut events: EventStream,
    target: &Target,
    watch: Watch,
    format: Format,
) -> Result<ExitCode> {
    let mut code = exit::OK;
    let watches = watch.task.is_some();
    let mut seen = watch;
    let mut shown = ShownState::default();
    while let Some(item) = events.next().await {
        let item = item.map_err(|error| broken(error, target, &seen))?;
        let event = item.event();
        output::event(format, &item, &mut shown)?;
        seen.after = item.seq().map(|seq| seq.0).or(seen.after);
        if let Some(id) = event.task_id() {
            seen.task = Some(id.clone());
        }
        let Some(status) = event.status() else { continue };
        code = exit::of_state(status.state);
        let asks = watches || matches!(**event, Event::StatusUpdate(_));
        if status.state == TaskState::InputRequired && asks {
            if let Some(id) = event.task_id() {
                how_to_answer(target, id, status.state);
            }
            break;
        }
    }
    output::end_line();
    Ok(ExitCode::from(code))
}

/// Adds a hint to the error of a stream that broke off: how to resume it.
fn broken(error: Error, target: &Target, seen: &Watch) -> anyhow::Error {
    let is_cut = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded);
    match &seen.task {
        Some(id) if is_cut => {
            exit::hinted(error, format!("resume with: {}", target.watch_command(id, seen.after)))
        }
        None if is_cut => with_hint(error, target),
        _ => error.into(),
    }
}

fn how_to_answer(target: &Target, id: &TaskId, state: TaskState) {
    if state == TaskState::InputRequired {
        output::note(&format!("answer with: {}", target.answer_command(id)));
    }
}

fn request(send: &Send) -> Result<SendMessageRequest> {
    let mut parts = Vec::new();
    let has_others = !send.files.is_empty() || !send.data.is_empty();
    match send.text.as_deref() {
        Some("-") => parts.push(Part::text(stdin()?)),
        Some(text) => parts.push(Part::text(text)),
        None if has_others => {}
        None => parts.push(Part::text(stdin()?)),
    }
    for path in &send.files {
        parts.push(file(path)?);
    }
    for json in &send.data {
        let value: Json =
            json.parse().map_err(|error| exit::usage(format!("--data {json}: expected JSON: {error}")))?;
        parts.push(Part::data(value));
    }
    let id = send.message_id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let message = Message {
        task_id: send.task.clone().map(Into::into),
        context_id: send.context.clone().map(Into::into),
        metadata: metadata(&send.metadata)?,
        ..Message::user(id, parts)
    };
    let webhook = send.push.as_ref().map(|url| push::config("--push", url, send.push_token.as_ref()));
    let configuration = SendMessageConfiguration {
        task_push_notification_config: webhook.transpose()?,
        history_length: send.history,
        return_immediately: send.no_wait,
        ..SendMessageConfiguration::default()
    };
    Ok(SendMessageRequest { message, configuration: Some(configuration), ..SendMessageRequest::default() })
}

fn stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the text from stdin")?;
    if text.trim().is_empty() {
        return Err(exit::usage("the message is empty; give a text as an argument or on stdin"));
    }
    Ok(text.trim_end_matches('\n').to_owned())
}

fn file(path: &Path) -> Result<Part> {
    let bytes = std::fs::read(path)
        .map_err(|error| exit::usage(format!("--file {}: cannot be read: {error}", path.display())))?;
    let part = match path.file_name() {
        Some(name) => Part::raw(bytes).with_filename(name.to_string_lossy()),
        None => Part::raw(bytes),
    };
    Ok(match media_type(path) {
        Some(media_type) => part.with_media_type(media_type),
        None => part,
    })
}

/// The media type of common files; others are sent without one.
fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match &*extension {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "zip" => "application/zip",
        _ => return None,
    })
}

fn metadata(pairs: &[String]) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(exit::usage(format!("--metadata {pair}: expected KEY=VALUE")));
        };
        let value: Json = value.parse().unwrap_or_else(|_| value.into());
        metadata.insert(key, value);
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_wait_is_noted_once() {
        let mut notes = 0;
        assert_eq!(noting(async { 7 }, Duration::ZERO, || notes += 1).await, 7);
        assert_eq!(notes, 0, "an answer at once");
        // The answer comes with the note.
        let (answer, waiting) = tokio::sync::oneshot::channel();
        assert_eq!(noting(waiting, Duration::ZERO, || answer.send(8)).await, Ok(8));
    }
}
