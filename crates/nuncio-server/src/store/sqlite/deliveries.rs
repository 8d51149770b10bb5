//! Reads of webhooks and deliveries.

use std::sync::Arc;

use nuncio_protocol::{PushConfigId, Seq, TaskId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{bounded, list::Filter, read};
use crate::store::{
    Attempt, Backlog, Delivery, DeliveryQuery, DeliveryState, Scope, StoreError, Webhook,
    codec::{damaged, millis_from, moment},
};

/// Decodes a webhook from four columns: uid, id, target, body.
fn read_webhook(row: &Row<'_>) -> rusqlite::Result<Webhook> {
    let id = row.get::<_, String>(1)?.into();
    Ok(Webhook { uid: row.get(0)?, id, target: row.get(2)?, body: row.get(3)? })
}

pub(super) fn webhook(
    db: &Connection,
    scope: &Scope,
    id: &TaskId,
    webhook: &PushConfigId,
) -> Result<Option<Webhook>, StoreError> {
    read::with_key(db, scope, id, |task, _| {
        let find = "SELECT uid, id, target, body FROM webhooks WHERE task = ?1 AND id = ?2 AND NOT stopped";
        Ok(db.prepare_cached(find)?.query_row(params![task, webhook.as_str()], read_webhook).optional()?)
    })
}

pub(super) fn webhooks(
    db: &Connection,
    scope: &Scope,
    id: &TaskId,
    after: Option<&PushConfigId>,
    limit: usize,
) -> Result<Option<Vec<Webhook>>, StoreError> {
    read::with_key(db, scope, id, |task, _| {
        let mut find = db.prepare_cached(
            "SELECT uid, id, target, body FROM webhooks
             WHERE task = ?1 AND (?2 IS NULL OR id > ?2) AND NOT stopped ORDER BY id LIMIT ?3",
        )?;
        let after = after.map(PushConfigId::as_str);
        let found = find.query_map(params![task, after, bounded(limit)], read_webhook)?;
        Ok(Some(found.collect::<Result<_, _>>()?))
    })
}

/// A page of deliveries. Leases are not known here.
pub(super) fn deliveries(
    db: &Connection,
    query: &DeliveryQuery,
) -> Result<(Vec<Delivery>, bool), StoreError> {
    let mut filter = filter(query);
    filter.values.push(Box::new(bounded(query.limit).saturating_add(1)));
    // The webhooks of a task are few, and are sorted. Otherwise webhooks are visited in the order of their
    // uids until the page is full. Dead deliveries are found by their index.
    let tables = match query.task_id {
        Some(_) => "tasks CROSS JOIN webhooks ON webhooks.task = tasks.key",
        None => "webhooks INDEXED BY webhooks_by_uid CROSS JOIN tasks ON tasks.key = webhooks.task",
    };
    let index = match query.state {
        Some(DeliveryState::Dead) => "INDEXED BY deliveries_dead",
        Some(DeliveryState::Pending | DeliveryState::Delivered) | None => "",
    };
    let mut select = db.prepare_cached(&format!(
        "SELECT uid, webhooks.id, target, body, agent, tenant, scopes.owner, tasks.id,
             deliveries.seq, deliveries.state, since, attempts, recent, due_at
         FROM {tables} CROSS JOIN scopes ON scopes.key = tasks.scope
             CROSS JOIN deliveries {index} ON deliveries.webhook = webhooks.key
         WHERE TRUE {} ORDER BY uid DESC, deliveries.seq DESC LIMIT ?",
        filter.text
    ))?;
    let mut rows = select.query(rusqlite::params_from_iter(filter.values()))?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        if page.len() == query.limit {
            return Ok((page, true));
        }
        page.push(read_delivery(row)?);
    }
    Ok((page, false))
}

/// Counts pending deliveries, by the index of due webhooks.
pub(super) fn backlog(db: &Connection) -> Result<Backlog, StoreError> {
    let mut count = db.prepare_cached(
        "SELECT count(*), min(since)
         FROM webhooks INDEXED BY webhooks_due CROSS JOIN deliveries ON deliveries.webhook = webhooks.key
         WHERE due_at IS NOT NULL AND deliveries.seq >= owed_from AND deliveries.state = 0",
    )?;
    let (pending, oldest): (i64, Option<i64>) = count.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let pending = u64::try_from(pending).unwrap_or_default();
    Ok(Backlog { pending, oldest: oldest.map(moment).transpose()? })
}

fn filter(query: &DeliveryQuery) -> Filter {
    let number = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
    let mut filter = Filter::default();
    if let Some(id) = &query.id {
        filter.and("uid = ?", Arc::clone(&id.webhook));
        filter.and("deliveries.seq = ?", number(id.seq));
    }
    if let Some(agent) = &query.agent {
        filter.and("agent = ?", Arc::clone(agent));
    }
    if let Some(task_id) = &query.task_id {
        filter.and("tasks.id = ?", task_id.as_str().to_owned());
    }
    if let Some(target) = &query.target {
        filter.and("target = ?", Arc::clone(target));
    }
    match query.state {
        Some(DeliveryState::Pending) => {
            filter
                .text
                .push_str(" AND due_at IS NOT NULL AND deliveries.seq >= owed_from AND deliveries.state = 0");
        }
        Some(DeliveryState::Delivered) => filter.text.push_str(" AND deliveries.state = 1"),
        Some(DeliveryState::Dead) => filter.text.push_str(" AND deliveries.state = 2"),
        None => {}
    }
    if let Some(since) = query.since {
        filter.and("since >= ?", millis_from(since));
    }
    if let Some(after) = &query.after {
        filter.and("uid <= ?", Arc::clone(&after.webhook));
        filter.and("(uid, deliveries.seq) < (?,", Arc::clone(&after.webhook));
        filter.text.push_str(" ?)");
        filter.values.push(Box::new(number(after.seq)));
    }
    filter
}

fn read_delivery(row: &Row<'_>) -> Result<Delivery, StoreError> {
    let code: i16 = row.get(9)?;
    let state = DeliveryState::from_code(code)
        .ok_or_else(|| damaged(format_args!("{code} is not a delivery state")))?;
    let recent: Option<String> = row.get(12)?;
    let recent: Option<Vec<Attempt>> =
        recent.map(|recent| serde_json::from_str(&recent)).transpose().map_err(damaged)?;
    let due: Option<i64> = row.get(13)?;
    Ok(Delivery {
        scope: Arc::new(Scope { agent: row.get(4)?, tenant: row.get(5)?, owner: row.get(6)? }),
        task_id: row.get::<_, String>(7)?.into(),
        webhook: read_webhook(row)?,
        seq: Seq(row.get::<_, i64>(8)? as u64),
        state,
        since: moment(row.get(10)?)?,
        attempts: row.get(11)?,
        recent: recent.unwrap_or_default(),
        due: due.filter(|_| state == DeliveryState::Pending).map(moment).transpose()?,
    })
}
