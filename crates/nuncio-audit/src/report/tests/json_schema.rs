//! A small validator of JSON Schema, and the schema of reports.
//!
//! It knows the keywords that the schema uses and fails on any other, and it refuses members that the schema
//! does not declare, so that the published schema is complete.

use serde_json::{Map, Value};

use super::{
    docs::fresh,
    sample::{HOSTILE_RESULT, full, result_of},
};
use crate::report::{Options, baseline, json, schema};

/// Keywords that only describe.
const NOTES: [&str; 7] = ["$schema", "$defs", "title", "description", "default", "format", "minimum"];

struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let Value::Object(schema) = schema else { return Ok(()) };
        for (keyword, argument) in schema {
            match keyword.as_str() {
                "$ref" => self.check(self.resolve(argument), value, at)?,
                "type" => is_type(argument, value, at)?,
                "enum" if !argument.as_array().is_some_and(|values| values.contains(value)) => {
                    return Err(format!("{at}: {value} is none of {argument}"));
                }
                "const" if argument != value => return Err(format!("{at}: {value} is not {argument}")),
                "maximum" if value.as_f64() > argument.as_f64() => {
                    return Err(format!("{at}: {value} is too much"));
                }
                "oneOf" | "anyOf" => self.one_of(argument, value, at)?,
                "items" => self.items(argument, value, at)?,
                "properties" | "required" | "additionalProperties" => self.object(schema, value, at)?,
                "enum" | "const" | "maximum" => {}
                note if NOTES.contains(&note) => {}
                other => return Err(format!("{at}: the test does not know the keyword {other}")),
            }
        }
        Ok(())
    }

    fn resolve(&self, reference: &Value) -> &Value {
        let name = reference.as_str().and_then(|reference| reference.strip_prefix("#/$defs/"));
        &self.root["$defs"][name.expect("references lead to $defs")]
    }

    fn one_of(&self, schemas: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schemas = schemas.as_array().expect("a list of schemas");
        let failures: Vec<String> =
            schemas.iter().filter_map(|schema| self.check(schema, value, at).err()).collect();
        if failures.len() < schemas.len() { Ok(()) } else { Err(failures.join("; ")) }
    }

    fn items(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let mut items = value.as_array().into_iter().flatten().enumerate();
        items.try_for_each(|(index, item)| self.check(schema, item, &format!("{at}/{index}")))
    }

    fn object(&self, schema: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
        let Value::Object(members) = value else { return Ok(()) };
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        if let Some(name) = required.filter_map(Value::as_str).find(|name| !members.contains_key(*name)) {
            return Err(format!("{at}: {name} is missing"));
        }
        for (name, member) in members {
            let declared = schema.get("properties").and_then(|properties| properties.get(name));
            let declared = declared.or_else(|| schema.get("additionalProperties"));
            let declared = declared.ok_or_else(|| format!("{at}: {name} is not declared"))?;
            self.check(declared, member, &format!("{at}/{name}"))?;
        }
        Ok(())
    }
}

fn is_type(types: &Value, value: &Value, at: &str) -> Result<(), String> {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("null") => value.is_null(),
        _ => false,
    };
    let fits = types.as_array().map_or_else(|| is(types), |types| types.iter().any(is));
    if fits { Ok(()) } else { Err(format!("{at}: {value} is no {types}")) }
}

fn validate(report: &str) -> Result<(), String> {
    let schema = schema().to_value();
    let value: Value = serde_json::from_str(report).map_err(|error| error.to_string())?;
    Validator { root: &schema }.check(&schema, &value, "")
}

#[test]
fn the_published_schema_is_fresh() {
    let schema = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    fresh("audit-report.schema.json", &format!("{schema}\n"));
}

#[test]
fn reports_validate() {
    for result in [result_of(Vec::new()), full(), HOSTILE_RESULT.clone()] {
        let changes = baseline::compare(&result_of(Vec::new()), &result);
        for changes in [None, Some(&changes)] {
            validate(&json(&result, &Options { changes, ..Options::default() })).expect("a report validates");
        }
    }
}

/// Breaks a report.
type Break = fn(&mut Value);

#[test]
fn other_documents_do_not_validate() {
    let report: Value = serde_json::from_str(&json(&full(), &Options::default())).expect("JSON");
    let breaks: [(&str, Break); 5] = [
        ("a member is missing", |report| drop(report.as_object_mut().expect("an object").remove("score"))),
        ("a member is unknown", |report| report["extra"] = Value::Null),
        ("a verdict is unknown", |report| report["findings"][0]["verdict"] = "good".into()),
        ("a number is a text", |report| report["messagesSent"] = "6".into()),
        ("a score above 100", |report| report["score"]["overall"]["score"] = 300.into()),
    ];
    for (name, change) in breaks {
        let mut broken = report.clone();
        change(&mut broken);
        assert!(validate(&broken.to_string()).is_err(), "{name}");
    }
}
