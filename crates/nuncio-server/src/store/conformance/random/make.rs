//! Makes names, entries and turns for the steps of one sequence.

use std::sync::Arc;

use nuncio_protocol::{
    Artifact, Event, Message, Part, Seq, Task, TaskArtifactUpdateEvent, TaskId, TaskStatus,
    TaskStatusUpdateEvent,
};

use super::{
    model::{Known, Model},
    step::{CALLERS, RandomEntry, RandomEvent, RandomStep, RandomTurn, TASKS},
};
use crate::store::{
    Attached, Commit, IdempotencyKey, Scope, StoredTurn,
    conformance::{at, key},
};

/// One sequence: the model, and names that are unique within the store.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) agent: String,
    pub(super) model: Model,
    /// The generation of each slot: a slot gets a new id once its task is deleted.
    lives: [usize; TASKS],
    turns: usize,
    /// The number of pieces of content, which makes each unique.
    pieces: usize,
    /// The steps so far.
    pub(super) done: Vec<RandomStep>,
}

impl Run {
    pub(super) fn new(agent: String) -> Self {
        Self { agent, model: Model::default(), lives: [0; TASKS], turns: 0, pieces: 0, done: Vec::new() }
    }

    pub(super) fn scope(&self, caller: usize) -> Arc<Scope> {
        let (tenant, owner) = [(None, "ann"), (None, "bob"), (Some("acme"), "ann")][caller % CALLERS];
        let tenant = tenant.map(Into::into);
        Arc::new(Scope { agent: self.agent.as_str().into(), tenant, owner: Some(owner.into()) })
    }

    pub(super) fn id(&self, slot: usize) -> TaskId {
        format!("{}-{slot}-{}", self.agent, self.lives[slot]).into()
    }

    pub(super) fn key(&self, number: usize) -> IdempotencyKey {
        key(&format!("k-{number}"), self.pieces as u8)
    }

    /// The scope of the task, or another one.
    pub(super) fn scope_of(&self, id: &TaskId, caller: usize, foreign: bool) -> Arc<Scope> {
        match self.model.any(id) {
            Some(known) if foreign => (0..CALLERS)
                .map(|caller| self.scope(caller))
                .find(|scope| **scope != *known.scope)
                .unwrap_or_default(),
            Some(known) => Arc::clone(&known.scope),
            None => self.scope(caller),
        }
    }

    pub(super) fn turn(&mut self, turn: &RandomTurn) -> StoredTurn {
        let number = turn.again.unwrap_or(self.turns).min(self.turns);
        self.turns = self.turns.max(number + 1);
        let body = format!("{number} at {}", self.pieces).into();
        StoredTurn { id: format!("{number:06}").into(), begun: turn.begun, body }
    }

    pub(super) fn message(&mut self, task: Option<TaskId>, refers: &[usize]) -> Message {
        self.pieces += 1;
        let text = format!("m-{}", self.pieces);
        let reference_task_ids = refers.iter().map(|slot| self.id(*slot)).collect();
        Message { task_id: task, reference_task_ids, ..Message::user(text.as_str(), Part::text(&*text)) }
    }

    fn event(&mut self, id: &TaskId, what: &RandomEvent) -> Event {
        let task_id = id.clone();
        match what {
            RandomEvent::Create { context, refers, state } => Event::Task(Task {
                id: task_id,
                context_id: format!("c-{context}").into(),
                status: TaskStatus { state: *state, message: None, timestamp: Some(at(0)) },
                history: vec![Arc::new(self.message(None, refers))],
                ..Task::default()
            }),
            RandomEvent::Status { state, at: when, says } => {
                let message = says.then(|| Arc::new(self.message(None, &[])));
                let status = TaskStatus { state: *state, message, timestamp: Some(at(*when as i64)) };
                Event::StatusUpdate(TaskStatusUpdateEvent { task_id, status, ..Default::default() })
            }
            RandomEvent::Chunk { artifact, append, joins } => {
                self.pieces += 1;
                let part = Part::text(format!("p-{}", self.pieces));
                let artifact = Arc::new(Artifact::new(format!("a-{artifact}"), part));
                let (append, joins) = (*append, *joins);
                Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                    task_id,
                    artifact,
                    append,
                    joins,
                    ..Default::default()
                })
            }
            RandomEvent::Say { refers } => Event::Message(Arc::new(self.message(Some(task_id), refers))),
        }
    }

    /// The entry as the runtime would make it; `None` for an event of an ended task, which never reaches a
    /// store.
    pub(super) fn entry(&mut self, me: usize, entry: &RandomEntry) -> Option<Commit> {
        let id = self.id(entry.task);
        let creates = matches!(entry.event, RandomEvent::Create { .. });
        let true_seq = self.model.any(&id).map_or(Seq::ZERO, Known::seq);
        let expected = match entry.off {
            _ if creates => Seq::ZERO,
            off => Seq(true_seq.0.saturating_add_signed(off).max(1)),
        };
        let ended = self.model.any(&id).is_some_and(|known| known.state().is_terminal());
        if ended && expected == true_seq {
            return None;
        }
        let event = self.event(&id, &entry.event);
        let mut commit = Commit {
            scope: self.scope_of(&id, entry.caller, entry.foreign),
            task_id: id,
            expected,
            event: Arc::new(event),
            at: at(entry.at as i64),
            snapshot: None,
            take: entry.take,
            push: false,
            attached: Attached {
                idempotency: entry.key.map(|number| self.key(number)),
                reserved: false,
                turn: entry.turn.as_ref().map(|turn| self.turn(turn)),
                webhook: None,
                memo: entry.at.is_multiple_of(3).then(|| format!("memo {}", self.pieces).into()),
                records: Vec::new(),
                park: false,
            },
        };
        commit.snapshot = self.snapshot(me, &commit);
        Some(commit)
    }

    /// The whole task, if the entry settles it and will be accepted.
    fn snapshot(&self, me: usize, commit: &Commit) -> Option<Task> {
        let state = commit.event.status()?.state;
        let task = match &*commit.event {
            Event::Task(created) => created.clone(),
            event => {
                let known = self.model.find(&commit.scope, &commit.task_id)?;
                let mut task = known.task.clone();
                if known.is_held(me) && !commit.take {
                    return None;
                }
                nuncio_protocol::fold(&mut task, event, at(0)).ok()?;
                task
            }
        };
        state.is_settled().then_some(task)
    }

    /// Gives new ids to slots whose tasks are deleted.
    pub(super) fn renew(&mut self) {
        for slot in 0..TASKS {
            let id = self.id(slot);
            // Messages may still refer to an id that was never used.
            if self.model.any(&id).is_none() {
                self.lives[slot] += 1;
            }
        }
    }
}
