//! A naive store: lists that are searched from front to back.

use std::{collections::BTreeSet, sync::Arc};

use nuncio_protocol::{Event, Message, Seq, Task, TaskId, TaskState, Timestamp, fold};

use crate::store::{
    Commit, ErasureTarget, HandIn, IdempotencyKey, Links, Prune, Pruned, Refused, Scope, StoredEvent,
    StoredTurn, TaskQuery, TurnChange,
};

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) tasks: Vec<Known>,
    pub(super) replies: Vec<KnownReply>,
}

/// A task.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) scope: Arc<Scope>,
    pub(super) task: Task,
    pub(super) log: Vec<StoredEvent>,
    pub(super) turns: Vec<StoredTurn>,
    pub(super) owner: usize,
    /// True while it is in progress.
    pub(super) busy: bool,
    pub(super) memo: Option<bytes::Bytes>,
    keys: Vec<IdempotencyKey>,
}

/// A direct reply.
#[derive(Debug)]
pub(super) struct KnownReply {
    scope: Arc<Scope>,
    key: IdempotencyKey,
    reply: Arc<Message>,
    at: Timestamp,
}

/// The answer of a key: the digest, and the id of the task or the reply.
pub(super) type FoundAnswer = Option<([u8; 32], String)>;

impl Known {
    pub(super) fn seq(&self) -> Seq {
        Seq(self.log.len() as u64)
    }

    pub(super) fn state(&self) -> TaskState {
        self.task.status.state
    }

    pub(super) fn is_held(&self, me: usize) -> bool {
        self.owner != me && self.is_left()
    }

    /// True if it would be an orphan when its owner stops.
    pub(super) fn is_left(&self) -> bool {
        self.busy || self.turns.iter().any(|turn| !turn.begun)
    }

    fn keep(&mut self, turn: &StoredTurn) {
        self.turns.retain(|known| known.id != turn.id);
        self.turns.push(turn.clone());
        self.turns.sort_by(|a, b| a.id.cmp(&b.id));
    }

    fn parents(&self) -> BTreeSet<TaskId> {
        let said = self.log.iter().flat_map(|entry| match &*entry.event {
            Event::Task(task) => task.history.clone(),
            Event::Message(message) => vec![Arc::clone(message)],
            Event::StatusUpdate(_) | Event::ArtifactUpdate(_) => Vec::new(),
        });
        said.flat_map(|message| message.reference_task_ids.clone()).collect()
    }
}

impl Model {
    pub(super) fn any(&self, id: &TaskId) -> Option<&Known> {
        self.tasks.iter().find(|known| known.task.id == *id)
    }

    pub(super) fn find(&self, scope: &Scope, id: &TaskId) -> Option<&Known> {
        self.any(id).filter(|known| *known.scope == *scope)
    }

    fn writable(&mut self, me: usize, scope: &Scope, id: &TaskId, take: bool) -> Result<&mut Known, Refused> {
        let known = self.tasks.iter_mut().find(|known| known.task.id == *id && *known.scope == *scope);
        let known = known.ok_or(Refused::NotFound)?;
        if known.is_held(me) && !take { Err(Refused::Held) } else { Ok(known) }
    }

