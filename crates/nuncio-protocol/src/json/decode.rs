//! Decodes typed JSON, with errors that name the field.

use serde::de::DeserializeOwned;

use super::check::{describe, split_place};
use crate::{Error, ErrorKind, Result, error::excerpt};

/// Decodes typed JSON. After a failure it decodes again to find the path, so that the good case does not
/// pay for it.
pub(crate) fn decode<T: DeserializeOwned>(kind: ErrorKind, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|_| locate::<T>(kind, json))
}

fn locate<T: DeserializeOwned>(kind: ErrorKind, json: &str) -> Error {
    let mut reader = serde_json::Deserializer::from_str(json);
    let (field, description) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            let why = describe(error.inner());
            let (field, why) = match split_place(&why) {
                Some((inside, why)) if field.is_empty() => (inside.to_owned(), why.to_owned()),
                Some((inside, why)) => (join(&field, inside), why.to_owned()),
                None => (field, why),
            };
            (excerpt(field), excerpt(why))
        }
        Ok(_) => (String::new(), "unexpected text after the value".to_owned()),
    };
    let error = Error::invalid_field(field, description);
    if kind == ErrorKind::InvalidParams {
        return error;
    }
    Error::new(kind, format!("{}: {}", kind.row().message, error.message()))
}

/// Joins two parts of a path.
pub(crate) fn join(head: &str, tail: &str) -> String {
    if tail.is_empty() || tail.starts_with('[') { format!("{head}{tail}") } else { format!("{head}.{tail}") }
}
