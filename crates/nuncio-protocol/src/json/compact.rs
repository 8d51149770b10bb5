//! Compacts JSON text to one line.

use serde_json::value::RawValue;

/// Removes white space between values. Frames of a stream and lines of a program are one line each, so line
/// breaks have to go; strings cannot contain any.
pub(super) fn compact(raw: Box<RawValue>) -> Box<RawValue> {
    let Some(text) = without_space(raw.get()) else { return raw };
    // Unreachable: removing white space does not change the value.
    RawValue::from_string(text).unwrap_or(raw)
}

/// Removes white space; `None` if there is none.
fn without_space(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    if memchr::memchr(b' ', bytes).is_none() && memchr::memchr3(b'\t', b'\n', b'\r', bytes).is_none() {
        return None;
    }
    let mut out = String::new();
    // Text before `kept` is already in `out`, or dropped.
    let (mut at, mut kept) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_length(&bytes[at..]),
            b' ' | b'\t' | b'\n' | b'\r' => {
                out.push_str(&text[kept..at]);
                at += 1;
                kept = at;
            }
            _ => at += 1,
        }
    }
    if kept == 0 {
        return None;
    }
    out.push_str(&text[kept..]);
    Some(out)
}

/// The length of the string that begins here, with its quotes.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}
