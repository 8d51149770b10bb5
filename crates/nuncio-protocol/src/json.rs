//! JSON that is carried without being parsed: the `data` of a part, and [`Metadata`](crate::Metadata).
//!
//! A tree of values takes up to a hundred times the memory of its text. This data concerns only callers and
//! agents, so it stays text: validated once, shared by clones, written unchanged.

mod check;
mod compact;
mod decode;
mod equal;
mod members;
mod read;

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, Value, to_raw_value};

pub use self::members::Members;
pub(crate) use self::{
    decode::{decode, join},
    equal::is_equal,
    read::{AtDepth, object},
};

/// Any JSON value, as its text.
///
/// The text is valid JSON that [`serde_json::Value`] could be parsed from, in one line: white space around
/// and between the values is dropped; the order of members, the digits of a number and the escapes of a
/// string stay as written. A clone shares the text.
///
/// Two values are equal if they mean the same: the order of members and the escapes of a string do not
/// matter; of a repeated member the last one wins. An integer and a fraction are never equal, as in
/// [`serde_json::Value`].
///
/// ```
/// use nuncio_protocol::Json;
/// use serde_json::json;
///
/// let json: Json = r#"{ "n": 1.50, "list": [1, 2] }"#.parse()?;
/// assert_eq!(json.as_str(), r#"{"n":1.50,"list":[1,2]}"#);
/// assert_eq!(json, json!({ "list": [1, 2], "n": 1.5 }));
///
/// #[derive(serde::Deserialize)]
/// struct Numbers {
///     list: Vec<u32>,
/// }
/// assert_eq!(json.get::<Numbers>()?.list, [1, 2]);
/// assert_eq!(Json::from("text").as_str(), r#""text""#);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Json(Arc<JsonText>);

/// Valid JSON in one line.
struct JsonText(Box<RawValue>);

impl Json {
    /// Serializes any value.
    ///
    /// # Errors
    /// The value cannot be serialized: a map has keys that are not strings, or its own `Serialize` fails.
    pub fn from_serialize(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Self> {
        let raw = to_raw_value(value)?;
        // Raw text inside of the value was not written by serde_json.
        check::check(raw.get(), check::MAX_DEPTH)?;
        Ok(Self::new(compact::compact(raw)))
    }

    /// Text that is already valid and compact.
    fn new(raw: Box<RawValue>) -> Self {
        Self(Arc::new(JsonText(raw)))
    }

    /// Text written by this crate: valid and compact.
    pub(crate) fn written(text: String) -> Self {
        // Unreachable: this crate writes valid JSON.
        RawValue::from_string(text).map_or_else(|_| Self::default(), Self::new)
    }

    /// A value that is part of another one.
    pub(crate) fn part(raw: &RawValue) -> Self {
        Self::new(raw.to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.0.get()
    }

    /// The text as a raw value of serde_json.
    #[must_use]
    pub fn as_raw(&self) -> &RawValue {
        &self.0.0
    }

    /// Parses it, as `T` or as a [`serde_json::Value`].
    ///
    /// # Errors
    /// It has another shape.
    pub fn get<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// True for `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// True for an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    /// The members of an object; none for any other value.
    #[must_use]
    pub fn members(&self) -> Members<'_> {
        Members::of(self.as_str())
    }

    /// The value of the only member of an object, if it has this name.
    pub(crate) fn only_member(&self, name: &str) -> Option<&RawValue> {
        let mut only = None;
        for (key, value) in self.members() {
            if key != name {
                return None;
            }
            only = Some(value);
        }
        only
    }
}

/// The value `null`.
impl Default for Json {
    fn default() -> Self {
        Self::part(RawValue::NULL)
    }
}

/// Anything that [`serde_json::Value`] can be made from: `json!`, text, numbers, lists.
impl<T: Into<Value>> From<T> for Json {
    fn from(value: T) -> Self {
        // Unreachable: a value can always be serialized.
        to_raw_value(&value.into()).map_or_else(|_| Self::default(), Self::new)
    }
}

impl FromStr for Json {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

impl AsRef<[u8]> for Json {
    fn as_ref(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || is_equal(self.as_str(), other.as_str())
    }
}

impl PartialEq<Value> for Json {
    fn eq(&self, other: &Value) -> bool {
        is_equal(self.as_str(), &other.to_string())
    }
}

impl PartialEq<Json> for Value {
    fn eq(&self, other: &Json) -> bool {
        other == self
    }
}

/// Writes the text.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({self})")
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_raw().serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
