//! Text that grows: an artifact with one part, told in pieces at a pace.
//!
//! A token a piece would cost a commit each, and so an artifact is not told faster than its pace. What waits for its
//! piece is kept with the task, behind its lock: the write path takes it before whatever is written next, so that
//! nothing that is said later comes first, and nothing is left out when an execution ends.

use std::{fmt, sync::Arc, time::Duration};

use nuncio_protocol::{Artifact, ArtifactId, Event, Part, Result, TaskArtifactUpdateEvent};
use tokio::time::{Instant, sleep_until};

use super::{live::LiveTask, record::Recorder};

/// The shortest time between two pieces, by default.
pub const DEFAULT_PACE: Duration = Duration::from_millis(100);

/// The longest time between two pieces.
const MAX_PACE: Duration = Duration::from_secs(60);

/// A piece of so many bytes does not wait.
const MAX_WAITING: usize = 4 << 10;

/// An artifact of one text that grows, made by [`Emitter::text_stream`](crate::Emitter::text_stream).
///
/// In the store, in answers to Get and List and in push notifications the text is one part. Streams tell it in pieces:
/// the first one at once, the next ones when the pace or 4 KiB are reached, all before the next event of the task.
/// A client that appends the parts of the pieces has the same text in more parts.
///
/// ```no_run
/// # async fn tell(out: nuncio_server::Emitter, tokens: Vec<String>) -> nuncio_protocol::Result<()> {
/// let mut answer = out.text_stream("answer");
/// for token in tokens {
///     answer.push(&token).await?;
/// }
/// answer.finish().await?;
/// # Ok(())
/// # }
/// ```
///
/// Text that was pushed is told, also if the stream is dropped or the execution fails. Without [`Self::finish`] no piece
/// says that it is the last one.
pub struct TextStream {
    recorder: Recorder,
    id: ArtifactId,
    name: String,
    pace: Duration,
    /// There is text: the next piece is added to it.
    begun: bool,
    /// There may be more.
    open: bool,
    /// The moment from which the next piece may be told.
    due: Option<Instant>,
    /// Text was left to wait until then.
    waits: bool,
}

impl fmt::Debug for TextStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task_id = self.recorder.task_id();
        f.debug_struct("TextStream").field("task_id", task_id).field("id", &self.id).finish_non_exhaustive()
    }
}

impl TextStream {
    pub(super) fn new(recorder: Recorder, id: ArtifactId, name: String) -> Self {
        Self { recorder, id, name, pace: DEFAULT_PACE, begun: false, open: false, due: None, waits: false }
    }

    /// Gives the artifact this id. An artifact that the task has under it is replaced by the first piece.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<ArtifactId>) -> Self {
        self.id = id.into();
        self
    }

    /// Leaves so much time between two pieces, a minute at most; [`DEFAULT_PACE`] by default. With none, each push is a
    /// piece.
    #[must_use]
    pub fn with_pace(mut self, pace: Duration) -> Self {
        self.pace = pace.min(MAX_PACE);
        self
    }

    /// Adds text. It counts as said as soon as this is polled, also if it is dropped then. No text is nothing to say:
    /// before the first there is no artifact.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn push(&mut self, text: impl AsRef<str>) -> Result<()> {
        let text = text.as_ref();
        if text.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let is_due = self.is_due(now);
        let waiting = self.add(text, false)?;
        if is_due || waiting >= MAX_WAITING {
            (self.due, self.waits) = (Some(now + self.pace), false);
            return self.recorder.record_pending().await;
        }
        self.waits = true;
        if self.recorder.live().lock().pending_text.starts_timer() {
            tokio::spawn(tell_when_due(self.recorder.clone()));
        }
        Ok(())
    }

    /// Completes the text, including the part that waits.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn finish(&mut self) -> Result<()> {
        self.finish_with("").await
    }

    /// The same with this as the last of the text.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn finish_with(&mut self, text: impl AsRef<str>) -> Result<()> {
        let text = text.as_ref();
        if text.is_empty() && !self.open {
            return Ok(());
        }
        self.add(text, true)?;
        self.recorder.record_pending().await
    }

    /// True if the next piece need not wait. Text that was left to wait was told when it was due.
    fn is_due(&mut self, now: Instant) -> bool {
        if let Some(due) = self.due.filter(|due| self.waits && *due <= now) {
            (self.due, self.waits) = (Some(due + self.pace), false);
        }
        self.due.is_none_or(|due| due <= now)
    }

    /// Appends text to the part that waits; returns the number of bytes of this artifact that wait now.
    fn add(&mut self, text: &str, last: bool) -> Result<usize> {
        let mut state = self.recorder.live().lock();
        self.recorder.check_running(&state)?;
        let due = self.due.unwrap_or_else(Instant::now);
        let waiting = state.pending_text.entry(&self.id, &self.name, self.begun, due);
        waiting.text.push_str(text);
        waiting.last |= last;
        (self.begun, self.open) = (true, !last);
        Ok(waiting.text.len())
    }
}

/// Tells the text of a task when it is due, until none waits.
async fn tell_when_due(recorder: Recorder) {
    loop {
        let due = {
            let pending = &mut recorder.live().lock().pending_text;
            let Some(due) = pending.due() else { return pending.timer = false };
            due
        };
        tokio::select! {
            () = sleep_until(due) => {}
            // Told already, with something else.
            () = recorder.live().until(|state| state.pending_text.due() != Some(due)) => continue,
        }
        if recorder.record_pending().await.is_err() {
            // The execution is over, and its end records the text that waits.
            return recorder.live().lock().pending_text.timer = false;
        }
    }
}

/// The text of a task that waits for its piece, by artifact, in the order in which it is told.
#[derive(Default)]
pub(super) struct PendingText {
    waiting: Vec<ArtifactText>,
    /// Somebody tells it when it is due.
    timer: bool,
}

/// Text of one artifact that waits.
struct ArtifactText {
    id: ArtifactId,
    name: String,
    text: String,
    append: bool,
    last: bool,
    due: Instant,
}

impl PendingText {
    fn entry(&mut self, id: &ArtifactId, name: &str, append: bool, due: Instant) -> &mut ArtifactText {
        let known = self.waiting.iter().position(|waiting| waiting.id == *id);
        let place = known.unwrap_or_else(|| {
            let (id, name, text) = (id.clone(), name.to_owned(), String::new());
            self.waiting.push(ArtifactText { id, name, text, append, last: false, due });
            self.waiting.len() - 1
        });
        &mut self.waiting[place]
    }

    /// True if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// About how many bytes wait.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.text.len()).sum()
    }

    /// The moment at which the first text is due.
    fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.due).min()
    }

    /// True if no timer is set for the waiting text yet; marks it as set.
    fn starts_timer(&mut self) -> bool {
        !std::mem::replace(&mut self.timer, true)
    }

    /// Drops the text that waits.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes all that waits, as events of this task.
    pub(super) fn take(&mut self, live: &LiveTask) -> Vec<Event> {
        let piece = |waiting: ArtifactText| {
            Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: live.id.clone(),
                context_id: live.context_id.clone(),
                artifact: Arc::new(
                    Artifact::new(waiting.id, Part::text(waiting.text)).with_name(waiting.name),
                ),
                append: waiting.append,
                last_chunk: waiting.last,
                joins: true,
                ..TaskArtifactUpdateEvent::default()
            })
        };
        std::mem::take(&mut self.waiting).into_iter().map(piece).collect()
    }
}
