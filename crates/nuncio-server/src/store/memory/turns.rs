//! Turns, and adoption of the tasks of stopped owners.

use std::sync::Arc;

use nuncio_protocol::TaskId;

use super::{MemoryInner, Owner, Stored};
use crate::store::{
    HandIn, IdempotencyKey, IdempotentAnswer, Orphan, Outcome, Refused, Scope, TurnChange, WaitingQuery,
    WaitingTurn,
    judge::{self, KeyUse},
};

impl MemoryInner {
    pub(super) fn update_turn(
        &mut self,
        me: Owner,
        scope: &Scope,
        id: &TaskId,
        change: TurnChange,
    ) -> Result<(), Refused> {
        let stored = self.tasks.get_mut(id);
        judge::turn(stored.as_ref().map(|stored| stored.facts(me, scope)))?;
        let stored = stored.ok_or(Refused::NotFound)?;
        match change {
            TurnChange::Queue(turn) => {
                stored.owner = me;
                stored.keep(turn);
            }
            TurnChange::Begin(id) => {
                let turn = stored.turns.iter_mut().find(|turn| turn.id == id).ok_or(Refused::NotFound)?;
                turn.begun = true;
            }
            TurnChange::Drop(id) => stored.turns.retain(|turn| turn.id != id),
        }
        Ok(())
    }

    pub(super) fn hand_in(
        &mut self,
        me: Owner,
        scope: &Scope,
        id: &TaskId,
        handed: HandIn,
    ) -> Result<(), Refused> {
        let HandIn { turn, key: IdempotencyKey { key, digest }, max_waiting, .. } = handed;
        let slot = (Arc::new(scope.clone()), key);
        let known = self.answers.get(&slot).cloned().or_else(|| self.reserved(&slot.0, &slot.1));
        let is_same = |answer: &IdempotentAnswer| {
            answer.digest == digest && matches!(&answer.outcome, Outcome::Task(of) if of == id)
        };
        let key =
            known.map_or(KeyUse::Free, |answer| if is_same(&answer) { KeyUse::Same } else { KeyUse::Other });
        let stored = self.tasks.get_mut(id);
        let facts = stored.as_ref().map(|stored| stored.facts(me, scope));
        let waiting =
            stored.as_ref().map_or(0, |stored| stored.turns.iter().filter(|turn| !turn.begun).count());
        if judge::hand_in(facts, key, waiting, max_waiting)? {
            return Ok(());
        }
        let stored = stored.ok_or(Refused::NotFound)?;
        stored.keep(turn);
        stored.keys.push(Arc::clone(&slot.1));
        self.answers.insert(slot, IdempotentAnswer { digest, outcome: Outcome::Task(id.clone()) });
        Ok(())
    }

    pub(super) fn waiting_turns(&self, me: Owner, query: &WaitingQuery) -> Vec<WaitingTurn> {
        let mut tasks: Vec<(&TaskId, &Stored)> = match &query.tasks {
            Some(ids) => ids.iter().filter_map(|id| Some((id, &**self.tasks.get(id)?))).collect(),
            None => self.tasks.iter().map(|(id, stored)| (id, &**stored)).collect(),
        };
        tasks.retain(|(_, stored)| stored.owner == me && stored.scope.agent == query.agent);
        tasks.sort_by_key(|(id, _)| *id);
        let waiting = |(id, stored): (&TaskId, &Stored)| {
            let waits = |turn: &&crate::store::StoredTurn| !turn.begun && !query.except.contains(&turn.id);
            let turn = |turn: &crate::store::StoredTurn| WaitingTurn {
                scope: Arc::clone(&stored.scope),
                task_id: id.clone(),
                turn: turn.clone(),
            };
            stored.turns.iter().filter(waits).map(turn).collect::<Vec<_>>()
        };
        tasks.into_iter().flat_map(waiting).take(query.limit).collect()
    }

    pub(super) fn adopt(&mut self, me: Owner, agent: &str, limit: usize) -> Vec<Orphan> {
        let gone = &self.gone;
        let left = |stored: &Stored| {
            let left = stored.busy || stored.waits();
            *stored.scope.agent == *agent && gone.contains(&stored.owner) && left
        };
        let mut orphans = Vec::new();
        for stored in self.tasks.values_mut().filter(|stored| left(stored)).take(limit) {
            stored.owner = me;
            let (scope, turns) = (Arc::clone(&stored.scope), stored.turns.clone());
            orphans.push(Orphan { scope, stored: stored.read(me), busy: stored.busy, turns });
        }
        orphans
    }
}
