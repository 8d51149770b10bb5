//! Coalesces a batch: consecutive entries of one task become one write.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use nuncio_protocol::{ContextId, Event, Seq, TaskId, TaskState, Timestamp};

use super::{Blob, Segment, Snapshot};
use crate::store::{Commit, IdempotencyKey, RecordChange, Scope, StoredTurn, Webhook, references};

/// The turns of its task that a write deletes before it adds its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::store) enum Drops {
    /// None.
    #[default]
    Nothing,
    /// Those that have begun.
    Begun,
    /// All.
    All,
}

/// Consecutive entries of one task, to be applied together or, if that is refused, [one by one](Self::split).
#[derive(Debug)]
pub(in crate::store) struct TaskWrite {
    pub(in crate::store) scope: Arc<Scope>,
    pub(in crate::store) id: TaskId,
    /// The number of the entry before the first; [`Seq::ZERO`] creates the task.
    pub(in crate::store) expected: Seq,
    /// The number of the last entry.
    pub(in crate::store) last: Seq,
    /// The context of a task that is created.
    pub(in crate::store) context_id: ContextId,
    /// The last status that the entries report.
    pub(in crate::store) status: Option<(TaskState, Timestamp)>,
    /// True if the task is in progress after the entries; `None` if they do not change that.
    pub(in crate::store) busy: Option<bool>,
    pub(in crate::store) segments: Vec<Segment>,
    /// The snapshot of a task that ends.
    pub(in crate::store) snapshot: Option<Snapshot>,
    /// The key of the first entry; further entries never have one.
    pub(in crate::store) idempotency: Option<IdempotencyKey>,
    /// True if the first entry creates the task of a reservation.
    pub(in crate::store) reserved: bool,
    /// The time at which the first entry was recorded.
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) take: bool,
    pub(in crate::store) drops: Drops,
    /// The turns to store; each replaces the one with the same id.
    pub(in crate::store) turns: Vec<StoredTurn>,
    /// The webhook of the first entry; further entries never have one.
    pub(in crate::store) webhook: Option<Webhook>,
    /// The memo of the last entry that has one.
    pub(in crate::store) memo: Option<Bytes>,
    /// The changes of records of the first entry; further entries never have some.
    pub(in crate::store) records: Vec<RecordChange>,
    /// The entries to deliver to webhooks, including the webhook of this write, with the time of each.
    pub(in crate::store) owed: Vec<(Seq, Timestamp)>,
    /// The tasks that the entries refer to.
    pub(in crate::store) parents: Vec<TaskId>,
    pub(in crate::store) blobs: Vec<Blob>,
    /// The entries and their positions in the batch.
    entries: Vec<(usize, Commit)>,
    large: usize,
}

/// Turns a batch into writes. Those of one task keep their order. Writes of different tasks are independent
/// but for idempotency keys, which is why an entry with a key begins a new write.
pub(in crate::store) fn coalesce(batch: Vec<Commit>, large: usize) -> Vec<TaskWrite> {
    let mut writes: Vec<TaskWrite> = Vec::new();
    let mut latest: HashMap<TaskId, usize> = HashMap::new();
    for (place, commit) in batch.into_iter().enumerate() {
        let known = latest.get(&commit.task_id).copied();
        match known.filter(|index| writes[*index].goes_on_with(&commit)) {
            Some(index) => writes[index].push(place, commit),
            None => {
                latest.insert(commit.task_id.clone(), writes.len());
                writes.push(TaskWrite::begin(place, commit, large));
            }
        }
    }
    writes.iter_mut().for_each(TaskWrite::end);
    writes
}

impl TaskWrite {
    fn begin(place: usize, commit: Commit, large: usize) -> Self {
        let context_id = match &*commit.event {
            Event::Task(created) if commit.expected == Seq::ZERO => created.context_id.clone(),
            _ => ContextId::default(),
        };
        let mut write = Self {
            scope: Arc::clone(&commit.scope),
            id: commit.task_id.clone(),
            expected: commit.expected,
            last: commit.expected,
            context_id,
            status: None,
            busy: None,
            segments: Vec::new(),
            snapshot: None,
            idempotency: commit.attached.idempotency.clone(),
            reserved: commit.attached.reserved,
            at: commit.at,
            take: commit.take,
            drops: Drops::Nothing,
            turns: Vec::new(),
            webhook: commit.attached.webhook.clone(),
            memo: None,
            records: commit.attached.records.clone(),
            owed: Vec::new(),
            parents: Vec::new(),
            blobs: Vec::new(),
            entries: Vec::new(),
            large,
        };
        write.push(place, commit);
        write
    }

