//! Substitutes environment variables: `${NAME}` in texts.

use super::{
    problem::Findings,
    tree::{Node, Value},
};

/// Substitutes variables in every text of a tree.
pub(crate) fn expand(
    node: &mut Node,
    path: &mut Vec<String>,
    variable: &dyn Fn(&str) -> Option<String>,
    findings: &mut Findings,
) {
    match &mut node.value {
        Value::Table(table) => {
            for (key, node) in table {
                path.push(key.clone());
                expand(node, path, variable, findings);
                path.pop();
            }
        }
        Value::List(items) => {
            for (at, node) in items.iter_mut().enumerate() {
                path.push(at.to_string());
                expand(node, path, variable, findings);
                path.pop();
            }
        }
        Value::Text(text) if text.contains("${") => match expanded(text, variable) {
            Ok(expanded) => {
                *text = expanded;
                node.is_loose = true;
            }
            Err(wrong) => findings.refuse(path, &node.spot, wrong),
        },
        Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Date => {}
    }
}

/// A text with its variables substituted.
fn expanded(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(before);
        let Some((inside, after)) = rest[at + 2..].split_once('}') else {
            return Err("expected } after ${; for the characters themselves write $${".to_owned());
        };
        out.push_str(&one(inside, variable)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// `NAME` or `NAME:-text`.
fn one(inside: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(is_letter) || !name.chars().all(|c| is_letter(c) || c.is_ascii_digit()) {
        return Err("expected the name of a variable in ${…}, such as ${TOKEN} or ${TOKEN:-text}; for the characters \
                    themselves write $${"
            .to_owned());
    }
    let value = variable(name);
    match (value, default) {
        // As in shells: for a default, an empty variable counts as unset.
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            Err(format!("the environment variable {name} is not set; set it, or write ${{{name}:-text}}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_in_texts() {
        let variable = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expected) in [
            ("https://${HOST}/x", Ok("https://example.com/x")),
            ("${HOST}${HOST}", Ok("example.comexample.com")),
            ("${NONE:-else}", Ok("else")),
            ("${EMPTY:-else}", Ok("else")),
            ("${EMPTY}", Ok("")),
            ("${NONE:-}", Ok("")),
            ("$${HOST}", Ok("${HOST}")),
            ("$$${HOST}", Ok("$${HOST}")),
            ("$HOST $ {HOST}", Ok("$HOST $ {HOST}")),
            ("${NONE}", Err("NONE is not set")),
            ("${HOST", Err("expected }")),
            ("${}", Err("the name of a variable")),
            ("${1A}", Err("the name of a variable")),
            ("ä${NONE:-ö}ü", Ok("äöü")),
        ] {
            match (expanded(text, &variable), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(words)) => assert!(found.contains(words), "{text}: {found}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
