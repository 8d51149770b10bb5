//! Records: by kind, in the order of their keys, and by age.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use nuncio_protocol::Timestamp;

use crate::store::{Expect, PutRecord, Record, RecordQuery, Refused};

#[derive(Debug, Default)]
pub(super) struct Records(HashMap<Arc<str>, Kind>);

#[derive(Debug, Default)]
struct Kind {
    by_key: BTreeMap<String, Record>,
    by_age: BTreeSet<(Timestamp, String)>,
}

impl Kind {
    fn version(&self, key: &str) -> u64 {
        self.by_key.get(key).map_or(0, |record| record.version)
    }

    fn forget(&mut self, key: &str) -> bool {
        let Some(record) = self.by_key.remove(key) else { return false };
        self.by_age.remove(&(record.at, record.key))
    }
}

impl Records {
    pub(super) fn one(&self, kind: &str, key: &str) -> Option<Record> {
        self.0.get(kind)?.by_key.get(key).cloned()
    }

    pub(super) fn list(&self, query: &RecordQuery) -> Vec<Record> {
        let Some(kind) = self.0.get(&query.kind) else { return Vec::new() };
        let [(_, from), (last, to)] = query.span();
        // Without an end it is that of the kind.
        let to = if last == *query.kind { Bound::Excluded(to) } else { Bound::Unbounded };
        if matches!(&to, Bound::Excluded(to) if *to <= from) {
            return Vec::new();
        }
        let found = kind.by_key.range((Bound::Included(from), to)).map(|(_, record)| record.clone());
        if query.descending {
            found.rev().take(query.limit).collect()
        } else {
            found.take(query.limit).collect()
        }
    }

    pub(super) fn put(&mut self, put: PutRecord) -> Result<u64, Refused> {
        let PutRecord { kind, key, value, at, expect } = put;
        let found = self.0.get(&kind).map_or(0, |kind| kind.version(&key));
        expect.check(found)?;
        let kind = self.0.entry(kind).or_default();
        kind.forget(&key);
        kind.by_age.insert((at, key.clone()));
        kind.by_key.insert(key.clone(), Record { key, value, version: found + 1, at });
        Ok(found + 1)
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
            && let Some((_, key)) = kind.by_age.first().filter(|(at, _)| *at < before).cloned()
        {
            kind.forget(&key);
            forgotten += 1;
        }
        forgotten
    }
}
