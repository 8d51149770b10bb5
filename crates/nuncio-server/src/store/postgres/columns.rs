//! Writes as columns: one array per column and one statement per table, for any number of tasks.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    future::Future,
    pin::Pin,
};

use tokio_postgres::{Error, types::ToSql};
use uuid::Uuid;

use super::{
    judge::free_for,
    link::PgSession,
    names::{scope_id, text},
    read::number,
};
use crate::store::{
    Expect, RecordChange, StoreError,
    codec::{Body, Drops, Snapshot, TaskWrite, state_code},
};

const CREATE: &str = "INSERT INTO tasks (id, scope, context_id, state, status_at, seq, busy, pending,
    snapshot_seq, snapshot, snapshot_refs, artifacts, artifacts_refs, owner, former)
  SELECT n.*, $14::bigint, 0 FROM unnest($1::text[], $2::uuid[], $3::text[], $4::smallint[], $5::bigint[],
    $6::bigint[], $7::boolean[], $8::integer[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[],
    $13::bytea[]) n";

/// Updates tasks, and counters by their former states. Fails with a division by zero unless every task
/// exists, is at its expected entry, is free for this owner, and has not ended. The nested loop locks tasks
/// in the order of the array.
const UPDATE: &str = concat!(
    "WITH done AS (
      UPDATE tasks t SET seq = n.seq, owner = $13, former = t.state, state = coalesce(n.state, t.state),
        status_at = coalesce(n.status_at, t.status_at), busy = coalesce(n.busy, t.busy),
        pending = CASE WHEN n.drops THEN 0 ELSE t.pending END,
        snapshot_seq = coalesce(n.snapshot_seq, t.snapshot_seq),
        snapshot = CASE WHEN n.snapshot_seq IS NULL THEN t.snapshot ELSE n.snapshot END,
        snapshot_refs = CASE WHEN n.snapshot_seq IS NULL THEN t.snapshot_refs ELSE n.snapshot_refs END,
        artifacts = CASE WHEN n.snapshot_seq IS NULL THEN t.artifacts ELSE n.artifacts END,
        artifacts_refs = CASE WHEN n.snapshot_seq IS NULL THEN t.artifacts_refs ELSE n.artifacts_refs END
      FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[],
          $7::boolean[], $8::boolean[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[], $14::bytea[],
          $15::boolean[])
        n(id, scope, expected, seq, state, status_at, busy, drops, snapshot_seq, snapshot, snapshot_refs,
          artifacts, artifacts_refs, take)
      WHERE t.id = n.id AND t.scope = n.scope AND t.seq = n.expected AND t.state NOT IN (3, 4, 5, 7)
        AND (",
    free_for!("t", "$13"),
    " OR n.take)
      RETURNING t.scope, t.state, t.former),
    counted AS (
      INSERT INTO counters SELECT scope, state, $13, sum(n) FROM (
          SELECT scope, state, 1 AS n FROM done WHERE state <> former
          UNION ALL SELECT scope, former, -1 FROM done WHERE state <> former) moved
        GROUP BY scope, state HAVING sum(n) <> 0 ORDER BY scope, state
      ON CONFLICT (scope, state, owner) DO UPDATE SET n = counters.n + excluded.n)
  SELECT 1 / (count(*) = $16::bigint)::int FROM done"
);

const ANSWERS: &str = "INSERT INTO answers (scope, key, digest, at, task)
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::bigint[], $5::text[])";

const SEGMENTS: &str = "INSERT INTO segments (task, last_seq, first_seq, body, refs)
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])";

const BLOBS: &str = "INSERT INTO blobs (task, digest, body)
  SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) ON CONFLICT DO NOTHING";

const MEMOS: &str = "INSERT INTO memos (task, body) SELECT * FROM unnest($1::text[], $2::bytea[])
  ON CONFLICT (task) DO UPDATE SET body = excluded.body";

const LINKS: &str =
    "INSERT INTO links (child, parent) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

