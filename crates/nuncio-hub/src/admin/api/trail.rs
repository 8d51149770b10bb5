//! The audit trail: refused calls, and changes by administration.

use std::net::IpAddr;

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    paging::{ListRoute, Page, Paging},
    route::routes,
    schema::Time,
};
pub use crate::trail::What;

routes! {
    /// Lists refused calls and changes by administration, newest first.
    ListTrail: GET "/audit", "audit.list" { query filter: TrailFilter, } -> TrailPage;
}

/// A filter of rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TrailFilter {
    /// Only of this kind.
    pub what: Option<What>,
    /// Only of this principal.
    pub principal: Option<String>,
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only since this time.
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A page of rows.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrailPage {
    pub rows: Vec<TrailRow>,
    /// Value for `after` of the next page; absent on the last. A page may be empty and not be the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ListRoute for ListTrail {
    type Item = TrailRow;

    fn paging(&mut self) -> &mut Paging {
        &mut self.filter.paging
    }

    fn page(TrailPage { rows, next }: TrailPage) -> Page<TrailRow> {
        Page { items: rows, next }
    }
}

/// A row of the trail: all that is known about the event, and nothing that the caller sent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrailRow {
    pub id: String,
    #[schemars(with = "Time")]
    pub at: Timestamp,
    pub what: What,
    /// Number of events within a minute.
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The id of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The address of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// An explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
