//! The members of objects and lists, one after the other, unread.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::Key;

/// The members of a JSON object in the order they were written, each with its value as text. A name that comes twice
/// is shown twice; the last one counts.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// The text after the last one, from the comma on.
    rest: &'a str,
}

impl<'a> Members<'a> {
    /// Of compact text.
    pub(crate) fn of(json: &'a str) -> Self {
        Self { rest: if json.starts_with('{') { json } else { "" } }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a RawValue);

    fn next(&mut self) -> Option<Self::Item> {
        let (Key(name), after) = first::<Key<'a>>(self.rest.get(1..)?)?;
        let (value, after) = first(after.get(1..)?)?;
        self.rest = after;
        Some((name, value))
    }
}

/// The elements of a JSON array.
pub(super) struct Elements<'a> {
    rest: &'a str,
}

impl<'a> Elements<'a> {
    /// Of compact text, which is an array.
    pub(super) fn of(json: &'a str) -> Self {
        Self { rest: json }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a RawValue;

    fn next(&mut self) -> Option<&'a RawValue> {
        let (value, after) = first(self.rest.get(1..)?)?;
        self.rest = after;
        Some(value)
    }
}

/// The value that the text begins with, and what follows it; `None` if it begins with none.
fn first<'a, T: Deserialize<'a>>(text: &'a str) -> Option<(T, &'a str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}
