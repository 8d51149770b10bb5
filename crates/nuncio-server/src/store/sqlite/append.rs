//! Entries as rows: one for the task, one per segment, and less common ones.

use bytes::Bytes;
use nuncio_protocol::{Seq, Timestamp};
use rusqlite::{OptionalExtension as _, params};

use super::{
    schema::{LAST_SEQ, log_rowid},
    write::WriteSession,
};
use crate::store::{
    Refused, StoreError, StoredTurn,
    codec::{Drops, Snapshot, TaskWrite, state_code, state_of},
    judge::{self, Judgement, TaskFacts},
};

/// The maximum size in bytes of a memo in the task's row; larger ones are in a table of their own.
const SMALL_MEMO: usize = 1 << 10;

/// The columns of a task's row that a write needs.
struct Row {
    key: i64,
    scope: i64,
    state: i64,
    seq: Seq,
    owner: i64,
    busy: bool,
    /// True if it is in progress, or has a turn that waits.
    in_hand: bool,
    turns: i64,
    snapshot_seq: Seq,
    webhooks: i64,
}

impl Row {
    /// The facts for the owner `me` in this scope.
    fn facts(&self, me: i64, scope: Option<i64>) -> Result<TaskFacts, StoreError> {
        Ok(TaskFacts {
            seq: self.seq,
            in_scope: Some(self.scope) == scope,
            is_mine: self.owner == me,
            in_hand: self.in_hand,
            has_ended: state_of(self.state)?.is_terminal(),
        })
    }
}

impl WriteSession {
    /// Appends the entries of a batch; returns one result per entry.
    pub(super) fn append(
        &mut self,
        writes: Vec<TaskWrite>,
        entries: usize,
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut results = vec![Ok(()); entries];
        for mut write in writes {
            match self.apply(&mut write)? {
                Ok(()) => {}
                Err(_) if write.is_several() => {
                    for mut piece in write.split() {
                        let result = self.apply(&mut piece)?;
                        piece.places().for_each(|place| results[place] = result.clone());
                    }
                }
                Err(refused) => write.places().for_each(|place| results[place] = Err(refused.clone())),
            }
        }
        Ok(results)
    }

    /// Applies a write. A refused write changes nothing.
    fn apply(&mut self, write: &mut TaskWrite) -> Result<Result<(), Refused>, StoreError> {
        if write.last.0 > LAST_SEQ {
            return Ok(Err(Refused::Full));
        }
        let made = if write.expected == Seq::ZERO { self.create(write)? } else { self.go_on(write)? };
        let (key, webhooks) = match made {
            Ok(made) => made,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut insert = self
            .db
            .prepare_cached("INSERT INTO log (place, first_seq, body, refs) VALUES (?1, ?2, ?3, ?4)")?;
        // Each is let go when it is in its row. Only a write that is refused is tried again, and this one is not.
        for segment in std::mem::take(&mut write.segments) {
            self.written += segment.body.json.len();
            let first = segment.first.0 as i64;
            let refs = some(&segment.body.refs);
            insert.execute(params![log_rowid(key, segment.last.0), first, segment.body.json, refs])?;
        }
        drop(insert);
        self.put_blobs(key, write)?;
        self.change_records(&write.records)?;
        for parent in &write.parents {
            let link = "INSERT INTO links (task, parent) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            self.db.prepare_cached(link)?.execute(params![key, parent.as_str()])?;
        }
        if let Some(webhook) = &write.webhook {
            self.upsert_webhook(key, webhook, write.at)?;
        }
        if webhooks > 0 || write.webhook.is_some() {
            self.owe(key, &write.owed)?;
        }
        Ok(Ok(()))
    }

    /// Creates the task; returns its key and the number of its webhooks.
    fn create(&mut self, write: &mut TaskWrite) -> Result<Result<(i64, i64), Refused>, StoreError> {
        let scope = self.scope(&write.scope)?;
        let snapshot = write.due_snapshot(Seq::ZERO);
        let (state, at) = write.status.unwrap_or((Default::default(), Timestamp::EPOCH));
        let state = i64::from(state_code(state));
        let (snapshot_seq, body, refs, artifacts, artifacts_refs) = columns(snapshot.as_ref());
        let mut insert = self.db.prepare_cached(
            "INSERT INTO tasks (id, scope, context_id, state, status_at, seq, owner, busy, turns, pending,
                 snapshot_seq, snapshot, snapshot_refs, artifacts, artifacts_refs, memo)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (id) DO NOTHING",
        )?;
        let made = insert.execute(params![
            write.id.as_str(),
            scope,
            write.context_id.as_str(),
            state,
            at.as_millis(),
            write.last.0 as i64,
            self.me,
            write.busy.unwrap_or(true),
            snapshot_seq,
            body,
            refs,
            artifacts,
            artifacts_refs,
            write.memo.as_deref().filter(|memo| is_small(memo)),
        ])?;
        drop(insert);
        if made == 0 {
            let seq = "SELECT seq FROM tasks WHERE id = ?1";
            let seq: i64 = self.db.prepare_cached(seq)?.query_row([write.id.as_str()], |row| row.get(0))?;
            return Ok(judge::creation(Some(Seq(seq as u64))).map(|()| (0, 0)));
        }
        self.written += body.map_or(0, <[u8]>::len) + artifacts.map_or(0, <[u8]>::len);
        let key = self.db.last_insert_rowid();
        let judged = match self.check_records(&write.records)? {
            Ok(()) => self.take_name(scope, key, write)?,
            refused => refused,
        };
        if let Err(refused) = judged {
            self.db.prepare_cached("DELETE FROM tasks WHERE key = ?1")?.execute([key])?;
            return Ok(Err(refused));
        }
        self.count(scope, state, 1);
        if let Some(memo) = write.memo.as_ref().filter(|memo| !is_small(memo)) {
            self.put_large_memo(key, memo)?;
        }
        self.put_turns(key, 0, write)?;
        Ok(Ok((key, 0)))
    }

