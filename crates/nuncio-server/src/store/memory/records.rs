//! Records by kind: in the order of their keys, and by age.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    fmt,
    ops::Bound,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use foldhash::fast::RandomState;
use nuncio_protocol::Timestamp;

use super::MemoryStore;
use crate::store::{
    Expect, PutRecord, Record, RecordChange, RecordQuery, Records, Refused, StoreError,
    judge::{self, Judgement},
};

#[derive(Debug, Default)]
pub(super) struct RecordTable(HashMap<Arc<str>, KindRecords, RandomState>);

#[derive(Debug, Default)]
struct KindRecords {
    by_key: BTreeMap<Arc<str>, StoredRecord>,
    by_age: BTreeMap<Age, Arc<str>>,
    /// The number of writes.
    count: u64,
}

/// The time of a record and the number of its write: ages are unique, and no keys need to be compared.
type Age = (Timestamp, u64);

/// A record without its key, which is stored once, in the map.
struct StoredRecord {
    value: Bytes,
    version: u64,
    age: Age,
}

// Values may hold secrets.
impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, age, .. } = self;
        f.debug_struct("Kept").field("version", version).field("age", age).finish_non_exhaustive()
    }
}

impl KindRecords {
    fn version(&self, key: &str) -> u64 {
        self.by_key.get(key).map_or(0, |kept| kept.version)
    }

    fn forget(&mut self, key: &str) -> bool {
        let Some(kept) = self.by_key.remove(key) else { return false };
        self.by_age.remove(&kept.age).is_some()
    }
}

fn record((key, kept): (&Arc<str>, &StoredRecord)) -> Record {
    let StoredRecord { value, version, age: (at, _) } = kept;
    Record { key: (**key).to_owned(), value: value.clone(), version: *version, at: *at }
}

impl RecordTable {
    pub(super) fn one(&self, kind: &str, key: &str) -> Option<Record> {
        self.0.get(kind)?.by_key.get_key_value(key).map(record)
    }

    pub(super) fn list(&self, query: &RecordQuery) -> Vec<Record> {
        let Some(kind) = self.0.get(&query.kind) else { return Vec::new() };
        let [(_, from), (last, to)] = query.span();
        // Without an end in this kind, the range goes to the end of the kind.
        let to = if last == *query.kind { Bound::Excluded(to) } else { Bound::Unbounded };
        if matches!(&to, Bound::Excluded(to) if *to <= from) {
            return Vec::new();
        }
        let span = (Bound::Included(&*from), to.as_ref().map(|to| &**to));
        let found = kind.by_key.range::<str, _>(span).map(record);
        if query.descending {
            found.rev().take(query.limit).collect()
        } else {
            found.take(query.limit).collect()
        }
    }

    pub(super) fn put(&mut self, put: PutRecord) -> Result<u64, Refused> {
        let PutRecord { kind, key, value, at, expect } = put;
        let KindRecords { by_key, by_age, count } = self.0.entry(kind).or_default();
        let place = by_key.entry(key);
        let found = match &place {
            Entry::Occupied(place) => place.get().version,
            Entry::Vacant(_) => 0,
        };
        expect.check(found)?;
        *count += 1;
        let age = (at, *count);
        by_age.insert(age, Arc::clone(place.key()));
        let kept = StoredRecord { value, version: found + 1, age };
        match place {
            Entry::Vacant(place) => drop(place.insert(kept)),
            Entry::Occupied(mut place) => drop(by_age.remove(&place.insert(kept).age)),
        }
        Ok(found + 1)
    }

    /// Checks the changes of an entry.
    pub(super) fn check(&self, changes: &[RecordChange]) -> Judgement {
        let version = |change: &RecordChange| {
            let (kind, key) = change.name();
            Ok(self.0.get(kind).map_or(0, |kind| kind.version(key)))
        };
        // Only a store that reads from elsewhere can fail.
        judge::records(changes, version).unwrap_or(Err(Refused::Record))
    }

    /// Makes the changes of an entry, which were checked.
    pub(super) fn apply(&mut self, changes: &[RecordChange]) {
        for change in changes {
            match change {
                RecordChange::Put(put) => {
                    drop(self.put(PutRecord { expect: Expect::Anything, ..put.clone() }));
                }
                RecordChange::Delete { kind, key, .. } => drop(self.forget(kind, key, Expect::Anything)),
            }
        }
    }

    pub(super) fn forget(&mut self, kind: &str, key: &str, expect: Expect) -> Result<bool, Refused> {
        let known = self.0.get_mut(kind);
        expect.check(known.as_ref().map_or(0, |kind| kind.version(key)))?;
        Ok(known.is_some_and(|kind| kind.forget(key)))
    }

    pub(super) fn prune(&mut self, kind: &str, before: Timestamp, limit: usize) -> usize {
        let Some(kind) = self.0.get_mut(kind) else { return 0 };
        let mut forgotten = 0;
        while forgotten < limit
            && let Some(oldest) = kind.by_age.first_entry().filter(|oldest| oldest.key().0 < before)
        {
            kind.by_key.remove(&oldest.remove());
            forgotten += 1;
        }
        forgotten
    }
}

#[async_trait]
impl Records for MemoryStore {
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        Ok(self.lock().records.one(kind, key))
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        Ok(self.lock().records.list(query))
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        let mut inner = self.lock();
        Ok(puts.into_iter().map(|put| inner.records.put(put)).collect())
    }

    async fn delete_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        Ok(self.lock().records.forget(kind, key, expect))
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        Ok(self.lock().records.prune(kind, before, limit))
    }
}
