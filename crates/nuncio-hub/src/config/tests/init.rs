//! The file to begin with: true to the schema, as it is and with every example taken.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{Folder, must};
use crate::config::{Source, Variables, fields, init, schema};

/// The file with every key set.
fn uncommented() -> String {
    let take = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with([' ', ':']) => rest.to_owned(),
        _ => line.to_owned(),
    };
    init().lines().map(take).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_file_as_it_is_written_serves_the_demo() {
    let folder = Folder::new(&[("nuncio.toml", &init())]);
    let loaded = must(folder.source().load());
    assert!(loaded.config.demo && loaded.config.agents.is_empty());
    assert_eq!(loaded.warnings.0, []);
    assert!(init().starts_with("#:schema ./nuncio.schema.json\n"));
    for line in init().lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn every_example_can_be_taken() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let text = uncommented();
    let folder = Folder::new(&[("nuncio.toml", &text)]);
    for file in ["webhook.secret", "billing.token", "stock.password", "desk.secret"] {
        folder.write(file, secret);
    }
    let variables: Vec<_> = variables(&text).into_iter().map(|name| (name, secret)).collect();
    let source = Source { variables: Variables::of(&variables), ..folder.source() };
    let loaded = must(source.load());
    assert_eq!(loaded.config.agents.len(), 12);
    let warnings = loaded.warnings.to_string();
    assert_eq!(loaded.warnings.0.len(), 1, "{warnings}");
    assert!(warnings.contains("keep_finished: is for memory"), "{warnings}");
}

/// The names of the variables that a text refers to.
fn variables(text: &str) -> BTreeSet<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// A default would be a secret that everybody knows, used wherever the variable is forgotten.
#[test]
fn no_secret_of_an_example_has_a_default() {
    let text = uncommented();
    let names = variables(&text);
    for name in ["WEBHOOK_SECRET", "BILLING_WEBHOOK_SECRET", "OTLP_TOKEN"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(names.iter().all(|name| !name.contains(":-")), "{names:?}");
    let problems = Folder::new(&[("nuncio.toml", &text)]).source().load().unwrap_err().to_string();
    assert!(problems.contains("the environment variable WEBHOOK_SECRET is not set"), "{problems}");
}

/// The keys that a table of the schema has, and those below it.
fn keys(schema: &'static Json, path: &str, found: &mut BTreeSet<String>) {
    let resolve = |schema: &'static Json| match schema["$ref"].as_str() {
        Some(name) => &super::super::schema()["$defs"][name.rsplit('/').next().unwrap()],
        None => schema,
    };
    let table = resolve(schema);
    let table = if table["items"].is_object() { resolve(&table["items"]) } else { table };
    for (key, property) in table["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        keys(property, &path, found);
        found.insert(path);
    }
}

#[test]
fn every_key_is_in_it_and_has_its_words() {
    let mut wanted = BTreeSet::new();
    keys(schema(), "", &mut wanted);
    keys(&schema()["$defs"]["Agent"], "agents.X", &mut wanted);
    let table: toml::Table = toml::from_str(&uncommented()).unwrap();
    let has = |path: &str| {
        let agents = table["agents"].as_table().unwrap().values();
        let roots = match path.strip_prefix("agents.X.") {
            Some(rest) => agents.map(|agent| (agent.clone(), rest.to_owned())).collect(),
            None => vec![(toml::Value::Table(table.clone()), path.to_owned())],
        };
        roots.into_iter().any(|(root, path)| {
            path.split('.')
                .try_fold(&root, |value, key| value.as_array().map_or(value, |list| &list[0]).get(key))
                .is_some()
        })
    };
    let missing: Vec<_> = wanted.iter().filter(|path| !has(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (name, table) in schema()["$defs"].as_object().unwrap() {
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let refers = property["$ref"].is_string();
            assert!(refers || property["description"].is_string(), "{name}.{key} has no words");
        }
    }
}

#[test]
fn every_table_has_its_order_and_no_null() {
    for (name, table) in schema()["$defs"].as_object().unwrap() {
        if let Some(properties) = table["properties"].as_object() {
            assert_eq!(properties.len(), fields::order(name).len(), "{name}");
        }
    }
    assert_eq!(fields::order("Config").len(), schema()["properties"].as_object().unwrap().len());
    assert!(!schema().to_string().contains("null"));
}