    /// Updates the task; returns its key, and the number of its webhooks if the write causes deliveries.
    fn go_on(&mut self, write: &mut TaskWrite) -> Result<Result<(i64, i64), Refused>, StoreError> {
        let scope = self.known_scope(&write.scope)?;
        let row = self.row(write)?;
        let facts = row.as_ref().map(|row| row.facts(self.me, scope)).transpose()?;
        if let Err(refused) = judge::entry(facts, write.expected, write.take) {
            return Ok(Err(refused));
        }
        let Some(row) = row else { return Ok(Err(Refused::NotFound)) };
        if let Err(refused) = self.check_records(&write.records)? {
            return Ok(Err(refused));
        }
        if let Err(refused) = self.take_key(row.scope, row.key, write)? {
            return Ok(Err(refused));
        }
        let seq = write.last.0 as i64;
        let busy = write.busy.unwrap_or(row.busy);
        if let Some((state, at)) = write.status {
            let state = i64::from(state_code(state));
            let set = "UPDATE tasks SET seq = ?2, owner = ?3, busy = ?4, state = ?5, status_at = ?6
                       WHERE key = ?1";
            let mut set = self.db.prepare_cached(set)?;
            set.execute(params![row.key, seq, self.me, busy, state, at.as_millis()])?;
            drop(set);
            self.count(row.scope, row.state, -1);
            self.count(row.scope, state, 1);
        } else if busy == row.busy {
            let set = "UPDATE tasks SET seq = ?2, owner = ?3 WHERE key = ?1";
            self.db.prepare_cached(set)?.execute(params![row.key, seq, self.me])?;
        } else {
            let set = "UPDATE tasks SET seq = ?2, owner = ?3, busy = ?4 WHERE key = ?1";
            self.db.prepare_cached(set)?.execute(params![row.key, seq, self.me, busy])?;
        }
        if let Some(snapshot) = write.due_snapshot(row.snapshot_seq) {
            self.put_snapshot(row.key, &snapshot)?;
        }
        self.put_memo(row.key, write.memo.as_ref())?;
        self.put_turns(row.key, row.turns, write)?;
        Ok(Ok((row.key, row.webhooks)))
    }

    fn row(&self, write: &TaskWrite) -> Result<Option<Row>, StoreError> {
        // The column follows the snapshot in the row, so it is read only if needed.
        let mut select = self.db.prepare_cached(
            "SELECT key, scope, state, seq, owner, busy, turns, snapshot_seq, busy + pending > 0,
                 CASE WHEN ?2 THEN webhooks ELSE 0 END
             FROM tasks WHERE id = ?1",
        )?;
        let row = select.query_row(params![write.id.as_str(), !write.owed.is_empty()], |row| {
            Ok(Row {
                key: row.get(0)?,
                scope: row.get(1)?,
                state: row.get(2)?,
                seq: Seq(row.get::<_, i64>(3)? as u64),
                owner: row.get(4)?,
                busy: row.get(5)?,
                turns: row.get(6)?,
                snapshot_seq: Seq(row.get::<_, i64>(7)? as u64),
                in_hand: row.get(8)?,
                webhooks: row.get(9)?,
            })
        });
        Ok(row.optional()?)
    }

    /// Ends the reservation of a task that is created, or takes the write's key if there is none.
    fn take_name(&self, scope: i64, task: i64, write: &TaskWrite) -> Result<Judgement, StoreError> {
        if write.reserved {
            return self.end_reservation(scope, task, write);
        }
        self.take_key(scope, task, write)
    }

    /// Takes the key by inserting it, which also shows whether it is taken.
    fn take_key(&self, scope: i64, task: i64, write: &TaskWrite) -> Result<Judgement, StoreError> {
        let Some(idempotency) = write.key() else { return Ok(Ok(())) };
        let mut insert = self.db.prepare_cached(
            "INSERT INTO answers (scope, key, digest, at, task) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (scope, key) DO NOTHING",
        )?;
        let at = write.at.as_millis();
        let inserted = insert.execute(params![scope, idempotency.key, idempotency.digest, at, task])?;
        Ok(judge::key(inserted == 0))
    }

