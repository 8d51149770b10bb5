//! A trial: what was sent, what came back, and the task that follows from it.

use std::sync::Arc;

use nuncio_audit::{
    exchange::{CallInterface, CallRequest, Judged, Meaning, Validity, judge_notification},
    outcome::InterfaceId,
};
use nuncio_client::Credentials;
use nuncio_protocol::{Event, Message, Task, TaskId, Timestamp, fold};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::TrialTarget;
use crate::{
    clock,
    events::{EventKind, EventLog, HubEvent},
    push_receiver::{Inbox, Notification},
};

/// Maximum number of frames of a trial.
const MAX_FRAMES: usize = 500;
/// Maximum length of the text of a frame, and of all frames of a trial.
const MAX_TEXT: usize = 64 * 1024;
const MAX_TEXTS: usize = 1 << 20;
/// Headers of a notification that are shown: those with which an agent proves who it is, without secrets of others.
const SHOWN_HEADERS: [&str; 5] =
    ["content-type", "webhook-id", "webhook-timestamp", "a2a-version", "a2a-extensions"];

/// The direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Sent,
    Received,
    /// A notification.
    Notified,
}

/// A frame as it was sent or received.
#[derive(Clone, Debug)]
pub(crate) struct TrialFrame {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) direction: Direction,
    /// Its kind in words, such as `event 3`.
    pub(crate) label: String,
    /// Absent: there is nothing to judge.
    pub(crate) validity: Option<Validity>,
    pub(crate) notes: Vec<String>,
    pub(crate) text: String,
    /// The text is only the beginning.
    pub(crate) is_cut: bool,
}

/// A trial with its frames.
pub(crate) struct Trial {
    pub(crate) id: String,
    pub(crate) target: TrialTarget,
    pub(crate) began: Timestamp,
    /// The message and its target as the operator gave them.
    pub(crate) given: Value,
    pub(super) interface: CallInterface,
    /// The address of the card; `None`: the agent is one of the hub.
    pub(super) home: Option<Url>,
    pub(super) credentials: Credentials,
    /// Ends the exchange.
    pub(super) stop: CancellationToken,
    events: Arc<EventLog>,
    state: Mutex<TrialState>,
}

/// The state of a trial at a moment.
#[derive(Clone, Default)]
pub(crate) struct TrialState {
    pub(crate) ended: Option<Timestamp>,
    pub(crate) frames: Vec<TrialFrame>,
    /// Frames were left out, because the trial has all that it keeps.
    pub(crate) is_cut: bool,
    pub(crate) task: Option<Task>,
    /// The reply of an agent that makes no task.
    pub(crate) reply: Option<Arc<Message>>,
    pub(crate) curl: Option<String>,
    size: usize,
    /// The inbox of notifications, which lives as long as the trial.
    inbox: Option<Arc<Inbox>>,
}

impl Trial {
    pub(super) fn new(
        target: TrialTarget,
        interface: CallInterface,
        home: Option<Url>,
        credentials: Credentials,
        given: Value,
        events: Arc<EventLog>,
    ) -> Self {
        Self {
            id: Uuid::now_v7().to_string(),
            target,
            began: clock::now(),
            interface,
            home,
            credentials,
            given,
            stop: CancellationToken::new(),
            events,
            state: Mutex::default(),
        }
    }

    /// The state now.
    pub(crate) fn state(&self) -> TrialState {
        self.state.lock().clone()
    }

    /// The interface that is called.
    pub(crate) fn interface(&self) -> &InterfaceId {
        self.interface.id()
    }

    pub(super) fn task_id(&self) -> Option<TaskId> {
        self.state.lock().task.as_ref().map(|task| task.id.clone())
    }

