//! Lists of the administration API, page by page, and output in columns.

use anyhow::Result;
use nuncio_hub::admin::api::{ListRoute, Page};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::Admin,
    output::{self, Format},
};

/// The page size of a request.
const PAGE_SIZE: usize = 100;

/// Reads pages until `limit` items are shown or the list ends. `nouns` are the singular
/// and the plural of an item.
pub(super) async fn show<R: ListRoute>(
    hub: &Admin,
    mut request: R,
    limit: usize,
    nouns: (&str, &str),
    format: Format,
    row: impl Fn(&R::Item) -> Result<()>,
) -> Result<()> {
    let mut left = limit;
    let mut has_more = false;
    while left > 0 {
        request.paging().limit = Some(left.min(PAGE_SIZE));
        let Page { items, next } = R::page(hub.call(&request).await?);
        for item in &items {
            match format {
                Format::Json => output::json(item)?,
                Format::Human => row(item)?,
            }
        }
        left = left.saturating_sub(items.len());
        has_more = next.is_some();
        if !has_more {
            break;
        }
        request.paging().after = next;
    }
    if format == Format::Human {
        let more = if has_more { "; there are more, see --limit" } else { "" };
        output::note(&format!("{}{more}", output::count(limit - left, nouns.0, nouns.1)));
    }
    Ok(())
}

/// Prints rows with aligned columns.
pub(super) fn columns(rows: &[Vec<String>]) -> Result<()> {
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column).unwrap_or_default();
            line.push_str(&format!("{cell:<width$}  "));
        }
        output::row(line.trim_end())?;
    }
    Ok(())
}

/// Prints the fields that have a value, a line each, with aligned values.
pub(super) fn fields(fields: &[(&str, Option<String>)]) -> Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in fields {
        if let Some(value) = value {
            output::row(&format!("{name:<width$}  {value}"))?;
        }
    }
    Ok(())
}

/// The word that the API has for a value of an enum.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => other.unwrap_or_default().to_string(),
    }
}
