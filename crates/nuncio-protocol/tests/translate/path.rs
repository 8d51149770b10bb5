//! Paths in a JSON tree, as the loss table writes them: `a.b`, `list[].a` for each element, `map.*` for each
//! member, `**.a` for `a` at any depth, except inside of data whose shape is the caller's own.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// Members that hold what the protocol gives no shape.
pub(crate) const FREE: [&str; 4] = ["metadata", "data", "params", "header"];

/// Calls `f` with each object that has, or could have, the last step of the path, and with that step.
pub(crate) fn visit(value: &mut Value, path: &str, f: &mut dyn FnMut(&mut Object, &str)) {
    let steps: Vec<&str> = path.split('.').collect();
    walk(value, &steps, f);
}

fn walk(value: &mut Value, steps: &[&str], f: &mut dyn FnMut(&mut Object, &str)) {
    match (steps, value) {
        (["*"], Value::Object(object)) => {
            for key in object.keys().cloned().collect::<Vec<_>>() {
                f(object, &key);
            }
        }
        ([last], Value::Object(object)) => f(object, last),
        (["**", rest @ ..], value) => {
            walk(value, rest, f);
            match value {
                Value::Object(object) => {
                    let own = object.iter_mut().filter(|(key, _)| !FREE.contains(&key.as_str()));
                    own.for_each(|(_, inner)| walk(inner, steps, f));
                }
                Value::Array(list) => list.iter_mut().for_each(|inner| walk(inner, steps, f)),
                _ => {}
            }
        }
        (["*", rest @ ..], Value::Object(object)) => {
            object.values_mut().for_each(|inner| walk(inner, rest, f));
        }
        (["[]", rest @ ..], Value::Array(list)) => list.iter_mut().for_each(|inner| walk(inner, rest, f)),
        ([first, rest @ ..], Value::Object(object)) => {
            let (name, each) = first.strip_suffix("[]").map_or((*first, false), |name| (name, true));
            match object.get_mut(name) {
                Some(Value::Array(list)) if each => list.iter_mut().for_each(|inner| walk(inner, rest, f)),
                Some(inner) if !each => walk(inner, rest, f),
                _ => {}
            }
        }
        _ => {}
    }
}

/// The differences of two trees: the paths of the smallest different values, with `[]` for any element.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(before, after, "", &mut found);
    found.sort();
    found.dedup();
    found
}

fn compare(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    let dot = if path.is_empty() { "" } else { "." };
    match (before, after) {
        _ if before == after => {}
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let (a, b) = (a.get(key), b.get(key));
                match (a, b) {
                    (Some(a), Some(b)) => compare(a, b, &format!("{path}{dot}{key}"), found),
                    _ => found.push(format!("{path}{dot}{key}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                compare(a, b, &format!("{path}[]"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps() {
        let tree = json!({
            "a": {"b": 1}, "list": [{"b": 2}, {"c": {"b": 3}}], "map": {"x": {"b": 4}}, "metadata": {"b": 5},
        });
        for (path, expected) in [
            ("a.b", vec![1]),
            ("list[].b", vec![2]),
            ("map.*.b", vec![4]),
            ("list[].c.*", vec![3]),
            ("**.b", vec![1, 2, 3, 4]),
            ("a.b.c", vec![]),
        ] {
            let mut found = Vec::new();
            visit(&mut tree.clone(), path, &mut |object, key| found.extend(object.get(key).cloned()));
            assert_eq!(Value::from(found), json!(expected), "{path}");
        }
        let mut found = 0;
        visit(&mut json!([{"b": 1}, {}]), "[].b", &mut |_, _| found += 1);
        assert_eq!(found, 2, "an absent member has a place, too");
    }

    #[test]
    fn differences_are_as_small_as_they_can_be() {
        let before = json!({"a": [{"b": 1}, {"b": 2}], "c": {"d": 1}, "e": [1]});
        let after = json!({"a": [{"b": 1}, {"b": 3}], "c": {}, "e": [], "f": 0});
        assert_eq!(differences(&before, &after), ["a[].b", "c.d", "e", "f"]);
    }
}
