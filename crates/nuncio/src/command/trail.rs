//! `nuncio trail`: the audit trail of a hub.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{ListTrail, TrailFilter, TrailRow};

use super::{
    delivery::moment,
    pages::{self, Table, word},
};
use crate::{args::Trail, output::Format};

pub(super) async fn run(trail: Trail, format: Format) -> Result<ExitCode> {
    let Trail { hub, what, principal, agent, since, limit } = trail;
    let since = since.map(moment);
    let filter = TrailFilter { what, principal, agent, since, ..TrailFilter::default() };
    let table = Table { header: &["TIME", "EVENT", "CALLER AND SUBJECT"], nouns: ("row", "rows") };
    pages::show(&hub, ListTrail { filter }, limit, table, format, row).await?;
    Ok(ExitCode::SUCCESS)
}

/// Time, kind, and everything that is known of the caller and the subject.
fn row(row: &TrailRow) -> Vec<String> {
    let peer = row.peer.map(|peer| peer.to_string());
    let known = [
        ("", &row.principal),
        ("key ", &row.key),
        ("from ", &peer),
        ("agent ", &row.agent),
        ("", &row.operation),
        ("", &row.detail),
    ];
    let mut known: Vec<String> =
        known.into_iter().filter_map(|(name, value)| Some(format!("{name}{}", value.as_ref()?))).collect();
    if row.count > 1 {
        known.push(format!("{} times", row.count));
    }
    vec![row.at.to_string(), word(row.what), known.join("  ")]
}
