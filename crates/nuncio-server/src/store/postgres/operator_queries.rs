//! Queries of operators over all callers, and counts of tasks.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use nuncio_protocol::{TaskId, Timestamp};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    PostgresStore, deliveries, forget,
    link::persist,
    names::{plain, text},
    read::{self, seq},
};
use crate::store::{
    AdminTask, AdminTaskPage, AdminTaskQuery, Backlog, Delivery, DeliveryQuery, ErasureTarget,
    OperatorQueries, Redrive, Scope, StoreError, StoredTask, TaskCount,
    codec::{millis_from, moment, state_code, state_of},
};

/// There is no index over all scopes, because every status would have to update it. So the query takes the
/// scopes with the newest tasks, their newest tasks, and the newest of those.
macro_rules! newest {
    ($condition:literal) => {
        concat!(
            "WITH heads AS (
               SELECT s.* FROM scopes s CROSS JOIN LATERAL (
                 SELECT status_at, id FROM tasks WHERE scope = s.id AND status_at >= $3
                   AND (status_at, id) < ($4, $5) ",
            $condition,
            " ORDER BY status_at DESC, id DESC LIMIT 1) first
               WHERE ($1::text IS NULL OR s.agent = $1) AND ($2::text IS NULL OR s.owner = $2)
               ORDER BY first.status_at DESC, first.id DESC LIMIT $6)
             SELECT t.id, t.context_id, t.state, t.status_at, t.seq, heads.agent, heads.tenant, heads.owner, heads.id
             FROM heads CROSS JOIN LATERAL (
               SELECT * FROM tasks WHERE scope = heads.id AND status_at >= $3 AND (status_at, id) < ($4, $5) ",
            $condition,
            " ORDER BY status_at DESC, id DESC LIMIT $6) t
             ORDER BY t.status_at DESC, t.id DESC LIMIT $6"
        )
    };
}

/// A text for each combination that has an index of its own: a plan is kept for a text, not for its values.
const NEWEST: &str = newest!("");
const NEWEST_IN_STATE: &str = newest!("AND state = $7");
const NEWEST_IN_CONTEXT: &str = newest!("AND context_id = $7");
const NEWEST_IN_CONTEXT_AND_STATE: &str = newest!("AND context_id = $7 AND state = $8");

/// The tasks in a range of ids, by the index of ids: they are sorted, because few ids begin alike.
const BY_ID: &str =
    "SELECT t.id, t.context_id, t.state, t.status_at, t.seq, s.agent, s.tenant, s.owner, s.id
  FROM tasks t JOIN scopes s ON s.id = t.scope
  WHERE t.id >= $7 AND ($8::text IS NULL OR t.id < $8) AND t.status_at >= $3 AND (t.status_at, t.id) < ($4, $5)
    AND ($1::text IS NULL OR s.agent = $1) AND ($2::text IS NULL OR s.owner = $2)
    AND ($9::text IS NULL OR t.context_id = $9) AND ($10::smallint IS NULL OR t.state = $10)
  ORDER BY t.status_at DESC, t.id DESC LIMIT $6";

const SCOPE_OF_TASK: &str =
    "SELECT s.agent, s.tenant, s.owner FROM tasks t JOIN scopes s ON s.id = t.scope WHERE t.id = $1";

/// Uses the counters: the time depends on the number of callers, not of tasks.
const COUNT: &str =
    "SELECT s.agent, c.state, sum(c.n)::bigint FROM counters c JOIN scopes s ON s.id = c.scope
  GROUP BY s.agent, c.state HAVING sum(c.n) > 0 ORDER BY s.agent, c.state";

/// The tables with their indexes and large values.
const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_catalog.pg_class
  WHERE relnamespace = to_regnamespace('nuncio') AND relkind = 'r'";

#[async_trait]
impl OperatorQueries for PostgresStore {
    async fn deliveries(&self, query: &DeliveryQuery) -> Result<(Vec<Delivery>, bool), StoreError> {
        deliveries::list(self, query).await
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        deliveries::backlog(self).await
    }

    async fn redrive(&self, what: &Redrive, now: Timestamp) -> Result<usize, StoreError> {
        deliveries::redrive(self, what, now).await
    }

    async fn all_tasks(&self, query: &AdminTaskQuery) -> Result<AdminTaskPage, StoreError> {
        let (agent, owner) = (query.agent.as_deref().map(text), query.owner.as_deref().map(text));
        let since = query.since.map_or(i64::MIN, millis_from);
        let position = query.position();
        let (at, id) = match &position {
            Some(after) => (after.timestamp.as_millis(), text(after.id.as_str())),
            None => (i64::MAX, text("")),
        };
        // One more than the limit, to know whether there are more.
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1);
        let state = query.state.map(state_code);
        let context = query.context_id.as_ref().map(|context| text(context.as_str()));
        let ids = query.ids();
        let ids = ids.as_ref().map(|(from, to)| (text(from), to.as_deref().map(text)));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&agent, &owner, &since, &at, &id, &limit];
        let sql = match (&ids, &context, &state) {
            (Some((from, to)), ..) => {
                params.extend([from as &(dyn ToSql + Sync), to, &context, &state]);
                BY_ID
            }
            (None, Some(context), Some(state)) => {
                params.extend([context as &(dyn ToSql + Sync), state]);
                NEWEST_IN_CONTEXT_AND_STATE
            }
            (None, Some(context), None) => {
                params.push(context);
                NEWEST_IN_CONTEXT
            }
            (None, None, Some(state)) => {
                params.push(state);
                NEWEST_IN_STATE
            }
            (None, None, None) => NEWEST,
        };
        let rows = self.operator_query(sql, &params).await?;
        let mut scopes: HashMap<Uuid, Arc<Scope>> = HashMap::new();
        let tasks = rows.iter().take(query.limit).map(|row| {
            let scope = scopes.entry(row.get(8)).or_insert_with(|| Arc::new(scope(row, 5)));
            tell(row, Arc::clone(scope))
        });
        Ok(AdminTaskPage { tasks: tasks.collect::<Result<_, _>>()?, more: rows.len() > query.limit })
    }

    async fn find_task(&self, id: &TaskId) -> Result<Option<(Scope, StoredTask)>, StoreError> {
        let Some(row) = self.reads().query_opt(SCOPE_OF_TASK, &[&text(id.as_str())]).await? else {
            return Ok(None);
        };
        let scope = scope(&row, 0);
        Ok(read::task(self, &scope, id).await?.map(|stored| (scope, stored)))
    }

    async fn count_tasks(&self) -> Result<Vec<TaskCount>, StoreError> {
        let rows = self.operator_query(COUNT, &[]).await?;
        let count = |row: &Row| {
            let agent = Arc::from(plain(row.get(0)));
            let tasks = u64::try_from(row.get::<_, i64>(2)).unwrap_or_default();
            Ok(TaskCount { agent, state: state_of(row.get::<_, i16>(1).into())?, tasks })
        };
        rows.iter().map(count).collect()
    }

    async fn size(&self) -> Result<u64, StoreError> {
        let rows = self.operator_query(SIZE, &[]).await?;
        Ok(rows.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()).unwrap_or_default())
    }

    async fn erase(&self, whose: &ErasureTarget, limit: usize) -> Result<usize, StoreError> {
        persist(|| forget::erase(self, whose, limit)).await
    }
}

/// Decodes a scope from three columns.
fn scope(row: &Row, first: usize) -> Scope {
    let name = |column| row.get::<_, Option<&str>>(column).map(|name| Arc::from(plain(name)));
    Scope { agent: name(first).unwrap_or_default(), tenant: name(first + 1), owner: name(first + 2) }
}

fn tell(row: &Row, scope: Arc<Scope>) -> Result<AdminTask, StoreError> {
    Ok(AdminTask {
        scope,
        id: plain(row.get(0)).into_owned().into(),
        context_id: plain(row.get(1)).into_owned().into(),
        state: state_of(row.get::<_, i16>(2).into())?,
        at: moment(row.get(3))?,
        seq: seq(row.get(4)),
    })
}