    /// True if no more frames are kept.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().is_cut
    }

    pub(super) fn hold(&self, inbox: Inbox) {
        self.state.lock().inbox = Some(Arc::new(inbox));
    }

    /// Adds a request as a frame.
    pub(super) fn sent(&self, request: &CallRequest) {
        let text = request.text();
        {
            let mut state = self.state.lock();
            state.curl.get_or_insert_with(|| request.curl());
            state.push(Direction::Sent, "request", None, Vec::new(), &text);
        }
        self.tell();
    }

    /// Adds a judged frame, and folds its meaning into the task.
    pub(super) fn add(&self, direction: Direction, label: &str, judged: Judged) {
        {
            let mut state = self.state.lock();
            state.push(direction, label, Some(judged.validity), judged.notes, &judged.text);
            if let Some(meaning) = judged.meaning.filter(|_| direction == Direction::Received) {
                state.take(meaning);
            }
        }
        self.tell();
    }

    /// Adds a frame without content.
    pub(super) fn note(&self, direction: Direction, label: &str) {
        self.state.lock().push(direction, label, None, Vec::new(), "");
        self.tell();
    }

    /// Adds the reason why there is no answer, or no more of it.
    pub(super) fn fail(&self, why: &str) {
        let notes = vec![why.to_owned()];
        self.state.lock().push(Direction::Received, "no answer", Some(Validity::Invalid), notes, "");
        self.tell();
    }

    pub(super) fn end(&self, why: Option<String>) {
        if let Some(why) = why {
            self.fail(&why);
        }
        self.state.lock().ended = Some(clock::now());
        self.tell();
    }

    fn tell(&self) {
        self.events
            .add(HubEvent { subject: Some(self.id.as_str().into()), ..HubEvent::of(EventKind::Trial) });
    }
}

/// Adds a notification as a frame. The task stays as the answer has it, so that the two can be compared.
pub(super) fn notified(trial: &Trial, notification: &Notification) {
    let Notification { headers, body } = notification;
    let mut judged = judge_notification(body);
    let shown = SHOWN_HEADERS.iter().filter_map(|name| Some((name, headers.get(*name)?.to_str().ok()?)));
    let head: String = shown.map(|(name, value)| format!("{name}: {value}\n")).collect();
    judged.text = format!("{head}\n{}", judged.text);
    trial.add(Direction::Notified, "notification", judged);
}

impl TrialState {
    fn push(
        &mut self,
        direction: Direction,
        label: &str,
        validity: Option<Validity>,
        notes: Vec<String>,
        text: &str,
    ) {
        if self.frames.len() >= MAX_FRAMES || self.size >= MAX_TEXTS {
            self.is_cut = true;
            return;
        }
        let shown = beginning(text, MAX_TEXT.min(MAX_TEXTS - self.size));
        self.size += shown.len();
        let number = self.frames.len() as u64 + 1;
        let is_cut = shown.len() < text.len();
        let (label, text) = (label.to_owned(), shown.to_owned());
        self.frames.push(TrialFrame {
            number,
            at: clock::now(),
            direction,
            label,
            validity,
            notes,
            text,
            is_cut,
        });
    }

    fn take(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Task(task) => self.task = Some(task),
            Meaning::Message(message) => self.reply = Some(message),
            Meaning::Event(Event::Task(task)) if self.task.is_none() => self.task = Some(task),
            Meaning::Event(Event::Message(message)) if self.task.is_none() => self.reply = Some(message),
            Meaning::Event(event) => {
                let begin = || Task {
                    id: event.task_id().cloned().unwrap_or_default(),
                    context_id: event.context_id().cloned().unwrap_or_default(),
                    ..Task::default()
                };
                let task = self.task.get_or_insert_with(begin);
                // An event that does not fit is a frame like any other; the agent is at fault, not the trial.
                let _ = fold(task, &event, clock::now());
            }
        }
    }
}

/// The beginning of a text, at most so many bytes.
fn beginning(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded() {
        let mut state = TrialState::default();
        for _ in 0..MAX_FRAMES + 5 {
            state.push(Direction::Received, "event", None, Vec::new(), "x");
        }
        assert!(state.is_cut && state.frames.len() == MAX_FRAMES);
        let mut state = TrialState::default();
        let long = "é".repeat(MAX_TEXT);
        for _ in 0..40 {
            state.push(Direction::Received, "event", None, Vec::new(), &long);
        }
        assert!(state.is_cut && state.frames.iter().all(|frame| frame.is_cut));
        assert!(state.frames.iter().map(|frame| frame.text.len()).sum::<usize>() <= MAX_TEXTS);
    }
}
