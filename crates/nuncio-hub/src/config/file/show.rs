//! The configuration in force as TOML, each value with its origin.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    mask::masked,
    schema::{resolve, schema, type_name},
    tree::{Node, Value},
};
use crate::config::{Data, Loaded, fields, secret::HIDDEN};

/// The configuration in force, without secrets.
#[must_use]
pub fn show(loaded: &Loaded, origins: bool) -> String {
    let mut out = String::new();
    SettingsWriter { out: &mut out, origins }.table(&mut Vec::new(), &loaded.tree, schema(), false);
    out
}

/// The same as JSON.
pub(crate) fn shown_json(node: &Node, schema: &'static Json, path: &mut Vec<String>) -> Json {
    let schema = branch(node, schema);
    match &node.value {
        Value::Table(table) => {
            let entry = |(key, node): (&String, &Node)| {
                path.push(key.clone());
                let json = shown_json(node, below(schema, key), path);
                path.pop();
                (key.clone(), json)
            };
            Json::Object(table.iter().map(entry).collect())
        }
        Value::List(items) => items.iter().map(|item| shown_json(item, &schema["items"], path)).collect(),
        Value::Text(text) => shown_text(text, schema, path).into(),
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Date => node.json(),
    }
}

/// A text with its secrets hidden.
fn shown_text(text: &str, schema: &'static Json, path: &[String]) -> String {
    if schema["writeOnly"] == true {
        return HIDDEN.to_owned();
    }
    if path == ["data", "store"] {
        return text.parse::<Data>().map_or_else(|_| HIDDEN.to_owned(), |data| data.to_string());
    }
    masked(text)
}

/// The schema of the value below a key.
fn below(schema: &'static Json, key: &str) -> &'static Json {
    schema["properties"].get(key).unwrap_or(&schema["additionalProperties"])
}

/// The alternative of a schema that a value matches.
fn branch(node: &Node, schema: &'static Json) -> &'static Json {
    let schema = resolve(schema);
    let Some(kinds) = schema["anyOf"].as_array() else { return schema };
    let wanted = match &node.value {
        Value::Table(_) => "object",
        Value::List(_) => "array",
        _ => "string",
    };
    kinds.iter().map(resolve).find(|kind| kind["type"] == wanted).unwrap_or(schema)
}

struct SettingsWriter<'a> {
    out: &'a mut String,
    origins: bool,
}

impl SettingsWriter<'_> {
    fn table(&mut self, path: &mut Vec<String>, node: &Node, schema: &'static Json, is_item: bool) {
        let Value::Table(table) = &node.value else { return };
        let order = fields::order(type_name(schema));
        let schema = branch(node, schema);
        let mut keys: Vec<&String> = table.keys().collect();
        keys.sort_by_key(|key| order.iter().position(|known| known == key).unwrap_or(usize::MAX));
        let is_table = |node: &Node| match &node.value {
            Value::Table(_) => true,
            Value::List(items) => items.iter().any(|item| matches!(item.value, Value::Table(_))),
            _ => false,
        };
        let (tables, values): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| is_table(&table[*key]));
        if !path.is_empty() && (!values.is_empty() || is_item || table.is_empty()) {
            let (open, close) = if is_item { ("[[", "]]") } else { ("[", "]") };
            let header: Vec<_> = path.iter().map(|key| bare(key)).collect();
            let header = format!("{open}{}{close}", header.join("."));
            if !(table.is_empty() && node.spot.is_default()) {
                let _ = writeln!(self.out, "{}{header}", if self.out.is_empty() { "" } else { "\n" });
            }
        }
        for key in values {
            path.push(key.clone());
            let node = &table[key];
            let json = shown_json(node, below(schema, key), path);
            let line = format!("{} = {}", bare(key), toml_text(&json));
            path.pop();
            let origin = if self.origins { format!("  # {}", node.spot.origin()) } else { String::new() };
            let _ = writeln!(self.out, "{line}{origin}");
        }
        for key in tables {
            path.push(key.clone());
            let node = &table[key];
            match &node.value {
                Value::List(items) => {
                    for item in items {
                        self.table(path, item, &resolve(below(schema, key))["items"], true);
                    }
                }
                _ => self.table(path, node, below(schema, key), false),
            }
            path.pop();
        }
    }
}

/// A key in TOML, quoted if necessary.
pub(super) fn bare(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { toml_text(&key.into()) }
}

/// A value in TOML, on one line.
pub(super) fn toml_text(json: &Json) -> String {
    match json {
        Json::Null => "\"\"".to_owned(),
        Json::String(text) => toml::Value::String(text.clone()).to_string(),
        Json::Bool(_) | Json::Number(_) => json.to_string(),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(toml_text).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(table) => {
            let table: Vec<_> =
                table.iter().map(|(key, value)| format!("{} = {}", bare(key), toml_text(value))).collect();
            format!("{{ {} }}", table.join(", "))
        }
    }
}
