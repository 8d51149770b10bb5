//! Reads JSON text out of a document.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{
    Map,
    value::{RawValue, Value},
};

use super::{Json, check, compact::compact};

/// A value inside `OUTER` objects and lists of a document. All levels together may be nested as deep as
/// serde_json can parse.
///
/// The types of this crate state their own depth in a request, or in an answer if they are in no request.
/// In deeper positions, such as the task that answers a message, the value may be as deep as before: an
/// accepted value can always be returned.
pub(crate) struct AtDepth<const OUTER: usize, T>(pub(crate) T);

impl<'de, const OUTER: usize> Deserialize<'de> for AtDepth<OUTER, Json> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        checked::<D::Error, OUTER>(Box::<RawValue>::deserialize(deserializer)?).map(Self)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AtDepth::<0, Self>::deserialize(deserializer).map(|AtDepth(json)| json)
    }
}

/// Reads an object inside `OUTER` objects and lists, and refuses any other value.
pub(crate) fn object<'de, D, const OUTER: usize>(deserializer: D) -> Result<Json, D::Error>
where
    D: Deserializer<'de>,
{
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    if !raw.get().trim_ascii_start().starts_with('{') {
        // Produces the error of serde, and parses only the first byte for it.
        let read = serde_json::from_str::<Map<String, Value>>(raw.get());
        return Err(D::Error::custom(
            read.err().map_or_else(|| "expected a map".to_owned(), |error| check::describe(&error)),
        ));
    }
    checked::<D::Error, OUTER>(raw)
}

fn checked<E: serde::de::Error, const OUTER: usize>(raw: Box<RawValue>) -> Result<Json, E> {
    check::check(raw.get(), check::MAX_DEPTH - OUTER).map_err(E::custom)?;
    Ok(Json::new(compact(raw)))
}
