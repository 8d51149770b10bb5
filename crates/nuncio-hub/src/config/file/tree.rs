//! A tree of values, each with its position.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value as Json;

/// A file that was read.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct SourceText {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl SourceText {
    /// The line and the column of a byte, counted from 1, in characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let before = self.before(at);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }

    fn before(&self, at: usize) -> &str {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        &self.text[..at]
    }
}

/// The position of a value, to the byte.
#[derive(Clone, Debug)]
pub(crate) enum Spot {
    /// The command line.
    Flag(String),
    /// The environment.
    Env(String),
    /// A file.
    File { text: Arc<SourceText>, span: Range<usize> },
    /// A default.
    Default,
}

/// The origin of a value, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The command line, such as `--listen`.
    Flag(String),
    /// A variable, such as `NUNCIO_LISTEN`.
    Env(String),
    /// A line of a file.
    File { path: PathBuf, line: usize },
    /// A default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Spot {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Flag(name) => Origin::Flag(name.clone()),
            Self::Env(name) => Origin::Env(name.clone()),
            Self::File { text, span } => {
                Origin::File { path: text.path.clone(), line: text.position(span.start).0 }
            }
            Self::Default => Origin::Default,
        }
    }

    /// The folder that paths at this position are relative to; `None`: the working directory.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::File { text, .. } => text.path.parent().filter(|folder| !folder.as_os_str().is_empty()),
            Self::Flag(_) | Self::Env(_) | Self::Default => None,
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }
}

/// A value with its position and that of its key.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) key: Spot,
    pub(crate) spot: Spot,
    pub(crate) value: Value,
    /// A text that may stand for a number or a boolean, because its source has only texts.
    pub(crate) is_loose: bool,
}

/// A value of a file.
#[derive(Clone)]
pub(crate) enum Value {
    Table(BTreeMap<String, Node>),
    List(Vec<Node>),
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// A date; no key has this type.
    Date,
}

/// Shows keys and types only: values may be secrets.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => f.debug_set().entries(table.keys()).finish(),
            other => f.write_str(other.kind()),
        }
    }
}

impl Value {
    /// The name of its type, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::List(_) => "a list",
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::Date => "a date",
        }
    }
}

impl Node {
    /// A value at the same position as its key.
    pub(crate) fn new(spot: Spot, value: Value) -> Self {
        let is_loose = matches!(spot, Spot::Flag(_) | Spot::Env(_)) && matches!(value, Value::Text(_));
        Self { key: spot.clone(), spot, value, is_loose }
    }

    /// An empty table.
    pub(crate) fn table(spot: Spot) -> Self {
        Self::new(spot, Value::Table(BTreeMap::new()))
    }

    /// A value from JSON: a default of the schema, or a document of the admin API. Null means absent. Texts
    /// do not stand for numbers: JSON has numbers.
    pub(crate) fn of(json: &Json, spot: &Spot) -> Option<Self> {
        let value = match json {
            Json::Null => return None,
            Json::Bool(yes) => Value::Bool(*yes),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Value::Integer(integer),
                None => Value::Float(number.as_f64()?),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().filter_map(|item| Self::of(item, spot)).collect()),
            Json::Object(table) => {
                let entry = |(key, json): (&String, &Json)| Some((key.clone(), Self::of(json, spot)?));
                Value::Table(table.iter().filter_map(entry).collect())
            }
        };
        Some(Self { is_loose: false, ..Self::new(spot.clone(), value) })
    }

    /// The value at this path; numbers are indices of lists.
    pub(crate) fn find<K: AsRef<str>>(&self, path: &[K]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let next = match &self.value {
            Value::Table(table) => table.get(first.as_ref()),
            Value::List(items) => first.as_ref().parse().ok().and_then(|at: usize| items.get(at)),
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Date => None,
        };
        next?.find(rest)
    }

    /// The position of the value at this path, or of the key of the nearest one above it.
    pub(crate) fn spot_of<K: AsRef<str>>(&self, path: &[K]) -> &Spot {
        match self.find(path) {
            Some(node) => &node.spot,
            None => &self.nearest(path).key,
        }
    }

    /// True if the value at this path is set, not a default.
    pub(crate) fn is_said<K: AsRef<str>>(&self, path: &[K]) -> bool {
        self.find(path).is_some_and(|node| !node.spot.is_default())
    }

    /// The keys of a table.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let table = match &self.value {
            Value::Table(table) => Some(table),
            Value::List(_)
            | Value::Text(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Date => None,
        };
        table.into_iter().flat_map(|table| table.keys().map(String::as_str))
    }

    /// A table with some of its keys.
    pub(crate) fn with_keys(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut node = self.clone();
        if let Value::Table(table) = &mut node.value {
            table.retain(|key, _| is_wanted(key));
        }
        node
    }

    /// The value at this path, or the nearest one above it.
    fn nearest<K: AsRef<str>>(&self, path: &[K]) -> &Self {
        let found = (0..=path.len()).rev().find_map(|end| self.find(&path[..end]));
        found.unwrap_or(self)
    }

    /// Puts a value at this path, replacing any other. Missing tables are created.
    pub(crate) fn put(&mut self, path: &[String], node: Self) {
        let Some((first, rest)) = path.split_first() else {
            *self = node;
            return;
        };
        if !matches!(self.value, Value::Table(_)) {
            *self = Self::table(node.spot.clone());
        }
        if let Value::Table(table) = &mut self.value {
            let below = table.entry(first.clone()).or_insert_with(|| Self::table(node.spot.clone()));
            below.put(rest, node);
        }
    }

    /// The value as JSON, for serde.
    pub(crate) fn json(&self) -> Json {
        match &self.value {
            Value::Table(table) => {
                Json::Object(table.iter().map(|(key, node)| (key.clone(), node.json())).collect())
            }
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Text(text) => text.as_str().into(),
            Value::Integer(integer) => (*integer).into(),
            Value::Float(float) => (*float).into(),
            Value::Bool(yes) => (*yes).into(),
            Value::Date => Json::Null,
        }
    }
}