const DROP_TURNS: &str = "DELETE FROM turns t USING unnest($1::text[], $2::boolean[]) AS n(task, all_of_them)
  WHERE t.task = n.task AND (t.begun OR n.all_of_them)";

const TURNS: &str = "INSERT INTO turns (task, id, begun, body)
  SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bytea[])
  ON CONFLICT (task, id) DO UPDATE SET begun = excluded.begun, body = excluded.body";

const RECOUNT_TURNS: &str = "UPDATE tasks t SET pending =
    (SELECT count(*) FROM turns WHERE turns.task = t.id AND NOT turns.begun)
  FROM unnest($1::text[]) AS n(id) WHERE t.id = n.id";

const COUNT: &str = "INSERT INTO counters (scope, state, n, owner)
  SELECT n.*, $4::bigint FROM unnest($1::uuid[], $2::smallint[], $3::bigint[]) n
  ON CONFLICT (scope, state, owner) DO UPDATE SET n = counters.n + excluded.n";

/// Inserts scopes that are not in the database yet.
const SCOPES: &str = "INSERT INTO scopes (id, agent, tenant, owner)
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING";

const RECORDS: &str = "INSERT INTO records (kind, key, version, at, value)
  SELECT kind, key, 1, at, value
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS n(kind, key, at, value) ORDER BY kind, key
  ON CONFLICT (kind, key) DO UPDATE
    SET version = records.version + 1, at = excluded.at, value = excluded.value";

const INSERT_RECORDS: &str = "INSERT INTO records (kind, key, version, at, value)
  SELECT kind, key, 1, at, value
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS n(kind, key, at, value) ORDER BY kind, key";

/// Replaces records of known versions. Fails with a division by zero unless all of them are there.
const UPDATE_RECORDS: &str = "WITH done AS (
      UPDATE records r SET version = r.version + 1, at = n.at, value = n.value
      FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[]) AS n(kind, key, at, value, version)
      WHERE r.kind = n.kind AND r.key = n.key AND r.version = n.version RETURNING 1)
  SELECT 1 / (count(*) = $6::bigint)::int FROM done";

/// Deletes records of known versions. Fails with a division by zero unless all of them are there.
const DELETE_RECORDS: &str = "WITH done AS (
      DELETE FROM records r USING unnest($1::text[], $2::text[], $3::bigint[]) AS n(kind, key, version)
      WHERE r.kind = n.kind AND r.key = n.key AND r.version = n.version RETURNING 1)
  SELECT 1 / (count(*) = $4::bigint)::int FROM done";

pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement with its parameters.
pub(super) struct Step<'a> {
    pub(super) sql: &'static str,
    pub(super) params: Vec<Param<'a>>,
}

macro_rules! step {
    ($sql:expr $(, $param:expr)+ $(,)?) => {
        Step { sql: $sql, params: vec![$(Box::new($param) as Param<'_>),+] }
    };
}
pub(super) use step;

/// A write, and its snapshot if one is due.
pub(super) struct Ready {
    pub(super) write: TaskWrite,
    pub(super) snapshot: Option<Snapshot>,
}

impl Ready {
    pub(super) fn id(&self) -> Cow<'_, str> {
        text(self.write.id.as_str())
    }

    pub(super) fn scope(&self) -> Uuid {
        scope_id(&self.write.scope)
    }

    pub(super) fn creates(&self) -> bool {
        self.write.expected.0 == 0
    }

    /// The approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let body = |body: &Body| body.json.len() + body.refs.len();
        let segments = self.write.segments.iter().map(|segment| body(&segment.body));
        let blobs = self.write.blobs.iter().map(|blob| blob.bytes.len());
        let memo = self.write.memo.iter().map(bytes::Bytes::len);
        let snapshot =
            self.snapshot.iter().flat_map(|s| std::iter::once(&s.task).chain(&s.artifacts)).map(body);
        segments.chain(blobs).chain(memo).chain(snapshot).sum()
    }

    fn snapshot(&self, part: impl Fn(&Snapshot) -> Option<&Body>) -> Option<&[u8]> {
        self.snapshot.as_ref().and_then(part).map(|body| &body.json[..])
    }

    fn refs(&self, part: impl Fn(&Snapshot) -> Option<&Body>) -> Option<&[u8]> {
        self.snapshot.as_ref().and_then(part).and_then(refs)
    }
}

fn refs(body: &Body) -> Option<&[u8]> {
    (!body.refs.is_empty()).then_some(&body.refs[..])
}

/// The statements that write the tasks of one group, in the locking order of all writers. `writes` are sorted
/// by id.
pub(super) fn steps<'a>(writes: &[&'a Ready], me: i64) -> Vec<Step<'a>> {
    let (created, changed): (Vec<&Ready>, Vec<&Ready>) = writes.iter().partition(|write| write.creates());
    let mut steps = Vec::new();
    if !created.is_empty() {
        steps.push(create(&created, me));
    }
    if !changed.is_empty() {
        steps.push(change(&changed, me));
    }
    steps.push(segments(writes));
    blobs(writes, &mut steps);
    memos(writes, &mut steps);
    links(writes, &mut steps);
    turns(&changed, &created, &mut steps);
    if !created.is_empty() {
        steps.push(count(&created, me));
    }
    steps
}

