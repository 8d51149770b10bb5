//! Reads of single tasks: a finished one is one row, others are folded from their snapshot and later entries.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use nuncio_protocol::{Seq, Task, TaskId};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    link::{Link, Params},
    names::{plain, scope_id, text},
    owner, reservations,
};
use crate::store::{
    IdempotentAnswer, Links, MAX_CHILDREN, Moved, Outcome, Projection, Scope, StoreError, StoredEvent,
    StoredTask,
    codec::{Blobs, Digest, Draft, damaged, decode_segment, digests},
};

/// Selects the columns of [`Told`]: the task's row and the segments after its snapshot, then `$more`.
macro_rules! told {
    ($($more:literal),+) => {
        concat!(
            "SELECT t.id, t.seq, t.busy OR t.pending > 0, t.owner, t.snapshot_seq, t.snapshot, t.snapshot_refs, ",
            "t.artifacts, t.artifacts_refs, CASE WHEN t.seq > t.snapshot_seq THEN ",
            "ARRAY(SELECT s.body FROM segments s WHERE s.task = t.id AND s.last_seq > t.snapshot_seq ",
            "ORDER BY s.last_seq) END, CASE WHEN t.seq > t.snapshot_seq THEN ",
            "ARRAY(SELECT s.refs FROM segments s WHERE s.task = t.id AND s.last_seq > t.snapshot_seq ",
            "ORDER BY s.last_seq) END",
            $($more),+
        )
    };
}

/// Webhooks and memo are looked up by index; columns for them would need updates.
const TASK: &str = told!(
    ", EXISTS (SELECT FROM webhooks w WHERE w.task = t.id), (SELECT m.body FROM memos m WHERE m.task = t.id) ",
    "FROM tasks t WHERE t.id = $1 AND t.scope = $2"
);

const EVENTS: &str = "SELECT s.body, s.refs FROM tasks t JOIN segments s ON s.task = t.id
  WHERE t.id = $1 AND t.scope = $2 AND s.last_seq > $3 AND s.first_seq <= $4 ORDER BY s.last_seq";

const MOVED: &str = "SELECT k.place, t.seq, t.busy OR t.pending > 0, t.owner <> $3
  FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS k(id, seq, place)
  JOIN tasks t ON t.id = k.id WHERE t.seq > k.seq";

const BLOBS: &str = "SELECT b.task, b.digest, b.body
  FROM unnest($1::text[], $2::bytea[]) AS n(task, digest) JOIN blobs b USING (task, digest)";

const BLOB_BYTES: &str = "SELECT b.task, sum(octet_length(b.body))::bigint
  FROM unnest($1::text[], $2::bytea[]) AS n(task, digest) JOIN blobs b USING (task, digest) GROUP BY b.task";

const PARENTS: &str = "SELECT l.parent FROM links l
  JOIN tasks child ON child.id = l.child JOIN tasks parent ON parent.id = l.parent
  WHERE l.child = $1 AND child.scope = $2 AND parent.scope = $2 ORDER BY l.parent";

const CHILDREN: &str = "SELECT l.child FROM links l
  JOIN tasks parent ON parent.id = l.parent JOIN tasks child ON child.id = l.child
  WHERE l.parent = $1 AND parent.scope = $2 AND child.scope = $2 ORDER BY l.child LIMIT $3";

/// Also reads the reservation, and whether its owner is alive.
const ANSWER: &str = "SELECT a.digest, a.task, a.reply, r.id, r.key, a.digest, r.at, r.body, EXISTS (
      SELECT FROM owners o WHERE o.epoch = r.owner AND o.beat >= now() - $3::bigint * interval '1 millisecond')
  FROM answers a LEFT JOIN reservations r ON r.id = a.reserved WHERE a.scope = $1 AND a.key = $2";

/// A row of [`told`].
pub(super) struct Told(pub(super) Row);

impl Told {
    /// The id as encoded in the database.
    pub(super) fn id(&self) -> &str {
        self.0.get(0)
    }

    fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column)
    }

    fn refs(&self, column: usize) -> &[u8] {
        self.bytes(column).unwrap_or_default()
    }

    fn segments(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let bodies: Option<Vec<&[u8]>> = self.0.get(9);
        let refs: Option<Vec<Option<&[u8]>>> = self.0.get(10);
        let refs = refs.unwrap_or_default().into_iter().map(Option::unwrap_or_default);
        bodies.unwrap_or_default().into_iter().zip(refs)
    }

    /// The task with this projection, without its large content.
    pub(super) fn draft(&self, shown: Projection) -> Result<Draft, StoreError> {
        let mut draft = Draft::new(shown);
        if let Some(json) = self.bytes(5) {
            draft.snapshot(json, self.refs(6))?;
        }
        if let Some(json) = self.bytes(7) {
            draft.artifacts(json, self.refs(8))?;
        }
        let snapshot_seq = seq(self.0.get(4));
        for (body, refs) in self.segments() {
            draft.segment(body, refs, snapshot_seq)?;
        }
        draft.end();
        Ok(draft)
    }

    /// Makes the result of a [`TASK`] row.
    fn stored(&self, me: i64, task: Task) -> StoredTask {
        let in_hand = self.0.get(2);
        let held = in_hand && self.0.get::<_, i64>(3) != me;
        let memo = self.0.get::<_, Option<Vec<u8>>>(12).map(Bytes::from);
        StoredTask { task, seq: seq(self.0.get(1)), held, in_hand, pushes: self.0.get(11), memo }
    }
}

pub(super) async fn changed_since(
    store: &PostgresStore,
    known: &[(TaskId, Seq)],
) -> Result<Vec<Moved>, StoreError> {
    let (ids, seqs): (Vec<_>, Vec<i64>) =
        known.iter().map(|(id, seq)| (text(id.as_str()), seq.0 as i64)).unzip();
    let rows = store.reads().query(MOVED, &[&ids, &seqs, &store.epoch]).await?;
    let moved = |row: &Row| {
        let (id, _) = known.get(usize::try_from(row.get::<_, i64>(0) - 1).ok()?)?;
        let in_hand = row.get(2);
        Some(Moved { id: id.clone(), seq: seq(row.get(1)), held: in_hand && row.get(3), in_hand })
    };
    Ok(rows.iter().filter_map(moved).collect())
}

/// Decodes a sequence number.
pub(super) fn seq(number: i64) -> Seq {
    Seq(u64::try_from(number).unwrap_or_default())
}

/// Encodes a sequence number; a value that does not fit is beyond every log.
pub(super) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

/// Large content to load: task and digest of each piece.
pub(super) struct Wanted<'a> {
    tasks: Vec<&'a str>,
    digests: Vec<Vec<u8>>,
}

impl<'a> FromIterator<(&'a str, Digest)> for Wanted<'a> {
    /// Removes duplicates.
    fn from_iter<I: IntoIterator<Item = (&'a str, Digest)>>(wanted: I) -> Self {
        let wanted: HashSet<(&str, Digest)> = wanted.into_iter().collect();
        let (tasks, digests) = wanted.into_iter().map(|(task, digest)| (task, digest.0.to_vec())).unzip();
        Self { tasks, digests }
    }
}

/// The size in bytes of the content, by task.
pub(super) async fn blob_bytes(
    link: &Link,
    wanted: &Wanted<'_>,
) -> Result<HashMap<String, usize>, StoreError> {
    if wanted.tasks.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = link.query(BLOB_BYTES, &[&wanted.tasks, &wanted.digests]).await?;
    let bytes = |row: &Row| (row.get(0), usize::try_from(row.get::<_, i64>(1)).unwrap_or_default());
    Ok(rows.iter().map(bytes).collect())
}

/// Loads the content, by task: the same digest of another task is a different row.
pub(super) async fn blobs(link: &Link, wanted: &Wanted<'_>) -> Result<HashMap<String, Blobs>, StoreError> {
    let mut found: HashMap<String, Blobs> = HashMap::new();
    if wanted.tasks.is_empty() {
        return Ok(found);
    }
    for row in link.query(BLOBS, &[&wanted.tasks, &wanted.digests]).await? {
        let digest = <[u8; 32]>::try_from(row.get::<_, &[u8]>(1)).map_err(damaged)?;
        let body: Vec<u8> = row.get(2);
        found.entry(row.get(0)).or_default().insert(Digest(digest), body.into());
    }
    Ok(found)
}

