//! Reads and writes the rows of turns.
//!
//! | record | key | value |
//! |---|---|---|
//! | `lease` | `MAILBOX/TURN`, which sorts by arrival | the turn |
//! | `lease-call` | `MAILBOX/TURN` | data of its call, if it has any |
//! | `lease-claim` | `MAILBOX/KEY` | the turn that a claim under this key got |
//! | `lease-done` | `MAILBOX/TURN` | the end of a lease, for repeats of its last lines |
//! | `lease-poison` | `MAILBOX/TURN` | a task that failed because it was offered too often |

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{TaskId, Timestamp};
use nuncio_server::store::{
    Expect, PutRecord, Record, RecordChange, RecordQuery, Refused, Store, StoreError, Topic,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::row::{CallData, LeaseId, Owner, TurnId, TurnRow};
use crate::clock;

/// The kinds of the records.
const TURN: &str = "lease";
const CALL: &str = "lease-call";
const CLAIM: &str = "lease-claim";
const DONE: &str = "lease-done";
const POISON: &str = "lease-poison";

/// Rows per read.
pub(in crate::agents) const PAGE: usize = 256;

/// The first read of a claim: most find their turn among few.
pub(in crate::agents) const FIRST_PAGE: usize = 16;

/// Turns in the order of their arrival.
#[derive(Debug)]
pub(in crate::agents) struct TurnPage {
    pub(in crate::agents) turns: Vec<Kept>,
    /// The place after which there may be more.
    pub(in crate::agents) next: Option<String>,
}

/// A row with its key and the version that was read.
#[derive(Clone, Debug)]
pub(in crate::agents) struct Kept {
    pub(in crate::agents) turn: TurnId,
    pub(in crate::agents) row: TurnRow,
    pub(in crate::agents) version: u64,
}

impl Kept {
    /// The name of its lease.
    pub(in crate::agents) fn lease(&self) -> LeaseId {
        LeaseId { turn: self.turn, generation: self.row.generation }
    }
}

/// The end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::agents) struct Tombstone {
    pub(in crate::agents) generation: u64,
    pub(in crate::agents) have: u64,
}

/// A task that failed because it was offered too often.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::agents) struct Poison {
    pub(in crate::agents) owner: Owner,
    pub(in crate::agents) task: TaskId,
    pub(in crate::agents) attempts: u32,
    /// The worker that had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::agents) holder: Option<String>,
}

/// The rows of all mailboxes.
#[derive(Clone)]
pub(in crate::agents) struct Book {
    store: Arc<dyn Store>,
}

/// The current time in milliseconds.
pub(in crate::agents) fn now_millis() -> i64 {
    clock::now().as_millis()
}

/// The key of a turn.
pub(in crate::agents) fn key(mailbox: &str, turn: TurnId) -> String {
    format!("{mailbox}/{turn}")
}

impl Book {
    pub(in crate::agents) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    pub(in crate::agents) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The row of a turn.
    pub(in crate::agents) async fn turn(
        &self,
        mailbox: &str,
        turn: TurnId,
    ) -> Result<Option<Kept>, StoreError> {
        let Some(record) = self.store.record(TURN, &key(mailbox, turn)).await? else { return Ok(None) };
        Ok(Some(Kept { turn, row: decode(&record)?, version: record.version }))
    }

