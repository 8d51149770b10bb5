//! Lists of tasks: newest status first, then by id; each filter uses an index of its own.
//!
//! A page is limited in tasks and in bytes. The database measures inline content and sends no more than fits;
//! large content is measured before it is loaded.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    PostgresStore,
    link::Link,
    names::{scope_id, text},
    read::{self, Told},
};
use crate::store::{
    CountedTasks, PageBytes, Scope, StoreError, TaskPage, TaskQuery,
    codec::{Blobs, Digest, Draft, millis_from, state_code},
};

/// The columns that [`Told`] reads, if the row fits; then whether it does. Parameters: scope, since when, before which place, how many rows
/// and bytes, except which task, and whether also the first one must fit; then the values of the filter.
macro_rules! page {
    ($artifacts:literal, $artifacts_refs:literal, $filter:literal) => {
        concat!(
            "SELECT id, seq, open, owner, snapshot_seq, CASE WHEN fits THEN snapshot END, ",
            "CASE WHEN fits THEN snapshot_refs END, ",
            "CASE WHEN fits THEN artifacts END, CASE WHEN fits THEN artifacts_refs END, ",
            "CASE WHEN fits AND seq > snapshot_seq THEN ",
            "ARRAY(SELECT s.body FROM segments s WHERE s.task = id AND s.last_seq > snapshot_seq ORDER BY s.last_seq) ",
            "END, CASE WHEN fits AND seq > snapshot_seq THEN ",
            "ARRAY(SELECT s.refs FROM segments s WHERE s.task = id AND s.last_seq > snapshot_seq ORDER BY s.last_seq) ",
            "END, fits ",
            "FROM (SELECT *, sum(bytes) OVER page <= $6::bigint OR (NOT $8::bool AND row_number() OVER page = 1) AS fits ",
            "FROM (",
            "SELECT t.id, t.status_at, t.seq, t.busy OR t.pending > 0 AS open, t.owner, t.snapshot_seq, t.snapshot, ",
            "t.snapshot_refs, ",
            $artifacts,
            " AS artifacts, ",
            $artifacts_refs,
            " AS artifacts_refs, ",
            "(coalesce(octet_length(t.snapshot), 0) + coalesce(octet_length(",
            $artifacts,
            "), 0) + CASE WHEN t.seq > t.snapshot_seq THEN (SELECT coalesce(sum(octet_length(s.body)), 0) ",
            "FROM segments s WHERE s.task = t.id AND s.last_seq > t.snapshot_seq) ELSE 0 END)::bigint AS bytes ",
            "FROM tasks t WHERE t.scope = $1 AND t.status_at >= $2 AND (t.status_at, t.id) < ($3, $4) ",
            "AND ($7::text IS NULL OR t.id <> $7) ",
            $filter,
            " ORDER BY t.status_at DESC, t.id DESC LIMIT $5) counted ",
            "WINDOW page AS (ORDER BY status_at DESC, id DESC)) measured ORDER BY status_at DESC, id DESC"
        )
    };
}

/// The statements without and with artifacts.
macro_rules! pages {
    ($filter:literal) => {
        [page!("NULL::bytea", "NULL::bytea", $filter), page!("t.artifacts", "t.artifacts_refs", $filter)]
    };
}

const PAGE: [&str; 2] = pages!("");
const PAGE_BY_STATE: [&str; 2] = pages!("AND t.state = $9");
const PAGE_BY_CONTEXT: [&str; 2] = pages!("AND t.context_id = $9");
const PAGE_BY_BOTH: [&str; 2] = pages!("AND t.context_id = $9 AND t.state = $10");

/// The column that says whether a row fits.
const FITS: usize = 11;

const TOTAL: &str = "SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE scope = $1";
const TOTAL_BY_STATE: &str =
    "SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE scope = $1 AND state = $2";
