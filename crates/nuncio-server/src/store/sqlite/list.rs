//! Lists of tasks: newest status first, by the index that suits the filters.

use nuncio_protocol::TaskState;
use rusqlite::{Connection, OptionalExtension as _, ToSql, params, params_from_iter};

use super::read;
use crate::store::{
    CountedTasks, Keyset, PageBytes, Scope, StoreError, TaskPage, TaskQuery,
    codec::{millis_from, state_code},
};

/// The conditions of a query, and their values.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) text: String,
    pub(super) values: Vec<Box<dyn ToSql>>,
}

impl Filter {
    pub(super) fn and(&mut self, condition: &str, value: impl ToSql + 'static) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.push(Box::new(value));
    }

    /// Only tasks after this position in the list.
    pub(super) fn after(&mut self, place: &Keyset) {
        self.and("(status_at, id) < (?,", place.timestamp.as_millis());
        self.text.push_str(" ?)");
        self.values.push(Box::new(place.id.as_str().to_owned()));
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &dyn ToSql> {
        self.values.iter().map(|value| &**value)
    }
}

pub(super) fn tasks(db: &Connection, scope: &Scope, query: &TaskQuery) -> Result<TaskPage, StoreError> {
    let find = "SELECT key FROM scopes WHERE agent = ?1 AND tenant IS ?2 AND owner IS ?3";
    let mut find = db.prepare_cached(find)?;
    let mut found = find.query(params![scope.agent, scope.tenant, scope.owner])?;
    // The row stays open, so that page and count are from the same snapshot.
    let Some(row) = found.next()? else {
        return Ok(TaskPage { total: query.count.then_some(0), ..TaskPage::default() });
    };
    let scope: i64 = row.get(0)?;
    let total = if query.count { Some(count(db, scope, query)?) } else { None };
    let mut page = page(db, scope, query)?;
    (page.total, page.is_estimate) = total.map_or((None, false), |(total, estimate)| (Some(total), estimate));
    Ok(page)
}

/// The conditions except the cursor. The index is named explicitly, so that a page never costs more than its
/// range of the index, even if SQLite's planner would choose otherwise.
fn filter(scope: i64, query: &TaskQuery) -> (&'static str, Filter) {
    let mut filter = Filter::default();
    filter.and("tasks.scope = ?", scope);
    if let Some(context_id) = &query.context_id {
        filter.and("context_id = ?", context_id.as_str().to_owned());
    }
    if let Some(state) = query.state {
        filter.and("state = ?", state_code(state));
    }
    if let Some(since) = query.since {
        filter.and("status_at >= ?", millis_from(since));
    }
    let index = match (&query.context_id, query.state) {
        (Some(_), _) => "tasks_by_context",
        (None, Some(_)) => "tasks_by_state",
        (None, None) => "tasks_by_time",
    };
    (index, filter)
}

/// Reads tasks until the page is full, by number or by bytes.
fn page(db: &Connection, scope: i64, query: &TaskQuery) -> Result<TaskPage, StoreError> {
    let (index, mut filter) = filter(scope, query);
    if let Some(after) = &query.after {
        filter.after(after);
    }
    if let Some(except) = &query.except {
        filter.and("id <> ?", except.as_str().to_owned());
    }
    // One more than the limit, to know whether there are more.
    filter.values.push(Box::new(i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1)));
    let (columns, measured) = match query.without_artifacts {
        true => (read::LEAN, read::MEASURED_LEAN),
        false => (read::WHOLE, read::MEASURED_WHOLE),
    };
    // Of a row that is asked for, SQLite reads the whole: where that may be too much, its size is asked for first.
    let asked = if query.strict_bytes { measured } else { columns };
    let mut select = db.prepare_cached(&format!(
        "SELECT {asked} FROM tasks INDEXED BY {index} WHERE TRUE {}
         ORDER BY status_at DESC, id DESC LIMIT ?",
        filter.text
    ))?;
    let mut rows = select.query(params_from_iter(filter.values()))?;
    let (mut page, mut room) = (TaskPage::default(), PageBytes::of(query));
    while let Some(row) = rows.next()? {
        if page.tasks.len() == query.limit {
            page.more = true;
            break;
        }
        let draft = if query.strict_bytes {
            let (key, bytes) = read::measure(db, row)?;
            if !room.fits(bytes) {
                page.more = true;
                break;
            }
            read::draft_of(db, key, columns, query.shown())?
        } else {
            read::draft(db, row, query.shown())?
        };
        if !room.takes(draft.bytes(db)?) {
            page.more = true;
            break;
        }
        page.tasks.push(draft.finish(db)?);
    }
    Ok(page)
}

