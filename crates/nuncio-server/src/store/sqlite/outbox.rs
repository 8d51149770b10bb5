//! Writes of webhooks and deliveries. Leases are not stored, see [`HeldLeases`](super::lease::HeldLeases).

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{PushConfigId, Seq, TaskId, Timestamp};
use rusqlite::{OptionalExtension as _, params};

use super::{SqliteStore, deliveries, lease, read, write::WriteSession};
use crate::store::{
    DeliveryOutcome, Lease, Leases, MAX_WEBHOOKS, Outbox, Redrive, Refused, Scope, Settled, StoreError, Then,
    Webhook, codec::millis_from, outbox::MAX_ATTEMPTS,
};

impl WriteSession {
    pub(super) fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        let Some(task) = self.key(scope, id)? else { return Ok(Err(Refused::NotFound)) };
        let others = "SELECT count(*) FROM webhooks WHERE task = ?1 AND id <> ?2 AND NOT stopped";
        let mut others = self.db.prepare_cached(others)?;
        let others: i64 = others.query_row(params![task, webhook.id.as_str()], |row| row.get(0))?;
        if others >= MAX_WEBHOOKS as i64 {
            return Ok(Err(Refused::Full));
        }
        self.upsert_webhook(task, webhook, now).map(Ok)
    }

    /// Stores a webhook. A replacement keeps the uid and the pending deliveries.
    pub(super) fn upsert_webhook(
        &self,
        task: i64,
        webhook: &Webhook,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Webhook { uid, id, target, body } = webhook;
        let mut replace = self.db.prepare_cached(
            "UPDATE webhooks SET target = ?3, body = ?4, stopped = FALSE, due_at = iif(due_at IS NULL, NULL, ?5)
             WHERE task = ?1 AND id = ?2",
        )?;
        if replace.execute(params![task, id.as_str(), target, body, now.as_millis()])? > 0 {
            return Ok(());
        }
        let mut insert = self.db.prepare_cached(
            "INSERT INTO webhooks (uid, task, id, target, owed_from, stopped, body)
             VALUES (?1, ?2, ?3, ?4, 0, FALSE, ?5)",
        )?;
        insert.execute(params![uid, task, id.as_str(), target, body])?;
        let count = "UPDATE tasks SET webhooks = webhooks + 1 WHERE key = ?1";
        self.db.prepare_cached(count)?.execute([task])?;
        Ok(())
    }

    pub(super) fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        let Some(task) = self.key(scope, id)? else { return Ok(Err(Refused::NotFound)) };
        let drop = "DELETE FROM webhooks WHERE task = ?1 AND id = ?2 RETURNING uid";
        let mut drop = self.db.prepare_cached(drop)?;
        let uid = drop.query_row(params![task, webhook.as_str()], |row| row.get(0)).optional()?;
        if uid.is_some() {
            let count = "UPDATE tasks SET webhooks = webhooks - 1 WHERE key = ?1";
            self.db.prepare_cached(count)?.execute([task])?;
        }
        Ok(Ok(uid))
    }

    fn key(&self, scope: &Scope, id: &TaskId) -> Result<Option<i64>, StoreError> {
        read::with_key(&self.db, scope, id, |key, _| Ok(Some(key)))
    }

    /// Creates deliveries of these entries for the webhooks of the task.
    pub(super) fn owe(&self, task: i64, entries: &[(Seq, Timestamp)]) -> Result<(), StoreError> {
        let Some((first, at)) = entries.first() else { return Ok(()) };
        let mut owe = self.db.prepare_cached(
            "INSERT INTO deliveries (webhook, seq, state, since, attempts)
             SELECT key, ?2, 0, ?3, 0 FROM webhooks WHERE task = ?1 AND NOT stopped",
        )?;
        for (seq, at) in entries {
            owe.execute(params![task, seq.0 as i64, at.as_millis()])?;
        }
        let mut due = self.db.prepare_cached(
            "UPDATE webhooks SET owed_from = ?2, due_at = ?3
             WHERE task = ?1 AND NOT stopped AND due_at IS NULL",
        )?;
        due.execute(params![task, first.0 as i64, at.as_millis()])?;
        Ok(())
    }

    /// Stores the outcome of a leased webhook.
    pub(super) fn settle(&self, settled: &Settled) -> Result<(), StoreError> {
        let find = "SELECT key, owed_from FROM webhooks WHERE uid = ?1";
        let mut find = self.db.prepare_cached(find)?;
        let found = find.query_row([&settled.webhook], |row| Ok((row.get(0)?, row.get(1)?)));
        let Some((key, owed_from)) = found.optional()? else { return Ok(()) };
        for outcome in &settled.outcomes {
            self.tried(key, outcome)?;
        }
        match settled.then {
            Then::Keep => Ok(()),
            Then::Release(at) => self.release(key, owed_from, at),
            Then::Stop => {
                let dead = "UPDATE deliveries SET state = 2 WHERE webhook = ?1 AND seq >= ?2 AND state = 0";
                self.db.prepare_cached(dead)?.execute([key, owed_from])?;
                let stop = "UPDATE webhooks SET stopped = TRUE, due_at = NULL WHERE key = ?1";
                self.db.prepare_cached(stop)?.execute([key])?;
                Ok(())
            }
        }
    }

    fn tried(&self, key: i64, outcome: &DeliveryOutcome) -> Result<(), StoreError> {
        let DeliveryOutcome { seq, state, attempt } = outcome;
        let attempt = serde_json::to_string(attempt).map_err(StoreError::broken)?;
        // Attempts that cannot be decoded are replaced: otherwise everything in the same transaction would
        // fail with them.
        let mut set = self.db.prepare_cached(
            "UPDATE deliveries SET state = ?3, attempts = attempts + 1, recent = CASE
                 WHEN json_valid(recent) IS NOT 1 THEN json_array(json(?4))
                 WHEN json_array_length(recent) < ?5 THEN json_insert(recent, '$[#]', json(?4))
                 ELSE json_insert(json_remove(recent, '$[0]'), '$[#]', json(?4))
             END
             WHERE webhook = ?1 AND seq = ?2 AND state = 0",
        )?;
        set.execute(params![key, seq.0 as i64, state.code(), attempt, MAX_ATTEMPTS as i64])?;
        Ok(())
    }

    /// Makes the webhook due at this time, if a delivery is pending.
    fn release(&self, key: i64, owed_from: i64, at: Timestamp) -> Result<(), StoreError> {
        let mut find = self.db.prepare_cached(
            "SELECT seq FROM deliveries WHERE webhook = ?1 AND seq >= ?2 AND state = 0 ORDER BY seq LIMIT 1",
        )?;
        let pending: Option<i64> = find.query_row([key, owed_from], |row| row.get(0)).optional()?;
        let due = pending.map(|_| at.as_millis());
        let set = "UPDATE webhooks SET due_at = ?2, owed_from = ?3 WHERE key = ?1";
        self.db.prepare_cached(set)?.execute(params![key, due, pending.unwrap_or(owed_from)])?;
        Ok(())
    }

    pub(super) fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        let wanted = self.wanted(what)?;
        for of_one in wanted.chunk_by(|(one, _), (other, _)| one == other) {
            for (key, seq) in of_one {
                let again = "UPDATE deliveries SET state = 0, since = ?3, attempts = 0
                             WHERE webhook = ?1 AND seq = ?2";
                self.db.prepare_cached(again)?.execute(params![key, seq, now.as_millis()])?;
            }
            if let Some((key, first)) = of_one.first() {
                let due = "UPDATE webhooks SET stopped = FALSE, due_at = ?3, owed_from = min(owed_from, ?2)
                           WHERE key = ?1";
                self.db.prepare_cached(due)?.execute(params![key, first, now.as_millis()])?;
            }
        }
        Ok(wanted.len())
    }

    /// The deliveries to redrive: webhook and entry, sorted.
    fn wanted(&self, what: &Redrive) -> Result<Vec<(i64, i64)>, StoreError> {
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        match what {
            Redrive::One(id) => {
                let mut find = self.db.prepare_cached(
                    "SELECT webhook, seq FROM webhooks CROSS JOIN deliveries ON webhook = key
                     WHERE uid = ?1 AND seq = ?2",
                )?;
                let found = find.query_map(params![id.webhook, id.seq.0 as i64], pair)?;
                Ok(found.collect::<Result<_, _>>()?)
            }
            Redrive::Dead { agent, since } => {
                let mut find = self.db.prepare_cached(
                    "SELECT webhook, deliveries.seq FROM deliveries INDEXED BY deliveries_dead
                         CROSS JOIN webhooks ON webhooks.key = webhook
                         CROSS JOIN tasks ON tasks.key = task CROSS JOIN scopes ON scopes.key = scope
                     WHERE deliveries.state = 2 AND NOT stopped AND since >= ?1 AND (?2 IS NULL OR agent = ?2)
                     ORDER BY webhook, deliveries.seq",
                )?;
                let found = find.query_map(params![millis_from(*since), agent], pair)?;
                Ok(found.collect::<Result<_, _>>()?)
            }
        }
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.shared(move |session| session.put_webhook(&scope, &id, &webhook, now)).await
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        let (scope, id, webhook) = (scope.clone(), id.clone(), webhook.clone());
        self.readers.ask(move |db| deliveries::webhook(db, &scope, &id, &webhook)).await
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        let (scope, id, after) = (scope.clone(), id.clone(), after.cloned());
        self.readers.ask(move |db| deliveries::webhooks(db, &scope, &id, after.as_ref(), limit)).await
    }

    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        let (scope, id, webhook) = (scope.clone(), id.clone(), webhook.clone());
        self.writer.shared(move |session| session.delete_webhook(&scope, &id, &webhook)).await
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        let (held_leases, lease) = (Arc::clone(&self.held_leases), lease.clone());
        self.readers.ask(move |db| lease::lease(db, &held_leases, &lease)).await
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let settled = self.held_leases.ours(settled);
        if settled.is_empty() {
            return Ok(());
        }
        let done: Vec<_> = settled.iter().map(|one| (Arc::clone(&one.webhook), one.then)).collect();
        let work = move |session: &mut WriteSession| settled.iter().try_for_each(|one| session.settle(one));
        self.writer.shared(work).await?;
        self.held_leases.let_go(&done);
        Ok(())
    }
}
