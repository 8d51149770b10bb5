//! Iterators over the members of objects and the elements of lists, as unparsed text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lenient::Key;

/// The members of a JSON object in their original order, each with its value as text. A repeated name is
/// returned each time; the last one wins.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// The text after the last member, beginning with the comma.
    rest: &'a str,
}

impl<'a> Members<'a> {
    /// From compact text.
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
    /// From compact text of an array.
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

/// The first value of the text, and the rest; `None` if it does not begin with a value.
fn first<'a, T: Deserialize<'a>>(text: &'a str) -> Option<(T, &'a str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}
