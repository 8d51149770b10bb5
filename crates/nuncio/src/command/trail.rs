//! `nuncio trail`: who was refused at a hub, and what was changed by administration.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::{
    delivery::moment,
    pages::{self, List, filters, text},
};
use crate::{
    args::Trail,
    output::{self, Format},
};

pub(super) async fn run(trail: Trail, format: Format) -> Result<ExitCode> {
    let Trail { hub, what, principal, agent, since, limit } = trail;
    let given = [("what", what), ("principal", principal), ("agent", agent), ("since", since.map(moment))];
    let list = List { path: "audit", member: "rows", filters: filters(given), limit };
    pages::show(&hub, list, format, row).await?;
    Ok(ExitCode::SUCCESS)
}

/// When, what, and what is known of whom.
fn row(row: &Value) -> Result<()> {
    let mut known = Vec::new();
    for (member, name) in [
        ("principal", ""),
        ("key", "key "),
        ("peer", "from "),
        ("agent", "agent "),
        ("operation", ""),
        ("detail", ""),
    ] {
        known.extend(row[member].as_str().map(|value| format!("{name}{value}")));
    }
    if let Some(count) = row["count"].as_u64().filter(|count| *count > 1) {
        known.push(format!("{count} times"));
    }
    output::row(&format!("{}  {:<20}  {}", text(row, "at"), text(row, "what"), known.join("  ")))
}
