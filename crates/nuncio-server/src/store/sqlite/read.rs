//! Reads of single tasks, their entries and links, and the answers of keys.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Message, Seq, Task, TaskId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    reservations,
    schema::{LAST_SEQ, log_rowid},
};
use crate::store::{
    IdempotentAnswer, Links, MAX_CHILDREN, Outcome, Projection, Scope, StoreError, StoredEvent, StoredTask,
    codec::{self, Blobs, Draft, damaged},
};

/// The columns of [`draft`], with artifacts or without; then the column that says whether there are webhooks.
pub(super) const WHOLE: &str = "tasks.key, seq, busy + pending > 0, tasks.owner, snapshot_seq, snapshot, snapshot_refs, artifacts, artifacts_refs";
pub(super) const LEAN: &str =
    "tasks.key, seq, busy + pending > 0, tasks.owner, snapshot_seq, snapshot, snapshot_refs, NULL, NULL";
/// The columns that [`measure`] reads, with artifacts or without.
pub(super) const MEASURED_WHOLE: &str =
    "tasks.key, seq, snapshot_seq, coalesce(length(snapshot), 0) + coalesce(length(artifacts), 0)";
pub(super) const MEASURED_LEAN: &str = "tasks.key, seq, snapshot_seq, coalesce(length(snapshot), 0)";
const PUSHES: usize = 9;
/// The next column, in queries for one task.
const MEMO: usize = 10;

/// The task of a row: its snapshot and the later entries of its log.
fn assemble(db: &Connection, me: i64, row: &Row<'_>) -> Result<StoredTask, StoreError> {
    let (seq, in_hand, owner) = (row.get::<_, i64>(1)? as u64, row.get::<_, bool>(2)?, row.get::<_, i64>(3)?);
    let task = draft(db, row, Projection::WHOLE)?.finish(db)?;
    let pushes = row.get(PUSHES)?;
    Ok(StoredTask { task, seq: Seq(seq), held: in_hand && owner != me, in_hand, pushes, memo: None })
}

/// A task under construction, and its key.
pub(super) struct Drafted(i64, Draft);

/// The task of a row with this projection, without its large content.
pub(super) fn draft(db: &Connection, row: &Row<'_>, shown: Projection) -> Result<Drafted, StoreError> {
    let (key, seq, at): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(4)?);
    let (seq, at) = (seq as u64, at as u64);
    let mut draft = Draft::new(shown);
    if let Some(json) = bytes(row, 5)? {
        draft.snapshot(json, bytes(row, 6)?.unwrap_or_default())?;
    }
    if let Some(json) = bytes(row, 7)? {
        draft.artifacts(json, bytes(row, 8)?.unwrap_or_default())?;
    }
    if at < seq {
        let mut log =
            db.prepare_cached("SELECT body, refs FROM log WHERE place > ?1 AND place <= ?2 ORDER BY place")?;
        let mut segments = log.query([log_rowid(key, at), log_rowid(key, seq)])?;
        while let Some(segment) = segments.next()? {
            let (json, refs) = (bytes(segment, 0)?, bytes(segment, 1)?);
            draft.segment(json.unwrap_or_default(), refs.unwrap_or_default(), Seq(at))?;
        }
    }
    draft.end();
    Ok(Drafted(key, draft))
}

/// The key of a row, and how many bytes are read for its task besides large content.
pub(super) fn measure(db: &Connection, row: &Row<'_>) -> Result<(i64, usize), StoreError> {
    let (key, seq, at, mut bytes): (i64, i64, i64, i64) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    if at < seq {
        let log = "SELECT coalesce(sum(length(body)), 0) FROM log WHERE place > ?1 AND place <= ?2";
        let places = [log_rowid(key, at as u64), log_rowid(key, seq as u64)];
        bytes += db.prepare_cached(log)?.query_row(places, |row| row.get::<_, i64>(0))?;
    }
    Ok((key, usize::try_from(bytes).unwrap_or_default()))
}

/// As [`draft`], by the key of the task.
pub(super) fn draft_of(
    db: &Connection,
    key: i64,
    columns: &str,
    shown: Projection,
) -> Result<Drafted, StoreError> {
    let mut find = db.prepare_cached(&format!("SELECT {columns} FROM tasks WHERE key = ?1"))?;
    let mut rows = find.query([key])?;
    let row = rows.next()?.ok_or_else(|| damaged("a task without its row"))?;
    draft(db, row, shown)
}

