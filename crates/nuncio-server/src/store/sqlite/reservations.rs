//! Reservations. Their keys are rows of `answers`, so that a key refers to one thing at a time.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Message, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::write::WriteSession;
use crate::store::{
    IdempotencyKey, Refused, Reservation, Scope, StoreError,
    codec::{TaskWrite, moment},
    judge::{self, ReservationFacts},
};

impl WriteSession {
    pub(super) fn reserve(&mut self, reservation: &Reservation) -> Result<Result<(), Refused>, StoreError> {
        let Reservation { scope, task_id, idempotency, at, body } = reservation;
        let (scope, id, at) = (self.scope(scope)?, task_id.as_str(), at.as_millis());
        let known = "SELECT owner FROM reservations WHERE id = ?1";
        let known = self.db.prepare_cached(known)?.query_row([id], |row| row.get::<_, i64>(0)).optional()?;
        if let Some(owner) = known {
            return Ok(judge::key(owner != self.me));
        }
        if let Some(IdempotencyKey { key, digest }) = idempotency {
            let take = "INSERT INTO answers (scope, key, digest, at, reserved) VALUES (?1, ?2, ?3, ?4, ?5)
                        ON CONFLICT (scope, key) DO NOTHING";
            let inserted = self.db.prepare_cached(take)?.execute(params![scope, key, digest, at, id])?;
            if let Err(refused) = judge::key(inserted == 0) {
                return Ok(Err(refused));
            }
        }
        let key = idempotency.as_ref().map(|idempotency| &idempotency.key);
        let put =
            "INSERT INTO reservations (id, scope, key, owner, at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.db.prepare_cached(put)?.execute(params![id, scope, key, self.me, at, &body[..]])?;
        self.written += body.len();
        Ok(Ok(()))
    }

    pub(super) fn release_reservation(&mut self, scope: &Arc<Scope>, id: &TaskId) -> Result<(), StoreError> {
        let Some(scope) = self.known_scope(scope)? else { return Ok(()) };
        if let Some(Some(key)) = self.delete_reservation(scope, id, false)? {
            self.free_key(scope, &key)?;
        }
        Ok(())
    }

    /// Deletes a reserved key.
    pub(super) fn free_key(&self, scope: i64, key: &str) -> Result<(), StoreError> {
        let free = "DELETE FROM answers WHERE scope = ?1 AND key = ?2";
        self.db.prepare_cached(free)?.execute(params![scope, key])?;
        Ok(())
    }

    /// Ends the reservation of a task that is created, and assigns its key to the task.
    pub(super) fn end_reservation(
        &self,
        scope: i64,
        task: i64,
        write: &TaskWrite,
    ) -> Result<Result<(), Refused>, StoreError> {
        let find = "SELECT scope, owner FROM reservations WHERE id = ?1";
        let found = self.db.prepare_cached(find)?.query_row([write.id.as_str()], |row| {
            let (of, owner): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(ReservationFacts { in_scope: of == scope, is_mine: owner == self.me })
        });
        if let Err(refused) = judge::reserved_creation(found.optional()?, write.take) {
            return Ok(Err(refused));
        }
        if let Some(Some(key)) = self.delete_reservation(scope, &write.id, write.take)? {
            let answer = "UPDATE answers SET task = ?3, reserved = NULL WHERE scope = ?1 AND key = ?2";
            self.db.prepare_cached(answer)?.execute(params![scope, key, task])?;
        }
        Ok(Ok(()))
    }

    /// Stores a reply, and ends this owner's reservation of the key.
    pub(super) fn put_reply(
        &mut self,
        scope: &Arc<Scope>,
        IdempotencyKey { key, digest }: &IdempotencyKey,
        reply: &[u8],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let scope = self.scope(scope)?;
        let mine = "DELETE FROM reservations WHERE owner = ?3 AND id =
                        (SELECT reserved FROM answers WHERE scope = ?1 AND key = ?2)";
        if self.db.prepare_cached(mine)?.execute(params![scope, key, self.me])? > 0 {
            let answer =
                "UPDATE answers SET reply = ?3, at = ?4, reserved = NULL WHERE scope = ?1 AND key = ?2";
            self.db.prepare_cached(answer)?.execute(params![scope, key, reply, at.as_millis()])?;
            return Ok(());
        }
        let keep = "INSERT INTO answers (scope, key, digest, at, reply) VALUES (?1, ?2, ?3, ?4, ?5)
                    ON CONFLICT (scope, key) DO NOTHING";
        self.db.prepare_cached(keep)?.execute(params![scope, key, digest, at.as_millis(), reply])?;
        Ok(())
    }

    /// Deletes a reservation of this owner, or of any; returns its key, if the reservation existed.
    fn delete_reservation(
        &self,
        scope: i64,
        id: &TaskId,
        of_any: bool,
    ) -> Result<Option<Option<String>>, StoreError> {
        let drop =
            "DELETE FROM reservations WHERE id = ?1 AND scope = ?2 AND (owner = ?3 OR ?4) RETURNING key";
        let mut drop = self.db.prepare_cached(drop)?;
        Ok(drop.query_row(params![id.as_str(), scope, self.me, of_any], |row| row.get(0)).optional()?)
    }
}

/// Decodes a reservation and its owner from six columns, from `first` on: id, key, digest, time, body, owner.
pub(super) fn read(row: &Row<'_>, first: usize, scope: Arc<Scope>) -> Result<(Reservation, i64), StoreError> {
    let key: Option<Arc<str>> = row.get(first + 1)?;
    let digest: Option<[u8; 32]> = row.get(first + 2)?;
    let reservation = Reservation {
        scope,
        task_id: row.get::<_, String>(first)?.into(),
        idempotency: key.zip(digest).map(|(key, digest)| IdempotencyKey { key, digest }),
        at: moment(row.get(first + 3)?)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(first + 4)?),
    };
    Ok((reservation, row.get(first + 5)?))
}

/// The reservations of all other owners: we hold the file's lock, so they have stopped.
pub(super) fn abandoned(
    db: &Connection,
    me: i64,
    agent: &Arc<str>,
    limit: i64,
) -> Result<Vec<Reservation>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT tenant, scopes.owner, r.id, r.key, digest, r.at, r.body, r.owner
         FROM reservations r JOIN scopes ON scopes.key = r.scope
             LEFT JOIN answers ON answers.scope = r.scope AND answers.key = r.key
         WHERE r.owner <> ?1 AND agent = ?2 ORDER BY r.at, r.id LIMIT ?3",
    )?;
    let mut rows = find.query(params![me, agent, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let scope = Scope { agent: Arc::clone(agent), tenant: row.get(0)?, owner: row.get(1)? };
        found.push(read(row, 2, Arc::new(scope))?.0);
    }
    Ok(found)
}

/// Encodes a reply.
pub(super) fn encode_reply(reply: &Message) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(reply).map_err(StoreError::broken)
}
