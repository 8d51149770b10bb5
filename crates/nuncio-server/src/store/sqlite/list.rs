//! Lists of tasks: newest status first, by the index that suits the filters.

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::read;
use crate::store::{
    Keyset, PageBytes, Scope, StoreError, TaskPage, TaskQuery,
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
    page.total = total;
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
    let mut rows = select.query(rusqlite::params_from_iter(filter.values()))?;
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

/// Counts all matches, by the counters where possible, otherwise by the index.
fn count(db: &Connection, scope: i64, query: &TaskQuery) -> Result<usize, StoreError> {
    let total: Option<i64> = match (&query.context_id, query.since, query.state) {
        (None, None, None) => {
            let all = "SELECT sum(tasks) FROM counters WHERE scope = ?1";
            db.prepare_cached(all)?.query_row([scope], |row| row.get(0))?
        }
        (None, None, Some(state)) => {
            let own = "SELECT tasks FROM counters WHERE scope = ?1 AND state = ?2";
            let mut own = db.prepare_cached(own)?;
            own.query_row(params![scope, state_code(state)], |row| row.get(0)).optional()?
        }
        _ => {
            let (index, filter) = filter(scope, query);
            let text = &filter.text;
            let count = format!("SELECT count(*) FROM tasks INDEXED BY {index} WHERE TRUE {text}");
            let mut count = db.prepare_cached(&count)?;
            count.query_row(rusqlite::params_from_iter(filter.values()), |row| row.get(0))?
        }
    };
    Ok(total.and_then(|total| usize::try_from(total).ok()).unwrap_or(0))
}