fn create<'a>(writes: &[&'a Ready], me: i64) -> Step<'a> {
    let each = || writes.iter();
    step!(
        CREATE,
        each().map(|w| w.id()).collect::<Vec<_>>(),
        each().map(|w| w.scope()).collect::<Vec<_>>(),
        each().map(|w| text(w.write.context_id.as_str())).collect::<Vec<_>>(),
        each().map(|w| w.state()).collect::<Vec<_>>(),
        each().map(|w| w.write.status.map_or(0, |(_, at)| at.as_millis())).collect::<Vec<_>>(),
        each().map(|w| number(w.write.last)).collect::<Vec<_>>(),
        each().map(|w| w.write.busy.unwrap_or(true)).collect::<Vec<_>>(),
        each().map(|w| w.write.turns.iter().filter(|turn| !turn.begun).count() as i32).collect::<Vec<_>>(),
        each().map(|w| w.snapshot.as_ref().map_or(0, |snapshot| number(snapshot.seq))).collect::<Vec<_>>(),
        each().map(|w| w.snapshot(|s| Some(&s.task))).collect::<Vec<_>>(),
        each().map(|w| w.refs(|s| Some(&s.task))).collect::<Vec<_>>(),
        each().map(|w| w.snapshot(|s| s.artifacts.as_ref())).collect::<Vec<_>>(),
        each().map(|w| w.refs(|s| s.artifacts.as_ref())).collect::<Vec<_>>(),
        me,
    )
}

impl Ready {
    /// The state after the write; 0 for a task that is created without one.
    fn state(&self) -> i16 {
        self.write.status.map_or(0, |(state, _)| state_code(state))
    }
}

fn change<'a>(writes: &[&'a Ready], me: i64) -> Step<'a> {
    let each = || writes.iter();
    step!(
        UPDATE,
        each().map(|w| w.id()).collect::<Vec<_>>(),
        each().map(|w| w.scope()).collect::<Vec<_>>(),
        each().map(|w| number(w.write.expected)).collect::<Vec<_>>(),
        each().map(|w| number(w.write.last)).collect::<Vec<_>>(),
        each().map(|w| w.write.status.map(|(state, _)| state_code(state))).collect::<Vec<_>>(),
        each().map(|w| w.write.status.map(|(_, at)| at.as_millis())).collect::<Vec<_>>(),
        each().map(|w| w.write.busy).collect::<Vec<_>>(),
        each().map(|w| w.write.drops == Drops::All).collect::<Vec<_>>(),
        each().map(|w| w.snapshot.as_ref().map(|snapshot| number(snapshot.seq))).collect::<Vec<_>>(),
        each().map(|w| w.snapshot(|s| Some(&s.task))).collect::<Vec<_>>(),
        each().map(|w| w.refs(|s| Some(&s.task))).collect::<Vec<_>>(),
        each().map(|w| w.snapshot(|s| s.artifacts.as_ref())).collect::<Vec<_>>(),
        me,
        each().map(|w| w.refs(|s| s.artifacts.as_ref())).collect::<Vec<_>>(),
        each().map(|w| w.write.take).collect::<Vec<_>>(),
        writes.len() as i64,
    )
}

