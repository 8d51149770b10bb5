//! The trail: who was refused, and what was changed by administration.

use std::sync::Arc;

use http::Method;
use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Desk,
    answer::Problem,
    openapi::Time,
    query::{LARGEST_PAGE, USUAL_PAGE},
    route::{Call, Reply, Route, route},
};
use crate::trail::{Row, What};

/// How many rows one request looks at: a filter that nothing passes would read all of them.
const MOST_READ: usize = 20 * LARGEST_PAGE;

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        Method::GET,
        "/audit",
        "audit.list",
        "What was refused and what was changed, newest first.",
        list,
    )]
}

/// Which rows.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Wanted {
    /// Only of this kind.
    what: Option<What>,
    /// Only of this principal.
    principal: Option<String>,
    /// Only of this agent.
    agent: Option<String>,
    /// Only since then.
    #[schemars(with = "Option<Time>")]
    since: Option<Timestamp>,
    /// At most so many.
    #[schemars(range(min = 1, max = LARGEST_PAGE))]
    limit: Option<usize>,
    /// From here on: what `next` of the page before says.
    after: Option<String>,
}

impl Wanted {
    fn is(&self, row: &Row) -> bool {
        self.what.is_none_or(|what| what == row.what)
            && (self.principal.is_none() || self.principal == row.principal)
            && (self.agent.is_none() || self.agent == row.agent)
    }
}

/// Some rows.
#[derive(Serialize, JsonSchema)]
struct Page {
    rows: Vec<Numbered>,
    /// For `after` of the next page; absent on the last. A page may be empty and not the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Numbered {
    id: String,
    #[serde(flatten)]
    row: Row,
}

async fn list(desk: Arc<Desk>, call: Call<Wanted>) -> Result<Reply<Page>, Problem> {
    let wanted = call.query;
    let limit = wanted.limit.unwrap_or(USUAL_PAGE);
    let (mut rows, mut next) = (Vec::new(), wanted.after.clone());
    for _ in 0..MOST_READ / LARGEST_PAGE {
        let page = desk.identity.trail().page(next.take(), LARGEST_PAGE).await?;
        let is_last = page.len() < LARGEST_PAGE;
        for (id, row) in page {
            if wanted.since.is_some_and(|since| row.at < since) {
                return Ok(Reply::new(Page { rows, next: None }));
            }
            next = Some(id.clone());
            if wanted.is(&row) {
                rows.push(Numbered { id, row });
            }
            if rows.len() == limit {
                return Ok(Reply::new(Page { rows, next }));
            }
        }
        if is_last {
            next = None;
            break;
        }
    }
    Ok(Reply::new(Page { rows, next }))
}
