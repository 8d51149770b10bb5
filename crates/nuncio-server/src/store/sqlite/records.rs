//! Records as rows.

use async_trait::async_trait;
use nuncio_protocol::{Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{SqliteStore, bounded, write::WriteSession};
use crate::store::{
    Expect, PutRecord, Record, RecordChange, RecordQuery, Records, Refused, StoreError,
    codec::{millis_from, moment},
    judge::{self, Judgement},
};

/// Inserts a record; replaces an existing one only if ?5 is true.
const UPSERT: &str = "INSERT INTO records (kind, key, version, at, value) VALUES (?1, ?2, 1, ?3, ?4)
    ON CONFLICT (kind, key) DO UPDATE
        SET version = version + 1, at = excluded.at, value = excluded.value WHERE ?5
    RETURNING version";

/// Replaces the record of version ?5.
const UPDATE: &str = "UPDATE records SET version = version + 1, at = ?3, value = ?4
    WHERE kind = ?1 AND key = ?2 AND version = ?5 RETURNING version";

pub(super) fn one(db: &Connection, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
    let find = "SELECT key, version, at, value FROM records WHERE kind = ?1 AND key = ?2";
    let mut find = db.prepare_cached(find)?;
    let mut rows = find.query([kind, key])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn list(db: &Connection, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
    let order = if query.descending { "kind DESC, key DESC" } else { "kind, key" };
    let mut list = db.prepare_cached(&format!(
        "SELECT key, version, at, value FROM records WHERE (kind, key) >= (?1, ?2) AND (kind, key) < (?3, ?4)
         ORDER BY {order} LIMIT ?5"
    ))?;
    let [from, to] = query.span();
    let mut rows = list.query(params![from.0, from.1, to.0, to.1, bounded(query.limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The number of records that [`list`] finds.
fn count(db: &Connection, query: &RecordQuery) -> Result<usize, StoreError> {
    let mut count = db.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM records WHERE (kind, key) >= (?1, ?2) AND (kind, key) < (?3, ?4)
         LIMIT ?5)",
    )?;
    let [from, to] = query.span();
    let found: i64 =
        count.query_row(params![from.0, from.1, to.0, to.1, bounded(query.limit)], |row| row.get(0))?;
    Ok(usize::try_from(found).unwrap_or_default())
}

fn read(row: &Row<'_>) -> Result<Record, StoreError> {
    let (version, value): (i64, Vec<u8>) = (row.get(1)?, row.get(3)?);
    Ok(Record { key: row.get(0)?, value: value.into(), version: version as u64, at: moment(row.get(2)?)? })
}

impl WriteSession {
    pub(super) fn put_records(
        &mut self,
        puts: &[PutRecord],
    ) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        puts.iter().map(|put| self.put_record(put)).collect()
    }

    /// Checks the changes of an entry.
    pub(super) fn check_records(&self, changes: &[RecordChange]) -> Result<Judgement, StoreError> {
        judge::records(changes, |change| {
            let (kind, key) = change.name();
            self.record_version(kind, key)
        })
    }

    /// Makes the changes of an entry, which were checked.
    pub(super) fn change_records(&mut self, changes: &[RecordChange]) -> Result<(), StoreError> {
        for change in changes {
            match change {
                RecordChange::Put(put) => drop(self.put_expecting(put, Expect::Anything)?),
                RecordChange::Delete { kind, key, .. } => {
                    let delete = "DELETE FROM records WHERE kind = ?1 AND key = ?2";
                    self.db.prepare_cached(delete)?.execute([kind, key])?;
                }
            }
        }
        Ok(())
    }

    fn put_record(&mut self, put: &PutRecord) -> Result<Result<u64, Refused>, StoreError> {
        self.put_expecting(put, put.expect)
    }

    fn put_expecting(&mut self, put: &PutRecord, expect: Expect) -> Result<Result<u64, Refused>, StoreError> {
        let PutRecord { kind, key, value, at, expect: _ } = put;
        // Most writes are accepted, so the condition is part of the write.
        let (write, expected) = match expect {
            Expect::Anything => (UPSERT, 1),
            Expect::Absent => (UPSERT, 0),
            Expect::Version(version) => (UPDATE, version as i64),
        };
        let mut write = self.db.prepare_cached(write)?;
        let written = params![kind, key, at.as_millis(), &value[..], expected];
        let version = write.query_row(written, |row| row.get::<_, i64>(0)).optional()?;
        let Some(version) = version else {
            let found = self.record_version(kind, key)?;
            return Ok(Err(expect.check(found).err().unwrap_or(Refused::Version(Seq(found)))));
        };
        drop(write);
        self.written += value.len();
        Ok(Ok(version as u64))
    }

    /// The stored version; 0 if there is none.
    fn record_version(&self, kind: &str, key: &str) -> Result<u64, StoreError> {
        let find = "SELECT version FROM records WHERE kind = ?1 AND key = ?2";
        let found = self.db.prepare_cached(find)?.query_row([kind, key], |row| row.get::<_, i64>(0));
        Ok(found.optional()?.unwrap_or(0) as u64)
    }

    pub(super) fn delete_record(
        &mut self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        if let Err(refused) = expect.check(self.record_version(kind, key)?) {
            return Ok(Err(refused));
        }
        let delete = "DELETE FROM records WHERE kind = ?1 AND key = ?2";
        Ok(Ok(self.db.prepare_cached(delete)?.execute([kind, key])? > 0))
    }

    pub(super) fn prune_records(
        &mut self,
        kind: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let mut delete = self.db.prepare_cached(
            "DELETE FROM records WHERE rowid IN (
                 SELECT rowid FROM records INDEXED BY records_by_time WHERE kind = ?1 AND at < ?2
                 ORDER BY at, key LIMIT ?3)",
        )?;
        Ok(delete.execute(params![kind, millis_from(before), bounded(limit)])?)
    }
}

#[async_trait]
impl Records for SqliteStore {
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        if let Some(told) = self.near.ask(|db| one(db, kind, key)) {
            return told;
        }
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.readers.ask(move |db| one(db, &kind, &key)).await
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        let query = query.clone();
        self.readers.ask(move |db| list(db, &query)).await
    }

    async fn count_records(&self, query: &RecordQuery) -> Result<usize, StoreError> {
        let query = query.clone();
        self.readers.ask(move |db| count(db, &query)).await
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> Result<Vec<Result<u64, Refused>>, StoreError> {
        self.writer.shared(move |session| session.put_records(&puts)).await
    }

    async fn delete_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        self.writer.shared(move |session| session.delete_record(&kind, &key, expect)).await
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let kind = kind.to_owned();
        self.writer.alone(move |session| session.prune_records(&kind, before, limit)).await
    }
}
