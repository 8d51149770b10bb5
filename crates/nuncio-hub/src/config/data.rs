//! Storage of tasks: the store, and retention.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

pub use nuncio_server::store::Durability;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::form::{FilePath, Form, Opt, placed, schema_of};

/// The expected values, for messages.
const EXPECTED: &str = "expected memory, a file such as nuncio.db or sqlite:FILE, or a database such as \
                        postgres://USER@HOST/DATABASE";

/// Finished tasks that are kept in memory by default.
pub const KEEP_FINISHED: usize = 100_000;
/// Days for which a durable store keeps finished tasks by default.
const DEFAULT_KEEP_DAYS: u32 = 30;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Storage of tasks, and retention.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Data")]
pub struct Storage {
    /// "memory" (lost with the process), a file (FILE or sqlite:FILE), or a database
    /// (postgres://USER:PASSWORD@HOST/NAME).
    #[serde(with = "StoreText")]
    #[schemars(example = "nuncio.db")]
    pub store: Data,
    /// Guarantee for acknowledged writes; no effect with memory.
    #[serde(with = "DurabilityWord")]
    pub durability: Durability,
    /// Days for which finished tasks are kept; 0: for ever. Default: 30, and in memory only keep_finished
    /// applies.
    #[schemars(example = 30)]
    pub keep_days: Option<u32>,
    /// Maximum number of finished tasks in memory.
    #[schemars(range(min = 1))]
    pub keep_finished: usize,
    /// The key that seals callers' secrets and signs notifications; created if absent. Default: beside the
    /// data. With a database it must be set, and be the same for every hub.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = "hub.key")]
    pub key_file: Option<PathBuf>,
}

impl Default for Storage {
    fn default() -> Self {
        Self::of(Data::Memory { keep_finished: KEEP_FINISHED })
    }
}

impl Storage {
    /// This store, with the defaults of every other key.
    #[must_use]
    pub fn of(store: Data) -> Self {
        let (durability, keep_finished) = match &store {
            Data::Memory { keep_finished } => (Durability::default(), *keep_finished),
            Data::Sqlite { durability, .. } | Data::Postgres { durability, .. } => {
                (*durability, KEEP_FINISHED)
            }
        };
        Self { store, durability, keep_days: None, keep_finished, key_file: None }
    }

    /// The store with its durability and capacity.
    #[must_use]
    pub fn store(&self) -> Data {
        match self.store.clone().with_durability(self.durability) {
            Data::Memory { .. } => Data::Memory { keep_finished: self.keep_finished },
            durable => durable,
        }
    }

    /// True if tasks outlive the process.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    /// Retention of finished tasks; `None`: for ever, or until memory is full.
    #[must_use]
    pub fn keep(&self) -> Option<Duration> {
        let days = self.keep_days.unwrap_or(if self.is_durable() { DEFAULT_KEEP_DAYS } else { 0 });
        (days > 0).then(|| DAY * days)
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Durability", rename_all = "lowercase")]
#[schemars(rename = "Durability")]
enum DurabilityWord {
    /// Acknowledged writes are on disk.
    Full,
    /// Acknowledged writes survive a crash of the hub, but may be lost with the machine.
    Relaxed,
}

/// A store in its written form. A file is relative to the configuration file that names it.
struct StoreText;

schema_of!([] StoreText, String);

impl Form for StoreText {
    type Value = Data;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        let (folder, text): (PathBuf, String) = placed(deserializer)?;
        let mut data: Data = text.parse().map_err(D::Error::custom)?;
        if let Data::Sqlite { path, .. } = &mut data {
            *path = folder.join(&*path);
        }
        Ok(data)
    }

    fn serialize<S: Serializer>(value: &Data, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }
}

/// The store of tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// In memory: lost with the process. Keeps at most this many finished tasks.
    Memory { keep_finished: usize },
    /// In a file, used by one hub at a time.
    Sqlite { path: PathBuf, durability: Durability },
    /// In a database, which several hubs may share.
    Postgres { url: DatabaseUrl, durability: Durability },
}

impl Data {
    /// The same store with this durability; no effect in memory.
    #[must_use]
    pub fn with_durability(mut self, wanted: Durability) -> Self {
        match &mut self {
            Self::Memory { .. } => {}
            Self::Sqlite { durability, .. } | Self::Postgres { durability, .. } => *durability = wanted,
        }
        self
    }

    /// True if tasks outlive the process.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        !matches!(self, Self::Memory { .. })
    }
}

impl FromStr for Data {
    type Err = String;

    /// Errors do not contain the text: it may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let durability = Durability::default();
        if text == "memory" {
            return Ok(Self::Memory { keep_finished: KEEP_FINISHED });
        }
        match scheme(text) {
            Some("postgres" | "postgresql") => {
                Ok(Self::Postgres { url: DatabaseUrl::parse(text)?, durability })
            }
            Some("sqlite") => {
                let file = &text["sqlite:".len()..];
                sqlite(file.strip_prefix("//").unwrap_or(file), durability)
            }
            Some(_) => Err(format!("unknown kind of store; {EXPECTED}")),
            None => sqlite(text, durability),
        }
    }
}

