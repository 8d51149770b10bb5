//! The answers that callers got; none of them may be lost.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use nuncio_protocol::{StreamItem, Task, TaskId, TaskState};

/// The answers of all callers of a test.
#[derive(Default)]
pub(crate) struct Ledger {
    tasks: Mutex<HashMap<TaskId, Told>>,
    /// The number of repeated calls.
    pub(crate) repeats: AtomicUsize,
    /// The number of answers by which the hub itself asked for a later retry.
    pub(crate) shed: AtomicUsize,
}

/// The answers about one task.
#[derive(Default, Clone)]
pub(crate) struct Told {
    /// The agent whose task it is.
    pub(crate) agent: &'static str,
    /// The task as it was answered or shown, at some time.
    pub(crate) answers: Vec<Task>,
    /// The events of each watcher in their order, over all its connections.
    pub(crate) watched: Vec<Vec<StreamItem>>,
    /// Messages that were answered.
    pub(crate) said: Vec<String>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Told>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, agent: &'static str, id: &TaskId, change: impl FnOnce(&mut Told)) {
        let mut tasks = self.lock();
        let told = tasks.entry(id.clone()).or_default();
        told.agent = agent;
        change(told);
    }

    /// A task was answered or shown.
    pub(crate) fn answered(&self, agent: &'static str, task: &Task) {
        self.note(agent, &task.id, |told| told.answers.push(task.clone()));
    }

    /// A message to this task was answered.
    pub(crate) fn heard(&self, agent: &'static str, id: &TaskId, message: &str) {
        self.note(agent, id, |told| told.said.push(message.to_owned()));
    }

    /// A watcher saw these.
    pub(crate) fn watched(&self, agent: &'static str, id: &TaskId, items: Vec<StreamItem>) {
        self.note(agent, id, |told| told.watched.push(items));
    }

    pub(crate) fn repeated(&self, by_the_hub: bool) {
        self.repeats.fetch_add(1, Ordering::Relaxed);
        if by_the_hub {
            self.shed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn shed(&self) -> usize {
        self.shed.load(Ordering::Relaxed)
    }

    /// The number of tasks that callers know.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// All of it.
    pub(crate) fn all(&self) -> HashMap<TaskId, Told> {
        self.lock().clone()
    }
}

impl Told {
    /// True if somebody was told that it was canceled.
    pub(crate) fn was_canceled(&self) -> bool {
        self.answers.iter().any(|task| task.status.state == TaskState::Canceled)
    }
}
