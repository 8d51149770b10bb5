//! Queries of operators over all callers, and counts of tasks.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{Seq, TaskId, Timestamp};
use rusqlite::{Connection, Row, Rows, params, params_from_iter};

use super::{SqliteStore, bounded, deliveries, list::Filter, read};
use crate::store::{
    AdminTask, AdminTaskPage, AdminTaskQuery, Backlog, Delivery, DeliveryQuery, ErasureTarget,
    OperatorQueries, Redrive, Scope, StoreError, StoredTask, TaskCount,
    codec::{millis_from, moment, state_code, state_of},
};

/// The newest tasks so far by position in the list: their keys and scopes.
type Newest = BTreeMap<(i64, String), (i64, Arc<Scope>)>;

/// There is no index over all scopes, because every status would have to update it. So the newest tasks of
/// each scope are read until they are too old for the page; for most scopes that is one row of an index.
fn all_tasks(db: &Connection, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
    // Reads from one snapshot.
    let _moment = db.unchecked_transaction()?;
    if let Some(ids) = query.ids() {
        return by_id(db, query, ids);
    }
    let mut scopes = db.prepare_cached(
        "SELECT key, agent, tenant, owner FROM scopes
         WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR owner = ?2)",
    )?;
    let (index, mut filter) = filter(query);
    let mut list = db.prepare_cached(&format!(
        "SELECT status_at, id, key FROM tasks INDEXED BY {index} WHERE TRUE {}
         ORDER BY status_at DESC, id DESC",
        filter.text
    ))?;
    let mut scopes = scopes.query(params![query.agent, query.owner])?;
    let mut newest = Newest::new();
    while let Some(scope) = scopes.next()? {
        filter.values[0] = Box::new(scope.get::<_, i64>(0)?);
        look(list.query(params_from_iter(filter.values()))?, query.limit, scope, &mut newest)?;
    }
    let more = newest.len() > query.limit;
    let page = newest.into_iter().rev().take(query.limit);
    let tasks = page.map(|(place, (key, scope))| tell(db, place, key, scope));
    Ok(AdminTaskPage { tasks: tasks.collect::<Result<_, _>>()?, more })
}

/// The tasks in a range of ids, by the index of ids: they are sorted, because few ids begin alike.
fn by_id(
    db: &Connection,
    query: &AdminTaskQuery,
    (from, to): (String, Option<String>),
) -> Result<AdminTaskPage, StoreError> {
    let mut filter = Filter::default();
    filter.and("id >= ?", from);
    if let Some(to) = to {
        filter.and("id < ?", to);
    }
    if let Some(agent) = &query.agent {
        filter.and("agent = ?", Arc::clone(agent));
    }
    if let Some(owner) = &query.owner {
        filter.and("scopes.owner = ?", Arc::clone(owner));
    }
    if let Some(context) = &query.context_id {
        filter.and("context_id = ?", context.as_str().to_owned());
    }
    narrow(&mut filter, query);
    // One more than the limit, to know whether there are more.
    filter.values.push(Box::new(bounded(query.limit).saturating_add(1)));
    let mut list = db.prepare_cached(&format!(
        "SELECT status_at, id, tasks.key, agent, tenant, scopes.owner
         FROM tasks CROSS JOIN scopes ON scopes.key = tasks.scope WHERE TRUE {}
         ORDER BY status_at DESC, id DESC LIMIT ?",
        filter.text
    ))?;
    let mut rows = list.query(params_from_iter(filter.values()))?;
    let mut page = AdminTaskPage::default();
    while let Some(row) = rows.next()? {
        if page.tasks.len() == query.limit {
            page.more = true;
            break;
        }
        let scope = Arc::new(Scope { agent: row.get(3)?, tenant: row.get(4)?, owner: row.get(5)? });
        page.tasks.push(tell(db, (row.get(0)?, row.get(1)?), row.get(2)?, scope)?);
    }
    Ok(page)
}

/// Adds the newest tasks of one scope.
fn look(mut rows: Rows<'_>, limit: usize, scope: &Row<'_>, newest: &mut Newest) -> Result<(), StoreError> {
    let mut whose = None;
    while let Some(row) = rows.next()? {
        let place: (i64, String) = (row.get(0)?, row.get(1)?);
        // One more than the limit, to know whether there are more.
        if newest.len() > limit {
            if newest.first_key_value().is_some_and(|(oldest, _)| place < *oldest) {
                break;
            }
            newest.pop_first();
        }
        let whose = match &whose {
            Some(known) => Arc::clone(known),
            None => {
                let own = Scope { agent: scope.get(1)?, tenant: scope.get(2)?, owner: scope.get(3)? };
                Arc::clone(whose.insert(Arc::new(own)))
            }
        };
        newest.insert(place, (row.get(2)?, whose));
    }
    Ok(())
}

