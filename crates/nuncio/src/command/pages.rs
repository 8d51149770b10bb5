//! Lists of the administration API, page by page, and output in columns.

use std::io::IsTerminal as _;

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

/// A list for people: the names of its columns, and the singular and the plural of an item.
pub(super) struct Table {
    pub(super) header: &'static [&'static str],
    pub(super) nouns: (&'static str, &'static str),
}

/// Reads pages until `limit` items are shown or the list ends.
pub(super) async fn show<R: ListRoute>(
    hub: &Admin,
    mut request: R,
    limit: usize,
    Table { mut header, nouns }: Table,
    format: Format,
    row: impl Fn(&R::Item) -> Vec<String>,
) -> Result<()> {
    let mut left = limit;
    let mut has_more = false;
    while left > 0 {
        request.paging().limit = Some(left.min(PAGE_SIZE));
        let Page { items, next } = R::page(hub.call(&request).await?);
        match format {
            Format::Json => items.iter().try_for_each(output::json)?,
            // The first page alone has a header.
            Format::Human => {
                columns(std::mem::take(&mut header), &items.iter().map(&row).collect::<Vec<_>>())?;
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

/// Prints rows with aligned columns. On a terminal the names of the columns come first; a script that cuts columns sees
/// rows only.
pub(super) fn columns(header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let header = if std::io::stdout().is_terminal() { header } else { &[] };
    table(header, rows).iter().try_for_each(|line| output::row(line))
}

/// The lines of a table; none without rows.
fn table(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let has_header = !header.is_empty() && !rows.is_empty();
    let rows: Vec<_> = has_header.then_some(&header).into_iter().chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..rows.iter().map(|row| row.len()).max().unwrap_or_default()).map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_under_its_header() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["billing", "up", "-"]), row(&["a", "down", "http://a"])];
        let lines = ["NAME     HEALTH  URL", "billing  up      -", "a        down    http://a"];
        assert_eq!(table(&["NAME", "HEALTH", "URL"], &rows), lines);
        assert_eq!(table(&[], &rows), ["billing  up    -", "a        down  http://a"]);
        assert!(table(&["NAME"], &[]).is_empty(), "an empty list has no header");
    }
}
