//! Deserializes a type from a tree. Every refused value is noted with its position and left out, and reading
//! goes on.
//!
//! The deserializer also provides the two facts that only a tree knows (`config/form.rs`): the folder of the
//! file that contains a value, and the content of a file with a secret.

use std::{cell::RefCell, collections::btree_map, fmt, fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error, Expected, IntoDeserializer as _, MapAccess, SeqAccess,
        Unexpected, Visitor,
        value::{StrDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{
    include::Files,
    problem::{Findings, Problem, Severity},
    tree::{Node, Value},
};
use crate::config::form::{PLACED, SECRET_FILE};

/// Maximum number of mistakes reported per table: each costs another reading of it.
const MAX_MISTAKES: usize = 100;

/// Reads a type from the table at this path; `None` if a required part is wrong.
pub(crate) fn read<T: DeserializeOwned>(
    table: &Node,
    path: &[&str],
    files: &mut Files,
    findings: &mut Findings,
) -> Option<T> {
    for _ in 0..MAX_MISTAKES {
        let reading = TableReading {
            path: RefCell::new(path.iter().map(|&key| key.to_owned()).collect()),
            files: RefCell::new(&mut *files),
            warnings: RefCell::default(),
            findings: &*findings,
        };
        let result = T::deserialize(At { node: table, reading: &reading });
        let (wrong_path, warnings) = (reading.path.into_inner(), reading.warnings.into_inner());
        let RefusedValue(text) = match result {
            Ok(value) => {
                findings.problems.extend(warnings);
                return Some(value);
            }
            Err(refused) => refused,
        };
        if findings.is_wrong_within(&wrong_path) {
            findings.leave_out(&wrong_path);
        } else {
            let spot = table.spot_of(&wrong_path[path.len()..]);
            findings.refuse(&wrong_path, spot, text);
        }
        if wrong_path.len() == path.len() {
            return None;
        }
    }
    None
}

/// One reading of a table, up to its first mistake.
struct TableReading<'a> {
    /// The path of the value being read; after a mistake, of the wrong one.
    path: RefCell<Vec<String>>,
    files: RefCell<&'a mut Files>,
    warnings: RefCell<Vec<Problem>>,
    findings: &'a Findings,
}

impl TableReading<'_> {
    /// Reads the value below a key. After a mistake the path stays.
    fn below<T>(&self, read: impl FnOnce() -> Result<T, RefusedValue>) -> Result<T, RefusedValue> {
        let value = read()?;
        self.path.borrow_mut().pop();
        Ok(value)
    }

    /// Enters a key, unless its value is left out.
    fn enter(&self, key: &str) -> bool {
        let mut path = self.path.borrow_mut();
        path.push(key.to_owned());
        let is_left_out = self.findings.is_left_out(&path);
        if is_left_out {
            path.pop();
        }
        !is_left_out
    }

    /// The secret in a file.
    fn secret(&self, node: &Node) -> Result<String, RefusedValue> {
        let Value::Text(name) = &node.value else { return Err(RefusedValue::unexpected()) };
        let file = folder(node).join(name);
        let text = self.files.borrow_mut().text(&file).map_err(RefusedValue)?;
        if is_open(&file) {
            let text = "others can read this secret; make the file 0600";
            let warning = Problem::at(Severity::Warning, &self.path.borrow(), &node.spot, text);
            self.warnings.borrow_mut().push(warning);
        }
        let secret = text.strip_suffix('\n').unwrap_or(&text);
        let secret = secret.strip_suffix('\r').unwrap_or(secret);
        if secret.is_empty() {
            return Err(RefusedValue("the file is empty; expected a secret".to_owned()));
        }
        Ok(secret.to_owned())
    }
}

fn folder(node: &Node) -> &Path {
    node.spot.folder().unwrap_or(Path::new(""))
}

/// Only warned about: some mounts of secrets cannot have stricter permissions.
fn is_open(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// A refused value. The text contains nothing of the value.
#[derive(Debug)]
struct RefusedValue(String);

impl RefusedValue {
    fn unexpected() -> Self {
        Self("is not as expected".to_owned())
    }
}

impl fmt::Display for RefusedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RefusedValue {}

/// Forms describe the expected format. Messages of serde itself could quote the value, which may be a secret.
impl Error for RefusedValue {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::unexpected()
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::unexpected()
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::unexpected()
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self("there is no such key".to_owned())
    }
}

/// A value of the tree.
#[derive(Clone, Copy)]
struct At<'r, 'a> {
    node: &'r Node,
    reading: &'r TableReading<'a>,
}

impl<'de> Deserializer<'de> for At<'_, '_> {
    type Error = RefusedValue;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RefusedValue> {
        match &self.node.value {
            Value::Table(table) => {
                visitor.visit_map(Entries { entries: table.iter(), value: None, reading: self.reading })
            }
            Value::List(items) => {
                visitor.visit_seq(Items { items: items.iter().enumerate(), reading: self.reading })
            }
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Date => Err(RefusedValue::unexpected()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RefusedValue> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RefusedValue> {
        match &self.node.value {
            Value::Text(word) => {
                let word: StrDeserializer<'_, RefusedValue> = word.as_str().into_deserializer();
                visitor.visit_enum(word)
            }
            _ => Err(RefusedValue::unexpected()),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, RefusedValue> {
        if name == SECRET_FILE {
            return visitor.visit_str(&self.reading.secret(self.node)?);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, RefusedValue> {
        if name == PLACED {
            return visitor.visit_seq(Placed { folder: Some(folder(self.node)), value: Some(self) });
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple map struct identifier ignored_any
    }
}

/// The entries of a table.
struct Entries<'r, 'a> {
    entries: btree_map::Iter<'r, String, Node>,
    value: Option<&'r Node>,
    reading: &'r TableReading<'a>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = RefusedValue;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, RefusedValue> {
        for (key, node) in self.entries.by_ref() {
            if self.reading.enter(key) {
                self.value = Some(node);
                let key: StrDeserializer<'_, RefusedValue> = key.as_str().into_deserializer();
                return seed.deserialize(key).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, RefusedValue> {
        let node = self.value.take().ok_or_else(RefusedValue::unexpected)?;
        self.reading.below(|| seed.deserialize(At { node, reading: self.reading }))
    }
}

/// The items of a list.
struct Items<'r, 'a> {
    items: std::iter::Enumerate<std::slice::Iter<'r, Node>>,
    reading: &'r TableReading<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = RefusedValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, RefusedValue> {
        for (at, node) in self.items.by_ref() {
            if self.reading.enter(&at.to_string()) {
                return self.reading.below(|| seed.deserialize(At { node, reading: self.reading })).map(Some);
            }
        }
        Ok(None)
    }
}

/// The folder of a value, and the value.
struct Placed<'r, 'a> {
    folder: Option<&'r Path>,
    value: Option<At<'r, 'a>>,
}

impl<'de> SeqAccess<'de> for Placed<'_, '_> {
    type Error = RefusedValue;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, RefusedValue> {
        if let Some(folder) = self.folder.take() {
            let folder: StringDeserializer<RefusedValue> =
                folder.to_string_lossy().into_owned().into_deserializer();
            return seed.deserialize(folder).map(Some);
        }
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}
