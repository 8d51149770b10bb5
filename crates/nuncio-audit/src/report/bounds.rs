//! Bounds of the texts in machine-readable reports.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::text::{MAX_BLOCK, clip};

/// Entries of a list of texts.
const MAX_TEXTS: usize = 1_000;

/// The value with every text and every list of texts cut to its bound.
pub(super) fn bounded<T: Clone + Serialize + DeserializeOwned>(value: &T) -> T {
    let bounded = serde_json::to_value(value).and_then(|mut value| {
        cut(&mut value);
        serde_json::from_value(value)
    });
    // Our types are read back from their own JSON, whatever their texts are.
    bounded.unwrap_or_else(|_| value.clone())
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => *text = clip(text, MAX_BLOCK),
        Value::Array(items) => {
            if items.iter().all(Value::is_string) {
                items.truncate(MAX_TEXTS);
            }
            items.iter_mut().for_each(cut);
        }
        Value::Object(members) => members.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
