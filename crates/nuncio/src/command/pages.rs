//! Lists of a hub: page after page, and in columns.

use anyhow::Result;
use serde_json::Value;

use crate::{
    args::Admin,
    output::{self, Format},
};

/// How many a hub tells at a time.
const PAGE: usize = 100;

/// What is listed: where, under which member, and how people call it.
pub(super) struct List<'a> {
    pub(super) path: &'a str,
    pub(super) member: &'a str,
    pub(super) filters: Vec<(&'a str, String)>,
    pub(super) limit: usize,
}

/// Reads pages until there are enough, and shows each of what they list.
pub(super) async fn show(
    hub: &Admin,
    list: List<'_>,
    format: Format,
    row: impl Fn(&Value) -> Result<()>,
) -> Result<()> {
    let mut left = list.limit;
    let mut after: Option<String> = None;
    while left > 0 {
        let mut query = list.filters.clone();
        query.push(("limit", left.min(PAGE).to_string()));
        query.extend(after.take().map(|after| ("after", after)));
        let page = hub.get(list.path, &query).await?;
        let listed = page[list.member].as_array().map(Vec::as_slice).unwrap_or_default();
        for one in listed {
            match format {
                Format::Json => output::json(one)?,
                Format::Human => row(one)?,
            }
        }
        left = left.saturating_sub(listed.len());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    if format == Format::Human {
        let more = if after.is_some() { "; there are more, see --limit" } else { "" };
        output::note(&format!("{} {}{more}", list.limit - left, list.member));
    }
    Ok(())
}

/// Filters that were given.
pub(super) fn filters<const N: usize>(
    given: [(&'static str, Option<String>); N],
) -> Vec<(&'static str, String)> {
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Lines whose columns stand below each other.
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

/// Members with a name for people, those that are there.
pub(super) fn members(value: &Value, names: &[(&str, &str)]) -> Result<()> {
    let width = names.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, pointer) in names {
        let shown = match value.pointer(pointer) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
            Some(other) => other.to_string(),
        };
        output::row(&format!("{name:<width$}  {shown}"))?;
    }
    Ok(())
}

/// Without the marks of JSON.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// An id as a part of a path.
pub(super) fn segment(id: &str) -> String {
    url::form_urlencoded::byte_serialize(id.as_bytes()).collect::<String>().replace('+', "%20")
}
