//! The check of a database: SQLite's own checks, and rules about our tables.

use std::{ops::RangeInclusive, path::Path};

use nuncio_protocol::{Seq, Task};
use rusqlite::{Connection, Row};

use super::look;
use crate::store::{
    OpenError, StoreError,
    codec::{replay, state_code},
    sqlite::{
        read,
        schema::{self, KNOWN, LAST_SEQ, log_rowid},
    },
};

/// The maximum number of reported problems.
const MAX_PROBLEMS: usize = 100;

/// Queries that return problems, with the schema versions that they apply to.
const RULES: [(RangeInclusive<i64>, &str, &str); 12] = [
    (1..=KNOWN, "file", "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
    (
        1..=KNOWN,
        "references",
        "SELECT format('row %d of %s refers to nothing in %s', rowid, \"table\", parent)
         FROM pragma_foreign_key_check",
    ),
    (
        1..=KNOWN,
        "counters",
        "SELECT format('scope %d has %d tasks in state %d, but counts %d', coalesce(own.scope, counters.scope),
             coalesce(own.number, 0), coalesce(own.state, counters.state), coalesce(counters.tasks, 0))
         FROM (SELECT scope, state, count(*) AS number FROM tasks GROUP BY scope, state) AS own
             FULL JOIN counters ON counters.scope = own.scope AND counters.state = own.state
         WHERE own.number IS NOT counters.tasks",
    ),
    (
        1..=KNOWN,
        "turns",
        "SELECT format('task %s counts %d turns and %d waiting ones, but has others', id, turns, pending) FROM tasks
         WHERE turns <> (SELECT count(*) FROM turns WHERE task = key)
             OR pending <> (SELECT count(*) FROM turns WHERE task = key AND NOT begun)",
    ),
    (
        1..=KNOWN,
        "log",
        "SELECT format('segment %d is of no task', place) FROM log
         WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE key = place >> 28)",
    ),
    (
        1..=4,
        "answers",
        "SELECT format('key %d of scope %d has no answer', rowid, scope) FROM answers
         WHERE (task IS NULL) = (reply IS NULL)",
    ),
    (
        2..=KNOWN,
        "webhooks",
        "SELECT format('task %s counts %d webhooks, but has another number', id, webhooks) FROM tasks
         WHERE webhooks <> (SELECT count(*) FROM webhooks WHERE task = tasks.key)",
    ),
    (
        2..=KNOWN,
        "webhooks",
        "SELECT format('the due time of %s does not match its deliveries', uid) FROM webhooks
         WHERE (stopped AND due_at IS NOT NULL) OR EXISTS (
             SELECT 1 FROM deliveries
             WHERE webhook = key AND state = 0 AND (due_at IS NULL OR seq < owed_from))",
    ),
    (
        2..=KNOWN,
        "deliveries",
        "SELECT format('%s-%d is invalid', uid, deliveries.seq)
         FROM deliveries JOIN webhooks ON webhooks.key = webhook JOIN tasks ON tasks.key = task
         WHERE deliveries.seq NOT BETWEEN 1 AND tasks.seq OR deliveries.state NOT BETWEEN 0 AND 2
             OR NOT json_valid(coalesce(recent, '[]'))",
    ),
    (
        5..=KNOWN,
        "answers",
        "SELECT format('key %d of scope %d has no answer', rowid, scope) FROM answers
         WHERE (task IS NOT NULL) + (reply IS NOT NULL) + (reserved IS NOT NULL) <> 1",
    ),
    (
        5..=KNOWN,
        "reservations",
        "SELECT format('reservation %s and its key do not agree', coalesce(id, reserved))
         FROM (SELECT * FROM reservations WHERE key IS NOT NULL) AS own
             FULL JOIN (SELECT * FROM answers WHERE reserved IS NOT NULL) AS told
             ON told.scope = own.scope AND told.key = own.key AND told.reserved = own.id
         WHERE id IS NULL OR reserved IS NULL
         UNION ALL SELECT format('reservation %s has a task', id) FROM reservations JOIN tasks USING (id)",
    ),
    (3..=KNOWN, "records", "SELECT format('record %s of %s has no version', key, kind) FROM records WHERE version < 1"),
];

