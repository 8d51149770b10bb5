//! A commented file to start with: every key, its meaning, and its default or an example.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    schema::{agent as agent_table, resolve, schema, type_name},
    show::{bare, toml_text},
};
use crate::config::{
    agent::{Example, KINDS, KindEntry},
    fields,
};

/// Maximum width of comments.
const WIDTH: usize = 100;

const HEAD: &str = "\
#:schema ./nuncio.schema.json
# nuncio.toml: the configuration of `nuncio serve`. `nuncio check` finds mistakes, `nuncio config show --origin`
# shows the origin of each value. Flags and environment variables take precedence over this file.
#
# Lines with a space after the # are explanations. Lines without one are keys, with their default or an example:
# remove the # to set them.
";

/// The examples of servers of tools: a program, and an address.
const TOOLS: &[Example] = &[
    ("files", &["command", "directory", "env", "env_allow", "memory_limit_bytes", "timeout_seconds"]),
    ("search", &["url", "auth.bearer"]),
];

/// The text of a file to start with. It serves the demo agents.
#[must_use]
pub fn init() -> String {
    let mut out = HEAD.to_owned();
    let root = schema();
    let (tables, values): (Vec<_>, Vec<_>) =
        keys(root).into_iter().partition(|key| is_table(&root["properties"][*key]));
    for key in values {
        entry(&mut out, key, &root["properties"][key], "billing");
    }
    for key in tables.into_iter().filter(|key| !["agents", "tools"].contains(key)) {
        section(&mut out, key, &root["properties"][key]);
    }
    out.push('\n');
    let tools = &root["properties"]["tools"];
    describe(&mut out, tools);
    for (name, keys) in TOOLS {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        named(&mut out, "tools", resolve(&tools["additionalProperties"]), name, &keys);
    }
    out.push('\n');
    describe(&mut out, &root["properties"]["agents"]);
    let mut shown = Vec::new();
    for kind in KINDS {
        let keys = every_key(kind, &shown);
        named(&mut out, "agents", agent_table(), kind.example, &keys);
        shown.extend(keys);
        for (name, keys) in kind.alternatives {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            named(&mut out, "agents", agent_table(), name, &keys);
        }
    }
    out
}

/// The keys that an agent of this kind can have at the same time, except those that an earlier kind has
/// shown.
fn every_key(kind: &KindEntry, shown: &[String]) -> Vec<String> {
    let properties = &agent_table()["properties"];
    let is_of_other = |key: &str| {
        let has = |kind: &KindEntry| (kind.keys)().contains(&key);
        KINDS.iter().any(has) && !has(kind)
    };
    let mut keys = Vec::new();
    for key in fields::order("Agent").into_iter().filter(|key| !is_of_other(key)) {
        let table = &properties[key];
        if is_table(table) && example(table).is_none() {
            let table = table.get("items").unwrap_or(table);
            keys.extend(fields::order(type_name(table)).iter().map(|below| format!("{key}.{below}")));
        } else {
            keys.push(key.to_owned());
        }
    }
    let is_alternative = |key: &String| {
        let is_within = |other: &&str| {
            other.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        *key != kind.key && kind.alternatives.iter().any(|(_, keys)| keys.iter().any(&is_within))
    };
    let is_shown = |key: &String| {
        let table = key.split_once('.').map(|(table, _)| format!("{table}."));
        shown.contains(key) || table.is_some_and(|table| shown.iter().any(|shown| shown.starts_with(&table)))
    };
    keys.retain(|key| !is_alternative(key) && !is_shown(key));
    keys
}

/// The keys of a table in the order for readers.
fn keys(schema: &'static Json) -> Vec<&'static str> {
    let known = &resolve(schema)["properties"];
    fields::order(type_name(schema)).into_iter().filter(|key| known.get(key).is_some()).collect()
}

fn is_table(schema: &'static Json) -> bool {
    let schema = resolve(schema);
    schema["type"] == "object" || resolve(&schema["items"])["type"] == "object"
}

/// A table with all its keys. A table with defaults has a header without #.
fn section(out: &mut String, path: &str, schema: &'static Json) {
    out.push('\n');
    describe(out, schema);
    let items = resolve(schema).get("items");
    let inner = items.unwrap_or(schema);
    let head = if items.is_some() { format!("[[{path}]]") } else { format!("[{path}]") };
    let is_there = items.is_none() && schema.get("default").is_some();
    let _ = writeln!(out, "{}{head}", if is_there { "" } else { "#" });
    let known = &resolve(inner)["properties"];
    let (tables, values): (Vec<_>, Vec<_>) =
        keys(inner).into_iter().partition(|key| is_table(&known[*key]) && example(&known[*key]).is_none());
    for key in values {
        entry(out, key, &known[key], "billing");
    }
    for key in tables {
        section(out, &format!("{path}.{key}"), &known[key]);
    }
}

/// A table of this name with these keys. Keys of nested tables follow under the table's header.
fn named(out: &mut String, within_root: &str, schema: &'static Json, name: &str, keys: &[String]) {
    let mut known = schema;
    let mut within = "";
    let _ = writeln!(out, "\n#[{within_root}.{name}]");
    for key in keys {
        let (table, key) = key.rsplit_once('.').unwrap_or(("", key));
        if table != within {
            known = schema;
            let mut property = known;
            for part in table.split('.') {
                property = &known["properties"][part];
                known = resolve(property.get("items").unwrap_or(property));
            }
            out.push('\n');
            describe(out, property);
            let (open, close) = if property.get("items").is_some() { ("[[", "]]") } else { ("[", "]") };
            let _ = writeln!(out, "#{open}{within_root}.{name}.{table}{close}");
            within = table;
        }
        entry(out, key, &known["properties"][key], name);
    }
}

/// The description of a key, and the key with its default or an example.
fn entry(out: &mut String, key: &str, schema: &'static Json, agent: &str) {
    let last = out.lines().next_back().unwrap_or_default();
    if !last.trim_start_matches('#').starts_with('[') {
        out.push('\n');
    }
    describe(out, schema);
    for word in resolve(schema)["oneOf"].as_array().into_iter().flatten() {
        if let (Some(name), Some(text)) = (word["const"].as_str(), word["description"].as_str()) {
            comment(out, &format!("- {}: {}", toml_text(&name.into()), flat(text)));
        }
    }
    // The unchanged file serves something.
    if key == "demo" && schema["type"] == "boolean" {
        out.push_str("demo = true\n");
        return;
    }
    let value = example(schema).or(schema.get("default")).map(toml_text).unwrap_or_default();
    let value = value.replace("billing", agent).replace("BILLING", &agent.to_ascii_uppercase());
    let _ = writeln!(out, "#{} = {value}", bare(key));
}

/// The first example of a key.
fn example(schema: &'static Json) -> Option<&'static Json> {
    schema["examples"].as_array().and_then(|examples| examples.first())
}

fn describe(out: &mut String, schema: &'static Json) {
    let text = schema["description"].as_str().or(resolve(schema)["description"].as_str());
    comment(out, &flat(text.unwrap_or_default()));
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes a text as comment lines.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > 1 {
        let _ = writeln!(out, "{line}");
    }
}
