//! Writes one task, as the runtime would.

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, Event, Message, Part, Seq, Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp, fold,
};

use super::{at, commit_one, creation};
use crate::store::{Attached, Commit, Refused, Scope, Store};

/// Keeps the task by folding the events that it commits.
#[derive(Clone)]
pub(in crate::store) struct Writer {
    store: Arc<dyn Store>,
    pub(in crate::store) scope: Arc<Scope>,
    pub(in crate::store) task: Task,
    pub(in crate::store) seq: Seq,
}

impl Writer {
    pub(in crate::store) async fn create(
        store: &Arc<dyn Store>,
        scope: &Arc<Scope>,
        id: &str,
        context_id: &str,
        when: i64,
    ) -> Self {
        let task = creation(id, context_id, when);
        let mut writer = Self { store: Arc::clone(store), scope: Arc::clone(scope), task, seq: Seq::ZERO };
        let event = Event::Task(writer.task.clone());
        writer.append(event).await;
        writer
    }

    /// Continues an existing task.
    pub(in crate::store) fn open(store: &Arc<dyn Store>, scope: &Arc<Scope>, task: Task, seq: Seq) -> Self {
        Self { store: Arc::clone(store), scope: Arc::clone(scope), task, seq }
    }

    /// The entry that would append this event.
    pub(in crate::store) fn entry(&self, event: Event) -> Commit {
        let mut task = self.task.clone();
        if self.seq > Seq::ZERO {
            // The runtime does not commit refused events.
            let folded = fold(&mut task, &event, Timestamp::EPOCH);
            assert_eq!(folded, Ok(()), "the check itself is wrong");
        }
        let settled = event.status().is_some_and(|status| status.state.is_settled());
        Commit {
            scope: Arc::clone(&self.scope),
            task_id: self.task.id.clone(),
            expected: self.seq,
            event: Arc::new(event),
            at: at(1),
            snapshot: settled.then_some(task),
            take: false,
            push: false,
            attached: Attached::default(),
        }
    }

    /// The same task through another handle.
    pub(in crate::store) fn on(&self, store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), ..self.clone() }
    }

    /// Commits an entry; if it is accepted, the writer folds it.
    pub(in crate::store) async fn offer(&mut self, entry: Commit) -> Result<(), Refused> {
        let event = Arc::clone(&entry.event);
        commit_one(&*self.store, entry).await?;
        self.advance(&event);
        Ok(())
    }

    /// Folds an event that is in the log.
    pub(in crate::store) fn advance(&mut self, event: &Event) {
        if self.seq > Seq::ZERO {
            let folded = fold(&mut self.task, event, Timestamp::EPOCH);
            assert_eq!(folded, Ok(()), "the check itself is wrong");
        }
        self.seq = self.seq.next();
    }

    pub(in crate::store) async fn append(&mut self, event: Event) {
        let entry = self.entry(event);
        let event = Arc::clone(&entry.event);
        assert_eq!(self.offer(entry).await, Ok(()), "{event:?}");
    }

    pub(in crate::store) fn status_event(&self, state: TaskState, when: i64) -> Event {
        Event::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task.id.clone(),
            context_id: self.task.context_id.clone(),
            status: TaskStatus { state, message: None, timestamp: Some(at(when)) },
            ..TaskStatusUpdateEvent::default()
        })
    }

    pub(in crate::store) fn chunk_event(&self, artifact: &str, text: &str) -> Event {
        Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task.id.clone(),
            context_id: self.task.context_id.clone(),
            artifact: Arc::new(Artifact::new(artifact, Part::text(text))),
            append: true,
            ..TaskArtifactUpdateEvent::default()
        })
    }

    pub(in crate::store) async fn status(&mut self, state: TaskState, when: i64) {
        self.append(self.status_event(state, when)).await;
    }

    pub(in crate::store) async fn chunk(&mut self, artifact: &str, text: &str) {
        self.append(self.chunk_event(artifact, text)).await;
    }

    pub(in crate::store) async fn caller_says(&mut self, text: &str) {
        self.append(self.message_event(text, &[])).await;
    }

    /// A message of the caller that refers to other tasks.
    pub(in crate::store) fn message_event(&self, text: &str, references: &[&str]) -> Event {
        Event::Message(Arc::new(Message {
            task_id: Some(self.task.id.clone()),
            context_id: Some(self.task.context_id.clone()),
            reference_task_ids: references.iter().map(|id| TaskId::from(*id)).collect(),
            ..Message::user(text, Part::text(text))
        }))
    }
}