    pub(super) fn commit(&mut self, me: usize, entry: &Commit) -> Result<(), Refused> {
        let key_taken = entry
            .attached
            .idempotency
            .as_ref()
            .is_some_and(|wanted| self.answer(&entry.scope, &wanted.key).is_some());
        if entry.expected == Seq::ZERO {
            if let Some(known) = self.any(&entry.task_id) {
                return Err(Refused::Version(known.seq()));
            }
        } else {
            let known = self.writable(me, &entry.scope, &entry.task_id, entry.take)?;
            if known.seq() != entry.expected {
                return Err(Refused::Version(known.seq()));
            }
        }
        if key_taken {
            return Err(Refused::KeyTaken);
        }
        if let Event::Task(created) = &*entry.event {
            self.tasks.push(Known {
                scope: Arc::clone(&entry.scope),
                task: created.clone(),
                log: Vec::new(),
                turns: Vec::new(),
                owner: me,
                busy: true,
                memo: None,
                keys: Vec::new(),
            });
        }
        let known = self.writable(me, &entry.scope, &entry.task_id, true)?;
        known.owner = me;
        known.memo = entry.attached.memo.clone().or(known.memo.take());
        known.busy = match &*entry.event {
            Event::Task(Task { status, .. }) => !status.state.is_settled(),
            Event::StatusUpdate(update) => !update.status.state.is_settled(),
            Event::Message(_) => true,
            Event::ArtifactUpdate(_) => known.busy,
        };
        if !known.log.is_empty() {
            // The steps contain no event that does not fold.
            let _ = fold(&mut known.task, &entry.event, Timestamp::EPOCH);
        }
        known.log.push(StoredEvent {
            seq: known.seq().next(),
            at: entry.at,
            event: Arc::clone(&entry.event),
        });
        known.keys.extend(entry.attached.idempotency.clone());
        entry.attached.turn.iter().for_each(|turn| known.keep(turn));
        if let Some(status) = entry.event.status() {
            let state = status.state;
            known.turns.retain(|turn| !(state.is_terminal() || state.is_interrupted() && turn.begun));
        }
        Ok(())
    }

    pub(super) fn turn(
        &mut self,
        me: usize,
        scope: &Scope,
        id: &TaskId,
        change: &TurnChange,
    ) -> Result<(), Refused> {
        let known = self.writable(me, scope, id, false)?;
        match change {
            TurnChange::Queue(turn) => {
                known.owner = me;
                known.keep(turn);
            }
            TurnChange::Begin(id) => {
                let turn = known.turns.iter_mut().find(|turn| turn.id == *id);
                turn.ok_or(Refused::NotFound)?.begun = true;
            }
            TurnChange::Drop(id) => known.turns.retain(|turn| turn.id != *id),
        }
        Ok(())
    }

    pub(super) fn hand_in(
        &mut self,
        me: usize,
        scope: &Scope,
        id: &TaskId,
        handed: &HandIn,
    ) -> Result<(), Refused> {
        let answer = self.answer(scope, &handed.key.key);
        let known = self.writable(me, scope, id, true)?;
        match answer {
            Some(answer) if answer == (handed.key.digest, id.to_string()) => return Ok(()),
            Some(_) => return Err(Refused::KeyTaken),
            None => {}
        }
        if known.state().is_terminal() {
            return Err(Refused::Version(known.seq()));
        }
        if !known.is_held(me) {
            return Err(Refused::NotHeld);
        }
        if known.turns.iter().filter(|turn| !turn.begun).count() >= handed.max_waiting {
            return Err(Refused::Full);
        }
        known.keep(&handed.turn);
        known.keys.push(handed.key.clone());
        Ok(())
    }

    /// The turns that wait at tasks of this owner.
    pub(super) fn waiting(&self, me: usize) -> Vec<(Arc<Scope>, TaskId, StoredTurn)> {
        let mut own: Vec<_> = self.tasks.iter().filter(|known| known.owner == me).collect();
        own.sort_by_key(|known| known.task.id.clone());
        let waiting = |known: &&Known| {
            let turns = known.turns.iter().filter(|turn| !turn.begun);
            let turn = |turn: &StoredTurn| (Arc::clone(&known.scope), known.task.id.clone(), turn.clone());
            turns.map(turn).collect::<Vec<_>>()
        };
        own.iter().flat_map(waiting).collect()
    }

    pub(super) fn put_reply(
        &mut self,
        scope: &Arc<Scope>,
        key: &IdempotencyKey,
        reply: &Arc<Message>,
        at: Timestamp,
    ) {
        if self.answer(scope, &key.key).is_none() {
            let (scope, key, reply) = (Arc::clone(scope), key.clone(), Arc::clone(reply));
            self.replies.push(KnownReply { scope, key, reply, at });
        }
    }