impl Drafted {
    /// The number of bytes of the whole task; large content is measured without being read.
    pub(super) fn bytes(&self, db: &Connection) -> Result<usize, StoreError> {
        let Self(key, draft) = self;
        let mut bytes = draft.bytes();
        for digest in draft.wants() {
            let mut find =
                db.prepare_cached("SELECT length(body) FROM blobs WHERE task = ?1 AND digest = ?2")?;
            let length = find.query_row(params![key, digest.0], |row| row.get::<_, i64>(0)).optional()?;
            bytes += usize::try_from(length.unwrap_or_default()).unwrap_or_default();
        }
        Ok(bytes)
    }

    /// The task.
    pub(super) fn finish(self, db: &Connection) -> Result<Task, StoreError> {
        let Self(key, draft) = self;
        let blobs = blobs(db, key, draft.wants())?;
        draft.finish(&blobs)
    }
}

/// The snapshot of a row.
pub(super) fn snapshot(db: &Connection, row: &Row<'_>) -> Result<Option<Task>, StoreError> {
    let key: i64 = row.get(0)?;
    let Some(json) = bytes(row, 5)? else { return Ok(None) };
    let refs = bytes(row, 6)?.unwrap_or_default();
    let mut task = codec::decode_task(json, refs, &blobs(db, key, codec::digests(refs))?)?;
    if let Some(json) = bytes(row, 7)? {
        let refs = bytes(row, 8)?.unwrap_or_default();
        task.artifacts = codec::decode_artifacts(json, refs, &blobs(db, key, codec::digests(refs))?)?;
    }
    Ok(Some(task))
}

fn bytes<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a [u8]>, StoreError> {
    row.get_ref(column)?.as_blob_or_null().map_err(damaged)
}

/// Decodes the entries of a segment from its body and refs.
pub(super) fn entries(db: &Connection, key: i64, segment: &Row<'_>) -> Result<Vec<StoredEvent>, StoreError> {
    let json = bytes(segment, 0)?.unwrap_or_default();
    let refs = bytes(segment, 1)?.unwrap_or_default();
    codec::decode_segment(json, refs, &blobs(db, key, codec::digests(refs))?)
}

/// Loads the large content of these digests.
fn blobs(
    db: &Connection,
    key: i64,
    digests: impl Iterator<Item = codec::Digest>,
) -> Result<Blobs, StoreError> {
    let mut blobs = Blobs::new();
    for digest in digests {
        if blobs.contains_key(&digest) {
            continue;
        }
        let mut find = db.prepare_cached("SELECT body FROM blobs WHERE task = ?1 AND digest = ?2")?;
        let body = find.query_row(params![key, digest.0], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        blobs.extend(body.map(|body| (digest, Bytes::from(body))));
    }
    Ok(blobs)
}

/// Finds a task in its scope.
const FIND: &str = "SELECT tasks.key, seq, busy + pending > 0, tasks.owner, snapshot_seq, snapshot, snapshot_refs,
         artifacts, artifacts_refs, webhooks > 0, coalesce(memo, (SELECT body FROM memos WHERE task = tasks.key))
     FROM tasks JOIN scopes ON scopes.key = tasks.scope
     WHERE tasks.id = ?1 AND agent = ?2 AND tenant IS ?3 AND scopes.owner IS ?4";

/// Finds what is shown of a task in its scope: neither its memo nor its webhooks, which are behind all of it.
const FIND_SHOWN: &str =
    "SELECT tasks.key, seq, 0, 0, snapshot_seq, snapshot, snapshot_refs, artifacts, artifacts_refs
     FROM tasks JOIN scopes ON scopes.key = tasks.scope
     WHERE tasks.id = ?1 AND agent = ?2 AND tenant IS ?3 AND scopes.owner IS ?4";

/// The task with this projection, if it is in this scope.
pub(super) fn shown(
    db: &Connection,
    scope: &Scope,
    id: &str,
    shown: Projection,
) -> Result<Option<Task>, StoreError> {
    let mut find = db.prepare_cached(FIND_SHOWN)?;
    let mut rows = find.query(params![id, scope.agent, scope.tenant, scope.owner])?;
    // The row stays open, so that its log and content are read from the same snapshot.
    let Some(row) = rows.next()? else { return Ok(None) };
    draft(db, row, shown)?.finish(db).map(Some)
}

/// The task, if it is in this scope.
pub(super) fn task(
    db: &Connection,
    me: i64,
    scope: &Scope,
    id: &str,
) -> Result<Option<StoredTask>, StoreError> {
    let mut find = db.prepare_cached(FIND)?;
    let mut rows = find.query(params![id, scope.agent, scope.tenant, scope.owner])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let memo = row.get::<_, Option<Vec<u8>>>(MEMO)?.map(Bytes::from);
    Ok(Some(StoredTask { memo, ..assemble(db, me, row)? }))
}

/// Calls `look` with the keys of a task and of its scope, if the task is in this scope.
pub(super) fn with_key<T: Default>(
    db: &Connection,
    scope: &Scope,
    id: &TaskId,
    look: impl FnOnce(i64, i64) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT tasks.key, scopes.key FROM tasks JOIN scopes ON scopes.key = tasks.scope
         WHERE tasks.id = ?1 AND agent = ?2 AND tenant IS ?3 AND scopes.owner IS ?4",
    )?;
    let mut rows = find.query(params![id.as_str(), scope.agent, scope.tenant, scope.owner])?;
    // The row stays open, so that the key cannot be deleted and reused meanwhile.
    match rows.next()? {
        Some(row) => look(row.get(0)?, row.get(1)?),
        None => Ok(T::default()),
    }
}

