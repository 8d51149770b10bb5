//! The check of a database: rules about the tables, and every task against its log.

use std::ops::RangeInclusive;

use bytes::Bytes;
use nuncio_protocol::{Seq, Task};
use tokio_postgres::Row;

use super::{Address, PgSession, look};
use crate::store::{
    OpenError, StoreError,
    codec::{Blobs, Digest, damaged, decode_artifacts, decode_segment, decode_task, replay, state_code},
    postgres::schema::{self, KNOWN},
};

/// The maximum number of reported problems.
const MAX_PROBLEMS: usize = 100;

/// The number of tasks read at a time.
const PAGE: i64 = 100;

/// Queries that return problems, with the schema versions that they apply to.
const RULES: [(RangeInclusive<i64>, &str, &str); 17] = [
    (
        1..=KNOWN,
        "counters",
        "SELECT format('scope %s has %s tasks in state %s, but counts %s', coalesce(own.scope, told.scope),
             coalesce(own.n, 0), coalesce(own.state, told.state), coalesce(told.n, 0))
         FROM (SELECT scope, state, count(*) AS n FROM tasks GROUP BY scope, state) own
             FULL JOIN (SELECT scope, state, sum(n) AS n FROM counters GROUP BY scope, state) told
             ON told.scope = own.scope AND told.state = own.state
         WHERE coalesce(own.n, 0) <> coalesce(told.n, 0) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "turns",
        "SELECT format('task %s counts %s waiting turns, but has another number', id, pending) FROM tasks
         WHERE pending <> (SELECT count(*) FROM turns WHERE turns.task = tasks.id AND NOT begun) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "turns",
        "SELECT format('turn %s is of no task', id) FROM turns
         WHERE NOT EXISTS (SELECT FROM tasks WHERE tasks.id = turns.task) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "log",
        "SELECT format('segment %s of task %s has no task', last_seq, task) FROM segments
         WHERE NOT EXISTS (SELECT FROM tasks WHERE id = task) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "content",
        "SELECT format('content of task %s has no task', task) FROM blobs
         WHERE NOT EXISTS (SELECT FROM tasks WHERE id = task) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "links",
        "SELECT format('a link of task %s has no task', child) FROM links
         WHERE NOT EXISTS (SELECT FROM tasks WHERE id = child) LIMIT 100",
    ),
    (
        1..=3,
        "answers",
        "SELECT format('a key of scope %s has no answer', scope) FROM answers
         WHERE (task IS NULL) = (reply IS NULL)
             OR task IS NOT NULL AND NOT EXISTS (SELECT FROM tasks WHERE id = task) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "scopes",
        "SELECT format('task %s is of an unknown scope', id) FROM tasks
         WHERE NOT EXISTS (SELECT FROM scopes WHERE scopes.id = tasks.scope) LIMIT 100",
    ),
    (
        1..=KNOWN,
        "scopes",
        "SELECT format('a key is of the unknown scope %s', scope) FROM answers
         WHERE NOT EXISTS (SELECT FROM scopes WHERE scopes.id = answers.scope) LIMIT 100",
    ),
    (
        2..=KNOWN,
        "webhooks",
        "SELECT format('webhook %s is of no task', uid) FROM webhooks w
         WHERE NOT EXISTS (SELECT FROM tasks t JOIN scopes s ON s.id = t.scope
             WHERE t.id = w.task AND t.scope = w.scope AND s.agent = w.agent) LIMIT 100",
    ),
    (
        2..=KNOWN,
        "webhooks",
        "SELECT format('webhook %s has pending deliveries, but is not due', uid) FROM webhooks w
         WHERE (due_at IS NULL OR stopped)
             AND EXISTS (SELECT FROM deliveries WHERE webhook = w.uid AND state = 0) LIMIT 100",
    ),
    (
        2..=KNOWN,
        "webhooks",
        "SELECT format('webhook %s is leased, but is not due', uid) FROM webhooks
         WHERE holder IS NOT NULL AND due_at IS NULL LIMIT 100",
    ),
    (
        2..=KNOWN,
        "deliveries",
        "SELECT format('delivery %s-%s is of no webhook, or of no entry', d.webhook, d.seq) FROM deliveries d
         WHERE NOT EXISTS (SELECT FROM webhooks w JOIN tasks t ON t.id = w.task
             WHERE w.uid = d.webhook AND d.seq BETWEEN 1 AND t.seq) LIMIT 100",
    ),
    (
        3..=KNOWN,
        "memos",
        "SELECT format('a memo of task %s has no task', task) FROM memos
         WHERE NOT EXISTS (SELECT FROM tasks WHERE id = task) LIMIT 100",
    ),
    (
        3..=KNOWN,
        "records",
        "SELECT format('record %s of %s has no version', key, kind) FROM records WHERE version < 1 LIMIT 100",
    ),
    (
        4..=KNOWN,
        "answers",
        "SELECT format('a key of scope %s has no answer', scope) FROM answers
         WHERE num_nonnulls(task, reply, reserved) <> 1
             OR task IS NOT NULL AND NOT EXISTS (SELECT FROM tasks WHERE id = task) LIMIT 100",
    ),
    (
        4..=KNOWN,
        "reservations",
        "SELECT format('reservation %s and its key do not agree', coalesce(own.id, told.reserved))
         FROM (SELECT * FROM reservations WHERE key IS NOT NULL) own
             FULL JOIN (SELECT * FROM answers WHERE reserved IS NOT NULL) told
             ON told.scope = own.scope AND told.key = own.key AND told.reserved = own.id
         WHERE own.id IS NULL OR told.reserved IS NULL
         UNION ALL SELECT format('reservation %s has a task', id) FROM reservations JOIN tasks USING (id)
         LIMIT 100",
    ),
];

