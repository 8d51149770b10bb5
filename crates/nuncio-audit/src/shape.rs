//! Shape findings: decode, encode, compare. Our decoders are liberal and our encoders exact, so that each
//! difference is a deviation of the agent, with its form before and after.

use nuncio_protocol::{Role, TaskState, Timestamp, Version, op::Op, wire::Dialect};
use serde_json::{Map, Value, value::RawValue};

/// The class of a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A name of a state or role.
    Enum,
    /// A member under another name.
    Name,
    /// A required member that is absent.
    Missing,
    /// A member that the version does not have.
    Unknown,
    /// Any other value.
    Value,
}

/// One difference between an answer and its exact form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deviation {
    pub(crate) path: String,
    pub(crate) class: Class,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Members that tell versions apart, which have checks of their own.
const DISCRIMINATORS: &[&str] = &["kind", "final"];
/// Free-form members.
const FREE: &[&str] = &["metadata", "data", "params"];

/// The deviations of a result.
pub(crate) fn of_result(dialect: &dyn Dialect, op: Op, raw: &Value) -> Vec<Deviation> {
    deviations(dialect, raw, |text| {
        let reply = dialect.decode_reply(op, text).ok()?;
        let mut out = Vec::new();
        dialect.encode_reply(op, &reply, &mut out).ok()?;
        Some(out)
    })
}

/// The deviations of an event.
pub(crate) fn of_event(dialect: &dyn Dialect, raw: &Value) -> Vec<Deviation> {
    deviations(dialect, raw, |text| {
        let event = dialect.decode_event(text).ok()?;
        let mut out = Vec::new();
        dialect.encode_event(&event, &mut out);
        Some(out)
    })
}

fn deviations(
    dialect: &dyn Dialect,
    raw: &Value,
    rewrite: impl FnOnce(&RawValue) -> Option<Vec<u8>>,
) -> Vec<Deviation> {
    let (repaired, mut found) = repair(dialect.version(), raw);
    let text = RawValue::from_string(repaired.to_string()).ok();
    let exact =
        text.and_then(|text| rewrite(&text)).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    if let Some(exact) = exact {
        walk("", "", &repaired, &exact, &mut found);
    }
    found
}

/// Names of states and roles that 1.0 spells otherwise, put right, so that the rest can be decoded. Decoders
/// of 0.3 accept the names of both versions themselves.
pub(crate) fn repair(version: Version, raw: &Value) -> (Value, Vec<Deviation>) {
    let (mut repaired, mut found) = (raw.clone(), Vec::new());
    if version == Version::V1_0 {
        repair_names("", &mut repaired, &mut found);
    }
    (repaired, found)
}

fn repair_names(path: &str, value: &mut Value, found: &mut Vec<Deviation>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter_mut().filter(|(name, _)| !FREE.contains(&name.as_str())) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let exact = value.as_str().and_then(|text| exact_name(name, text));
                if let Some(exact) = exact.filter(|exact| *value != **exact) {
                    let (before, after) = (value.to_string(), format!("\"{exact}\""));
                    found.push(Deviation { path, class: Class::Enum, before, after });
                    *value = exact.into();
                } else {
                    repair_names(&path, value, found);
                }
            }
        }
        Value::Array(list) => {
            for (number, value) in list.iter_mut().enumerate() {
                repair_names(&format!("{path}[{number}]"), value, found);
            }
        }
        _ => {}
    }
}

/// The name of a state or role in 1.0, by the names of other versions and spellings.
fn exact_name(member: &str, text: &str) -> Option<&'static str> {
    let upper = text.to_ascii_uppercase().replace('-', "_").replace("CANCELLED", "CANCELED");
    match member {
        "state" => {
            let bare = upper.trim_start_matches("TASK_STATE_");
            TaskState::from_name(&format!("TASK_STATE_{bare}")).map(TaskState::as_str)
        }
        "role" => Role::from_name(&format!("ROLE_{}", upper.trim_start_matches("ROLE_"))).map(Role::as_str),
        _ => None,
    }
}