/// Counts the newest tasks of a range of an index. Parameters: scope, since when, how many; then the values of
/// the range and of the condition that the index cannot answer.
macro_rules! count {
    ($range:literal, $matches:literal) => {
        concat!(
            "SELECT count(*), count(*) FILTER (WHERE matches), max(status_at), min(status_at) FROM (",
            "SELECT status_at, ",
            $matches,
            " AS matches FROM tasks WHERE scope = $1 AND status_at >= $2 ",
            $range,
            " ORDER BY status_at DESC, id DESC LIMIT $3) newest"
        )
    };
}

const COUNT: &str = count!("", "true");
const COUNT_BY_STATE: &str = count!("AND state = $4", "true");
const COUNT_BY_CONTEXT: &str = count!("AND context_id = $4", "true");
const COUNT_BY_BOTH: &str = count!("AND context_id = $4", "state = $5");

/// The time of the oldest task of a range.
macro_rules! first {
    ($range:literal) => {
        concat!(
            "SELECT status_at FROM tasks WHERE scope = $1 AND status_at >= $2 ",
            $range,
            " ORDER BY status_at, id LIMIT 1"
        )
    };
}

const FIRST: &str = first!("");
const FIRST_BY_STATE: &str = first!("AND state = $3");
const FIRST_BY_CONTEXT: &str = first!("AND context_id = $3");

pub(super) async fn tasks(
    store: &PostgresStore,
    scope: &Scope,
    query: &TaskQuery,
) -> Result<TaskPage, StoreError> {
    let lent = store.lists.lend().await?;
    let page = list(lent.link(), scope, query).await;
    lent.end(page)
}

async fn list(link: &Link, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
    let (rows, total) = tokio::try_join!(page(link, scope, query), total(link, scope, query))?;
    let found = rows.len();
    let fitting = rows.iter().take(query.limit).take_while(|told| told.0.get(FITS));
    let drafts = fitting.map(|told| Ok((told.id(), told.draft(query.shown())?)));
    let drafts = cut(link, query, drafts.collect::<Result<_, StoreError>>()?).await?;
    let wanted = drafts.iter().flat_map(wants).collect();
    let (blobs, none) = (read::blobs(link, &wanted).await?, Blobs::new());
    let finish = |(id, draft): (&str, Draft)| draft.finish(blobs.get(id).unwrap_or(&none));
    let tasks: Vec<_> = drafts.into_iter().map(finish).collect::<Result<_, _>>()?;
    let (total, is_estimate) = total.map_or((None, false), |(total, estimate)| (Some(total), estimate));
    Ok(TaskPage { more: found > tasks.len(), tasks, total, is_estimate })
}

fn wants<'a>((id, draft): &(&'a str, Draft)) -> Vec<(&'a str, Digest)> {
    draft.wants().map(|digest| (*id, digest)).collect()
}

/// Keeps the drafts that fit on the page together with their large content.
async fn cut<'a>(
    link: &Link,
    query: &TaskQuery,
    drafts: Vec<(&'a str, Draft)>,
) -> Result<Vec<(&'a str, Draft)>, StoreError> {
    if query.max_bytes.is_none() {
        return Ok(drafts);
    }
    let wanted = drafts.iter().flat_map(wants).collect();
    let apart: HashMap<String, usize> = read::blob_bytes(link, &wanted).await?;
    let mut room = PageBytes::of(query);
    let bytes = |id: &str, draft: &Draft| draft.bytes() + apart.get(id).copied().unwrap_or_default();
    Ok(drafts.into_iter().take_while(|(id, draft)| room.takes(bytes(id, draft))).collect())
}

