//! Equality of JSON texts by their meaning.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Number, value::RawValue};

use super::members::{Elements, Members};
use crate::lenient::Key;

/// Compares the meaning of two compact texts, like [`serde_json::Value`], without building one.
pub(crate) fn is_equal(a: &str, b: &str) -> bool {
    // The most frequent case.
    if a == b {
        return true;
    }
    let kind = |text: &str| text.bytes().next().map(ValueKind::of);
    match (kind(a), kind(b)) {
        (Some(ValueKind::Object), Some(ValueKind::Object)) => is_equal_object(a, b),
        (Some(ValueKind::Array), Some(ValueKind::Array)) => is_equal_array(a, b),
        (Some(ValueKind::Text), Some(ValueKind::Text)) => {
            let text = |json| serde_json::from_str::<Key<'_>>(json).ok().map(|Key(text)| text);
            text(a) == text(b)
        }
        (Some(ValueKind::Number), Some(ValueKind::Number)) => {
            let number = |json| serde_json::from_str::<Number>(json).ok();
            number(a) == number(b)
        }
        // All other values have only one text.
        _ => false,
    }
}

#[derive(PartialEq)]
enum ValueKind {
    Object,
    Array,
    Text,
    Number,
    Literal,
}

impl ValueKind {
    fn of(byte: u8) -> Self {
        match byte {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::Text,
            b'-' | b'0'..=b'9' => Self::Number,
            _ => Self::Literal,
        }
    }
}

fn is_equal_array(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (Elements::of(a), Elements::of(b));
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) if is_equal(a.get(), b.get()) => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

fn is_equal_object(a: &str, b: &str) -> bool {
    let members = |json| Members::of(json).collect::<BTreeMap<Cow<'_, str>, &RawValue>>();
    let (a, b) = (members(a), members(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|((a, one), (b, other))| a == b && is_equal(one.get(), other.get()))
}
