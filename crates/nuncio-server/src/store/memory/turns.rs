//! Turns, and adoption of the tasks of stopped owners.

use std::sync::Arc;

use nuncio_protocol::TaskId;

use super::{MemoryInner, Owner, Stored};
use crate::store::{Orphan, Refused, Scope, TurnChange, judge};

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