pub(super) fn events(
    db: &Connection,
    scope: &Scope,
    id: &TaskId,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    with_key(db, scope, id, |key, _| {
        let mut found = Vec::new();
        let mut log =
            db.prepare_cached("SELECT body, refs FROM log WHERE place > ?1 AND place <= ?2 ORDER BY place")?;
        let mut segments = log.query([log_rowid(key, after.0), log_rowid(key, LAST_SEQ)])?;
        while found.len() < limit
            && let Some(segment) = segments.next()?
        {
            let wanted = entries(db, key, segment)?.into_iter().filter(|entry| entry.seq > after);
            let room = limit - found.len();
            found.extend(wanted.take(room));
        }
        Ok(found)
    })
}

pub(super) fn links(db: &Connection, scope: &Scope, id: &TaskId) -> Result<Links, StoreError> {
    with_key(db, scope, id, |key, scope| {
        let mut parents = db.prepare_cached(
            "SELECT parent FROM links JOIN tasks ON tasks.id = links.parent
             WHERE links.task = ?1 AND tasks.scope = ?2 ORDER BY parent",
        )?;
        let parents = parents.query_map([key, scope], |row| row.get::<_, String>(0).map(TaskId::from))?;
        let parents = parents.collect::<Result<_, _>>()?;
        let mut children = db.prepare_cached(
            "SELECT tasks.id FROM links JOIN tasks ON tasks.key = links.task
             WHERE links.parent = ?1 AND tasks.scope = ?2 ORDER BY tasks.id LIMIT ?3",
        )?;
        let limit = MAX_CHILDREN as i64;
        let children = children
            .query_map(params![id.as_str(), scope, limit], |row| row.get::<_, String>(0).map(TaskId::from))?;
        Ok(Links { parents, children: children.collect::<Result<_, _>>()? })
    })
}

pub(super) fn idempotent_outcome(
    db: &Connection,
    me: i64,
    scope: &Arc<Scope>,
    key: &str,
) -> Result<Option<IdempotentAnswer>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT digest, tasks.id, reply, reserved, r.id, r.key, digest, r.at, r.body, r.owner
         FROM scopes CROSS JOIN answers ON answers.scope = scopes.key
             LEFT JOIN tasks ON tasks.key = answers.task LEFT JOIN reservations r ON r.id = answers.reserved
         WHERE agent = ?1 AND tenant IS ?2 AND scopes.owner IS ?3 AND answers.key = ?4",
    )?;
    let mut rows = find.query(params![scope.agent, scope.tenant, scope.owner, key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let outcome = if let Some(id) = row.get::<_, Option<String>>(1)? {
        Outcome::Task(id.into())
    } else if row.get::<_, Option<String>>(3)?.is_some() {
        let (reservation, owner) = reservations::read(row, 4, Arc::clone(scope))?;
        // We hold the file's lock, so every other owner has stopped.
        Outcome::Reserved { reservation: Box::new(reservation), abandoned: owner != me }
    } else {
        let reply: Message = serde_json::from_slice(bytes(row, 2)?.unwrap_or_default()).map_err(damaged)?;
        Outcome::Reply(Arc::new(reply))
    };
    Ok(Some(IdempotentAnswer { digest: row.get(0)?, outcome }))
}
