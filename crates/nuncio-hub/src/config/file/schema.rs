//! The JSON Schema of `nuncio.toml`, generated from the types.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value as Json, json};

use crate::config::Config;

static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    let mut schema = schema.to_value();
    clean(&mut schema);
    schema["title"] = json!("nuncio.toml");
    schema
});

/// The schema.
#[must_use]
pub fn schema() -> &'static Json {
    &SCHEMA
}

/// Follows a reference; returns other schemas unchanged.
pub(crate) fn resolve(schema: &'static Json) -> &'static Json {
    match schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/")) {
        Some(name) => &SCHEMA["$defs"][name],
        None => schema,
    }
}

/// The name of the type that a schema refers to.
pub(crate) fn type_name(schema: &'static Json) -> &'static str {
    schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/")).unwrap_or("Config")
}

/// True for the schema of an agent's table.
pub(super) fn is_agent(schema: &'static Json) -> bool {
    std::ptr::eq(schema, agent())
}

/// The schema of an agent's table.
pub(super) fn agent() -> &'static Json {
    &SCHEMA["$defs"]["Agent"]
}

/// Removes nulls, which TOML does not have, and number formats, which bounds express.
fn clean(schema: &mut Json) {
    match schema {
        Json::Array(items) => items.iter_mut().for_each(clean),
        Json::Object(object) => {
            if let Some(Json::Array(kinds)) = object.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = &kinds[..] {
                    let kind = kind.clone();
                    object.insert("type".to_owned(), kind);
                }
            }
            if let Some(Json::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Json::Array(kinds)) = object.get_mut("anyOf") {
                kinds.retain(|kind| kind["type"] != "null");
                if let [only] = &kinds[..] {
                    let only = only.clone();
                    object.remove("anyOf");
                    for (key, value) in only.as_object().into_iter().flatten() {
                        object.entry(key).or_insert_with(|| value.clone());
                    }
                }
            }
            object.retain(|_, value| !value.is_null());
            let format = object.get("format").and_then(Json::as_str).map(str::to_owned);
            if let Some("uint32" | "uint" | "uint64" | "double") = format.as_deref() {
                object.remove("format");
                if format.as_deref() == Some("uint32") {
                    object.entry("maximum").or_insert(u32::MAX.into());
                }
            }
            object.values_mut().for_each(clean);
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