const TASKS: &str = "SELECT id, seq, snapshot_seq, snapshot, snapshot_refs, artifacts, artifacts_refs, state,
    status_at FROM tasks WHERE id > $1 ORDER BY id LIMIT $2";

const SEGMENTS: &str =
    "SELECT body, refs, first_seq, last_seq FROM segments WHERE task = $1 ORDER BY last_seq";

const BLOBS: &str = "SELECT digest, body FROM blobs WHERE task = $1";

/// Checks everything in one snapshot of the database; returns the problems found.
///
/// # Errors
/// If the database cannot be opened at all, or is not ours.
pub async fn check(url: &str) -> Result<Vec<String>, OpenError> {
    let address = Address::parse(url)?;
    let session = look(&address).await?;
    let refused = |error: StoreError| schema::refused(&error, &address);
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(refused)?;
    let mut problems = Vec::new();
    let version = schema::version(&session, &address).await?;
    for (_, what, query) in RULES.into_iter().filter(|(versions, ..)| versions.contains(&version)) {
        let found = session.query(query, &[]).await;
        let found = found.map(|rows| rows.iter().map(|row| row.get(0)).collect());
        note(&mut problems, what, found);
    }
    let found = read_all(&session).await;
    note(&mut problems, "log", found);
    Ok(problems)
}

fn note(problems: &mut Vec<String>, what: &str, found: Result<Vec<String>, StoreError>) {
    let room = MAX_PROBLEMS.saturating_sub(problems.len());
    let found = found.unwrap_or_else(|error| vec![error.to_string()]);
    problems.extend(found.into_iter().take(room).map(|found| format!("{what}: {found}")));
}

/// Reads every task, a page at a time.
async fn read_all(session: &PgSession) -> Result<Vec<String>, StoreError> {
    let (mut problems, mut after) = (Vec::new(), String::new());
    loop {
        let page = session.query(TASKS, &[&after, &PAGE]).await?;
        let Some(last) = page.last() else { return Ok(problems) };
        after = last.get(0);
        for row in &page {
            let found = agree(session, row).await.unwrap_or_else(|error| Some(error.to_string()));
            problems.extend(found.map(|found| format!("task {}: {found}", row.get::<_, &str>(0))));
        }
        if problems.len() >= MAX_PROBLEMS {
            return Ok(problems);
        }
    }
}

/// The problem of a task, if any: its log must have no gap, and its row and snapshot must agree with the log.
async fn agree(session: &PgSession, row: &Row) -> Result<Option<String>, StoreError> {
    let (id, seq, kept): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let blobs = blobs(session, id).await?;
    let (mut told, mut last, mut at_snapshot) = (Task::default(), 0, None);
    for segment in session.query(SEGMENTS, &[&id]).await? {
        let first: i64 = segment.get(2);
        if first != last + 1 {
            return Ok(Some(format!("after entry {last} comes entry {first}")));
        }
        for entry in decode_segment(segment.get(0), refs(&segment, 1), &blobs)? {
            if entry.seq != Seq(last as u64 + 1) {
                return Ok(Some(format!("after entry {last} comes entry {}", entry.seq)));
            }
            last += 1;
            replay(&mut told, Seq::ZERO, vec![entry]);
            if last == kept {
                at_snapshot = Some(told.clone());
            }
        }
        if last != segment.get::<_, i64>(3) {
            return Ok(Some(format!("a segment ends with entry {last}, but its row has another number")));
        }
    }
    if last != seq {
        return Ok(Some(format!("its log ends with entry {last}, expected {seq}")));
    }
    let status = (state_code(told.status.state), told.status.timestamp.map_or(0, |at| at.as_millis()));
    if status != (row.get(7), row.get(8)) {
        return Ok(Some("its status does not match its log".to_owned()));
    }
    let wrong = kept > 0 && snapshot(row, &blobs)? != at_snapshot;
    Ok(wrong.then(|| "its snapshot does not match its log".to_owned()))
}

fn refs(row: &Row, column: usize) -> &[u8] {
    row.get::<_, Option<&[u8]>>(column).unwrap_or_default()
}

fn snapshot(row: &Row, blobs: &Blobs) -> Result<Option<Task>, StoreError> {
    let Some(json) = row.get::<_, Option<&[u8]>>(3) else { return Ok(None) };
    let mut task = decode_task(json, refs(row, 4), blobs)?;
    if let Some(artifacts) = row.get::<_, Option<&[u8]>>(5) {
        task.artifacts = decode_artifacts(artifacts, refs(row, 6), blobs)?;
    }
    Ok(Some(task))
}

async fn blobs(session: &PgSession, id: &str) -> Result<Blobs, StoreError> {
    let rows = session.query(BLOBS, &[&id]).await?;
    let blob = |row: &Row| {
        let digest = <[u8; 32]>::try_from(row.get::<_, &[u8]>(0)).map_err(damaged)?;
        Ok((Digest(digest), Bytes::from(row.get::<_, Vec<u8>>(1))))
    };
    rows.iter().map(blob).collect()
}