/// Reads one row more than the page, to know whether there are more.
async fn page(link: &Link, scope: &Scope, query: &TaskQuery) -> Result<Vec<Told>, StoreError> {
    let scope = scope_id(scope);
    let since = query.since.map_or(i64::MIN, millis_from);
    let (before, id) = match &query.after {
        Some(after) => (millis_from(after.timestamp), text(after.id.as_str())),
        None => (i64::MAX, "".into()),
    };
    let limit = i64::try_from(query.limit.saturating_add(1)).unwrap_or(i64::MAX);
    let max_bytes = query.max_bytes.and_then(|max| i64::try_from(max).ok()).unwrap_or(i64::MAX);
    let state = query.state.map(state_code);
    let context = query.context_id.as_ref().map(|context| text(context.as_str()));
    let except = query.except.as_ref().map(|except| text(except.as_str()));
    let strict = query.strict_bytes;
    let mut params: Vec<&(dyn ToSql + Sync)> =
        vec![&scope, &since, &before, &id, &limit, &max_bytes, &except, &strict];
    params.extend(context.as_ref().map(|context| context as &(dyn ToSql + Sync)));
    params.extend(state.as_ref().map(|state| state as &(dyn ToSql + Sync)));
    let sql = match (&context, state) {
        (None, None) => PAGE,
        (None, Some(_)) => PAGE_BY_STATE,
        (Some(_), None) => PAGE_BY_CONTEXT,
        (Some(_), Some(_)) => PAGE_BY_BOTH,
    };
    let sql = sql[usize::from(query.shown().artifacts)];
    Ok(link.query(sql, &params).await?.into_iter().map(Told).collect())
}

/// Counts by the counters where possible, otherwise by an index. True if the number is an estimate.
async fn total(link: &Link, scope: &Scope, query: &TaskQuery) -> Result<Option<(usize, bool)>, StoreError> {
    if !query.count {
        return Ok(None);
    }
    let scope = scope_id(scope);
    let state = query.state.map(state_code);
    if query.context_id.is_none() && query.since.is_none() {
        return Ok(Some((count_all(link, scope, state).await?, false)));
    }
    let since = query.since.map_or(i64::MIN, millis_from);
    let context = query.context_id.as_ref().map(|context| text(context.as_str()));
    let most = query.max_counted.unwrap_or(usize::MAX);
    let limit = i64::try_from(most.saturating_add(1)).unwrap_or(i64::MAX);
    let mut range: Vec<&(dyn ToSql + Sync)> = Vec::new();
    let (sql, first) = match (&context, &state) {
        (None, None) => (COUNT, FIRST),
        (None, Some(state)) => {
            range.push(state);
            (COUNT_BY_STATE, FIRST_BY_STATE)
        }
        (Some(context), state) => {
            range.push(context);
            (if state.is_some() { COUNT_BY_BOTH } else { COUNT_BY_CONTEXT }, FIRST_BY_CONTEXT)
        }
    };
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&scope, &since, &limit];
    params.extend(&range);
    if let (Some(_), Some(state)) = (&context, &state) {
        params.push(state);
    }
    let Some(row) = link.query_opt(sql, &params).await? else { return Ok(Some((0, false))) };
    let number = |column| usize::try_from(row.get::<_, i64>(column)).unwrap_or_default();
    let time = |column| row.get::<_, Option<i64>>(column).unwrap_or_default();
    let counted = CountedTasks { looked: number(0), matches: number(1), newest: time(2), oldest: time(3) };
    if counted.looked <= most {
        return Ok(Some((counted.matches, false)));
    }
    let all = count_all(link, scope, state).await?;
    // Of a context only the range is known.
    let from = if context.is_some() { since } else { i64::MIN };
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&scope, &from];
    params.extend(&range);
    let first = link.query_opt(first, &params).await?.map_or(0, |row| row.get(0));
    let total = match context {
        Some(_) => counted.of_range(all, first),
        None => counted.of_all(all, first, since),
    };
    Ok(Some((total, true)))
}

/// The number of all tasks of a scope, or of those in a state.
async fn count_all(link: &Link, scope: Uuid, state: Option<i16>) -> Result<usize, StoreError> {
    let row = match &state {
        None => link.query_opt(TOTAL, &[&scope]).await?,
        Some(state) => link.query_opt(TOTAL_BY_STATE, &[&scope, state]).await?,
    };
    let total: i64 = row.map_or(0, |row| row.get(0));
    Ok(usize::try_from(total).unwrap_or_default())
}