    fn put_snapshot(&mut self, key: i64, snapshot: &Snapshot) -> Result<(), StoreError> {
        let (seq, body, refs, artifacts, artifacts_refs) = columns(Some(snapshot));
        self.written += body.map_or(0, <[u8]>::len) + artifacts.map_or(0, <[u8]>::len);
        let mut set = self.db.prepare_cached(
            "UPDATE tasks SET snapshot_seq = ?2, snapshot = ?3, snapshot_refs = ?4, artifacts = ?5,
                 artifacts_refs = ?6
             WHERE key = ?1",
        )?;
        set.execute(params![key, seq, body, refs, artifacts, artifacts_refs])?;
        Ok(())
    }

    /// Stores the memo of a task, if there is a new one.
    fn put_memo(&mut self, key: i64, memo: Option<&Bytes>) -> Result<(), StoreError> {
        let Some(memo) = memo else { return Ok(()) };
        let here = Some(&memo[..]).filter(|memo| is_small(memo));
        self.db.prepare_cached("UPDATE tasks SET memo = ?2 WHERE key = ?1")?.execute(params![key, here])?;
        if here.is_none() {
            return self.put_large_memo(key, memo);
        }
        self.db.prepare_cached("DELETE FROM memos WHERE task = ?1")?.execute([key])?;
        Ok(())
    }

    /// Stores a memo that is too large for the task's row.
    fn put_large_memo(&mut self, key: i64, memo: &Bytes) -> Result<(), StoreError> {
        self.written += memo.len();
        let keep = "INSERT INTO memos (task, body) VALUES (?1, ?2)
                    ON CONFLICT (task) DO UPDATE SET body = excluded.body";
        self.db.prepare_cached(keep)?.execute(params![key, &memo[..]])?;
        Ok(())
    }

    fn put_blobs(&mut self, key: i64, write: &TaskWrite) -> Result<(), StoreError> {
        for blob in &write.blobs {
            self.written += blob.bytes.len();
            let keep = "INSERT INTO blobs (task, digest, body) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            self.db.prepare_cached(keep)?.execute(params![key, blob.digest.0, &blob.bytes[..]])?;
        }
        Ok(())
    }

    /// Deletes and adds turns. Most tasks have none; then no statement runs.
    fn put_turns(&self, key: i64, kept: i64, write: &TaskWrite) -> Result<(), StoreError> {
        if write.turns.is_empty() && (kept == 0 || write.drops == Drops::Nothing) {
            return Ok(());
        }
        let drop = match write.drops {
            Drops::Nothing => None,
            Drops::Begun => Some("DELETE FROM turns WHERE task = ?1 AND begun"),
            Drops::All => Some("DELETE FROM turns WHERE task = ?1"),
        };
        if let Some(drop) = drop {
            self.db.prepare_cached(drop)?.execute([key])?;
        }
        for turn in &write.turns {
            self.put_turn(key, turn)?;
        }
        self.count_turns(key)
    }

    /// Stores a turn; replaces the one with the same id.
    pub(super) fn put_turn(&self, key: i64, turn: &StoredTurn) -> Result<(), StoreError> {
        let mut keep = self.db.prepare_cached(
            "INSERT INTO turns (task, id, begun, body) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (task, id) DO UPDATE SET begun = excluded.begun, body = excluded.body",
        )?;
        keep.execute(params![key, turn.id, turn.begun, &turn.body[..]])?;
        Ok(())
    }

    /// Updates the counts of turns in the task's row.
    pub(super) fn count_turns(&self, key: i64) -> Result<(), StoreError> {
        let mut set = self.db.prepare_cached(
            "UPDATE tasks SET (turns, pending) =
                 (SELECT count(*), count(*) FILTER (WHERE NOT begun) FROM turns WHERE task = ?1)
             WHERE key = ?1",
        )?;
        set.execute([key])?;
        Ok(())
    }
}

/// True if a memo may be in the task's row, which is rewritten with every entry.
fn is_small(memo: &[u8]) -> bool {
    memo.len() <= SMALL_MEMO
}

/// A snapshot as columns.
type Columns<'a> = (i64, Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a [u8]>);

fn columns(snapshot: Option<&Snapshot>) -> Columns<'_> {
    let Some(Snapshot { seq, task, artifacts }) = snapshot else { return (0, None, None, None, None) };
    let artifacts_refs = artifacts.as_ref().and_then(|artifacts| some(&artifacts.refs));
    let artifacts = artifacts.as_ref().map(|artifacts| &artifacts.json[..]);
    (seq.0 as i64, Some(&task.json), some(&task.refs), artifacts, artifacts_refs)
}

/// `None`, which is NULL, for an empty value.
fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}