    pub(super) fn answer(&self, scope: &Scope, key: &str) -> FoundAnswer {
        let of_tasks = self
            .tasks
            .iter()
            .flat_map(|known| known.keys.iter().map(|key| (&known.scope, key, known.task.id.to_string())));
        let of_replies =
            self.replies.iter().map(|known| (&known.scope, &known.key, known.reply.message_id.to_string()));
        let mut all = of_tasks.chain(of_replies);
        all.find(|(of, taken, _)| ***of == *scope && *taken.key == *key)
            .map(|(_, key, name)| (key.digest, name))
    }

    pub(super) fn links(&self, scope: &Scope, id: &TaskId) -> Links {
        let Some(known) = self.find(scope, id) else { return Links::default() };
        let parents = known.parents().into_iter().filter(|id| self.find(scope, id).is_some()).collect();
        let children =
            self.tasks.iter().filter(|child| *child.scope == *scope && child.parents().contains(id));
        let children: BTreeSet<TaskId> = children.map(|child| child.task.id.clone()).collect();
        Links { parents, children: children.into_iter().collect() }
    }

    /// The tasks of the page, whether there are more, and the number of all matches.
    pub(super) fn list(&self, scope: &Scope, query: &TaskQuery) -> (Vec<Task>, bool, usize) {
        let own = self.tasks.iter().filter(|known| *known.scope == *scope).map(|known| known.task.clone());
        let mut tasks: Vec<Task> = own
            .filter(|task| query.context_id.as_ref().is_none_or(|wanted| *wanted == task.context_id))
            .filter(|task| query.state.is_none_or(|wanted| wanted == task.status.state))
            .filter(|task| query.since.is_none_or(|since| task.status.timestamp >= Some(since)))
            .collect();
        let total = tasks.len();
        tasks.sort_by(|a, b| (b.status.timestamp, &b.id).cmp(&(a.status.timestamp, &a.id)));
        if let Some(after) = &query.after {
            tasks.retain(|task| (task.status.timestamp, &task.id) < (Some(after.timestamp), &after.id));
        }
        if let Some(except) = &query.except {
            tasks.retain(|task| task.id != *except);
        }
        let more = tasks.len() > query.limit;
        tasks.truncate(query.limit);
        tasks.iter_mut().for_each(|task| query.shown().apply(task));
        (tasks, more, total)
    }

    /// Deletes by age; returns the limit to use with the store, and the number deleted. The contract does not
    /// order tasks of equal age, so the limit is raised to include all of them.
    pub(super) fn prune(&mut self, prune: &Prune, limit: usize) -> (usize, usize) {
        let mut ages: Vec<Timestamp> = match prune.what {
            Pruned::Tasks(_) => self.tasks.iter().filter(|known| past(known, prune)).map(age).collect(),
            Pruned::Replies => {
                self.replies.iter().map(|reply| reply.at).filter(|at| *at < prune.before).collect()
            }
        };
        ages.sort_unstable();
        let Some(oldest) = limit.checked_sub(1).and_then(|last| ages.get(last).or(ages.last())).copied()
        else {
            return (limit, 0);
        };
        let gone = ages.iter().filter(|age| **age <= oldest).count();
        match prune.what {
            Pruned::Tasks(_) => self.tasks.retain(|known| !(past(known, prune) && age(known) <= oldest)),
            Pruned::Replies => self.replies.retain(|reply| !(reply.at < prune.before && reply.at <= oldest)),
        }
        (limit.max(gone), gone)
    }

    pub(super) fn erase(&mut self, whose: &ErasureTarget) -> usize {
        let before = self.tasks.len() + self.replies.len();
        self.tasks.retain(|known| !whose.is(&known.scope));
        self.replies.retain(|reply| !whose.is(&reply.scope));
        before - self.tasks.len() - self.replies.len()
    }
}

fn past(known: &Known, prune: &Prune) -> bool {
    !known.is_left() && prune.what == Pruned::Tasks(known.state()) && age(known) < prune.before
}

/// The time since which it is in its state.
fn age(known: &Known) -> Timestamp {
    known.task.status.timestamp.unwrap_or(Timestamp::EPOCH)
}
