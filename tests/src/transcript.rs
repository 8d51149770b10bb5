//! What a scenario observed, in a form in which two runs can be compared: identifiers that the server
//! made are numbered in the order in which they appear, and times are left out.

use std::collections::HashMap;

use nuncio_protocol::{Error, StreamItem};
use serde::Serialize;
use serde_json::{Value, json};

/// The observations of a scenario, in order.
#[derive(Debug, Default)]
pub struct Transcript {
    entries: Vec<(String, Value)>,
    /// Identifiers that were seen, and their numbers.
    names: HashMap<String, String>,
}

impl Transcript {
    /// Notes a value, such as a task.
    pub fn note(&mut self, what: &str, value: &impl Serialize) {
        let value = serde_json::to_value(value).expect("what is noted can be written as JSON");
        let value = self.plain(value);
        self.entries.push((what.to_owned(), value));
    }

    /// Notes an error: everything of it that a caller may see.
    pub fn error(&mut self, what: &str, error: &Error) {
        self.note(
            what,
            &json!({
                "kind": format!("{:?}", error.kind()),
                "message": error.message(),
                "details": error.details(),
            }),
        );
    }

    /// Notes events, each with its number in the log.
    pub fn events(&mut self, what: &str, events: &[StreamItem]) {
        for item in events {
            self.note(what, &json!({ "seq": item.seq().map(|seq| seq.0), "event": **item.event() }));
        }
    }

    /// Compares two runs.
    ///
    /// # Panics
    /// At the first observation that differs, with both sides.
    pub fn assert_same_as(&self, expected: &Self) {
        for ((what, got), (expected_what, expected)) in self.entries.iter().zip(&expected.entries) {
            assert_eq!(what, expected_what, "the runs took different turns");
            assert!(
                got == expected,
                "{what} differs from the bare runtime\n--- expected\n{expected:#}\n--- got\n{got:#}"
            );
        }
        assert_eq!(self.entries.len(), expected.entries.len(), "one run observed more than the other");
    }

    fn plain(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.plain_text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.plain(value)).collect(),
            Value::Object(members) => {
                let plain = |(key, value): (String, Value)| {
                    if key == "timestamp" { (key, json!("now")) } else { (key, self.plain(value)) }
                };
                members.into_iter().map(plain).collect()
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Numbers the identifiers in a text.
    fn plain_text(&mut self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len());
        let mut left = text;
        while let Some(first) = left.chars().next() {
            match left.get(..ID_LENGTH).filter(|start| is_made_id(start)) {
                Some(id) => {
                    let next = self.names.len() + 1;
                    plain.push_str(self.names.entry(id.to_owned()).or_insert_with(|| format!("<id {next}>")));
                    left = &left[ID_LENGTH..];
                }
                None => {
                    plain.push(first);
                    left = &left[first.len_utf8()..];
                }
            }
        }
        plain
    }
}

const ID_LENGTH: usize = 36;

/// True for a UUID, which is what the server makes.
fn is_made_id(text: &str) -> bool {
    text.bytes().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
