//! The audit trail: refused calls, and changes by administration.

use std::sync::Arc;

use super::{
    AdminState,
    api::{ListTrail, MAX_PAGE_SIZE, TrailFilter, TrailPage, TrailRow},
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::trail::Row;

/// Maximum number of rows that one request reads: a filter that matches nothing would read all of them.
const MAX_ROWS_READ: usize = 20 * MAX_PAGE_SIZE;

pub(super) async fn list(
    state: Arc<AdminState>,
    request: ListTrail,
) -> Result<Reply<TrailPage>, AdminProblem> {
    let ListTrail { filter } = request;
    let limit = filter.paging.limit();
    let (mut rows, mut next) = (Vec::new(), filter.paging.after.clone());
    for _ in 0..MAX_ROWS_READ / MAX_PAGE_SIZE {
        let page = state.identity.trail().page(next.take(), MAX_PAGE_SIZE).await?;
        let is_last = page.len() < MAX_PAGE_SIZE;
        for (id, row) in page {
            if filter.since.is_some_and(|since| row.at < since) {
                return Ok(Reply::new(TrailPage { rows, next: None }));
            }
            next = Some(id.clone());
            if matches(&filter, &row) {
                rows.push(shown(id, row));
            }
            if rows.len() == limit {
                return Ok(Reply::new(TrailPage { rows, next }));
            }
        }
        if is_last {
            next = None;
            break;
        }
    }
    Ok(Reply::new(TrailPage { rows, next }))
}

fn matches(filter: &TrailFilter, row: &Row) -> bool {
    filter.what.is_none_or(|what| what == row.what)
        && (filter.principal.is_none() || filter.principal == row.principal)
        && (filter.agent.is_none() || filter.agent == row.agent)
}

fn shown(id: String, row: Row) -> TrailRow {
    let Row { at, what, count, principal, key, peer, agent, operation, detail } = row;
    TrailRow { id, at, what, count, principal, key, peer, agent, operation, detail }
}