fn walk(path: &str, name: &str, before: &Value, after: &Value, found: &mut Vec<Deviation>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => members(path, before, after, found),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (number, (before, after)) in before.iter().zip(after).enumerate() {
                walk(&format!("{path}[{number}]"), name, before, after, found);
            }
        }
        _ if is_same(name, before, after) => {}
        _ => {
            let class = if matches!(name, "state" | "role") { Class::Enum } else { Class::Value };
            let (before, after) = (before.to_string(), after.to_string());
            found.push(Deviation { path: path.to_owned(), class, before, after });
        }
    }
}

fn members(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, found: &mut Vec<Deviation>) {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let mut renamed = Vec::new();
    for (name, value) in before {
        if FREE.contains(&name.as_str()) || DISCRIMINATORS.contains(&name.as_str()) {
            continue;
        }
        let camel = camel_case(name);
        if let Some(exact) = after.get(name) {
            walk(&at(name), name, value, exact, found);
        } else if camel != *name && after.contains_key(&camel) {
            found.push(Deviation {
                path: at(name),
                class: Class::Name,
                before: name.clone(),
                after: camel.clone(),
            });
            renamed.push(camel);
        } else if !is_empty(value) {
            let before = format!("{name}: {value}");
            found.push(Deviation {
                path: at(name),
                class: Class::Unknown,
                before,
                after: "(absent)".to_owned(),
            });
        }
    }
    for (name, value) in after {
        let is_known = before.contains_key(name)
            || renamed.contains(name)
            || FREE.contains(&name.as_str())
            || DISCRIMINATORS.contains(&name.as_str());
        if !is_known {
            let after = format!("{name}: {value}");
            found.push(Deviation {
                path: at(name),
                class: Class::Missing,
                before: "(absent)".to_owned(),
                after,
            });
        }
    }
}

/// True for values that mean the same: times of another precision, numbers of another form, other base64.
fn is_same(name: &str, before: &Value, after: &Value) -> bool {
    if before == after || (is_empty(before) && is_empty(after)) {
        return true;
    }
    match (before, after) {
        (Value::String(before), Value::String(after)) => match name {
            "timestamp" => Timestamp::parse(before).is_ok() && Timestamp::parse(after).is_ok(),
            "raw" | "bytes" | "fileWithBytes" => true,
            _ => false,
        },
        (Value::Number(before), Value::Number(after)) => before.as_f64() == after.as_f64(),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Every value of a member with this name, at any depth outside of free-form data, with its path.
pub(crate) fn values<'a>(value: &'a Value, names: &[&str]) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    collect("", value, names, &mut found);
    found
}

fn collect<'a>(path: &str, value: &'a Value, names: &[&str], found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !FREE.contains(&name.as_str())) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if names.contains(&name.as_str()) {
                    found.push((path.clone(), value));
                }
                collect(&path, value, names, found);
            }
        }
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                collect(&format!("{path}[{number}]"), value, names, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{v03, wire::V1};
    use serde_json::json;

    use super::*;

    fn classes(deviations: &[Deviation]) -> Vec<(&str, Class)> {
        deviations.iter().map(|deviation| (deviation.path.as_str(), deviation.class)).collect()
    }

    #[test]
    fn an_exact_task_has_no_deviation() {
        let v1 = json!({ "id": "t", "contextId": "c", "artifacts": [], "status":
            { "state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(of_result(&V1, Op::GetTask, &v1), []);
        let v03 = json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": "completed" } });
        assert_eq!(of_result(&v03::JsonRpc, Op::GetTask, &v03), []);
    }

    #[test]
    fn deviations_have_their_class_before_and_after() {
        let raw = json!({ "id": "t", "context_id": "c", "extra": 1, "status": { "state": "completed" },
            "history": [{ "role": "ROLE_USER", "parts": [{ "text": "x" }] }] });
        let found = of_result(&V1, Op::GetTask, &raw);
        assert_eq!(
            classes(&found),
            [
                ("status.state", Class::Enum),
                ("context_id", Class::Name),
                ("extra", Class::Unknown),
                ("history[0].messageId", Class::Missing),
            ]
        );
        assert_eq!((&*found[0].before, &*found[0].after), (r#""completed""#, r#""TASK_STATE_COMPLETED""#));
    }
}
