//! The observations of a scenario, in a form in which two runs can be compared: identifiers that the server
//! made are numbered in the order in which they appear, and times are left out.

use std::collections::HashMap;

use nuncio_protocol::{Error, StreamItem};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The observations of a scenario, in order.
#[derive(Debug, Default)]
pub struct Transcript {
    entries: Vec<(String, Value)>,
}

impl Transcript {
    /// Notes a value, such as a task.
    pub fn note(&mut self, what: &str, value: &impl Serialize) {
        let value = serde_json::to_value(value).expect("what is noted can be written as JSON");
        self.entries.push((what.to_owned(), value));
    }

    /// Notes an error: everything of it that a caller may see, but for the id that a hub gives each request.
    pub fn error(&mut self, what: &str, error: &Error) {
        let mut details = Value::from(error.details());
        for detail in details.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(metadata) = detail.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            metadata.remove("requestId");
            if metadata.is_empty() {
                detail.remove("metadata");
            }
        }
        self.note(
            what,
            &json!({
                "kind": format!("{:?}", error.kind()),
                "message": error.message(),
                "details": details,
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
        if let Some(difference) = self.difference(expected, |_| {}) {
            panic!("{difference}");
        }
    }

    /// The first difference between two runs, after this function was applied to each object in them.
    #[must_use]
    pub fn difference(&self, expected: &Self, same: impl Fn(&mut Map<String, Value>)) -> Option<String> {
        let (mut ours, mut theirs) = (Names::default(), Names::default());
        for ((what, got), (expected_what, expected)) in self.entries.iter().zip(&expected.entries) {
            if what != expected_what {
                return Some(format!("the runs took different turns: {what} for {expected_what}"));
            }
            let got = ours.plain(changed(got.clone(), &same));
            let expected = theirs.plain(changed(expected.clone(), &same));
            if got != expected {
                let both = format!("--- expected\n{expected:#}\n--- got\n{got:#}");
                return Some(format!("{what} differs from the bare runtime\n{both}"));
            }
        }
        let more = self.entries.len() != expected.entries.len();
        more.then(|| "one run observed more than the other".to_owned())
    }
}

/// The value with this done to each object in it.
fn changed(mut value: Value, change: &impl Fn(&mut Map<String, Value>)) -> Value {
    match &mut value {
        Value::Array(values) => values.iter_mut().for_each(|value| *value = changed(value.take(), change)),
        Value::Object(members) => {
            change(members);
            members.values_mut().for_each(|value| *value = changed(value.take(), change));
        }
        _ => {}
    }
    value
}

/// Identifiers that were seen, and their numbers.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
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
                    let next = self.0.len() + 1;
                    plain.push_str(self.0.entry(id.to_owned()).or_insert_with(|| format!("<id {next}>")));
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
