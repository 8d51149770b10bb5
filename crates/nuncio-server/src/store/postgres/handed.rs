//! Turns that other owners have handed in to the owner of a task.

use std::{borrow::Cow, sync::Arc};

use nuncio_protocol::TaskId;
use tokio_postgres::Row;

use super::{
    PostgresStore,
    link::ATTEMPTS,
    names::{plain, scope_id, text},
    read::seq,
};
use crate::store::{
    HandIn, Refused, Scope, StoreError, StoredTurn, WaitingQuery, WaitingTurn,
    codec::state_of,
    judge::{self, KeyUse, TaskFacts},
};

/// Stores the turn and its answer. No row if it is not accepted. It locks the task first, then the key, as all
/// writers do.
const HAND_IN: &str = "WITH theirs AS (
      SELECT t.id, t.scope FROM tasks t WHERE t.id = $1 AND t.scope = $2 AND t.owner <> $3
        AND (t.busy OR t.pending > 0) AND t.pending < $9::integer AND t.state NOT IN (3, 4, 5, 7) FOR UPDATE),
    keyed AS (
      INSERT INTO answers (scope, key, digest, at, task) SELECT scope, $6, $7, $8, id FROM theirs
      ON CONFLICT DO NOTHING RETURNING task),
    put AS (INSERT INTO turns (task, id, begun, body) SELECT task, $4, false, $5 FROM keyed)
  UPDATE tasks SET pending = pending + 1 FROM keyed WHERE tasks.id = keyed.task RETURNING 1";

/// The task and the key of a hand-in that was not accepted.
const FACTS: &str = "SELECT t.seq, t.owner = $3, t.busy OR t.pending > 0, t.state, t.pending,
    a.key IS NOT NULL, a.task IS NOT DISTINCT FROM t.id AND a.digest = $5
  FROM tasks t LEFT JOIN answers a ON a.scope = t.scope AND a.key = $4 WHERE t.id = $1 AND t.scope = $2";

const WAITING: &str = "SELECT t.id, s.tenant, s.owner, u.id, u.body
  FROM tasks t JOIN scopes s ON s.id = t.scope JOIN turns u ON u.task = t.id
  WHERE t.owner = $1 AND t.pending > 0 AND s.agent = $2 AND NOT u.begun AND NOT u.id = ANY($3::text[])
    AND ($4::text[] IS NULL OR t.id = ANY($4))
  ORDER BY t.id, u.id LIMIT $5";

pub(super) async fn hand_in(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
    handed: &HandIn,
) -> Result<Result<(), Refused>, StoreError> {
    let HandIn { turn, key, at, max_waiting } = handed;
    let (id, scope, key_text) = (text(id.as_str()), scope_id(scope), text(&key.key));
    let (turn_id, body, digest) = (text(&turn.id), &turn.body[..], &key.digest[..]);
    let (at, most) = (at.as_millis(), i32::try_from(*max_waiting).unwrap_or(i32::MAX));
    for _ in 0..ATTEMPTS {
        let accepted = store
            .reads()
            .query_opt(HAND_IN, &[&id, &scope, &store.epoch, &turn_id, &body, &key_text, &digest, &at, &most])
            .await?;
        if accepted.is_some() {
            return Ok(Ok(()));
        }
        let row = store.reads().query_opt(FACTS, &[&id, &scope, &store.epoch, &key_text, &digest]).await?;
        let (facts, key, waiting) = match &row {
            Some(row) => facts(row)?,
            None => return Ok(Err(Refused::NotFound)),
        };
        match judge::hand_in(Some(facts), key, waiting, *max_waiting) {
            Ok(true) => return Ok(Ok(())),
            // It has changed since the statement, and would be accepted now.
            Ok(false) => {}
            Err(refused) => return Ok(Err(refused)),
        }
    }
    Err(StoreError::down("too many conflicts with concurrent transactions"))
}

fn facts(row: &Row) -> Result<(TaskFacts, KeyUse, usize), StoreError> {
    let facts = TaskFacts {
        seq: seq(row.get(0)),
        in_scope: true,
        is_mine: row.get(1),
        in_hand: row.get(2),
        has_ended: state_of(row.get::<_, i16>(3).into())?.is_terminal(),
    };
    let key = match (row.get(5), row.get::<_, Option<bool>>(6)) {
        (false, _) => KeyUse::Free,
        (true, Some(true)) => KeyUse::Same,
        (true, _) => KeyUse::Other,
    };
    Ok((facts, key, usize::try_from(row.get::<_, i32>(4)).unwrap_or_default()))
}

pub(super) async fn waiting(
    store: &PostgresStore,
    query: &WaitingQuery,
) -> Result<Vec<WaitingTurn>, StoreError> {
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let except: Vec<Cow<'_, str>> = query.except.iter().map(|id| text(id)).collect();
    let ids = |ids: &Vec<TaskId>| ids.iter().map(|id| text(id.as_str()).into_owned()).collect::<Vec<_>>();
    let tasks: Option<Vec<String>> = query.tasks.as_ref().map(ids);
    let agent = text(&query.agent);
    let rows = store.reads().query(WAITING, &[&store.epoch, &agent, &except, &tasks, &limit]).await?;
    let name = |row: &Row, column| row.get::<_, Option<&str>>(column).map(|name| Arc::from(plain(name)));
    let waiting = |row: &Row| {
        let scope = Scope { agent: Arc::clone(&query.agent), tenant: name(row, 1), owner: name(row, 2) };
        WaitingTurn {
            scope: Arc::new(scope),
            task_id: plain(row.get(0)).into_owned().into(),
            turn: StoredTurn {
                id: plain(row.get(3)).into(),
                begun: false,
                body: row.get::<_, Vec<u8>>(4).into(),
            },
        }
    };
    Ok(rows.iter().map(waiting).collect())
}