fn sqlite(file: &str, durability: Durability) -> Result<Data, String> {
    // Words that mean a kind of store, not a file.
    let is_word = ["", ":memory:", "sqlite", "postgres", "postgresql", "none"].contains(&file);
    if is_word {
        return Err(EXPECTED.to_owned());
    }
    if file.ends_with(std::path::is_separator) {
        return Err(format!("this is a directory; {EXPECTED}"));
    }
    Ok(Data::Sqlite { path: PathBuf::from(file), durability })
}

/// The text before the first colon, if it looks like a scheme. A single letter is a drive.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    is_scheme.then_some(scheme)
}

/// For messages: a database without user, password and options.
impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { .. } => f.write_str("memory"),
            Self::Sqlite { path, .. } => Path::display(path).fmt(f),
            Self::Postgres { url, .. } => url.fmt(f),
        }
    }
}

/// The address of a database. It may contain a password: only scheme, host and database are ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    whole: String,
    shown: String,
}

impl DatabaseUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE; in user and password, write @ : / ? # and % \
             as %40 %3A %2F %3F %23 %25"
                .to_owned()
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = authority.split_once('@').map_or(authority, |(_, hosts)| hosts);
        // A password with such a character would be read as a host or a database, and be shown.
        let is_odd = [hosts, database, options].iter().any(|part| part.contains(['@', '#']))
            || database.contains('/')
            || !hosts.split(',').all(is_host);
        if is_odd {
            return Err(wrong());
        }
        let shown = format!("{scheme}://{hosts}/{database}");
        Ok(Self { whole: text.to_owned(), shown })
    }

    /// The complete address, for connecting.
    pub(crate) fn reveal(&self) -> &str {
        &self.whole
    }
}

/// A name or an address, with an optional port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !text.ends_with(']') => (name, port),
        _ => (text, ""),
    };
    let is_address = name.starts_with('[') && name.ends_with(']');
    (is_address || !name.contains(':')) && port.chars().all(|c| c.is_ascii_digit())
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_as_people_write_them() {
        for (text, expected) in [
            ("memory", "memory"),
            ("nuncio.db", "sqlite nuncio.db"),
            ("sqlite:nuncio.db", "sqlite nuncio.db"),
            ("sqlite:memory", "sqlite memory"),
            ("sqlite:///var/lib/nuncio.db", "sqlite /var/lib/nuncio.db"),
            ("/var/lib/nuncio/tasks", "sqlite /var/lib/nuncio/tasks"),
            ("./a:b", "sqlite ./a:b"),
            ("C:\\nuncio.db", "sqlite C:\\nuncio.db"),
            (
                "postgres://me:s3cret@db.example:5433/tasks?sslmode=require",
                "postgres postgres://db.example:5433/tasks",
            ),
            ("postgresql://db.example/tasks", "postgres postgresql://db.example/tasks"),
            ("postgres://me:s3%40cret@[::1]/tasks", "postgres postgres://[::1]/tasks"),
            ("postgres://me:1#s3cret@db.example", "postgres postgres://db.example/"),
            ("postgres://me:s3cret@[::1]:5433", "postgres postgres://[::1]:5433/"),
            (
                "postgres://me@one.example:1,two.example/tasks",
                "postgres postgres://one.example:1,two.example/tasks",
            ),
            ("postgres:///tasks?host=/run/postgresql&password=s3cret", "postgres postgres:///tasks"),
        ] {
            let data: Data = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let kind = match &data {
                Data::Memory { .. } => "",
                Data::Sqlite { .. } => "sqlite ",
                Data::Postgres { .. } => "postgres ",
            };
            assert_eq!(format!("{kind}{data}"), expected, "{text}");
            assert!(!format!("{data:?}").contains("cret"), "{data:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_a_password() {
        for (text, words) in [
            ("mysql://me:s3cret@db.example/tasks", "unknown kind of store; expected memory"),
            ("redis:6379", "unknown kind of store"),
            ("http://db.example", "postgres://USER@HOST/DATABASE"),
            ("", "expected memory"),
            (":memory:", "expected memory"),
            ("sqlite:", "expected memory"),
            ("postgres", "expected memory"),
            ("data/", "this is a directory"),
            ("postgres:tasks@s3cret", "%40"),
            ("postgres://me:s3cret@db.example:port/tasks", "%40"),
            ("postgres://me:s3cret", "%40"),
            ("postgres://me:1:s3cret", "%40"),
            ("postgres://me:a:1@db.example,s3cret:b@c/tasks", "%40"),
            ("postgres://me:s3@cret@db.example/tasks", "%40"),
            ("postgres://me:1/s3cret@db.example/tasks", "%40"),
            ("postgres://me:1?s3cret@db.example/tasks", "%40"),
            ("postgres://db.example/tasks#s3cret", "%40"),
            ("postgres://db.example/a/s3cret", "%40"),
        ] {
            let error = text.parse::<Data>().unwrap_err();
            assert!(error.contains(words) && !error.contains("cret"), "{text}: {error}");
        }
    }

    #[test]
    fn memory_makes_no_promise() {
        let relaxed = |text: &str| text.parse::<Data>().unwrap().with_durability(Durability::Relaxed);
        assert_eq!(relaxed("memory"), Data::Memory { keep_finished: KEEP_FINISHED });
        let expected = Data::Sqlite { path: "a.db".into(), durability: Durability::Relaxed };
        assert_eq!(relaxed("a.db"), expected);
        assert!(expected.is_durable() && !relaxed("memory").is_durable());
    }
}