/// Counts all matches, by the counters where possible, otherwise by the index. True if the number is an estimate.
fn count(db: &Connection, scope: i64, query: &TaskQuery) -> Result<(usize, bool), StoreError> {
    if query.context_id.is_none() && query.since.is_none() {
        return Ok((count_all(db, scope, query.state)?, false));
    }
    // The range of the index, without the condition that it cannot answer.
    let ranged = match query.context_id {
        Some(_) => TaskQuery { state: None, ..query.clone() },
        None => query.clone(),
    };
    let (index, range) = filter(scope, &ranged);
    let matches = match query.state.filter(|_| query.context_id.is_some()) {
        Some(state) => format!("state = {}", state_code(state)),
        None => "TRUE".to_owned(),
    };
    let most = query.max_counted.unwrap_or(usize::MAX);
    let limit = i64::try_from(most.saturating_add(1)).unwrap_or(i64::MAX);
    let count = format!(
        "SELECT count(*), count(*) FILTER (WHERE matches), max(status_at), min(status_at)
         FROM (SELECT status_at, {matches} AS matches FROM tasks INDEXED BY {index} WHERE TRUE {}
               ORDER BY status_at DESC, id DESC LIMIT {limit})",
        range.text
    );
    let counted = db.prepare_cached(&count)?.query_row(params_from_iter(range.values()), |row| {
        let number =
            |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.unwrap_or_default());
        Ok(CountedTasks {
            looked: usize::try_from(number(0)?).unwrap_or_default(),
            matches: usize::try_from(number(1)?).unwrap_or_default(),
            newest: number(2)?,
            oldest: number(3)?,
        })
    })?;
    if counted.looked <= most {
        return Ok((counted.matches, false));
    }
    let all = count_all(db, scope, query.state)?;
    let since = query.since.map_or(i64::MIN, millis_from);
    if query.context_id.is_some() {
        return Ok((counted.of_range(all, first(db, scope, &ranged)?), true));
    }
    let of_all = TaskQuery { since: None, ..ranged };
    Ok((counted.of_all(all, first(db, scope, &of_all)?, since), true))
}

/// The number of all tasks of a scope, or of those in a state.
fn count_all(db: &Connection, scope: i64, state: Option<TaskState>) -> Result<usize, StoreError> {
    let total: Option<i64> = match state {
        None => {
            let all = "SELECT sum(tasks) FROM counters WHERE scope = ?1";
            db.prepare_cached(all)?.query_row([scope], |row| row.get(0))?
        }
        Some(state) => {
            let own = "SELECT tasks FROM counters WHERE scope = ?1 AND state = ?2";
            let mut own = db.prepare_cached(own)?;
            own.query_row(params![scope, state_code(state)], |row| row.get(0)).optional()?
        }
    };
    Ok(total.and_then(|total| usize::try_from(total).ok()).unwrap_or(0))
}

/// The time of the oldest task of a range.
fn first(db: &Connection, scope: i64, query: &TaskQuery) -> Result<i64, StoreError> {
    let (index, filter) = filter(scope, query);
    let find = format!(
        "SELECT status_at FROM tasks INDEXED BY {index} WHERE TRUE {} ORDER BY status_at, id LIMIT 1",
        filter.text
    );
    let found = db.prepare_cached(&find)?.query_row(params_from_iter(filter.values()), |row| row.get(0));
    Ok(found.optional()?.unwrap_or_default())
}