/// Checks everything, even while a hub uses the file; returns the problems found.
///
/// # Errors
/// If the file cannot be opened for another reason than damage, or is not ours.
pub fn check(path: &Path) -> Result<Vec<String>, OpenError> {
    let db = match look(path) {
        // Damage is a finding of the check, even where it leaves nothing else to check.
        Err(OpenError::Corrupt { detail, .. }) => return Ok(vec![format!("file: {detail}")]),
        looked => looked?,
    };
    let version = schema::version(&db, path)?;
    let mut problems = Vec::new();
    for (_, what, query) in RULES.into_iter().filter(|(versions, ..)| versions.contains(&version)) {
        note(&mut problems, what, ask(&db, query));
    }
    note(&mut problems, "log", read_all(&db));
    Ok(problems)
}

fn note(problems: &mut Vec<String>, what: &str, found: Result<Vec<String>, StoreError>) {
    let room = MAX_PROBLEMS.saturating_sub(problems.len());
    let found = found.unwrap_or_else(|error| vec![error.to_string()]);
    problems.extend(found.into_iter().take(room).map(|found| format!("{what}: {found}")));
}

fn ask(db: &Connection, query: &str) -> Result<Vec<String>, StoreError> {
    let mut query = db.prepare(query)?;
    let told = query.query_map([], |row| row.get(0))?;
    Ok(told.take(MAX_PROBLEMS).collect::<Result<_, _>>()?)
}

/// Reads every task, one at a time.
fn read_all(db: &Connection) -> Result<Vec<String>, StoreError> {
    let columns = read::WHOLE;
    let mut tasks = db.prepare(&format!("SELECT {columns}, id, state, status_at FROM tasks ORDER BY key"))?;
    let mut rows = tasks.query([])?;
    let mut problems = Vec::new();
    while problems.len() < MAX_PROBLEMS
        && let Some(row) = rows.next()?
    {
        let found = agree(db, row);
        let found = found.unwrap_or_else(|error| Some(error.to_string()));
        if let Some(found) = found {
            problems.push(format!("task {}: {found}", row.get::<_, String>(9)?));
        }
    }
    Ok(problems)
}

/// The problem of a task, if any: its log must have no gap, and its row and snapshot must agree with the log.
fn agree(db: &Connection, row: &Row<'_>) -> Result<Option<String>, StoreError> {
    let (key, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
    let kept: i64 = row.get(4)?;
    let (mut told, mut last, mut at_snapshot) = (Task::default(), 0, None);
    let mut log = db.prepare_cached(
        "SELECT body, refs, first_seq, place FROM log WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let mut segments = log.query([log_rowid(key, 0), log_rowid(key, LAST_SEQ)])?;
    while let Some(segment) = segments.next()? {
        let first: i64 = segment.get(2)?;
        if first != last + 1 {
            return Ok(Some(format!("after entry {last} comes entry {first}")));
        }
        for entry in read::entries(db, key, segment)? {
            if entry.seq.0 as i64 != last + 1 {
                return Ok(Some(format!("after entry {last} comes entry {}", entry.seq)));
            }
            last += 1;
            replay(&mut told, Seq::ZERO, vec![entry]);
            if last == kept {
                at_snapshot = Some(told.clone());
            }
        }
        if log_rowid(key, last as u64) != segment.get::<_, i64>(3)? {
            return Ok(Some(format!("a segment ends with entry {last}, but its row has another number")));
        }
    }
    if last != seq {
        return Ok(Some(format!("its log ends with entry {last}, expected {seq}")));
    }
    let (state, status_at): (i64, i64) = (row.get(10)?, row.get(11)?);
    let status =
        (i64::from(state_code(told.status.state)), told.status.timestamp.map_or(0, |at| at.as_millis()));
    if status != (state, status_at) {
        return Ok(Some("its status does not match its log".to_owned()));
    }
    let wrong = kept > 0 && read::snapshot(db, row)? != at_snapshot;
    Ok(wrong.then(|| "its snapshot does not match its log".to_owned()))
}
