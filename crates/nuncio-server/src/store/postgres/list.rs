//! The list: newest status first, then by id, each filter by an index of its own.

use tokio_postgres::types::ToSql;

use super::{
    PostgresStore,
    names::{scope_id, text},
    read::{self, Told, told},
};
use crate::store::{
    Scope, StoreError, TaskPage, TaskQuery,
    codec::{Blobs, millis_from, state_code},
};

/// Scope, since when, before which place, how many; then the values of the filter.
macro_rules! page {
    ($filter:literal) => {
        told!(
            "",
            "WHERE t.scope = $1 AND t.status_at >= $2 AND (t.status_at, t.id) < ($3, $4) ",
            $filter,
            " ORDER BY t.status_at DESC, t.id DESC LIMIT $5"
        )
    };
}

const PAGE: &str = page!("");
const PAGE_BY_STATE: &str = page!("AND t.state = $6");
const PAGE_BY_CONTEXT: &str = page!("AND t.context_id = $6");
const PAGE_BY_BOTH: &str = page!("AND t.context_id = $6 AND t.state = $7");

const TOTAL: &str = "SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE scope = $1";
const TOTAL_BY_STATE: &str =
    "SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE scope = $1 AND state = $2";
const COUNT: &str = "SELECT count(*) FROM tasks WHERE scope = $1 AND status_at >= $2";
const COUNT_BY_STATE: &str = "SELECT count(*) FROM tasks WHERE scope = $1 AND status_at >= $2 AND state = $3";
const COUNT_BY_CONTEXT: &str =
    "SELECT count(*) FROM tasks WHERE scope = $1 AND status_at >= $2 AND context_id = $3";
const COUNT_BY_BOTH: &str =
    "SELECT count(*) FROM tasks WHERE scope = $1 AND status_at >= $2 AND context_id = $3 AND state = $4";

pub(super) async fn tasks(
    store: &PostgresStore,
    scope: &Scope,
    query: &TaskQuery,
) -> Result<TaskPage, StoreError> {
    let (rows, total) = tokio::try_join!(page(store, scope, query), total(store, scope, query))?;
    let more = rows.len() > query.limit;
    let rows = &rows[..rows.len().min(query.limit)];
    let artifacts = !query.without_artifacts;
    let blobs = read::blobs(store, rows.iter().flat_map(|told| told.wants(artifacts))).await?;
    let none = Blobs::new();
    let task = |told: &Told| told.task(artifacts, blobs.get(told.id()).unwrap_or(&none));
    Ok(TaskPage { tasks: rows.iter().map(task).collect::<Result<_, _>>()?, more, total })
}

/// One row more than the page, to know whether there are more.
async fn page(store: &PostgresStore, scope: &Scope, query: &TaskQuery) -> Result<Vec<Told>, StoreError> {
    let scope = scope_id(scope);
    let since = query.since.map_or(i64::MIN, millis_from);
    let (before, id) = match &query.after {
        Some(after) => (millis_from(after.timestamp), text(after.id.as_str())),
        None => (i64::MAX, "".into()),
    };
    let limit = i64::try_from(query.limit.saturating_add(1)).unwrap_or(i64::MAX);
    let state = query.state.map(state_code);
    let context = query.context_id.as_ref().map(|context| text(context.as_str()));
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&scope, &since, &before, &id, &limit];
    params.extend(context.as_ref().map(|context| context as &(dyn ToSql + Sync)));
    params.extend(state.as_ref().map(|state| state as &(dyn ToSql + Sync)));
    let sql = match (&context, state) {
        (None, None) => PAGE,
        (None, Some(_)) => PAGE_BY_STATE,
        (Some(_), None) => PAGE_BY_CONTEXT,
        (Some(_), Some(_)) => PAGE_BY_BOTH,
    };
    Ok(store.reads().query(sql, &params).await?.into_iter().map(Told).collect())
}

/// From the counters where they can tell, else by an index.
async fn total(store: &PostgresStore, scope: &Scope, query: &TaskQuery) -> Result<Option<usize>, StoreError> {
    if !query.count {
        return Ok(None);
    }
    let scope = scope_id(scope);
    let since = query.since.map(millis_from);
    let from = since.unwrap_or(i64::MIN);
    let state = query.state.map(state_code);
    let context = query.context_id.as_ref().map(|context| text(context.as_str()));
    let sql = match (&context, state, since) {
        (None, None, None) => TOTAL,
        (None, Some(_), None) => TOTAL_BY_STATE,
        (None, None, Some(_)) => COUNT,
        (None, Some(_), Some(_)) => COUNT_BY_STATE,
        (Some(_), None, _) => COUNT_BY_CONTEXT,
        (Some(_), Some(_), _) => COUNT_BY_BOTH,
    };
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&scope];
    if since.is_some() || context.is_some() {
        params.push(&from);
    }
    params.extend(context.as_ref().map(|context| context as &(dyn ToSql + Sync)));
    params.extend(state.as_ref().map(|state| state as &(dyn ToSql + Sync)));
    let row = store.reads().query_opt(sql, &params).await?;
    let total: i64 = row.map_or(0, |row| row.get(0));
    Ok(Some(usize::try_from(total).unwrap_or_default()))
}