fn segments<'a>(writes: &[&'a Ready]) -> Step<'a> {
    let each = || writes.iter().flat_map(|w| w.write.segments.iter().map(|segment| (w.id(), segment)));
    step!(
        SEGMENTS,
        each().map(|(id, _)| id).collect::<Vec<_>>(),
        each().map(|(_, segment)| number(segment.last)).collect::<Vec<_>>(),
        each().map(|(_, segment)| number(segment.first)).collect::<Vec<_>>(),
        each().map(|(_, segment)| &segment.body.json[..]).collect::<Vec<_>>(),
        each().map(|(_, segment)| refs(&segment.body)).collect::<Vec<_>>(),
    )
}

fn blobs<'a>(writes: &[&'a Ready], steps: &mut Vec<Step<'a>>) {
    let each = || writes.iter().flat_map(|w| w.write.blobs.iter().map(|blob| (w.id(), blob)));
    if each().next().is_some() {
        steps.push(step!(
            BLOBS,
            each().map(|(id, _)| id).collect::<Vec<_>>(),
            each().map(|(_, blob)| &blob.digest.0[..]).collect::<Vec<_>>(),
            each().map(|(_, blob)| &blob.bytes[..]).collect::<Vec<_>>(),
        ));
    }
}

fn memos<'a>(writes: &[&'a Ready], steps: &mut Vec<Step<'a>>) {
    let each = || writes.iter().filter_map(|w| Some((w.id(), w.write.memo.as_ref()?)));
    if each().next().is_some() {
        steps.push(step!(
            MEMOS,
            each().map(|(id, _)| id).collect::<Vec<_>>(),
            each().map(|(_, memo)| &memo[..]).collect::<Vec<_>>(),
        ));
    }
}

fn links<'a>(writes: &[&'a Ready], steps: &mut Vec<Step<'a>>) {
    let each = || writes.iter().flat_map(|w| w.write.parents.iter().map(|parent| (w.id(), parent)));
    if each().next().is_some() {
        steps.push(step!(
            LINKS,
            each().map(|(id, _)| id).collect::<Vec<_>>(),
            each().map(|(_, parent)| text(parent.as_str())).collect::<Vec<_>>(),
        ));
    }
}

/// Deletes turns, stores new ones, and counts those that wait.
fn turns<'a>(changed: &[&'a Ready], created: &[&'a Ready], steps: &mut Vec<Step<'a>>) {
    let dropping = || changed.iter().filter(|w| w.write.drops != Drops::Nothing);
    if dropping().next().is_some() {
        steps.push(step!(
            DROP_TURNS,
            dropping().map(|w| w.id()).collect::<Vec<_>>(),
            dropping().map(|w| w.write.drops == Drops::All).collect::<Vec<_>>(),
        ));
    }
    let each = || {
        let writes = changed.iter().chain(created);
        writes.flat_map(|w| w.write.turns.iter().map(|turn| (w.id(), turn)))
    };
    if each().next().is_none() {
        return;
    }
    steps.push(step!(
        TURNS,
        each().map(|(id, _)| id).collect::<Vec<_>>(),
        each().map(|(_, turn)| text(&turn.id)).collect::<Vec<_>>(),
        each().map(|(_, turn)| turn.begun).collect::<Vec<_>>(),
        each().map(|(_, turn)| &turn.body[..]).collect::<Vec<_>>(),
    ));
    let adding = changed.iter().filter(|w| !w.write.turns.is_empty());
    let adding: Vec<Cow<'_, str>> = adding.map(|w| w.id()).collect();
    if !adding.is_empty() {
        steps.push(step!(RECOUNT_TURNS, adding));
    }
}

