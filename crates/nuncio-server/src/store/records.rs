//! Records: small documents that the hub stores beside its tasks.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_protocol::{Seq, Timestamp};

use super::{Refused, StoreError};

/// Small documents by kind and key.
///
/// ```text
/// kind "api-key"   a1 v1 · b7 v3 · c2 v1          in the order of their keys
/// kind "audit"     0190…01 v1 · 0190…02 v1        a prefix of the keys is a part of them
/// ```
///
/// Implementors guarantee, and [`conformance`](crate::store) tests:
/// - A write is accepted only if the writer expects the version that is stored ([`Expect`]); of several
///   concurrent writers one wins. Every owner may write every record, and the content is opaque to the store.
/// - Versions begin at 1 and grow by 1 with each change, as long as there is a record of this key.
/// - Records have no scope and no owner: they outlive the handle that wrote them, and every handle sees them.
#[async_trait]
pub trait Records: Send + Sync + 'static {
    /// A record.
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError>;

    /// Records of a kind, in the order of their keys.
    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// The number of records that [`Self::records`] lists for this query, without reading them.
    async fn count_records(&self, query: &RecordQuery) -> Result<usize, StoreError> {
        Ok(self.records(query).await?.len())
    }

    /// Writes records in one transaction. Each is accepted or refused by itself, checked against the state
    /// that those before it have left. Returns for each its new version, or [`Refused::Version`] with the
    /// stored version (0: none). After an error it is unknown which ones were written.
    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError>;

    /// Deletes a record; returns whether it existed. Refused as in [`Self::put_records`].
    async fn delete_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError>;

    /// Deletes at most `limit` records of a kind that were written before this time, oldest first; returns
    /// their number.
    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError>;
}

/// A stored document.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The name within its kind.
    pub key: String,
    /// The content; at most a few MiB.
    pub value: Bytes,
    /// Begins at 1 and grows with each change, as long as there is a record of this key.
    pub version: u64,
    /// The time of writing, given by the writer: the age for [`Records::prune_records`].
    pub at: Timestamp,
}

/// A record to write.
#[derive(Clone, PartialEq, Eq)]
pub struct PutRecord {
    /// The kind.
    pub kind: Arc<str>,
    /// The name within its kind.
    pub key: Arc<str>,
    /// The content.
    pub value: Bytes,
    /// The time of writing.
    pub at: Timestamp,
    /// The condition on the stored version.
    pub expect: Expect,
}

/// A change of a record that is made in one transaction with an entry of a task's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordChange {
    /// Writes the record.
    Put(PutRecord),
    /// Deletes the record of this version.
    Delete {
        /// The kind.
        kind: Arc<str>,
        /// The name within its kind.
        key: Arc<str>,
        /// The version that must be stored.
        version: u64,
    },
}

impl RecordChange {
    /// The kind and the key of the record.
    pub(crate) fn name(&self) -> (&Arc<str>, &Arc<str>) {
        match self {
            Self::Put(put) => (&put.kind, &put.key),
            Self::Delete { kind, key, .. } => (kind, key),
        }
    }

    /// The condition on the stored version.
    pub(crate) fn expect(&self) -> Expect {
        match self {
            Self::Put(put) => put.expect,
            Self::Delete { version, .. } => Expect::Version(*version),
        }
    }

    /// The version after the change of a record of this version; 0 stands for none.
    pub(crate) fn version_after(&self, found: u64) -> u64 {
        match self {
            Self::Put(_) => found + 1,
            Self::Delete { .. } => 0,
        }
    }

    /// The number of bytes that it writes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(put) => put.value.len(),
            Self::Delete { .. } => 0,
        }
    }
}

/// A condition on the stored version, so that a writer does not overwrite a version that it has not seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expect {
    /// Always holds.
    #[default]
    Anything,
    /// There is no record.
    Absent,
    /// There is a record of this version.
    Version(u64),
}

impl Expect {
    /// Checks the stored version; 0 stands for none.
    pub(crate) fn check(self, found: u64) -> Result<(), Refused> {
        match self {
            Self::Absent if found != 0 => Err(Refused::Version(Seq(found))),
            Self::Version(wanted) if found != wanted || found == 0 => Err(Refused::Version(Seq(found))),
            Self::Anything | Self::Absent | Self::Version(_) => Ok(()),
        }
    }
}

/// A query for records of a kind, in the order of their keys' bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordQuery {
    /// The kind.
    pub kind: Arc<str>,
    /// Only keys that begin with this.
    pub prefix: String,
    /// Only keys after this one, in the order of the query.
    pub after: Option<String>,
    /// Lists from the last key to the first.
    pub descending: bool,
    /// The maximum number of records.
    pub limit: usize,
}

impl RecordQuery {
    /// The query as one range of (kind, key): from the first pair, included, to the second, excluded.
    pub(crate) fn span(&self) -> [(String, String); 2] {
        let (mut from, mut to) = (self.prefix.clone(), end_of(&self.prefix));
        match &self.after {
            Some(after) if self.descending => to = Some(to.map_or(after.clone(), |to| to.min(after.clone()))),
            // No text sorts between `after` and `after` followed by NUL.
            Some(after) => from = from.max(format!("{after}\0")),
            None => {}
        }
        let kind = self.kind.as_ref().to_owned();
        let end = to.map_or_else(|| (format!("{kind}\0"), String::new()), |to| (kind.clone(), to));
        [(kind, from), end]
    }
}

/// The first text that sorts after all texts with this prefix; `None` if there is none.
pub(super) fn end_of(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // In UTF-8 the order of bytes is that of characters. (A range of characters skips surrogates.)
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

// Values may hold secrets.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, version, at, .. } = self;
        f.debug_struct("Record")
            .field("key", key)
            .field("version", version)
            .field("at", at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PutRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, at, expect, .. } = self;
        f.debug_struct("PutRecord")
            .field("kind", kind)
            .field("key", key)
            .field("at", at)
            .field("expect", expect)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_all_that_begins_with_the_prefix_and_nothing_else() {
        let keys = [
            "",
            "\0",
            "a",
            "a\0",
            "a\u{d7ff}",
            "a\u{d7ff}b",
            "a\u{e000}",
            "a\u{10ffff}",
            "a\u{10ffff}z",
            "b",
        ];
        assert!(keys.is_sorted());
        for prefix in keys {
            for after in keys.iter().map(Some).chain([None]) {
                for descending in [false, true] {
                    let after = after.map(|after| (*after).to_owned());
                    let query = RecordQuery {
                        kind: "k".into(),
                        prefix: prefix.to_owned(),
                        after: after.clone(),
                        descending,
                        limit: 9,
                    };
                    let [from, to] = query.span();
                    for key in keys {
                        let place = ("k".to_owned(), key.to_owned());
                        let beyond = after
                            .as_deref()
                            .is_none_or(|after| if descending { key < after } else { key > after });
                        let wanted = key.starts_with(prefix) && beyond;
                        assert_eq!(from <= place && place < to, wanted, "{key:?} for {query:?}");
                    }
                    assert!(("l".to_owned(), String::new()) >= to, "no other kind");
                }
            }
        }
    }

    #[test]
    fn a_record_does_not_print_what_it_holds() {
        let value = Bytes::from_static(b"hunter2");
        let record = Record { key: "k".to_owned(), value: value.clone(), version: 1, at: Timestamp::EPOCH };
        let put = PutRecord {
            kind: "k".into(),
            key: "k".into(),
            value,
            at: Timestamp::EPOCH,
            expect: Expect::Anything,
        };
        assert!(!format!("{record:?} {put:?}").contains("hunter2"));
    }
}
