//! The words of errors: our own texts, and those of agents that speak v1.0, name roles and states as v1.0 does. A
//! caller of v0.3 is told the names of its form.

use super::form::JsonForm;
use crate::{Error, Role, TaskState};

/// The error with the names of roles and states as `F` has them.
pub(super) fn reword<F: JsonForm>(error: Error) -> Error {
    error.rewritten(rewrite::<F>)
}

/// The text with other names; `None` if it has none of ours.
fn rewrite<F: JsonForm>(text: &str) -> Option<String> {
    if !text.contains("ROLE_") && !text.contains("TASK_STATE_") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_of_name) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|c| !is_of_name(c)).unwrap_or(word.len()));
        out.push_str(before);
        out.push_str(name::<F>(word).unwrap_or(word));
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

fn name<F: JsonForm>(word: &str) -> Option<&'static str> {
    if word.starts_with("ROLE_") {
        return F::role(Role::from_name(word)?);
    }
    TaskState::from_name(word).filter(|state| state.as_str() == word).map(F::state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ErrorKind,
        v03::{JsonRpc, Rest},
    };

    #[test]
    fn roles_and_states_are_named_as_the_form_names_them() {
        for (text, jsonrpc, rest) in [
            (
                "expected ROLE_USER or ROLE_AGENT",
                "expected user or agent",
                "expected ROLE_USER or ROLE_AGENT",
            ),
            (
                "the task is in TASK_STATE_CANCELED, not TASK_STATE_INPUT_REQUIRED.",
                "the task is in canceled, not input-required.",
                "the task is in TASK_STATE_CANCELLED, not TASK_STATE_INPUT_REQUIRED.",
            ),
            // No names of ours.
            (
                "MY_ROLE_USER TASK_STATE_GONE ROLE_UNSPECIFIED",
                "MY_ROLE_USER TASK_STATE_GONE ROLE_UNSPECIFIED",
                "",
            ),
            ("Grüße, ROLE_USER!", "Grüße, user!", ""),
            ("canceled", "canceled", ""),
        ] {
            let error = || Error::invalid_field("message.role", text);
            let told = reword::<JsonRpc>(error());
            assert_eq!(told.violations()[0].description, jsonrpc);
            assert_eq!(told.message(), format!("invalid parameters: message.role: {jsonrpc}"));
            assert_eq!(
                (told.kind(), &*told.violations()[0].field),
                (ErrorKind::InvalidParams, "message.role")
            );
            let expected = if rest.is_empty() { text } else { rest };
            assert_eq!(reword::<Rest>(error()).violations()[0].description, expected);
        }
    }
}