pub(super) async fn task(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
) -> Result<Option<StoredTask>, StoreError> {
    let found = find(store, scope, id, Projection::WHOLE).await?;
    Ok(found.map(|(told, task)| told.stored(store.epoch, task)))
}

/// Reads the task with this projection.
pub(super) async fn shown(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
    shown: Projection,
) -> Result<Option<Task>, StoreError> {
    Ok(find(store, scope, id, shown).await?.map(|(_, task)| task))
}

async fn find(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
    shown: Projection,
) -> Result<Option<(Told, Task)>, StoreError> {
    let (id, scope) = (text(id.as_str()), scope_id(scope));
    let Some(row) = store.reads().query_opt(TASK, &[&id, &scope]).await? else { return Ok(None) };
    let told = Told(row);
    let draft = told.draft(shown)?;
    let wanted = draft.wants().map(|digest| (&*id, digest)).collect();
    let blobs = blobs(store.reads(), &wanted).await?.remove(&*id).unwrap_or_default();
    match draft.finish(&blobs) {
        Ok(task) => Ok(Some((told, task))),
        // The content is missing: the task may have been deleted between the two reads.
        Err(error) => match store.reads().query_opt(TASK, &[&id, &scope]).await? {
            Some(_) => Err(error),
            None => Ok(None),
        },
    }
}

pub(super) async fn events(
    store: &PostgresStore,
    scope: &Scope,
    id: &TaskId,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    let (id, scope) = (text(id.as_str()), scope_id(scope));
    let last = Seq(after.0.saturating_add(limit as u64));
    if last == after {
        return Ok(Vec::new());
    }
    let rows = store.reads().query(EVENTS, &[&id, &scope, &number(after), &number(last)]).await?;
    let refs = |row: &Row| row.get::<_, Option<Vec<u8>>>(1).unwrap_or_default();
    let wanted: Vec<Digest> = rows.iter().flat_map(|row| digests(&refs(row)).collect::<Vec<_>>()).collect();
    let wanted = wanted.into_iter().map(|digest| (&*id, digest)).collect();
    let blobs = blobs(store.reads(), &wanted).await?;
    let blobs = blobs.into_values().next().unwrap_or_default();
    let mut events = Vec::new();
    for row in rows {
        let entries = decode_segment(row.get(0), &refs(&row), &blobs)?;
        events.extend(entries.into_iter().filter(|entry| entry.seq > after && entry.seq <= last));
    }
    Ok(events)
}

pub(super) async fn links(store: &PostgresStore, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
    let (id, scope, limit) = (text(id.as_str()), scope_id(scope), MAX_CHILDREN as i64);
    let params: Params<'_> = &[&id, &scope, &limit];
    let reads = store.reads();
    let (parents, children) =
        tokio::try_join!(reads.query(PARENTS, &params[..2]), reads.query(CHILDREN, params))?;
    let ids = |rows: Vec<Row>| rows.iter().map(|row| plain(row.get(0)).into_owned().into()).collect();
    Ok(Links { parents: ids(parents), children: ids(children) })
}

pub(super) async fn idempotent_outcome(
    store: &PostgresStore,
    scope: &Scope,
    key: &str,
) -> Result<Option<IdempotentAnswer>, StoreError> {
    let params: Params<'_> = &[&scope_id(scope), &text(key), &owner::millis(store.lapse)];
    let Some(row) = store.reads().query_opt(ANSWER, params).await? else { return Ok(None) };
    let digest = row.get::<_, &[u8]>(0).try_into().map_err(damaged)?;
    let outcome = match (row.get::<_, Option<&str>>(1), row.get::<_, Option<&[u8]>>(2)) {
        (Some(id), _) => Outcome::Task(plain(id).into_owned().into()),
        (None, Some(reply)) => Outcome::Reply(serde_json::from_slice(reply).map_err(damaged)?),
        (None, None) if row.get::<_, Option<&str>>(3).is_some() => {
            let reservation = reservations::read(&row, 3, Arc::new(scope.clone()))?;
            Outcome::Reserved { reservation: Box::new(reservation), abandoned: !row.get::<_, bool>(8) }
        }
        (None, None) => return Err(damaged("an answer has no outcome")),
    };
    Ok(Some(IdempotentAnswer { digest, outcome }))
}
