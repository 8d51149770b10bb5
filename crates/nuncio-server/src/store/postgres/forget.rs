//! Deletion: by age, and of everything of a caller.
//!
//! Rows are locked first and deleted by a second statement, which sees everything written before the lock.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{PostgresStore, link::PgSession, names::text};
use crate::store::{
    ErasureTarget, Prune, Pruned, StoreError,
    codec::{millis_from, state_code},
};

/// The oldest tasks over all scopes, without a scan of all old ones: takes the scopes with the oldest tasks,
/// their oldest tasks, and the oldest of those. Locked rows are left for the next call.
const OLD_TASKS: &str = "WITH heads AS (
      SELECT s.id FROM scopes s CROSS JOIN LATERAL (
        SELECT status_at FROM tasks WHERE scope = s.id AND state = $2 AND status_at < $3
          AND NOT busy AND pending = 0 ORDER BY status_at, id LIMIT 1) first
      WHERE s.agent = $1 ORDER BY first.status_at LIMIT $4),
    old AS (
      SELECT o.id FROM heads CROSS JOIN LATERAL (
        SELECT id, status_at FROM tasks WHERE scope = heads.id AND state = $2 AND status_at < $3
          AND NOT busy AND pending = 0 ORDER BY status_at, id LIMIT $4) o
      ORDER BY o.status_at, o.id LIMIT $4)
  SELECT t.id FROM old JOIN tasks t ON t.id = old.id WHERE t.state = $2 AND NOT t.busy AND t.pending = 0
  FOR UPDATE OF t SKIP LOCKED";

const OLD_REPLIES: &str = "WITH heads AS (
      SELECT s.id FROM scopes s CROSS JOIN LATERAL (
        SELECT at FROM answers WHERE scope = s.id AND reply IS NOT NULL AND at < $2 ORDER BY at LIMIT 1) first
      WHERE s.agent = $1 ORDER BY first.at LIMIT $3),
    old AS (
      SELECT o.scope, o.key FROM heads CROSS JOIN LATERAL (
        SELECT scope, key, at FROM answers WHERE scope = heads.id AND reply IS NOT NULL AND at < $2
        ORDER BY at LIMIT $3) o
      ORDER BY o.at LIMIT $3)
  DELETE FROM answers a USING old WHERE (a.scope, a.key) = (old.scope, old.key)";

const THEIR_SCOPES: &str = "SELECT id FROM scopes WHERE owner IS NOT DISTINCT FROM $1
  AND ($2::text IS NULL OR agent = $2) AND ($3::text IS NULL OR tenant = $3)";

const THEIR_TASKS: &str =
    "SELECT id FROM tasks WHERE scope = ANY($1::uuid[]) ORDER BY id LIMIT $2 FOR UPDATE";

const THEIR_REPLIES: &str = "WITH theirs AS (
      SELECT scope, key FROM answers WHERE scope = ANY($1::uuid[]) AND reply IS NOT NULL LIMIT $2)
  DELETE FROM answers a USING theirs WHERE (a.scope, a.key) = (theirs.scope, theirs.key)";

const THEIR_RESERVATIONS: &str = "WITH theirs AS (
      SELECT id FROM reservations WHERE scope = ANY($1::uuid[]) ORDER BY id LIMIT $2 FOR UPDATE),
    gone AS (DELETE FROM reservations r USING theirs WHERE r.id = theirs.id RETURNING r.id, r.scope, r.key),
    freed AS (
      DELETE FROM answers a USING gone WHERE a.scope = gone.scope AND a.key = gone.key AND a.reserved = gone.id)
  SELECT count(*) FROM gone";

/// Locks in the order of all writers.
const LOCK_WEBHOOKS: &str = "SELECT uid FROM webhooks WHERE task = ANY($1::text[]) ORDER BY uid FOR UPDATE";

const DELETE: &str = "WITH gone AS (
      DELETE FROM tasks WHERE id = ANY($1::text[]) RETURNING scope, state),
    s AS (DELETE FROM segments WHERE task = ANY($1)),
    b AS (DELETE FROM blobs WHERE task = ANY($1)),
    m AS (DELETE FROM memos WHERE task = ANY($1)),
    t AS (DELETE FROM turns WHERE task = ANY($1)),
    l AS (DELETE FROM links WHERE child = ANY($1)),
    a AS (DELETE FROM answers WHERE task = ANY($1)),
    w AS (DELETE FROM webhooks WHERE uid = ANY($3::text[])),
    d AS (DELETE FROM deliveries WHERE webhook = ANY($3))
  INSERT INTO counters SELECT scope, state, $2, -count(*) FROM gone GROUP BY scope, state ORDER BY scope, state
  ON CONFLICT (scope, state, owner) DO UPDATE SET n = counters.n + excluded.n";