/// The conditions; the first value is the scope.
fn filter(query: &AdminTaskQuery) -> (&'static str, Filter) {
    let mut filter = Filter::default();
    filter.and("scope = ?", 0);
    if let Some(context) = &query.context_id {
        filter.and("context_id = ?", context.as_str().to_owned());
    }
    narrow(&mut filter, query);
    let index = match (&query.context_id, query.state) {
        (Some(_), _) => "tasks_by_context",
        (None, Some(_)) => "tasks_by_state",
        (None, None) => "tasks_by_time",
    };
    (index, filter)
}

/// Adds the conditions that every index of tasks serves.
fn narrow(filter: &mut Filter, query: &AdminTaskQuery) {
    if let Some(state) = query.state {
        filter.and("state = ?", state_code(state));
    }
    if let Some(since) = query.since {
        filter.and("status_at >= ?", millis_from(since));
    }
    if let Some(after) = &query.position() {
        filter.after(after);
    }
}

fn tell(
    db: &Connection,
    (at, id): (i64, String),
    key: i64,
    scope: Arc<Scope>,
) -> Result<AdminTask, StoreError> {
    let find = "SELECT context_id, state, seq FROM tasks WHERE key = ?1";
    let (context_id, state, seq): (String, i64, i64) =
        db.prepare_cached(find)?.query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(AdminTask {
        scope,
        id: id.into(),
        context_id: context_id.into(),
        state: state_of(state)?,
        at: moment(at)?,
        seq: Seq(seq as u64),
    })
}

fn find(db: &Connection, me: i64, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT agent, tenant, scopes.owner FROM tasks JOIN scopes ON scopes.key = tasks.scope WHERE id = ?1",
    )?;
    let mut rows = find.query([id.as_str()])?;
    // The row stays open, so that the task does not change meanwhile.
    let Some(row) = rows.next()? else { return Ok(None) };
    let scope = Scope { agent: row.get(0)?, tenant: row.get(1)?, owner: row.get(2)? };
    Ok(read::task(db, me, &scope, id.as_str())?.map(|stored| (scope, stored)))
}

/// Uses the counters: the time depends on the number of callers, not of tasks.
fn count(db: &Connection) -> Result<Vec<TaskCount>, StoreError> {
    let mut count = db.prepare_cached(
        "SELECT agent, state, sum(tasks) FROM counters JOIN scopes ON scopes.key = counters.scope
         GROUP BY agent, state HAVING sum(tasks) > 0 ORDER BY agent, state",
    )?;
    let mut rows = count.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let tasks = row.get::<_, i64>(2)? as u64;
        counts.push(TaskCount { agent: row.get(0)?, state: state_of(row.get(1)?)?, tasks });
    }
    Ok(counts)
}

/// The size of the file with all that is committed. What is not yet moved there from the write-ahead log counts,
/// the log itself does not.
fn size(db: &Connection) -> Result<u64, StoreError> {
    let pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    let bytes: i64 = db.prepare_cached(pages)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(bytes).unwrap_or_default())
}

#[async_trait]
impl OperatorQueries for SqliteStore {
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        let query = query.clone();
        let (mut page, more) =
            self.operator_queries.ask(move |db| deliveries::deliveries(db, &query)).await?;
        for delivery in page.iter_mut().filter(|delivery| self.held_leases.hold(&delivery.webhook.uid)) {
            delivery.due = None;
        }
        Ok((page, more))
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.operator_queries.ask(deliveries::backlog).await
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        let what = what.clone();
        self.writer.alone(move |session| session.redrive(&what, now)).await
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        let query = query.clone();
        self.operator_queries.ask(move |db| all_tasks(db, &query)).await
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        let (me, id) = (self.me, id.clone());
        self.readers.ask(move |db| find(db, me, &id)).await
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        self.operator_queries.ask(count).await
    }

    async fn size(&self) -> Result<u64, StoreError> {
        self.operator_queries.ask(size).await
    }

    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError> {
        let whose = whose.clone();
        self.writer.alone(move |session| session.erase(&whose, bounded(limit))).await
    }
}
