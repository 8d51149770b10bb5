//! The tables and their migrations.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};

use super::{error, lock};
use crate::store::{Durability, OpenError};

/// "NUNC": marks a database as ours.
const APPLICATION_ID: i64 = 0x4e55_4e43;

/// One migration per version of the schema. A released migration never changes.
pub(super) const MIGRATIONS: [&str; 6] = [VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6];

/// The current version.
pub(super) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// The number of bits for the sequence number in the key of a log row. The key is the task's key and the
/// number of the segment's last entry in one integer: entries of a task are adjacent, and the log is one tree
/// without an index.
pub(super) const SEQ_BITS: u32 = 28;

/// The maximum length of a log: the key has no room for more.
pub(super) const LAST_SEQ: u64 = (1 << SEQ_BITS) - 1;

/// The key of the segment that ends with the entry `seq`.
pub(super) fn log_rowid(task: i64, seq: u64) -> i64 {
    (task << SEQ_BITS) | seq.min(LAST_SEQ) as i64
}

const VERSION_1: &str = "
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('epoch', 0);

    CREATE TABLE scopes (
        key INTEGER PRIMARY KEY,
        agent TEXT NOT NULL,
        tenant TEXT,
        owner TEXT
    ) STRICT;
    CREATE INDEX scopes_by_owner ON scopes (owner, agent, tenant);
    CREATE INDEX scopes_by_agent ON scopes (agent);

    -- How many tasks of a scope are in a state.
    CREATE TABLE counters (
        scope INTEGER NOT NULL REFERENCES scopes,
        state INTEGER NOT NULL,
        tasks INTEGER NOT NULL,
        PRIMARY KEY (scope, state)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE tasks (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        scope INTEGER NOT NULL REFERENCES scopes,
        context_id TEXT NOT NULL,
        state INTEGER NOT NULL,
        status_at INTEGER NOT NULL,
        -- The number of the last entry.
        seq INTEGER NOT NULL,
        -- The epoch of the handle that works on it, or was the last to do so.
        owner INTEGER NOT NULL,
        busy INTEGER NOT NULL,
        -- How many turns are kept, and how many of them have not begun.
        turns INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        -- The task as it was after the entry of this number; 0: no snapshot.
        snapshot_seq INTEGER NOT NULL,
        snapshot BLOB,
        snapshot_refs BLOB,
        artifacts BLOB,
        artifacts_refs BLOB
    ) STRICT;
    CREATE INDEX tasks_by_time ON tasks (scope, status_at, id);
    CREATE INDEX tasks_by_state ON tasks (scope, state, status_at, id);
    CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_at, id);
    CREATE INDEX tasks_open ON tasks (scope) WHERE busy + pending > 0;

    CREATE TABLE log (
        place INTEGER PRIMARY KEY,
        first_seq INTEGER NOT NULL,
        body BLOB NOT NULL,
        refs BLOB
    ) STRICT;

    CREATE TABLE blobs (
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        digest BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX blobs_by_digest ON blobs (task, digest);

    CREATE TABLE turns (
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        id TEXT NOT NULL,
        begun INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX turns_by_id ON turns (task, id);

    CREATE TABLE links (
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        parent TEXT NOT NULL,
        PRIMARY KEY (task, parent)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX links_by_parent ON links (parent);

    -- What was answered under an idempotency key: a task or a reply.
    CREATE TABLE answers (
        scope INTEGER NOT NULL REFERENCES scopes,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        at INTEGER NOT NULL,
        task INTEGER REFERENCES tasks ON DELETE CASCADE,
        reply BLOB
    ) STRICT;
    CREATE UNIQUE INDEX answers_by_key ON answers (scope, key);
    CREATE INDEX answers_by_task ON answers (task) WHERE task IS NOT NULL;
    CREATE INDEX answers_by_time ON answers (at) WHERE reply IS NOT NULL;
";

/// The outbox.
const VERSION_2: &str = "
    -- How many webhooks a task has, so that the others ask nothing.
    ALTER TABLE tasks ADD COLUMN webhooks INTEGER NOT NULL DEFAULT 0;

    CREATE TABLE webhooks (
        key INTEGER PRIMARY KEY,
        uid TEXT NOT NULL,
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        id TEXT NOT NULL,
        target TEXT NOT NULL,
        -- NULL: it is owed nothing.
        due_at INTEGER,
        -- As long as it is due: what it was owed before this entry is done with.
        owed_from INTEGER NOT NULL,
        stopped INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX webhooks_by_uid ON webhooks (uid);
    CREATE UNIQUE INDEX webhooks_by_id ON webhooks (task, id);
    CREATE INDEX webhooks_due ON webhooks (target, due_at) WHERE due_at IS NOT NULL;

    CREATE TABLE deliveries (
        webhook INTEGER NOT NULL REFERENCES webhooks ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        -- 0 pending, 1 delivered, 2 dead.
        state INTEGER NOT NULL,
        since INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        -- The last attempts, as JSON.
        recent TEXT,
        PRIMARY KEY (webhook, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX deliveries_dead ON deliveries (webhook, seq) WHERE state = 2;
";

/// Records, and memos of executors.
const VERSION_3: &str = "
    CREATE TABLE memos (
        task INTEGER PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
        body BLOB NOT NULL
    ) STRICT;

    CREATE TABLE records (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        at INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX records_by_key ON records (kind, key);
    CREATE INDEX records_by_time ON records (kind, at, key);
";

/// Small memos in the row of their task: a table of its own would be one more page in every commit.
const VERSION_4: &str = "
    ALTER TABLE tasks ADD COLUMN memo BLOB;
";

/// Reservations: messages that may be in progress without a task or reply.
const VERSION_5: &str = "
    CREATE TABLE reservations (
        -- That of the task.
        id TEXT PRIMARY KEY,
        scope INTEGER NOT NULL REFERENCES scopes,
        -- Its row among the answers has the id in `reserved`; NULL: it has none.
        key TEXT,
        -- The epoch of the handle that made it.
        owner INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX reservations_by_scope ON reservations (scope);

    ALTER TABLE answers ADD COLUMN reserved TEXT;
";

/// No table changes. Refs may be to metadata from now on, which older versions cannot put back.
const VERSION_6: &str = "";

/// Opens the database for writing and migrates it. The caller holds the lock.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, OpenError> {
    // SQLite would create it readable by everyone.
    lock::private(path).map_err(|error| lock::unopened(path, &error))?;
    let said = |error| error::opening(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(said)?;
    let found = version(&db, path)?;
    tune(&db, durability).map_err(said)?;
    migrate(&mut db, found).map_err(said)?;
    Ok(db)
}

/// Opens the database for reading.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    keep_plans(&db)?;
    db.execute_batch(
        "PRAGMA query_only = ON; PRAGMA busy_timeout = 5000; PRAGMA cache_size = -8000;
         PRAGMA mmap_size = 268435456; PRAGMA temp_store = MEMORY;",
    )?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

/// The version of the schema; an error if the database is not ours, or newer than this program.
pub(super) fn version(db: &Connection, path: &Path) -> Result<i64, OpenError> {
    let said = |error| error::opening(path, &error);
    let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(said);
    let (application, found) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let place = path.display().to_string();
    if application != APPLICATION_ID {
        let things = number("SELECT count(*) FROM sqlite_schema")?;
        if application != 0 || found != 0 || things != 0 {
            return Err(OpenError::NotOurs { place });
        }
    }
    if found > KNOWN {
        return Err(OpenError::NewerSchema { place, found, known: KNOWN });
    }
    Ok(found)
}

fn tune(db: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Relaxed => "NORMAL",
    };
    keep_plans(db)?;
    // The writer checkpoints between two transactions; SQLite's own checkpoint is for the case that this
    // fails.
    db.execute_batch(&format!(
        "PRAGMA busy_timeout = 5000;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = {synchronous};
         PRAGMA foreign_keys = ON;
         PRAGMA cache_size = -32000;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 16000;
         PRAGMA journal_size_limit = 67108864;"
    ))?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Plans each statement once. Otherwise SQLite, which is built with the statistics that could change the
/// plan, plans again whenever a value is bound that is compared with an indexed column. That costs several
/// times as much as the query itself.
fn keep_plans(db: &Connection) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn migrate(db: &mut Connection, found: i64) -> rusqlite::Result<()> {
    if found == KNOWN {
        return Ok(());
    }
    let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (migration, to) in MIGRATIONS.iter().zip(1..).skip(found as usize) {
        step.execute_batch(migration)?;
        step.pragma_update(None, "user_version", to)?;
    }
    step.pragma_update(None, "application_id", APPLICATION_ID)?;
    step.commit()
}

/// A number that no earlier handle has had.
pub(super) fn next_epoch(db: &Connection) -> rusqlite::Result<i64> {
    let next = "UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value";
    db.query_row(next, [], |row| row.get(0))
}
