//! Writes of one statement: direct replies, turns, secrets. Each may run twice without harm.

use nuncio_protocol::{Message, TaskId, Timestamp};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    judge::free_for,
    names::{plain, scope_id, text},
    read::seq,
};
use crate::store::{
    IdempotencyKey, Refused, Scope, StoreError, TurnChange,
    codec::{damaged, state_of},
    judge::{self, TaskFacts},
};

/// Returns the id of the reservation that the reply ends. The update of the scope locks it against a
/// concurrent erasure.
const REPLY: &str = "WITH scope AS (
      INSERT INTO scopes VALUES ($1, $2, $3, $4)
      ON CONFLICT (id) DO UPDATE SET agent = excluded.agent RETURNING id),
    ended AS (
      DELETE FROM reservations r USING answers a
      WHERE a.scope = $1 AND a.key = $5 AND r.id = a.reserved AND r.owner = $9 RETURNING r.id)
  INSERT INTO answers AS a (scope, key, digest, at, reply) SELECT id, $5, $6, $7, $8 FROM scope
  ON CONFLICT (scope, key) DO UPDATE SET at = excluded.at, reply = excluded.reply, reserved = NULL
    WHERE a.reserved IN (SELECT id FROM ended)
  RETURNING (SELECT id FROM ended)";

/// The task of a change of a turn that was not accepted.
const FACTS: &str =
    "SELECT seq, owner = $3, busy OR pending > 0, state FROM tasks WHERE id = $1 AND scope = $2";

/// A statement over the task `mine`, locked, which is empty unless this owner may change its turns.
macro_rules! mine {
    ($then:literal) => {
        concat!(
            "WITH mine AS (
      SELECT t.id FROM tasks t WHERE t.id = $1 AND t.scope = $2 AND ",
            free_for!("t", "$3"),
            " FOR UPDATE),
    ",
            $then
        )
    };
}

const QUEUE: &str = mine!(
    "before AS (SELECT count(*) AS n FROM mine JOIN turns t ON t.task = mine.id AND t.id = $4 AND NOT t.begun),
    put AS (
      INSERT INTO turns SELECT id, $4, $5, $6 FROM mine
      ON CONFLICT (task, id) DO UPDATE SET begun = excluded.begun, body = excluded.body)
  UPDATE tasks SET owner = $3, pending = greatest(pending - before.n, 0) + (NOT $5)::int FROM mine, before
  WHERE tasks.id = mine.id RETURNING 1"
);

const BEGIN: &str = mine!(
    "found AS (SELECT t.begun FROM mine JOIN turns t ON t.task = mine.id AND t.id = $4),
    put AS (UPDATE turns SET begun = true FROM mine WHERE task = mine.id AND turns.id = $4),
    counted AS (
      UPDATE tasks SET pending = greatest(pending - 1, 0) FROM mine, found WHERE tasks.id = mine.id AND NOT found.begun)
  SELECT 1 FROM found"
);

const DROP: &str = mine!(
    "gone AS (DELETE FROM turns USING mine WHERE task = mine.id AND turns.id = $4 RETURNING begun),
    counted AS (
      UPDATE tasks SET pending = greatest(pending - 1, 0) FROM mine, gone
      WHERE tasks.id = mine.id AND NOT gone.begun)
  SELECT 1 FROM mine"
);

/// The first value stays; a second writer gets it too.
const SECRET: &str = "WITH made AS (
      INSERT INTO secrets VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING value)
  SELECT value FROM made UNION ALL SELECT value FROM secrets WHERE name = $1 LIMIT 1";

pub(super) async fn put_reply(
    store: &PostgresStore,
    scope: &Scope,
    key: &IdempotencyKey,
    reply: &Message,
    at: Timestamp,
) -> Result<Option<TaskId>, StoreError> {
    let reply = serde_json::to_vec(reply).map_err(StoreError::broken)?;
    let (tenant, owner) = (scope.tenant.as_deref().map(text), scope.owner.as_deref().map(text));
    let row = store
        .reads()
        .query_opt(
            REPLY,
            &[
                &scope_id(scope),
                &text(&scope.agent),
                &tenant,
                &owner,
                &text(&key.key),
                &&key.digest[..],
                &at.as_millis(),
                &reply,
                &store.epoch,
            ],
        )
        .await?;
    let id = row.and_then(|row| row.get::<_, Option<&str>>(0).map(|id| plain(id).into_owned().into()));
    Ok(id)
}

pub(super) async fn update_turn(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
    change: TurnChange,
) -> Result<Result<(), Refused>, StoreError> {
    let (id, scope) = (text(id.as_str()), scope_id(scope));
    let done = match change {
        TurnChange::Queue(turn) => {
            let (turn_id, body) = (text(&turn.id), &turn.body[..]);
            store.reads().query_opt(QUEUE, &[&id, &scope, &store.epoch, &turn_id, &turn.begun, &body]).await?
        }
        TurnChange::Begin(turn) => {
            store.reads().query_opt(BEGIN, &[&id, &scope, &store.epoch, &text(&turn)]).await?
        }
        TurnChange::Drop(turn) => {
            store.reads().query_opt(DROP, &[&id, &scope, &store.epoch, &text(&turn)]).await?
        }
    };
    if done.is_some() {
        return Ok(Ok(()));
    }
    let found = store.reads().query_opt(FACTS, &[&id, &scope, &store.epoch]).await?;
    let facts = found.as_ref().map(facts).transpose()?;
    // No rule refuses the change and nothing was changed: there is no such turn.
    Ok(judge::turn(facts).and(Err(Refused::NotFound)))
}

fn facts(row: &Row) -> Result<TaskFacts, StoreError> {
    Ok(TaskFacts {
        seq: seq(row.get(0)),
        in_scope: true,
        is_mine: row.get(1),
        in_hand: row.get(2),
        has_ended: state_of(row.get::<_, i16>(3).into())?.is_terminal(),
    })
}

pub(super) async fn secret(store: &PostgresStore, name: &str) -> Result<[u8; 32], StoreError> {
    let fresh: [u8; 32] = rand::random();
    // With two concurrent calls, the loser does not see the winner's value at once, but on its next attempt.
    for _ in 0..3 {
        if let Some(row) = store.reads().query_opt(SECRET, &[&text(name), &&fresh[..]]).await? {
            return row.get::<_, &[u8]>(0).try_into().map_err(damaged);
        }
    }
    Err(StoreError::down("another hub is creating the secret and has not finished"))
}
