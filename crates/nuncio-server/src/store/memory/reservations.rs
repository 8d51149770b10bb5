//! Reservations, by task and by key.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use nuncio_protocol::TaskId;

use super::{MemoryInner, Owner};
use crate::store::{
    Commit, IdempotencyKey, IdempotentAnswer, Outcome, Refused, Reservation, Scope,
    judge::{self, ReservationFacts},
};

/// The reservations and their owners.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_task: HashMap<TaskId, (Reservation, Owner), RandomState>,
    by_key: HashMap<(Arc<Scope>, Arc<str>), TaskId>,
}

impl Reservations {
    pub(super) fn get(&self, id: &TaskId) -> Option<&(Reservation, Owner)> {
        self.by_task.get(id)
    }

    /// The reservation of a key.
    pub(super) fn of_key(&self, scope: &Arc<Scope>, key: &Arc<str>) -> Option<&(Reservation, Owner)> {
        self.by_task.get(self.by_key.get(&(Arc::clone(scope), Arc::clone(key)))?)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &(Reservation, Owner)> {
        self.by_task.values()
    }

    fn insert(&mut self, reservation: Reservation, owner: Owner) {
        if let Some(key) = &reservation.idempotency {
            let slot = (Arc::clone(&reservation.scope), Arc::clone(&key.key));
            self.by_key.insert(slot, reservation.task_id.clone());
        }
        self.by_task.insert(reservation.task_id.clone(), (reservation, owner));
    }

    pub(super) fn remove(&mut self, id: &TaskId) -> Option<Reservation> {
        let (reservation, _) = self.by_task.remove(id)?;
        if let Some(key) = &reservation.idempotency {
            self.by_key.remove(&(Arc::clone(&reservation.scope), Arc::clone(&key.key)));
        }
        Some(reservation)
    }
}

impl MemoryInner {
    pub(super) fn reserve(&mut self, me: Owner, reservation: Reservation) -> Result<(), Refused> {
        if let Some((_, owner)) = self.reservations.get(&reservation.task_id) {
            return judge::key(*owner != me);
        }
        if let Some(key) = &reservation.idempotency {
            let slot = (Arc::clone(&reservation.scope), Arc::clone(&key.key));
            let is_reserved = self.reservations.of_key(&slot.0, &slot.1).is_some();
            judge::key(self.answers.contains_key(&slot) || is_reserved)?;
        }
        self.reservations.insert(reservation, me);
        Ok(())
    }

    pub(super) fn release(&mut self, me: Owner, scope: &Scope, id: &TaskId) {
        if self.reservations.get(id).is_some_and(|(kept, owner)| *owner == me && *kept.scope == *scope) {
            self.reservations.remove(id);
        }
    }

    pub(super) fn abandoned(&self, agent: &str, limit: usize) -> Vec<Reservation> {
        let left =
            |(kept, owner): &&(Reservation, Owner)| *kept.scope.agent == *agent && self.gone.contains(owner);
        self.reservations.all().filter(left).take(limit).map(|(kept, _)| kept.clone()).collect()
    }

    /// The reservation of a key, as an answer.
    pub(super) fn reserved(&self, scope: &Arc<Scope>, key: &Arc<str>) -> Option<IdempotentAnswer> {
        let (kept, owner) = self.reservations.of_key(scope, key)?;
        let abandoned = self.gone.contains(owner);
        let outcome = Outcome::Reserved { reservation: Box::new(kept.clone()), abandoned };
        Some(IdempotentAnswer { digest: kept.idempotency.as_ref()?.digest, outcome })
    }

    /// Checks that this entry may create the task of a reservation.
    pub(super) fn check_reservation(&self, me: Owner, commit: &Commit) -> Result<(), Refused> {
        let facts = self.reservations.get(&commit.task_id).map(|(kept, owner)| ReservationFacts {
            in_scope: kept.scope == commit.scope,
            is_mine: *owner == me,
        });
        judge::reserved_creation(facts, commit.take)
    }

    /// Ends the reservation of a task that is being created; assigns its key to the task and returns it.
    pub(super) fn end_reservation(&mut self, id: &TaskId) -> Option<Arc<str>> {
        let Reservation { scope, idempotency, .. } = self.reservations.remove(id)?;
        let IdempotencyKey { key, digest } = idempotency?;
        let answer = IdempotentAnswer { digest, outcome: Outcome::Task(id.clone()) };
        self.answers.insert((scope, Arc::clone(&key)), answer);
        Some(key)
    }
}