fn count<'a>(created: &[&'a Ready], me: i64) -> Step<'a> {
    let mut counts: BTreeMap<(Uuid, i16), i64> = BTreeMap::new();
    for write in created {
        *counts.entry((write.scope(), write.state())).or_default() += 1;
    }
    step!(
        COUNT,
        counts.keys().map(|(scope, _)| *scope).collect::<Vec<_>>(),
        counts.keys().map(|(_, state)| *state).collect::<Vec<_>>(),
        counts.into_values().collect::<Vec<_>>(),
        me,
    )
}

/// Assigns the keys of the writes to their tasks; fails if one is taken.
pub(super) fn answers<'a>(writes: &[&'a Ready]) -> Option<Step<'a>> {
    let mut keyed: Vec<_> = writes.iter().filter_map(|w| Some((*w, w.write.key()?))).collect();
    keyed.sort_by_cached_key(|(w, key)| (w.scope(), key.key.clone()));
    let each = || keyed.iter();
    (!keyed.is_empty()).then(|| {
        step!(
            ANSWERS,
            each().map(|(w, _)| w.scope()).collect::<Vec<_>>(),
            each().map(|(_, key)| text(&key.key)).collect::<Vec<_>>(),
            each().map(|(_, key)| &key.digest[..]).collect::<Vec<_>>(),
            each().map(|(w, _)| w.write.at.as_millis()).collect::<Vec<_>>(),
            each().map(|(w, _)| w.id()).collect::<Vec<_>>(),
        )
    })
}

/// Writes the records of the writes in place of those that are there; of several of one key the last.
/// The statements that change records: those of one statement are different records, in the order of their names.
pub(super) fn records<'a>(writes: &[&'a Ready]) -> Vec<Step<'a>> {
    let mut rounds: Vec<BTreeMap<(&str, &str), &'a RecordChange>> = Vec::new();
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    for change in writes.iter().flat_map(|w| &w.write.records) {
        let (kind, key) = change.name();
        let round = seen.entry((kind, key)).or_default();
        if *round == rounds.len() {
            rounds.push(BTreeMap::new());
        }
        rounds[*round].insert((kind, key), change);
        *round += 1;
    }
    rounds.iter().flat_map(record_round).collect()
}

/// The statements for changes of different records.
fn record_round<'a>(changes: &BTreeMap<(&str, &str), &'a RecordChange>) -> Vec<Step<'a>> {
    let (mut upserts, mut inserts, mut updates, mut deletes) = (vec![], vec![], vec![], vec![]);
    for change in changes.values() {
        match change {
            RecordChange::Delete { kind, key, version } => deletes.push((kind, key, *version as i64)),
            RecordChange::Put(put) => match put.expect {
                Expect::Anything => upserts.push(put),
                Expect::Absent => inserts.push(put),
                Expect::Version(version) => updates.push((put, version as i64)),
            },
        }
    }
    let mut steps = Vec::new();
    for (sql, puts) in [(RECORDS, upserts), (INSERT_RECORDS, inserts)] {
        if !puts.is_empty() {
            steps.push(step!(
                sql,
                puts.iter().map(|put| text(&put.kind)).collect::<Vec<_>>(),
                puts.iter().map(|put| text(&put.key)).collect::<Vec<_>>(),
                puts.iter().map(|put| put.at.as_millis()).collect::<Vec<_>>(),
                puts.iter().map(|put| &put.value[..]).collect::<Vec<_>>(),
            ));
        }
    }
    if !updates.is_empty() {
        steps.push(step!(
            UPDATE_RECORDS,
            updates.iter().map(|(put, _)| text(&put.kind)).collect::<Vec<_>>(),
            updates.iter().map(|(put, _)| text(&put.key)).collect::<Vec<_>>(),
            updates.iter().map(|(put, _)| put.at.as_millis()).collect::<Vec<_>>(),
            updates.iter().map(|(put, _)| &put.value[..]).collect::<Vec<_>>(),
            updates.iter().map(|(_, version)| *version).collect::<Vec<_>>(),
            updates.len() as i64,
        ));
    }
    if !deletes.is_empty() {
        steps.push(step!(
            DELETE_RECORDS,
            deletes.iter().map(|(kind, ..)| text(kind)).collect::<Vec<_>>(),
            deletes.iter().map(|(_, key, _)| text(key)).collect::<Vec<_>>(),
            deletes.iter().map(|(.., version)| *version).collect::<Vec<_>>(),
            deletes.len() as i64,
        ));
    }
    steps
}

