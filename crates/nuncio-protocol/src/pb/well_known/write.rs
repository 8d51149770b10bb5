//! Encodes JSON text as the bytes of `google.protobuf.Value` and `Struct`.
//!
//! A protobuf number is a double (trap T-31). A number is encoded only without loss.

use std::fmt;

use prost::encoding;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess};

use crate::{Json, lenient::Key, pb::convert::Mismatch};

/// The largest integer up to which all integers are exact as doubles.
pub(super) const MAX_INTEGER: u64 = 1 << 53;

/// Field keys: the field number and the wire type.
mod key {
    pub(super) const NULL_VALUE: u8 = 1 << 3;
    pub(super) const NUMBER_VALUE: u8 = 2 << 3 | 1;
    pub(super) const STRING_VALUE: u8 = 3 << 3 | 2;
    pub(super) const BOOL_VALUE: u8 = 4 << 3;
    pub(super) const STRUCT_VALUE: u8 = 5 << 3 | 2;
    pub(super) const LIST_VALUE: u8 = 6 << 3 | 2;
    /// Of a list.
    pub(super) const VALUES: u8 = 1 << 3 | 2;
    /// Of a struct; its entries are messages.
    pub(super) const FIELDS: u8 = 1 << 3 | 2;
    pub(super) const ENTRY_KEY: u8 = 1 << 3 | 2;
    pub(super) const ENTRY_VALUE: u8 = 2 << 3 | 2;
}

/// Encodes the fields of a `Value`.
pub(super) fn value(json: &Json) -> Result<Vec<u8>, Mismatch> {
    write(json, false)
}

/// Encodes the fields of a `Struct`.
pub(super) fn object(json: &Json) -> Result<Vec<u8>, Mismatch> {
    write(json, true)
}

/// Encodes the fields of a `Struct` with one member.
pub(super) fn member(name: &str, json: &Json) -> Result<Vec<u8>, Mismatch> {
    let value = value(json)?;
    let mut out = Out::default();
    out.framed(key::FIELDS, |out| {
        out.text(key::ENTRY_KEY, name);
        out.framed(key::ENTRY_VALUE, |out| out.bytes.extend_from_slice(&value));
    });
    Ok(out.bytes)
}

fn write(json: &Json, bare: bool) -> Result<Vec<u8>, Mismatch> {
    let mut out = Out::default();
    let mut reader = serde_json::Deserializer::from_str(json.as_str());
    match (Write { out: &mut out, bare }).deserialize(&mut reader) {
        Ok(()) => Ok(out.bytes),
        Err(error) => Err(out.mismatch.take().unwrap_or_else(|| Mismatch::new(error.to_string()))),
    }
}

/// The bytes written so far.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    /// The value that protobuf cannot express, with the known part of its path.
    mismatch: Option<Mismatch>,
}

impl Out {
    /// Writes a length-delimited field.
    fn framed<T>(&mut self, key: u8, content: impl FnOnce(&mut Self) -> T) -> T {
        // Nearly all lengths take one byte; a longer one moves the content.
        self.bytes.extend_from_slice(&[key, 0]);
        let start = self.bytes.len();
        let outcome = content(self);
        let length = self.bytes.len() - start;
        match u8::try_from(length) {
            Ok(length @ ..0x80) => self.bytes[start - 1] = length,
            _ => {
                let mut varint = Vec::new();
                encoding::encode_varint(length as u64, &mut varint);
                self.bytes.splice(start - 1..start, varint);
            }
        }
        outcome
    }

    fn text(&mut self, key: u8, text: &str) {
        self.bytes.push(key);
        encoding::encode_varint(text.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, double: f64) {
        self.bytes.push(key::NUMBER_VALUE);
        self.bytes.extend_from_slice(&double.to_le_bytes());
    }

    /// Adds a step to the path of the mismatch, if there is one.
    fn inside(&mut self, step: impl FnOnce(Mismatch) -> Mismatch) {
        self.mismatch = self.mismatch.take().map(step);
    }
}

/// Encodes the next value.
struct Write<'o> {
    out: &'o mut Out,
    /// An object is encoded as the fields of a `Struct`, without a `Value` around it.
    bare: bool,
}

impl Write<'_> {
    fn integer<E: de::Error>(self, magnitude: u64, double: f64, integer: impl fmt::Display) -> Result<(), E> {
        if magnitude > MAX_INTEGER {
            let why = format!("protobuf cannot carry the integer {integer} without loss");
            self.out.mismatch = Some(Mismatch::new(why));
            return Err(E::custom("out of range"));
        }
        self.out.number(double);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Write<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Write<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.bytes.extend_from_slice(&[key::NULL_VALUE, 0]);
        Ok(())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.out.bytes.extend_from_slice(&[key::BOOL_VALUE, u8::from(truth)]);
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<(), E> {
        self.integer(integer.unsigned_abs(), integer as f64, integer)
    }

    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<(), E> {
        self.integer(integer, integer as f64, integer)
    }

    fn visit_f64<E>(self, double: f64) -> Result<(), E> {
        self.out.number(double);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.out.text(key::STRING_VALUE, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.out.framed(key::LIST_VALUE, |out| {
            for index in 0.. {
                let start = out.bytes.len();
                let element =
                    out.framed(key::VALUES, |out| seq.next_element_seed(Write { out, bare: false }));
                match element {
                    Ok(Some(())) => {}
                    Ok(None) => {
                        // There was no further element for this frame.
                        out.bytes.truncate(start);
                        break;
                    }
                    Err(error) => {
                        out.inside(|mismatch| mismatch.inside_index(index));
                        return Err(error);
                    }
                }
            }
            Ok(())
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        if self.bare {
            return entries(self.out, map);
        }
        self.out.framed(key::STRUCT_VALUE, |out| entries(out, map))
    }
}

/// The entries of a `Struct`.
fn entries<'de, A: MapAccess<'de>>(out: &mut Out, mut map: A) -> Result<(), A::Error> {
    while let Some(Key(name)) = map.next_key()? {
        let entry = out.framed(key::FIELDS, |out| {
            if !name.is_empty() {
                out.text(key::ENTRY_KEY, &name);
            }
            out.framed(key::ENTRY_VALUE, |out| map.next_value_seed(Write { out, bare: false }))
        });
        if let Err(error) = entry {
            out.inside(|mismatch| mismatch.inside_key(&name));
            return Err(error);
        }
    }
    Ok(())
}
