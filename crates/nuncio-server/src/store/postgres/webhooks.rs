//! Webhooks of a task: put, read, delete. Changes lock the task first.

use std::sync::Arc;

use nuncio_protocol::{PushConfigId, TaskId, Timestamp};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    link::Params,
    names::{plain, scope_id, text},
    owed::replace,
};
use crate::store::{MAX_WEBHOOKS, Refused, Scope, StoreError, Webhook};

/// Keeps entries of the task from being written meanwhile.
const LOCK_TASK: &str = "SELECT FROM tasks WHERE id = $1 AND scope = $2 FOR UPDATE";

/// Returns no row if there are too many webhooks.
const PUT: &str = replace!(
    "INSERT INTO webhooks (uid, task, id, scope, agent, target, body, first_seq)
  SELECT $2, $3, $4, $5, $6, $7, $8, 0
  WHERE (SELECT count(*) FROM webhooks WHERE task = $3 AND id <> $4 AND NOT stopped) < $9::bigint"
);

const WEBHOOK: &str = "SELECT w.uid, w.id, w.target, w.body FROM tasks t JOIN webhooks w ON w.task = t.id
  WHERE t.id = $1 AND t.scope = $2 AND w.id = $3 AND NOT w.stopped";

/// Returns one row without a webhook if the task has none.
const WEBHOOKS: &str = "SELECT w.uid, w.id, w.target, w.body FROM tasks t LEFT JOIN LATERAL (
      SELECT * FROM webhooks WHERE task = t.id AND NOT stopped AND ($3::text IS NULL OR id > $3)
      ORDER BY id LIMIT $4) w ON true
  WHERE t.id = $1 AND t.scope = $2 ORDER BY w.id";

const DROP: &str = "WITH gone AS (DELETE FROM webhooks WHERE task = $1 AND id = $2 RETURNING uid),
    owed AS (DELETE FROM deliveries USING gone WHERE webhook = gone.uid)
  SELECT uid FROM gone";

pub(super) async fn put(
    store: &PostgresStore,
    scope: &Scope,
    task: &TaskId,
    webhook: &Webhook,
    now: Timestamp,
) -> Result<Result<(), Refused>, StoreError> {
    let (task, scope_id, agent) = (text(task.as_str()), scope_id(scope), text(&scope.agent));
    let (uid, id) = (text(&webhook.uid), text(webhook.id.as_str()));
    let (target, body) = (text(&webhook.target), text(&webhook.body));
    let (now, most) = (now.as_millis(), MAX_WEBHOOKS as i64);
    let transaction = store.outbox.begin().await?;
    let session = &transaction.session;
    let put = if session.query_opt(LOCK_TASK, &[&task, &scope_id]).await?.is_none() {
        Err(Refused::NotFound)
    } else {
        let params: Params<'_> = &[&now, &uid, &task, &id, &scope_id, &agent, &target, &body, &most];
        session.query_opt(PUT, params).await?.map(drop).ok_or(Refused::Full)
    };
    transaction.commit().await?;
    Ok(put)
}

pub(super) async fn one(
    store: &PostgresStore,
    scope: &Scope,
    task: &TaskId,
    id: &PushConfigId,
) -> Result<Option<Webhook>, StoreError> {
    let (task, scope, id) = (text(task.as_str()), scope_id(scope), text(id.as_str()));
    let row = store.reads().query_opt(WEBHOOK, &[&task, &scope, &id]).await?;
    Ok(row.map(|row| webhook(&row, 0)))
}

pub(super) async fn list(
    store: &PostgresStore,
    scope: &Scope,
    task: &TaskId,
    after: Option<&PushConfigId>,
    limit: usize,
) -> Result<Option<Vec<Webhook>>, StoreError> {
    let (task, scope) = (text(task.as_str()), scope_id(scope));
    let after = after.map(|after| text(after.as_str()));
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = store.reads().query(WEBHOOKS, &[&task, &scope, &after, &most]).await?;
    let there = rows.iter().filter(|row| row.get::<_, Option<&str>>(0).is_some());
    Ok((!rows.is_empty()).then(|| there.map(|row| webhook(row, 0)).collect()))
}

pub(super) async fn forget(
    store: &PostgresStore,
    scope: &Scope,
    task: &TaskId,
    id: &PushConfigId,
) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
    let (task, scope, id) = (text(task.as_str()), scope_id(scope), text(id.as_str()));
    let transaction = store.outbox.begin().await?;
    let session = &transaction.session;
    let dropped = if session.query_opt(LOCK_TASK, &[&task, &scope]).await?.is_none() {
        Err(Refused::NotFound)
    } else {
        let row = session.query_opt(DROP, &[&task, &id]).await?;
        Ok(row.map(|row| plain(row.get(0)).into()))
    };
    transaction.commit().await?;
    Ok(dropped)
}

/// Decodes a webhook from four columns, from `first` on: uid, id, target, body.
pub(super) fn webhook(row: &Row, first: usize) -> Webhook {
    let text = |column: usize| plain(row.get(first + column));
    Webhook {
        uid: text(0).into(),
        id: text(1).into_owned().into(),
        target: text(2).into(),
        body: text(3).into(),
    }
}