/// Inserts scopes; existing ones stay.
pub(super) fn name_scopes<'a>(scopes: &BTreeMap<Uuid, &'a crate::store::Scope>) -> Step<'a> {
    step!(
        SCOPES,
        scopes.keys().copied().collect::<Vec<_>>(),
        scopes.values().map(|scope| text(&scope.agent)).collect::<Vec<_>>(),
        scopes.values().map(|scope| scope.tenant.as_deref().map(text)).collect::<Vec<_>>(),
        scopes.values().map(|scope| scope.owner.as_deref().map(text)).collect::<Vec<_>>(),
    )
}

/// Sends all statements at once and waits for all responses; returns the first error. `begin` and `end` are
/// statements without parameters, such as `BEGIN` and `COMMIT`.
pub(super) async fn pipeline(
    session: &PgSession,
    begin: Option<&'static str>,
    steps: &[Step<'_>],
    end: Option<&'static str>,
) -> Result<(), StoreError> {
    let mut prepared = Vec::with_capacity(steps.len());
    for step in steps {
        prepared.push(session.statement(step.sql).await?);
    }
    let begin = match begin {
        Some(sql) => Some(session.statement(sql).await?),
        None => None,
    };
    let end = match end {
        Some(sql) => Some(session.statement(sql).await?),
        None => None,
    };
    type Sent<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>;
    let client = &session.client;
    let mut sent: Vec<Sent<'_>> = Vec::with_capacity(steps.len() + 2);
    sent.extend(begin.as_ref().map(|statement| Box::pin(client.execute(statement, &[])) as Sent<'_>));
    for (step, statement) in steps.iter().zip(&prepared) {
        let params = step.params.iter().map(|param| &**param as &(dyn ToSql + Sync));
        let params: Vec<&(dyn ToSql + Sync)> = params.collect();
        sent.push(Box::pin(async move { client.execute(statement, &params).await }));
    }
    sent.extend(end.as_ref().map(|statement| Box::pin(client.execute(statement, &[])) as Sent<'_>));
    session.wait(in_order(sent)).await
}

/// Polls futures in order, so that their statements are sent in this order; the first error wins.
async fn in_order<F: Future<Output = Result<u64, Error>> + Unpin>(futures: Vec<F>) -> Result<(), Error> {
    let mut waiting: Vec<Option<F>> = futures.into_iter().map(Some).collect();
    let mut first_error: Option<(usize, Error)> = None;
    std::future::poll_fn(|cx| {
        let mut left = false;
        for (place, slot) in waiting.iter_mut().enumerate() {
            let Some(future) = slot else { continue };
            match Pin::new(future).poll(cx) {
                std::task::Poll::Pending => left = true,
                std::task::Poll::Ready(result) => {
                    *slot = None;
                    if let Err(error) = result
                        && first_error.as_ref().is_none_or(|(earlier, _)| place < *earlier)
                    {
                        first_error = Some((place, error));
                    }
                }
            }
        }
        if left { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    first_error.map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::TaskState;

    use super::{UPDATE, state_code};

    #[test]
    fn the_states_of_a_task_at_its_end_are_those_of_the_protocol() {
        let ended = TaskState::ALL.iter().filter(|state| state.is_terminal());
        let mut ended: Vec<_> = ended.map(|state| state_code(*state)).collect();
        ended.sort_unstable();
        let ended: Vec<_> = ended.iter().map(ToString::to_string).collect();
        assert!(UPDATE.contains(&format!("t.state NOT IN ({})", ended.join(", "))));
    }
}