/// Waits for all writers in these scopes and blocks new ones, so that the next statement sees everything they
/// wrote.
const LOCK_SCOPES: &str = "SELECT FROM scopes WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE";
const LOCK_COUNTERS: &str =
    "SELECT FROM counters WHERE scope = ANY($1::uuid[]) ORDER BY scope, state, owner FOR UPDATE";

const EMPTY_SCOPES: &str = "SELECT id FROM scopes s WHERE id = ANY($1::uuid[])
  AND NOT EXISTS (SELECT FROM tasks t WHERE t.scope = s.id)
  AND NOT EXISTS (SELECT FROM answers a WHERE a.scope = s.id)
  AND NOT EXISTS (SELECT FROM reservations r WHERE r.scope = s.id)";

const DROP_COUNTERS: &str = "DELETE FROM counters WHERE scope = ANY($1::uuid[])";
const DROP_SCOPES: &str = "DELETE FROM scopes WHERE id = ANY($1::uuid[])";

pub(super) async fn prune(store: &PostgresStore, prune: &Prune, limit: usize) -> Result<usize, StoreError> {
    let (agent, before) = (text(&prune.agent), millis_from(prune.before));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let transaction = store.side.begin().await?;
    let gone = match prune.what {
        Pruned::Tasks(state) => {
            let params: &[&(dyn ToSql + Sync)] = &[&agent, &state_code(state), &before, &limit];
            let rows = transaction.session.query(OLD_TASKS, params).await?;
            delete(store, &transaction.session, rows.iter().map(|row| row.get(0)).collect()).await?
        }
        Pruned::Replies => {
            let gone = transaction.session.execute(OLD_REPLIES, &[&agent, &before, &limit]).await?;
            usize::try_from(gone).unwrap_or_default()
        }
    };
    transaction.commit().await?;
    Ok(gone)
}

pub(super) async fn erase(
    store: &PostgresStore,
    whose: &ErasureTarget,
    limit: usize,
) -> Result<usize, StoreError> {
    let (owner, agent) = (whose.owner.as_deref().map(text), whose.agent.as_deref().map(text));
    let tenant = whose.tenant.as_deref().map(text);
    let transaction = store.side.begin().await?;
    let session = &transaction.session;
    let rows = session.query(THEIR_SCOPES, &[&owner, &agent, &tenant]).await?;
    let scopes: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    if scopes.is_empty() {
        transaction.commit().await?;
        return Ok(0);
    }
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(THEIR_TASKS, &[&scopes, &most]).await?;
    let tasks = delete(store, session, rows.iter().map(|row| row.get(0)).collect()).await?;
    let most = i64::try_from(limit - tasks).unwrap_or(i64::MAX);
    let replies = session.execute(THEIR_REPLIES, &[&scopes, &most]).await?;
    let erased = tasks + usize::try_from(replies).unwrap_or_default();
    let most = i64::try_from(limit - erased).unwrap_or(i64::MAX);
    let row = session.query_opt(THEIR_RESERVATIONS, &[&scopes, &most]).await?;
    let reserved = row.map_or(0, |row| row.get::<_, i64>(0));
    forget_scopes(session, &scopes).await?;
    transaction.commit().await?;
    Ok(erased + usize::try_from(reserved).unwrap_or_default())
}

/// Deletes tasks that this transaction has locked, with everything that belongs to them.
async fn delete(store: &PostgresStore, session: &PgSession, ids: Vec<String>) -> Result<usize, StoreError> {
    if !ids.is_empty() {
        let webhooks = session.query(LOCK_WEBHOOKS, &[&ids]).await?;
        let webhooks: Vec<&str> = webhooks.iter().map(|row| row.get(0)).collect();
        session.execute(DELETE, &[&ids, &store.epoch, &webhooks]).await?;
    }
    Ok(ids.len())
}

/// Deletes empty scopes: the name of a scope is itself a trace of the caller.
async fn forget_scopes(session: &PgSession, scopes: &Vec<Uuid>) -> Result<(), StoreError> {
    session.query(LOCK_SCOPES, &[scopes]).await?;
    session.query(LOCK_COUNTERS, &[scopes]).await?;
    let empty = session.query(EMPTY_SCOPES, &[scopes]).await?;
    let empty: Vec<Uuid> = empty.iter().map(|row| row.get(0)).collect();
    if !empty.is_empty() {
        session.execute(DROP_COUNTERS, &[&empty]).await?;
        session.execute(DROP_SCOPES, &[&empty]).await?;
    }
    Ok(())
}