    /// Turns of a mailbox in the order of their arrival. A row that cannot be read is left out and logged.
    pub(in crate::agents) async fn page(
        &self,
        mailbox: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<TurnPage, StoreError> {
        let records = self.list(TURN, mailbox, after, limit).await?;
        // By the rows that were read, whatever is in them: one that is damaged must not hide those behind it.
        let last = records.last().filter(|_| records.len() >= limit);
        let next = last.map(|record| record.key.clone());
        let kept = |record: Record| {
            let turn = turn_of(mailbox, &record.key)?;
            match decode(&record) {
                Ok(row) => Some(Kept { turn, row, version: record.version }),
                Err(error) => {
                    tracing::error!(key = record.key, %error, "a turn of a mailbox cannot be read");
                    None
                }
            }
        };
        Ok(TurnPage { turns: records.into_iter().filter_map(kept).collect(), next })
    }

    /// The number of turns of a mailbox, at most `limit`.
    pub(in crate::agents) async fn count(&self, mailbox: &str, limit: usize) -> Result<usize, StoreError> {
        let prefix = format!("{mailbox}/");
        self.store
            .count_records(&RecordQuery { kind: TURN.into(), prefix, limit, ..RecordQuery::default() })
            .await
    }

    async fn list(
        &self,
        kind: &str,
        mailbox: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let prefix = format!("{mailbox}/");
        let query = RecordQuery { kind: kind.into(), prefix, after, limit, ..RecordQuery::default() };
        self.store.records(&query).await
    }

    /// The write of a row, for the transaction of an entry.
    pub(in crate::agents) fn put(
        mailbox: &str,
        turn: TurnId,
        row: &TurnRow,
        expect: Expect,
    ) -> Result<RecordChange, StoreError> {
        change(TURN, &key(mailbox, turn), row, expect)
    }

    /// The write of the data of a call.
    pub(in crate::agents) fn put_call(
        mailbox: &str,
        turn: TurnId,
        call: &CallData,
    ) -> Result<RecordChange, StoreError> {
        change(CALL, &key(mailbox, turn), call, Expect::Absent)
    }

    /// The deletes of a turn and of the data of its call, which is never changed.
    pub(in crate::agents) fn delete_with(mailbox: &str, kept: &Kept) -> Vec<RecordChange> {
        let key: Arc<str> = key(mailbox, kept.turn).into();
        let delete =
            |kind: &str, version| RecordChange::Delete { kind: kind.into(), key: Arc::clone(&key), version };
        let mut changes = vec![delete(TURN, kept.version)];
        if kept.row.has_call {
            changes.push(delete(CALL, 1));
        }
        changes
    }

    /// The deletes of all turns of a task but one, which end with it.
    pub(in crate::agents) async fn delete_others(
        &self,
        mailbox: &str,
        turns: &[TurnId],
        except: TurnId,
    ) -> Result<Vec<RecordChange>, StoreError> {
        let mut changes = Vec::new();
        for turn in turns.iter().filter(|turn| **turn != except) {
            if let Some(kept) = self.turn(mailbox, *turn).await? {
                changes.extend(Self::delete_with(mailbox, &kept));
            }
        }
        Ok(changes)
    }

    /// The write of the end of a lease.
    pub(in crate::agents) fn put_done(
        mailbox: &str,
        turn: TurnId,
        done: Tombstone,
    ) -> Result<RecordChange, StoreError> {
        change(DONE, &key(mailbox, turn), &done, Expect::Anything)
    }

    /// The write of a poison task.
    pub(in crate::agents) fn put_poison(
        mailbox: &str,
        turn: TurnId,
        poison: &Poison,
    ) -> Result<RecordChange, StoreError> {
        change(POISON, &key(mailbox, turn), poison, Expect::Anything)
    }

    /// Writes a row if it is of the version that was read; `None` if another writer came first. With `claim` the claim
    /// finds this turn under its key.
    pub(in crate::agents) async fn change(
        &self,
        mailbox: &str,
        kept: &Kept,
        row: TurnRow,
        claim: Option<&str>,
    ) -> Result<Option<Kept>, StoreError> {
        let mut puts = vec![record(TURN, &key(mailbox, kept.turn), &row, Expect::Version(kept.version))?];
        if let Some(claim) = claim {
            puts.push(record(CLAIM, &format!("{mailbox}/{claim}"), &kept.turn, Expect::Anything)?);
        }
        let outcome = self.store.put_records(puts).await?;
        match outcome.into_iter().next() {
            Some(Ok(version)) => Ok(Some(Kept { turn: kept.turn, row, version })),
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// The turn that a claim under this key got.
    pub(in crate::agents) async fn claimed(
        &self,
        mailbox: &str,
        claim: &str,
    ) -> Result<Option<TurnId>, StoreError> {
        let record = self.store.record(CLAIM, &format!("{mailbox}/{claim}")).await?;
        record.map(|record| decode(&record)).transpose()
    }

    /// The data of a call.
    pub(in crate::agents) async fn call(&self, mailbox: &str, kept: &Kept) -> Result<CallData, StoreError> {
        if !kept.row.has_call {
            return Ok(CallData::default());
        }
        let record = self.store.record(CALL, &key(mailbox, kept.turn)).await?;
        record.map_or_else(|| Ok(CallData::default()), |record| decode(&record))
    }

    /// The end of a lease, as long as it is remembered.
    pub(in crate::agents) async fn done(
        &self,
        mailbox: &str,
        turn: TurnId,
    ) -> Result<Option<Tombstone>, StoreError> {
        let record = self.store.record(DONE, &key(mailbox, turn)).await?;
        record.map(|record| decode(&record)).transpose()
    }

    /// Deletes the row of a task that has ended, if it is of the version that was read.
    pub(in crate::agents) async fn delete(&self, mailbox: &str, kept: &Kept) -> Result<bool, StoreError> {
        let key = key(mailbox, kept.turn);
        let deleted = self.store.delete_record(TURN, &key, Expect::Version(kept.version)).await?;
        if kept.row.has_call && deleted.is_ok() {
            // It may be gone already.
            let _: Result<bool, Refused> = self.store.delete_record(CALL, &key, Expect::Anything).await?;
        }
        Ok(deleted == Ok(true))
    }

    /// Poison tasks of a mailbox, oldest first, with the time of their failure.
    pub(in crate::agents) async fn poison(
        &self,
        mailbox: &str,
        limit: usize,
    ) -> Result<Vec<(TurnId, Timestamp, Poison)>, StoreError> {
        let records = self.list(POISON, mailbox, None, limit).await?;
        let poison = records.iter().filter_map(|record| {
            Some((turn_of(mailbox, &record.key)?, record.at, decode::<Poison>(record).ok()?))
        });
        Ok(poison.collect())
    }

    /// Forgets a poison task; true if it was one until now.
    pub(in crate::agents) async fn forget_poison(
        &self,
        mailbox: &str,
        turn: TurnId,
    ) -> Result<bool, StoreError> {
        let deleted = self.store.delete_record(POISON, &key(mailbox, turn), Expect::Anything).await?;
        Ok(deleted == Ok(true))
    }

    /// Forgets claims and ends that are older than this.
    pub(in crate::agents) async fn prune(&self, before: Timestamp) -> Result<(), StoreError> {
        for kind in [CLAIM, DONE] {
            while self.store.prune_records(kind, before, PAGE).await? == PAGE {}
        }
        Ok(())
    }

    /// Tells other hubs that this mailbox or turn has changed.
    pub(in crate::agents) fn signal(&self, name: &str) {
        self.store.signals().send(changes(), name);
    }
}

/// The topic of changes for other hubs: a mailbox, or the key of a turn.
pub(in crate::agents) fn changes() -> Topic {
    Topic::Records(TURN.into())
}

fn turn_of(mailbox: &str, key: &str) -> Option<TurnId> {
    key.strip_prefix(mailbox)?.strip_prefix('/')?.parse().ok()
}

fn record<T: Serialize>(kind: &str, key: &str, value: &T, expect: Expect) -> Result<PutRecord, StoreError> {
    let value: Bytes = serde_json::to_vec(value).map_err(StoreError::broken)?.into();
    Ok(PutRecord { kind: kind.into(), key: key.into(), value, at: clock::now(), expect })
}

fn change<T: Serialize>(
    kind: &str,
    key: &str,
    value: &T,
    expect: Expect,
) -> Result<RecordChange, StoreError> {
    record(kind, key, value, expect).map(RecordChange::Put)
}

fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, StoreError> {
    serde_json::from_slice(&record.value).map_err(StoreError::broken)
}
