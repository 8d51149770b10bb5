//! The emitter: an executor's only way to write to its task (decision 0003).

use std::{fmt, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{
    Artifact, ArtifactId, Error, Event, Message, Metadata, Part, Result, Role, Seq, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

use super::{record::Recorder, text_stream::TextStream};
use crate::{
    id::new_id,
    size::MAX_MEMO_BYTES,
    store::{PutRecord, RecordChange},
};

/// Writes the events of an execution. When a call returns, the event has its number in the task's log.
/// Callers see it when it is committed ([`Self::flush`] waits for that). Clones may emit concurrently.
///
/// The first event decides: [`Self::message`] is a direct reply without a task; any other event makes the
/// task. An error means that the execution is over (it was canceled, or the store is gone): return it.
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

    /// Makes the task, in the state submitted.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn submitted(&self) -> Result<()> {
        self.recorder.create().await.map(drop)
    }

    /// Sets the state working.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn working(&self) -> Result<Seq> {
        self.status(TaskState::Working, Vec::new()).await
    }

    /// Completes the task.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn completed(&self) -> Result<Seq> {
        self.status(TaskState::Completed, Vec::new()).await
    }

    /// Fails the task with this reason. An executor that returns an error does the same.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn failed(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Failed, vec![reason.into()]).await
    }

    /// Rejects the task with this reason: the agent will not do it.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn rejected(&self, reason: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::Rejected, vec![reason.into()]).await
    }

    /// Interrupts the task with a question: it needs input from the caller to continue.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn input_required(&self, question: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::InputRequired, vec![question.into()]).await
    }

    /// Interrupts the task: it needs an authorisation to continue, explained here.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn auth_required(&self, explanation: impl Into<Part>) -> Result<Seq> {
        self.status(TaskState::AuthRequired, vec![explanation.into()]).await
    }

    /// Sets a state, with a message of the agent (none if `parts` is empty).
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

    /// Emits a whole artifact.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn artifact(&self, artifact: Artifact) -> Result<Seq> {
        self.chunk(artifact, false, true).await
    }

    /// Emits a whole artifact with one text part.
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

    /// Gives a direct reply: no task is made, and nothing may follow. If there is a task already (a
    /// follow-up, or a caller that did not wait), the reply becomes the message of its completed status.
    ///
    /// # Errors
    /// The execution is over.
    pub async fn message(&self, parts: impl Into<Vec<Part>>) -> Result<()> {
        let mut message = self.own_message(parts.into());
        message.task_id = None;
        self.recorder.reply(message).await
    }

    /// Stores a memo with the task, in place of the earlier one. The agent finds it in
    /// [`Execution::memo`](crate::Execution::memo) with the next message, and when it is asked again after a
    /// crash. Callers never see it.
    ///
    /// The memo is committed together with the next event, so call this before the event that it belongs to.
    /// By itself it is neither committed nor waited for by [`Self::flush`]. (An execution that ends without a
    /// final status gets one from the runtime.) A direct reply drops the memo.
    ///
    /// # Errors
    /// The execution is over, or the memo is larger than [`MAX_MEMO_BYTES`].
    pub fn remember(&self, memo: impl Into<Bytes>) -> Result<()> {
        let memo = memo.into();
        if memo.len() > MAX_MEMO_BYTES {
            return Err(Error::internal(format!(
                "a memo may have {MAX_MEMO_BYTES} bytes, this has {}",
                memo.len()
            )));
        }
        self.recorder.remember(memo)
    }

    /// Writes a record in one transaction with the next event; several may be put before that event. If the stored
    /// record is not of the version that `expect` names, the event is refused: nothing is stored, and
    /// [`Self::flush`] fails. A direct reply drops the record.
    ///
    /// # Errors
    /// The execution is over.
    pub fn put_record(&self, record: PutRecord) -> Result<()> {
        self.recorder.change_record(RecordChange::Put(record))
    }

    /// Deletes the record of this version in one transaction with the next event, as [`Self::put_record`].
    ///
    /// # Errors
    /// The execution is over.
    pub fn delete_record(&self, kind: Arc<str>, key: Arc<str>, version: u64) -> Result<()> {
        self.recorder.change_record(RecordChange::Delete { kind, key, version })
    }

    /// Parks the task with the next event: it stays in progress, and is in nobody's hands. No server owns it, none
    /// takes it up after a crash, it needs no memory, and any server that shares the store may write to it by
    /// [`Runtime::write_to`](crate::Runtime::write_to). Callers wait for it as for any task in progress.
    ///
    /// The executor then returns `Ok`. If no event follows, the runtime repeats the current status. An event that
    /// settles the task does not park it.
    ///
    /// # Errors
    /// The execution is over.
    pub fn park(&self) -> Result<()> {
        self.recorder.park()
    }

    /// The [memo](Self::remember) of the task.
    #[must_use]
    pub fn memo(&self) -> Option<Bytes> {
        self.recorder.memo()
    }

    /// Emits an event of another agent whole: a status or a piece of an artifact, under the ids of this task; or a
    /// direct reply, as [`Self::message`].
    ///
    /// # Errors
    /// The execution is over, or the event is a whole task, which an agent may not emit.
    pub async fn emit(&self, event: Event) -> Result<()> {
        if let Event::Message(message) = event {
            let context_id = Some(self.recorder.context_id().clone());
            let message = Message { task_id: None, context_id, ..Arc::unwrap_or_clone(message) };
            // Boxed: it is rare, and would make every emit's future larger.
            return Box::pin(self.recorder.reply(message)).await;
        }
        self.recorder.record(self.own(event)?).await.map(drop)
    }

    /// Emits several such events together, for little more than the cost of one; direct replies are not
    /// allowed. Like every event they make the task if there is none, and so does an empty list.
    ///
    /// # Errors
    /// As [`Self::emit`]. If the task refuses an event, the events before it are recorded.
    pub async fn emit_all(&self, events: Vec<Event>) -> Result<()> {
        let events = events.into_iter().map(|event| self.own(event)).collect::<Result<_>>()?;
        self.recorder.record_all(events).await.map(drop)
    }

    /// Puts the ids of this task on an event.
    fn own(&self, event: Event) -> Result<Event> {
        let (task_id, context_id) = (self.recorder.task_id().clone(), self.recorder.context_id().clone());
        match event {
            Event::StatusUpdate(update) => {
                Ok(Event::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, ..update }))
            }
            Event::ArtifactUpdate(update) => {
                Ok(Event::ArtifactUpdate(TaskArtifactUpdateEvent { task_id, context_id, ..update }))
            }
            Event::Task(_) | Event::Message(_) => Err(Error::internal("only updates can be emitted here")),
        }
    }

    /// Refuses the message: no task is made, and the caller gets this error. Nothing may follow.
    ///
    /// # Errors
    /// There is a task already (a follow-up, or a caller that did not wait): the same error comes back.
    /// Return it from the executor, which ends the task. Or the execution is over.
    pub fn refuse(&self, error: Error) -> Result<()> {
        self.recorder.refuse(error)
    }

    /// Waits until the task is interrupted.
    pub async fn until_interrupted(&self) {
        self.recorder.until_interrupted().await;
    }

    /// Waits until the task is interrupted and a message is queued that may be the answer. For an agent that
    /// continues after [`Self::auth_required`], because the authorisation may come another way. The queued
    /// message gets its turn when this execution returns.
    pub async fn until_follow_up(&self) {
        self.recorder.until_follow_up().await;
    }

    /// The task with all that was said until now, but for text that waits for its piece; `None` before the first event.
    #[must_use]
    pub fn task(&self) -> Option<Task> {
        self.with_task(|task| task.cloned())
    }

    /// Reads the task with all events so far, without a copy. The task is locked meanwhile, for readers and
    /// writers: return quickly.
    pub fn with_task<T>(&self, read: impl FnOnce(Option<&Task>) -> T) -> T {
        self.recorder.with_task(read)
    }

    /// True if the task is stopped for good: its caller canceled it, or it has reached a limit of bytes.
    /// False if it is not being stopped, or is stopped for another reason, such as a shutdown.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.recorder.is_canceled()
    }

    /// Waits until all emitted events are committed. An emit returns earlier, when its event has a number.
    /// Call this before an action that cannot be undone.
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
