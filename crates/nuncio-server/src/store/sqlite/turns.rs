//! Turns, and adoption of the tasks of earlier owners.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Seq, TaskId};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter};

use super::{read, write::WriteSession};
use crate::store::{
    HandIn, Orphan, Refused, Scope, StoreError, StoredTurn, TurnChange, WaitingQuery, WaitingTurn,
    codec::state_of,
    judge::{self, KeyUse, TaskFacts},
};

impl WriteSession {
    pub(super) fn update_turn(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        change: &TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        let mut find = self.db.prepare_cached(
            "SELECT tasks.key, seq, tasks.owner, busy + pending > 0, state
             FROM tasks JOIN scopes ON scopes.key = tasks.scope
             WHERE tasks.id = ?1 AND agent = ?2 AND tenant IS ?3 AND scopes.owner IS ?4",
        )?;
        let mut rows = find.query(params![id.as_str(), scope.agent, scope.tenant, scope.owner])?;
        let found = rows.next()?.map(|row| Ok::<_, StoreError>((row.get::<_, i64>(0)?, self.facts(row)?)));
        let found = found.transpose()?;
        if let Err(refused) = judge::turn(found.map(|(_, facts)| facts)) {
            return Ok(Err(refused));
        }
        let Some((key, _)) = found else { return Ok(Err(Refused::NotFound)) };
        drop(rows);
        match change {
            TurnChange::Queue(turn) => {
                let take = "UPDATE tasks SET owner = ?2 WHERE key = ?1";
                self.db.prepare_cached(take)?.execute([key, self.me])?;
                self.put_turn(key, turn)?;
            }
            TurnChange::Begin(id) => {
                let begin = "UPDATE turns SET begun = TRUE WHERE task = ?1 AND id = ?2";
                if self.db.prepare_cached(begin)?.execute(params![key, id])? == 0 {
                    return Ok(Err(Refused::NotFound));
                }
            }
            TurnChange::Drop(id) => {
                let drop = "DELETE FROM turns WHERE task = ?1 AND id = ?2";
                self.db.prepare_cached(drop)?.execute(params![key, id])?;
            }
        }
        self.count_turns(key)?;
        Ok(Ok(()))
    }

    /// Stores a turn for the owner of a task: one that has stopped, and whose tasks are not adopted yet.
    pub(super) fn hand_in(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        handed: &HandIn,
    ) -> Result<Result<(), Refused>, StoreError> {
        let mut find = self.db.prepare_cached(
            "SELECT tasks.key, seq, tasks.owner, busy + pending > 0, state, pending, tasks.scope
             FROM tasks JOIN scopes ON scopes.key = tasks.scope
             WHERE tasks.id = ?1 AND agent = ?2 AND tenant IS ?3 AND scopes.owner IS ?4",
        )?;
        let mut rows = find.query(params![id.as_str(), scope.agent, scope.tenant, scope.owner])?;
        let Some(row) = rows.next()? else { return Ok(Err(Refused::NotFound)) };
        let (task, waiting, scope): (i64, i64, i64) = (row.get(0)?, row.get(5)?, row.get(6)?);
        let facts = self.facts(row)?;
        drop(rows);
        let known = "SELECT task IS ?3 AND digest = ?4 FROM answers WHERE scope = ?1 AND key = ?2";
        let known = self
            .db
            .prepare_cached(known)?
            .query_row(params![scope, handed.key.key, task, handed.key.digest], |row| row.get::<_, bool>(0))
            .optional()?;
        let key = known.map_or(KeyUse::Free, |is_same| if is_same { KeyUse::Same } else { KeyUse::Other });
        let waiting = usize::try_from(waiting).unwrap_or_default();
        match judge::hand_in(Some(facts), key, waiting, handed.max_waiting) {
            Ok(true) => return Ok(Ok(())),
            Ok(false) => {}
            Err(refused) => return Ok(Err(refused)),
        }
        let answer = "INSERT INTO answers (scope, key, digest, at, task) VALUES (?1, ?2, ?3, ?4, ?5)";
        let at = handed.at.as_millis();
        self.db.prepare_cached(answer)?.execute(params![
            scope,
            handed.key.key,
            handed.key.digest,
            at,
            task
        ])?;
        self.put_turn(task, &handed.turn)?;
        self.count_turns(task)?;
        Ok(Ok(()))
    }

