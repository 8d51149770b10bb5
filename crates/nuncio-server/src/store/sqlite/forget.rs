//! Deletion: by age, and of everything of a caller.

use rusqlite::{Row, params};

use super::{
    schema::{LAST_SEQ, log_rowid},
    write::WriteSession,
};
use crate::store::{
    ErasureTarget, Prune, Pruned, StoreError,
    codec::{millis_from, state_code},
};

/// A task to delete.
struct Old {
    key: i64,
    scope: i64,
    state: i64,
}

impl Old {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { key: row.get(0)?, scope: row.get(1)?, state: row.get(2)? })
    }
}

impl WriteSession {
    pub(super) fn prune(
        &mut self,
        Prune { agent, what, before }: &Prune,
        limit: i64,
    ) -> Result<usize, StoreError> {
        let before = millis_from(*before);
        match what {
            Pruned::Tasks(state) => {
                let mut find = self.db.prepare_cached(
                    "SELECT tasks.key, scope, state FROM scopes CROSS JOIN tasks ON tasks.scope = scopes.key
                     WHERE agent = ?1 AND state = ?2 AND status_at < ?3 AND busy + pending = 0
                     ORDER BY status_at, id LIMIT ?4",
                )?;
                let old = find.query_map(params![agent, state_code(*state), before, limit], Old::read)?;
                let old = old.collect::<Result<Vec<_>, _>>()?;
                drop(find);
                self.forget(&old)
            }
            Pruned::Replies => {
                let mut delete = self.db.prepare_cached(
                    "DELETE FROM answers WHERE rowid IN (
                         SELECT answers.rowid FROM answers JOIN scopes ON scopes.key = answers.scope
                         WHERE reply IS NOT NULL AND agent = ?1 AND at < ?2 ORDER BY at LIMIT ?3)",
                )?;
                Ok(delete.execute(params![agent, before, limit])?)
            }
        }
    }

    pub(super) fn erase(&mut self, whose: &ErasureTarget, limit: i64) -> Result<usize, StoreError> {
        let theirs = "scopes.owner IS ?1 AND (?2 IS NULL OR agent = ?2) AND (?3 IS NULL OR tenant = ?3)";
        let ErasureTarget { agent, tenant, owner } = whose;
        let mut find = self.db.prepare_cached(&format!(
            "SELECT tasks.key, scope, state FROM scopes CROSS JOIN tasks ON tasks.scope = scopes.key
             WHERE {theirs} LIMIT ?4"
        ))?;
        let old = find.query_map(params![owner, agent, tenant, limit], Old::read)?;
        let old = old.collect::<Result<Vec<_>, _>>()?;
        drop(find);
        let tasks = self.forget(&old)?;
        let mut delete = self.db.prepare_cached(&format!(
            "DELETE FROM answers WHERE rowid IN (
                 SELECT answers.rowid FROM scopes CROSS JOIN answers ON answers.scope = scopes.key
                 WHERE {theirs} AND reply IS NOT NULL LIMIT ?4)"
        ))?;
        let replies = delete.execute(params![owner, agent, tenant, limit - tasks as i64])?;
        drop(delete);
        let reserved = self.erase_reservations(theirs, whose, limit - (tasks + replies) as i64)?;
        let erased = tasks + replies + reserved;
        if (erased as i64) < limit {
            // Nothing is left in these scopes, so their names are deleted too.
            self.count_tasks()?;
            let mut delete = self.db.prepare_cached(&format!(
                "DELETE FROM scopes WHERE {theirs}
                     AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.scope = scopes.key)
                     AND NOT EXISTS (SELECT 1 FROM answers WHERE answers.scope = scopes.key)
                     AND NOT EXISTS (SELECT 1 FROM reservations WHERE reservations.scope = scopes.key)"
            ))?;
            delete.execute(params![owner, agent, tenant])?;
            drop(delete);
            self.forget_scopes();
        }
        Ok(erased)
    }

    fn erase_reservations(
        &self,
        theirs: &str,
        whose: &ErasureTarget,
        limit: i64,
    ) -> Result<usize, StoreError> {
        let mut find = self.db.prepare_cached(&format!(
            "SELECT r.id, r.scope, r.key FROM scopes CROSS JOIN reservations r ON r.scope = scopes.key
             WHERE {theirs} LIMIT ?4"
        ))?;
        let ErasureTarget { agent, tenant, owner } = whose;
        let old = find.query_map(params![owner, agent, tenant, limit], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<String>>(2)?))
        })?;
        let old = old.collect::<Result<Vec<_>, _>>()?;
        for (id, scope, key) in &old {
            self.db.prepare_cached("DELETE FROM reservations WHERE id = ?1")?.execute([id])?;
            if let Some(key) = key {
                self.free_key(*scope, key)?;
            }
        }
        Ok(old.len())
    }

    /// Deletes tasks. Turns, links, keys and large content are deleted by cascade.
    fn forget(&mut self, old: &[Old]) -> Result<usize, StoreError> {
        for Old { key, scope, state } in old {
            let log = "DELETE FROM log WHERE place BETWEEN ?1 AND ?2";
            self.db.prepare_cached(log)?.execute([log_rowid(*key, 0), log_rowid(*key, LAST_SEQ)])?;
            self.db.prepare_cached("DELETE FROM tasks WHERE key = ?1")?.execute([key])?;
            self.count(*scope, *state, -1);
        }
        Ok(old.len())
    }
}
