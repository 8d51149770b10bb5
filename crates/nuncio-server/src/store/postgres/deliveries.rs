//! Deliveries for operators: list and redrive.

use nuncio_protocol::Timestamp;
use tokio_postgres::{Row, types::ToSql};

use super::{
    PostgresStore,
    lease::scope,
    names::{plain, text},
    read::{number, seq},
    webhooks::webhook,
};
use crate::store::{
    Attempt, Backlog, Delivery, DeliveryId, DeliveryQuery, DeliveryState, Redrive, StoreError,
    codec::{damaged, millis_from, moment},
};

/// Parameters: upper bound (two, excluded), lower bound (two), earliest time, agent, number of rows, target; then the
/// values of the filter.
macro_rules! page {
    ($filter:literal) => {
        concat!(
            "SELECT w.uid, w.id, w.target, w.body, w.task, s.agent, s.tenant, s.owner, d.seq, d.state, d.since, ",
            "d.attempts, d.recent, CASE WHEN d.state = 0 AND w.holder IS NULL THEN w.due_at END ",
            "FROM deliveries d JOIN webhooks w ON w.uid = d.webhook JOIN scopes s ON s.id = w.scope ",
            "WHERE (d.webhook, d.seq) < ($1, $2) AND (d.webhook, d.seq) >= ($3, $4) AND d.since >= $5 ",
            "AND ($6::text IS NULL OR w.agent = $6) AND ($8::text IS NULL OR w.target = $8) ",
            $filter,
            " ORDER BY d.webhook DESC, d.seq DESC LIMIT $7"
        )
    };
}

const PAGE: &str = page!("");
const PAGE_PENDING: &str = page!("AND d.state = 0");
const PAGE_DELIVERED: &str = page!("AND d.state = 1");
const PAGE_DEAD: &str = page!("AND d.state = 2");
const PAGE_OF_TASK: &str = page!("AND w.task = $9 AND ($10::smallint IS NULL OR d.state = $10)");

const BACKLOG: &str = "SELECT count(*), min(since) FROM deliveries WHERE state = 0";

const REDRIVE_ONE: &str = "WITH hook AS (SELECT uid FROM webhooks WHERE uid = $1 FOR UPDATE),
    again AS (
      UPDATE deliveries d SET state = 0, since = $3, attempts = 0 FROM hook
      WHERE d.webhook = hook.uid AND d.seq = $2 RETURNING d.webhook)
  UPDATE webhooks w SET stopped = false, due_at = $3 FROM again WHERE w.uid = again.webhook RETURNING 1";

/// Redrives a limited number of webhooks after `$2`, so that nobody waits for all of them.
const REDRIVE_DEAD: &str = "WITH dead AS (
      SELECT DISTINCT d.webhook FROM deliveries d JOIN webhooks w ON w.uid = d.webhook
      WHERE d.state = 2 AND NOT w.stopped AND d.since >= $1 AND d.webhook > $2
        AND ($3::text IS NULL OR w.agent = $3)
      ORDER BY d.webhook LIMIT $4),
    hooks AS (
      SELECT w.uid FROM dead JOIN webhooks w ON w.uid = dead.webhook WHERE NOT w.stopped
      ORDER BY w.uid FOR UPDATE OF w),
    again AS (
      UPDATE deliveries d SET state = 0, since = $5, attempts = 0 FROM hooks
      WHERE d.webhook = hooks.uid AND d.state = 2 AND d.since >= $1 RETURNING d.webhook),
    due AS (
      UPDATE webhooks w SET stopped = false, due_at = $5 FROM (SELECT DISTINCT webhook FROM again) a
      WHERE w.uid = a.webhook)
  SELECT (SELECT count(*) FROM again), (SELECT max(webhook) FROM dead)";

/// The number of webhooks redriven per statement.
const REDRIVEN: i64 = 100;

/// Sorts after every uid.
const BEYOND: &str = "\u{10ffff}";