    /// Reads the facts from the columns of a task that was found in its scope.
    fn facts(&self, row: &Row<'_>) -> Result<TaskFacts, StoreError> {
        Ok(TaskFacts {
            seq: Seq(row.get::<_, i64>(1)? as u64),
            in_scope: true,
            is_mine: row.get::<_, i64>(2)? == self.me,
            in_hand: row.get(3)?,
            has_ended: state_of(row.get(4)?)?.is_terminal(),
        })
    }

    /// Adopts the tasks of all other owners: we hold the file's lock, so they have stopped.
    pub(super) fn adopt(&mut self, agent: &Arc<str>, limit: usize) -> Result<Vec<Orphan>, StoreError> {
        if limit == 0 || self.adopted.contains(agent) {
            return Ok(Vec::new());
        }
        let mut find = self.db.prepare_cached(
            "SELECT tasks.id, tasks.key, tenant, scopes.owner, busy FROM tasks JOIN scopes ON scopes.key = tasks.scope
             WHERE busy + pending > 0 AND tasks.owner <> ?1 AND agent = ?2
             ORDER BY tasks.key LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = find.query_map(params![self.me, agent, limit], |row| {
            let scope = Scope { agent: Arc::clone(agent), tenant: row.get(2)?, owner: row.get(3)? };
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, scope, row.get::<_, bool>(4)?))
        })?;
        let found = found.collect::<Result<Vec<_>, _>>()?;
        drop(find);
        let mut orphans = Vec::with_capacity(found.len());
        for (id, key, scope, busy) in found {
            let take = "UPDATE tasks SET owner = ?2 WHERE key = ?1";
            self.db.prepare_cached(take)?.execute([key, self.me])?;
            let stored = read::task(&self.db, self.me, &scope, &id)?;
            let Some(stored) = stored else { continue };
            orphans.push(Orphan { scope: Arc::new(scope), stored, busy, turns: self.turns(key)? });
        }
        if (orphans.len() as i64) < limit {
            self.adopted.insert(Arc::clone(agent));
        }
        Ok(orphans)
    }

    fn turns(&self, key: i64) -> Result<Vec<StoredTurn>, StoreError> {
        let mut turns =
            self.db.prepare_cached("SELECT id, begun, body FROM turns WHERE task = ?1 ORDER BY id")?;
        let turns = turns.query_map([key], |row| {
            let body = Bytes::from(row.get::<_, Vec<u8>>(2)?);
            Ok(StoredTurn { id: row.get(0)?, begun: row.get(1)?, body })
        })?;
        Ok(turns.collect::<Result<_, _>>()?)
    }
}

/// The turns that wait at tasks of the owner `me`.
pub(super) fn waiting(
    db: &Connection,
    me: i64,
    query: &WaitingQuery,
) -> Result<Vec<WaitingTurn>, StoreError> {
    let (mut text, mut values): (String, Vec<&dyn ToSql>) = (String::new(), vec![&me, &query.agent]);
    let ids: Vec<&str> = query.tasks.iter().flatten().map(TaskId::as_str).collect();
    if query.tasks.is_some() {
        text.push_str(" AND tasks.id IN (");
        text.push_str(&placeholders(ids.len()));
        text.push(')');
        values.extend(ids.iter().map(|id| id as &dyn ToSql));
    }
    text.push_str(" AND turns.id NOT IN (");
    text.push_str(&placeholders(query.except.len()));
    text.push_str(") ORDER BY tasks.id, turns.id LIMIT ?");
    values.extend(query.except.iter().map(|id| id as &dyn ToSql));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    values.push(&limit);
    let mut find = db.prepare(&format!(
        "SELECT tasks.id, tenant, scopes.owner, turns.id, body
         FROM tasks JOIN scopes ON scopes.key = tasks.scope JOIN turns ON turns.task = tasks.key
         WHERE busy + pending > 0 AND pending > 0 AND tasks.owner = ? AND agent = ? AND NOT begun{text}"
    ))?;
    let found = find.query_map(params_from_iter(values), |row| {
        let scope = Scope { agent: Arc::clone(&query.agent), tenant: row.get(1)?, owner: row.get(2)? };
        let body = Bytes::from(row.get::<_, Vec<u8>>(4)?);
        let turn = StoredTurn { id: row.get(3)?, begun: false, body };
        Ok(WaitingTurn { scope: Arc::new(scope), task_id: row.get::<_, String>(0)?.into(), turn })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
