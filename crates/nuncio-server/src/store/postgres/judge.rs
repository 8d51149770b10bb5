//! The slow path of a batch: locks and reads its tasks, and checks each write.

use std::{borrow::Cow, collections::HashMap, collections::HashSet, sync::Arc};

use nuncio_protocol::{Seq, TaskId};
use uuid::Uuid;

use super::{
    columns::Ready,
    link::PgSession,
    names::{plain, scope_id, text},
    read::seq,
};
use crate::store::{
    RecordChange, Refused, StoreError,
    codec::{TaskWrite, state_of},
    judge::{self, ReservationFacts, TaskFacts},
};

/// The rule of [`judge::entry`] and [`judge::turn`] about owners, as a condition on `tasks` for statements
/// that check and write at once: the task belongs to this owner, or no owner holds it.
macro_rules! free_for {
    ($task:literal, $owner:literal) => {
        concat!("(", $task, ".owner = ", $owner, " OR NOT (", $task, ".busy OR ", $task, ".pending > 0))")
    };
}
pub(super) use free_for;

/// Locks in the order of all writers.
const LOCK: &str = "SELECT id, scope, seq, busy OR pending > 0, owner, state FROM tasks
  WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE";

const TAKEN: &str = "SELECT a.scope, a.key FROM unnest($1::uuid[], $2::text[]) AS n(scope, key)
  JOIN answers a ON a.scope = n.scope AND a.key = n.key";

const RESERVED: &str =
    "SELECT id, scope, owner FROM reservations WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE";

const RECORD_VERSIONS: &str = "SELECT r.kind, r.key, r.version FROM records r
  JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS n(kind, key) ON r.kind = n.kind AND r.key = n.key
  ORDER BY r.kind, r.key FOR UPDATE OF r";

/// The state of a batch's tasks, reservations and keys.
pub(super) struct Judge {
    me: i64,
    tasks: HashMap<TaskId, Found>,
    /// Scope and owner of each reservation.
    reserved: HashMap<TaskId, (Uuid, i64)>,
    taken: HashSet<(Uuid, Arc<str>)>,
    /// The versions of the records that the writes change.
    records: HashMap<(Arc<str>, Arc<str>), u64>,
}

/// A write and its verdict.
pub(super) type Judged = (Result<(), Refused>, Ready);

struct Found {
    scope: Uuid,
    seq: Seq,
    busy: bool,
    owner: i64,
    /// True if it accepts no more entries.
    ended: bool,
}

impl Found {
    /// The facts for the owner `me` in this scope.
    fn facts(&self, me: i64, scope: Uuid) -> TaskFacts {
        TaskFacts {
            seq: self.seq,
            in_scope: self.scope == scope,
            is_mine: self.owner == me,
            in_hand: self.busy,
            has_ended: self.ended,
        }
    }
}

impl Judge {
    /// Locks and reads the tasks of these writes.
    pub(super) async fn look(session: &PgSession, writes: &[Ready], me: i64) -> Result<Self, StoreError> {
        let ids: Vec<Cow<'_, str>> = writes.iter().map(|ready| text(ready.write.id.as_str())).collect();
        let mut tasks = HashMap::new();
        for row in session.query(LOCK, &[&ids]).await? {
            let ended = state_of(i64::from(row.get::<_, i16>(5)))?.is_terminal();
            let (scope, seq) = (row.get(1), seq(row.get(2)));
            let found = Found { scope, seq, busy: row.get(3), owner: row.get(4), ended };
            tasks.insert(plain(row.get(0)).into_owned().into(), found);
        }
        let mut reserved = HashMap::new();
        if writes.iter().any(|ready| ready.write.reserved) {
            for row in session.query(RESERVED, &[&ids]).await? {
                reserved.insert(plain(row.get(0)).into_owned().into(), (row.get(1), row.get(2)));
            }
        }
        let keyed = || writes.iter().filter_map(|ready| Some((ready, ready.write.key()?)));
        let scopes: Vec<Uuid> = keyed().map(|(ready, _)| ready.scope()).collect();
        let keys: Vec<Cow<'_, str>> = keyed().map(|(_, key)| text(&key.key)).collect();
        let mut taken = HashSet::new();
        if !keys.is_empty() {
            for row in session.query(TAKEN, &[&scopes, &keys]).await? {
                taken.insert((row.get(0), plain(row.get(1)).into()));
            }
        }
        let records = Self::records(session, writes).await?;
        Ok(Self { me, tasks, reserved, taken, records })
    }

    /// Locks and reads the records that these writes change.
    async fn records(
        session: &PgSession,
        writes: &[Ready],
    ) -> Result<HashMap<(Arc<str>, Arc<str>), u64>, StoreError> {
        let names = || writes.iter().flat_map(|ready| &ready.write.records).map(RecordChange::name);
        let kinds: Vec<Cow<'_, str>> = names().map(|(kind, _)| text(kind)).collect();
        let keys: Vec<Cow<'_, str>> = names().map(|(_, key)| text(key)).collect();
        let mut found = HashMap::new();
        if !kinds.is_empty() {
            for row in session.query(RECORD_VERSIONS, &[&kinds, &keys]).await? {
                let name = (plain(row.get(0)).into(), plain(row.get(1)).into());
                found.insert(name, row.get::<_, i64>(2) as u64);
            }
        }
        Ok(found)
    }

    /// Checks each write. If a write of several entries is refused, its entries are checked one by one: the
    /// first is refused, later ones may be accepted.
    pub(super) fn judge(mut self, writes: Vec<Ready>, ready: impl Fn(TaskWrite) -> Ready) -> Vec<Judged> {
        let mut judged = Vec::with_capacity(writes.len());
        for whole in writes {
            match self.one(&whole.write) {
                Err(_) if whole.write.is_several() => {
                    let pieces = whole.write.split().map(&ready);
                    judged.extend(pieces.map(|piece| (self.one(&piece.write), piece)));
                }
                verdict => judged.push((verdict, whole)),
            }
        }
        judged
    }

    fn one(&mut self, write: &TaskWrite) -> Result<(), Refused> {
        let scope = scope_id(&write.scope);
        let found = self.tasks.get(&write.id);
        if write.expected == Seq::ZERO {
            judge::creation(found.map(|found| found.seq))?;
        } else {
            judge::entry(found.map(|found| found.facts(self.me, scope)), write.expected, write.take)?;
        }
        let version = |change: &RecordChange| Ok(self.records.get(&owned(change)).copied().unwrap_or(0));
        judge::records(&write.records, version).unwrap_or(Err(Refused::Record))?;
        if write.reserved {
            let facts = self
                .reserved
                .get(&write.id)
                .map(|(of, owner)| ReservationFacts { in_scope: *of == scope, is_mine: *owner == self.me });
            judge::reserved_creation(facts, write.take)?;
        }
        if let Some(key) = write.key() {
            judge::key(!self.taken.insert((scope, Arc::clone(&key.key))))?;
        }
        for change in &write.records {
            let version = self.records.entry(owned(change)).or_default();
            *version = change.version_after(*version);
        }
        let busy = write.busy.unwrap_or(found.is_none_or(|found| found.busy));
        self.reserved.remove(&write.id);
        self.tasks.insert(
            write.id.clone(),
            Found { scope, seq: write.last, busy, owner: self.me, ended: write.ends() },
        );
        Ok(())
    }
}

/// The name of a record, as a key of a map.
fn owned(change: &RecordChange) -> (Arc<str>, Arc<str>) {
    let (kind, key) = change.name();
    (Arc::clone(kind), Arc::clone(key))
}