pub(super) async fn list(
    store: &PostgresStore,
    query: &DeliveryQuery,
) -> Result<(Vec<Delivery>, bool), StoreError> {
    let place = |id: &DeliveryId| (text(&id.webhook).into_owned(), number(id.seq));
    let from = query.id.as_ref().map_or((String::new(), i64::MIN), place);
    let beyond_it = query.id.as_ref().map(|id| (from.0.clone(), number(id.seq).saturating_add(1)));
    let before = query.after.as_ref().map(place).into_iter().chain(beyond_it).min();
    let before = before.unwrap_or((BEYOND.to_owned(), i64::MAX));
    let since = query.since.map_or(i64::MIN, millis_from);
    let (agent, target) = (query.agent.as_deref().map(text), query.target.as_deref().map(text));
    let limit = i64::try_from(query.limit.saturating_add(1)).unwrap_or(i64::MAX);
    let (task, state) = (query.task_id.as_ref().map(|id| text(id.as_str())), query.state.map(|s| s.code()));
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&before.0, &before.1, &from.0, &from.1, &since, &agent, &limit, &target];
    let sql = match query.state {
        _ if task.is_some() => PAGE_OF_TASK,
        None => PAGE,
        Some(DeliveryState::Pending) => PAGE_PENDING,
        Some(DeliveryState::Delivered) => PAGE_DELIVERED,
        Some(DeliveryState::Dead) => PAGE_DEAD,
    };
    if task.is_some() {
        params.extend([&task as &(dyn ToSql + Sync), &state]);
    }
    let rows = store.operator_query(sql, &params).await?;
    let more = rows.len() > query.limit;
    let page = rows.iter().take(query.limit).map(delivery);
    Ok((page.collect::<Result<_, _>>()?, more))
}

/// Counts pending deliveries, by the partial index on them.
pub(super) async fn backlog(store: &PostgresStore) -> Result<Backlog, StoreError> {
    let Some(row) = store.operator_query(BACKLOG, &[]).await?.pop() else { return Ok(Backlog::default()) };
    let pending = u64::try_from(row.get::<_, i64>(0)).unwrap_or_default();
    Ok(Backlog { pending, oldest: row.get::<_, Option<i64>>(1).map(moment).transpose()? })
}

fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    let recent = row.get::<_, Vec<&str>>(12).into_iter().map(serde_json::from_str::<Attempt>);
    Ok(Delivery {
        scope: scope(row, 5),
        task_id: plain(row.get(4)).into_owned().into(),
        webhook: webhook(row, 0),
        seq: seq(row.get(8)),
        state: DeliveryState::from_code(row.get(9)).ok_or_else(|| damaged("unknown delivery state"))?,
        since: moment(row.get(10))?,
        attempts: u32::try_from(row.get::<_, i32>(11)).unwrap_or_default(),
        recent: recent.collect::<Result<_, _>>().map_err(damaged)?,
        due: row.get::<_, Option<i64>>(13).map(moment).transpose()?,
    })
}

pub(super) async fn redrive(
    store: &PostgresStore,
    what: &Redrive,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let now = now.as_millis();
    let (agent, since) = match what {
        Redrive::One(id) => {
            let _turn = store.outbox.turn().await;
            let params: &[&(dyn ToSql + Sync)] = &[&text(&id.webhook), &number(id.seq), &now];
            return Ok(store.outbox.query(REDRIVE_ONE, params).await?.len());
        }
        Redrive::Dead { agent, since } => (agent.as_deref().map(text), millis_from(*since)),
    };
    let (mut redriven, mut after) = (0, String::new());
    loop {
        let _turn = store.outbox.turn().await;
        let params: &[&(dyn ToSql + Sync)] = &[&since, &after, &agent, &REDRIVEN, &now];
        let Some(row) = store.outbox.query_opt(REDRIVE_DEAD, params).await? else { return Ok(redriven) };
        redriven += usize::try_from(row.get::<_, i64>(0)).unwrap_or_default();
        let Some(last) = row.get(1) else { return Ok(redriven) };
        after = last;
    }
}
