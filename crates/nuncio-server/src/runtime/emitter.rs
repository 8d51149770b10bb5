//! The emitter: an executor's only way to write to its task (decision 0003).

use std::{fmt, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{
    Artifact, ArtifactId, Error, Event, Message, Metadata, Part, Result, Role, Seq, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

use super::{record::Recorder, text_stream::TextStream};
use crate::{id::new_id, size::MOST_MEMO};

/// Writes the events of an execution. When a call returns, the event has its place in the task's log; it is shown to
/// callers when it is in the store ([`Self::flush`] waits for that). Parts of an agent may emit concurrently
/// through clones.
///
/// The first event decides: [`Self::message`] is a direct reply without a task; anything else makes the
/// task. An error means that the execution is over (canceled, or the store is gone): return it.
#[derive(Clone)]
pub struct Emitter {
    recorder: Recorder,
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("task_id", self.recorder.task_id()).finish_non_exhaustive()
    }
}

impl Emitter {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder }
    }

    /// Makes the task, as submitted, without saying more yet.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn submitted(&self) -> Result<()> {
        self.recorder.create().await.map(drop)
    }

    /// The task is being worked on.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn working(&self) -> Result<Seq> {
        self.status(TaskState::Working, Vec::new()).await
    }

    /// The task is done.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn completed(&self) -> Result<Seq> {
        self.status(TaskState::Completed, Vec::new()).await
    }

    /// The task has failed, for this reason. Returning an error says the same.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn failed(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Failed, vec![reason.into()]).await
    }

    /// The agent will not do it, for this reason.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn rejected(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Rejected, vec![reason.into()]).await
    }

    /// The task cannot go on without an answer to this.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn input_required(&self, question: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::InputRequired, vec![question.into()]).await
    }

    /// The task cannot go on without an authorisation, explained here.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn auth_required(&self, explanation: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::AuthRequired, vec![explanation.into()]).await
    }

    /// A new status, with what the agent says about it (nothing if `parts` is empty).
    ///
    /// # Errors
    /// The execution is over.
    pub async fn status(&self, state: TaskState, parts: Vec<Part>) -> Result<Seq> {
        let message = (!parts.is_empty()).then(|| Arc::new(self.own_message(parts)));
        self.recorder
            .record(Event::StatusUpdate(TaskStatusUpdateEvent {
                task_id: self.recorder.task_id().clone(),
                context_id: self.recorder.context_id().clone(),
                status: TaskStatus { state, message, timestamp: None },
                metadata: Metadata::new(),
            }))
            .await
    }

    /// A whole artifact.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn artifact(&self, artifact: Artifact) -> Result<Seq> {
        self.chunk(artifact, false, true).await
    }

    /// A whole artifact of one text.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn text(&self, name: impl Into<String>, text: impl Into<String>) -> Result<Seq> {
        let id: ArtifactId = new_id();
        self.artifact(Artifact::new(id, Part::text(text)).with_name(name)).await
    }

    /// A text that grows, as an artifact of this name: one part in the store, pieces on streams.
    pub fn text_stream(&self, name: impl Into<String>) -> TextStream {
        TextStream::new(self.recorder.clone(), new_id(), name.into())
    }

    /// A piece of an artifact, which keeps its parts as they are: `append` adds to the artifact of the same id, `last` completes it.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn chunk(&self, artifact: Artifact, append: bool, last: bool) -> Result<Seq> {
        self.recorder
            .record(Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: self.recorder.task_id().clone(),
                context_id: self.recorder.context_id().clone(),
                artifact: Arc::new(artifact),
                append,
                last_chunk: last,
                joins: false,
                metadata: Metadata::new(),
            }))
            .await
    }

    /// A direct reply: no task is made, and nothing more may be said. Where there is a task already (it is
    /// a follow-up, or the caller would not wait) the reply becomes the words of its completion.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn message(&self, parts: impl Into<Vec<Part>>) -> Result<()> {
        let mut message = self.own_message(parts.into());
        message.task_id = None;
        self.recorder.reply(message).await
    }

    /// Keeps this with the task, in place of what was kept: [`Execution::memo`](crate::Execution::memo) shows it with the next message,
    /// and after a crash to an agent that is asked again. It is for the agent alone.
    ///
    /// It is written in one piece with the next event, so say it before the event that it belongs to; by
    /// itself it is not written, nor waited for by [`Self::flush`]. (An execution that ends without a status
    /// of its own is given one.) A direct reply drops it.
    ///
    /// # Errors
    /// The execution is over, or it is more than [`MOST_MEMO`].
    pub fn remember(&self, memo: impl Into<Bytes>) -> Result<()> {
        let memo = memo.into();
        if memo.len() > MOST_MEMO {
            return Err(Error::internal(format!(
                "a memo may have {MOST_MEMO} bytes, this has {}",
                memo.len()
            )));
        }
        self.recorder.remember(memo)
    }

    /// An event whole, as somebody else said it: a status or a piece of an artifact with all that it carries,
    /// under the ids of this task; or a direct reply, as [`Self::message`].
    ///
    /// # Errors
    /// The execution is over; or it is a whole task, which is not for an agent to say.
    pub async fn emit(&self, event: Event) -> Result<()> {
        if let Event::Message(message) = event {
            let context_id = Some(self.recorder.context_id().clone());
            let message = Message { task_id: None, context_id, ..Arc::unwrap_or_clone(message) };
            // Boxed: it is rare, and would make every emit's future larger.
            return Box::pin(self.recorder.reply(message)).await;
        }
        self.recorder.record(self.own(event)?).await.map(drop)
    }

    /// Several such events in one piece, for what costs little more than one; a direct reply is not among them. Like
    /// every event they make the task if there is none, even if there are none of them.
    ///
    /// # Errors
    /// As [`Self::emit`]. Events before one that cannot be told are told.
    pub async fn emit_all(&self, events: Vec<Event>) -> Result<()> {
        let events = events.into_iter().map(|event| self.own(event)).collect::<Result<_>>()?;
        self.recorder.record_all(events).await.map(drop)
    }

    /// The event as one of this task.
    fn own(&self, event: Event) -> Result<Event> {
        let (task_id, context_id) = (self.recorder.task_id().clone(), self.recorder.context_id().clone());
        match event {
            Event::StatusUpdate(update) => {
                Ok(Event::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, ..update }))
            }
            Event::ArtifactUpdate(update) => {
                Ok(Event::ArtifactUpdate(TaskArtifactUpdateEvent { task_id, context_id, ..update }))
            }
            Event::Task(_) | Event::Message(_) => Err(Error::internal("an agent emits pieces of a task")),
        }
    }

    /// Refuses the message: no task is made, and the caller gets this error. Nothing may be said after it.
    ///
    /// # Errors
    /// There is a task already (it is a follow-up, or the caller would not wait): the same error comes back, for
    /// the executor to return, which ends the task. Or the execution is over.
    pub fn refuse(&self, error: Error) -> Result<()> {
        self.recorder.refuse(error)
    }

    /// Done when the task asks for something.
    pub async fn asked(&self) {
        self.recorder.until_interrupted().await;
    }

    /// Done when the task asks for something and a message waits that may be the answer. For an agent that goes
    /// on after [`Self::auth_required`], because what it needs may come by another way: the message has its turn
    /// when this one returns.
    pub async fn answered(&self) {
        self.recorder.until_follow_up().await;
    }

    /// The task with all that was said until now, but for text that waits for its piece; `None` before the first event.
    #[must_use]
    pub fn task(&self) -> Option<Task> {
        self.look(|task| task.cloned())
    }

    /// What there is to say about the task so far, without a copy of it. Nothing can be said meanwhile, nor read by
    /// others: have a look, and no more.
    pub fn look<T>(&self, look: impl FnOnce(Option<&Task>) -> T) -> T {
        self.recorder.with_task(look)
    }

    /// True if the task is stopped for good: its caller cancels it, or it has grown to its limit of bytes. False while
    /// nobody stops it, and if it is stopped for another reason, such as the end of the server.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.recorder.is_canceled()
    }

    /// Waits until all that was said is safely in the store. Emits return when an event has its place in the
    /// order, and a disk takes longer: an agent that is about to do what cannot be undone waits here first.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn flush(&self) -> Result<()> {
        self.recorder.flush().await
    }

    fn own_message(&self, parts: Vec<Part>) -> Message {
        Message {
            message_id: new_id(),
            context_id: Some(self.recorder.context_id().clone()),
            task_id: Some(self.recorder.task_id().clone()),
            role: Role::Agent,
            parts,
            ..Message::default()
        }
    }
}
