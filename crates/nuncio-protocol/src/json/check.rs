//! Validates JSON text: refuses all text that parsing a [`serde_json::Value`] refuses, without building
//! one.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess};

use crate::lenient::Key;

/// Maximum nesting of objects and lists in a document: the limit of serde_json.
pub(super) const MAX_DEPTH: usize = 127;

/// The beginning of an error message about a position inside of a value. The path and a colon follow.
const INSIDE: &str = "inside of the value, at ";

/// Refuses text that is nested deeper than `depth`, or has a number out of range or an invalid escape.
pub(super) fn check(json: &str, depth: usize) -> serde_json::Result<()> {
    let seed = Check { depth };
    let mut reader = serde_json::Deserializer::from_str(json);
    // Parsed again to find the position, so that the good case does not pay for it.
    seed.deserialize(&mut reader).map_err(|_| locate(json, seed))
}

fn locate(json: &str, seed: Check) -> serde_json::Error {
    let mut track = serde_path_to_error::Track::new();
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = seed.deserialize(serde_path_to_error::Deserializer::new(&mut reader, &mut track));
    let why = found.err().map(|error| describe(&error)).unwrap_or_default();
    let path = track.path().to_string();
    de::Error::custom(if path == "." { why } else { format!("{INSIDE}{path}: {why}") })
}

/// The message of serde without the position, which has no meaning inside of another document.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(" at line ") {
        text.truncate(end);
    }
    text
}

/// The path inside of a value in a message of [`check`], and the problem.
pub(crate) fn split_place(message: &str) -> Option<(&str, &str)> {
    message.strip_prefix(INSIDE)?.rsplit_once(": ")
}

#[derive(Clone, Copy)]
struct Check {
    /// Remaining levels.
    depth: usize,
}

impl Check {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        // The same message as serde_json, because it is the same limit.
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("recursion limit exceeded"))?;
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Check {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Check {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while map.next_key::<Key<'de>>()?.is_some() {
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}
