//! Leases: a walk around the targets of due webhooks, and the set of leased webhooks.
//!
//! ```text
//! webhooks_due   a:1 5s   a:1 9s   b:1 2s   d:1 1s ...     one index lookup per target
//!                └───────────────► └──────► └────► and from the beginning
//! ```

use std::{collections::HashSet, sync::Arc};

use nuncio_protocol::{Seq, TaskId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::bounded;
use crate::store::{Lease, Leased, Leases, Owed, Scope, Settled, StoreError, Then, Webhook, codec::moment};

/// The uids of the webhooks leased by this handle. No other handle has the file open, and the leases of an
/// earlier one are void: so they are kept in memory only, and a lease writes nothing.
#[derive(Debug, Default)]
pub(super) struct HeldLeases(Mutex<HashSet<Arc<str>>>);

impl HeldLeases {
    fn lock(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.0.lock()
    }

    pub(super) fn hold(&self, uid: &str) -> bool {
        self.lock().contains(uid)
    }

    /// Releases all except these; returns those that are still leased.
    fn keep(&self, known: &[Arc<str>]) -> HashSet<Arc<str>> {
        let known: HashSet<&Arc<str>> = known.iter().collect();
        let mut held = self.lock();
        held.retain(|uid| known.contains(uid));
        held.clone()
    }

    /// False if it is already leased.
    fn take(&self, uid: &Arc<str>) -> bool {
        self.lock().insert(Arc::clone(uid))
    }

    /// Releases settled webhooks; to be called after the commit, so that no lease sees the state before it.
    pub(super) fn let_go(&self, settled: &[(Arc<str>, Then)]) {
        let mut held = self.lock();
        for (uid, then) in settled {
            if *then != Then::Keep {
                held.remove(uid);
            }
        }
    }

    /// The outcomes of webhooks that this handle has leased.
    pub(super) fn ours(&self, settled: Vec<Settled>) -> Vec<Settled> {
        let held = self.lock();
        settled.into_iter().filter(|settled| held.contains(&settled.webhook)).collect()
    }
}

/// Leases due webhooks.
pub(super) fn lease(db: &Connection, held_leases: &HeldLeases, lease: &Lease) -> Result<Leases, StoreError> {
    // The order matters: first the set of leases, then the snapshot of the database. A webhook that is
    // released in between is still in the set and is left out here; in the opposite order, its deliveries
    // would be leased in their state before the settlement.
    let held = held_leases.keep(&lease.in_hand);
    let moment = db.unchecked_transaction()?;
    let mut round = Round { db: &moment, lease, held, leased: Vec::new(), next: None };
    round.go()?;
    let Round { mut leased, next, .. } = round;
    let next = next.filter(|_| leased.len() < lease.limit);
    leased.retain(|leased| held_leases.take(&leased.webhook.uid));
    Ok(Leases { leased, next })
}

/// A walk around the targets.
struct Round<'a> {
    db: &'a Connection,
    lease: &'a Lease,
    held: HashSet<Arc<str>>,
    leased: Vec<Leased>,
    next: Option<Timestamp>,
}

impl Round<'_> {
    /// Visits the targets after `after` first, then the others.
    fn go(&mut self) -> Result<(), StoreError> {
        let after = &self.lease.after;
        let mut target = self.beyond(after)?;
        while let Some(name) = target.filter(|_| !self.is_full()) {
            self.stop_at(&name)?;
            target = self.beyond(&name)?;
        }
        target = self.first()?;
        while let Some(name) = target.filter(|name| name <= after && !self.is_full()) {
            self.stop_at(&name)?;
            target = self.beyond(&name)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.leased.len() >= self.lease.limit
    }

    fn first(&self) -> Result<Option<Arc<str>>, StoreError> {
        let first = "SELECT target FROM webhooks INDEXED BY webhooks_due WHERE due_at IS NOT NULL
                     ORDER BY target LIMIT 1";
        Ok(self.db.prepare_cached(first)?.query_row([], |row| row.get(0)).optional()?)
    }

    fn beyond(&self, target: &str) -> Result<Option<Arc<str>>, StoreError> {
        let next = "SELECT target FROM webhooks INDEXED BY webhooks_due
                    WHERE due_at IS NOT NULL AND target > ?1 ORDER BY target LIMIT 1";
        Ok(self.db.prepare_cached(next)?.query_row([target], |row| row.get(0)).optional()?)
    }

    /// Leases the due webhooks of a target, and notes the due time of the first one that is left.
    fn stop_at(&mut self, target: &Arc<str>) -> Result<(), StoreError> {
        if self.lease.except.contains(target) {
            return Ok(());
        }
        let db = self.db;
        let mut due = db.prepare_cached(
            "SELECT due_at, agent, uid, tenant, scopes.owner, tasks.id, webhooks.id, body, webhooks.key, owed_from
             FROM webhooks INDEXED BY webhooks_due CROSS JOIN tasks ON tasks.key = task
                 CROSS JOIN scopes ON scopes.key = scope
             WHERE due_at IS NOT NULL AND target = ?1 ORDER BY due_at, webhooks.key",
        )?;
        let mut rows = due.query([target])?;
        let mut taken = 0;
        while let Some(row) = rows.next()? {
            let (agent, uid): (Arc<str>, Arc<str>) = (row.get(1)?, row.get(2)?);
            if self.held.contains(&uid) || !self.lease.agents.contains(&agent) {
                continue;
            }
            let due = moment(row.get(0)?)?;
            if due > self.lease.now || taken == self.lease.each || self.is_full() {
                self.next = Some(self.next.map_or(due, |next| next.min(due)));
                break;
            }
            taken += 1;
            let leased = self.take(row, agent, uid, target)?;
            self.leased.push(leased);
        }
        Ok(())
    }

    fn take(
        &self,
        row: &Row<'_>,
        agent: Arc<str>,
        uid: Arc<str>,
        target: &Arc<str>,
    ) -> Result<Leased, StoreError> {
        let scope = Arc::new(Scope { agent, tenant: row.get(3)?, owner: row.get(4)? });
        let task_id = TaskId::from(row.get::<_, String>(5)?);
        let id = row.get::<_, String>(6)?.into();
        let webhook = Webhook { uid, id, target: Arc::clone(target), body: row.get(7)? };
        let mut owed = self.db.prepare_cached(
            "SELECT seq, since, attempts FROM deliveries WHERE webhook = ?1 AND seq >= ?2 AND state = 0
             ORDER BY seq LIMIT ?3",
        )?;
        let mut rows = owed.query([row.get(8)?, row.get(9)?, bounded(self.lease.owed)])?;
        let mut owed = Vec::new();
        while let Some(row) = rows.next()? {
            let (seq, since, attempts) = (row.get::<_, i64>(0)? as u64, moment(row.get(1)?)?, row.get(2)?);
            owed.push(Owed { seq: Seq(seq), since, attempts });
        }
        Ok(Leased { scope, task_id, webhook, owed })
    }
}