    /// True if the entry can join this write. An entry that takes a key or the task, or that comes after the
    /// end of the task, may be refused where the one before it is not; an entry with a webhook causes no
    /// deliveries of those before it; an entry with records may be refused. Such entries begin a new write.
    fn goes_on_with(&self, commit: &Commit) -> bool {
        commit.expected == self.last
            && !self.ends()
            && commit.attached.idempotency.is_none()
            && commit.attached.webhook.is_none()
            && commit.attached.records.is_empty()
            && !commit.take
            && commit.scope == self.scope
    }

    fn push(&mut self, place: usize, commit: Commit) {
        self.last = self.last.next();
        if self.segments.last().is_none_or(Segment::is_full) {
            self.segments.last_mut().into_iter().for_each(Segment::end);
            self.segments.push(Segment::begin(self.last));
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(self.last, commit.at, &commit.event, self.large, &mut self.blobs);
        }
        self.busy = commit.busy_after().or(self.busy);
        if let Some(turn) = &commit.attached.turn {
            self.turns.retain(|kept| kept.id != turn.id);
            self.turns.push(turn.clone());
        }
        if commit.attached.memo.is_some() {
            self.memo.clone_from(&commit.attached.memo);
        }
        if commit.push {
            self.owed.push((self.last, commit.at));
        }
        self.parents.extend(references(&commit.event).cloned());
        if let Some(status) = commit.event.status() {
            self.status = Some((status.state, status.timestamp.unwrap_or(Timestamp::EPOCH)));
            if status.state.is_terminal() {
                self.drops = Drops::All;
                self.turns.clear();
            } else if status.state.is_interrupted() {
                self.drop_begun();
            }
        }
        if commit.attached.park {
            self.drop_begun();
        }
        self.entries.push((place, commit));
    }

    /// Deletes the turns that have begun, stored ones and those of this write.
    fn drop_begun(&mut self) {
        self.drops = self.drops.max(Drops::Begun);
        self.turns.retain(|turn| !turn.begun);
    }

    fn end(&mut self) {
        self.segments.last_mut().into_iter().for_each(Segment::end);
        self.parents.sort_unstable();
        self.parents.dedup();
        if self.status.is_some_and(|(state, _)| state.is_terminal())
            && let Some((_, Commit { snapshot: Some(task), .. })) = self.entries.last()
        {
            self.snapshot = Some(Snapshot::encode(self.last, task, self.large, &mut self.blobs));
        }
    }

    /// The snapshot to store, when the last one was stored at `kept`. The snapshot of an interrupted task is
    /// encoded only here, once it is known to be due.
    pub(in crate::store) fn due_snapshot(&mut self, kept: Seq) -> Option<Snapshot> {
        if self.snapshot.is_some() {
            return self.snapshot.take();
        }
        let mut told = self.entries.iter().rev();
        let (task, seq) =
            told.find_map(|(_, commit)| Some((commit.snapshot.as_ref()?, commit.expected.next())))?;
        super::is_snapshot_due(task.status.state, seq, kept)
            .then(|| Snapshot::encode(seq, task, self.large, &mut self.blobs))
    }

    /// True if the task has ended after the entries.
    pub(in crate::store) fn ends(&self) -> bool {
        self.status.is_some_and(|(state, _)| state.is_terminal())
    }

    /// The key that the write claims. A reserved task has its key already.
    pub(in crate::store) fn key(&self) -> Option<&IdempotencyKey> {
        self.idempotency.as_ref().filter(|_| !self.reserved)
    }

    /// The positions of the entries in the batch.
    pub(in crate::store) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().map(|(place, _)| *place)
    }

    /// True if the write has several entries, so that its refusal says nothing about each of them.
    pub(in crate::store) fn is_several(&self) -> bool {
        self.entries.len() > 1
    }

    /// Each entry as a write of its own.
    pub(in crate::store) fn split(self) -> impl Iterator<Item = Self> {
        let large = self.large;
        self.entries.into_iter().map(move |(place, commit)| {
            let mut write = Self::begin(place, commit, large);
            write.end();
            write
        })
    }
}
