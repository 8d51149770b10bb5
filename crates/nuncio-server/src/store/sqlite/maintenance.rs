//! Maintenance of a database: check, backup, migrate, vacuum. All of it blocks on the disk, and none of it
//! repairs anything.

mod check;

use std::path::Path;

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

pub use self::check::check;
use super::{
    error,
    lock::{self, Lock},
    schema::{self, KNOWN},
};
use crate::store::{Durability, OpenError};

/// Copies a database as of one moment, even while a hub uses it. Returns the size of the copy.
///
/// # Errors
/// If the file is not ours or cannot be read, or if the target exists or cannot be written.
pub fn backup(from: &Path, to: &Path) -> Result<u64, OpenError> {
    let source = look(from)?;
    let known = schema::version(&source, from)?;
    debug_assert!(known <= KNOWN);
    match lock::private_new(to) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(OpenError::Invalid(format!(
                "{} exists; choose a new file for the backup",
                to.display()
            )));
        }
        Err(error) => return Err(lock::unopened(to, &error)),
    }
    let copied = copy(&source, to);
    if copied.is_err() {
        // A partial backup is useless. If it cannot be removed, opening it fails.
        let _ = std::fs::remove_file(to);
    }
    copied.map_err(|error| error::opening(to, &error))?;
    Ok(std::fs::metadata(to).map_or(0, |file| file.len()))
}

fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // In one step: it reads one snapshot and blocks no writer. In several steps, each write would restart it.
    match Backup::new(source, &mut target)?.step(-1)? {
        StepResult::Done => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("the database is busy; try again".to_owned()),
        )),
    }
}

/// Migrates the schema to the current version, as opening the store would. Returns the version before and
/// after.
///
/// # Errors
/// If the file cannot be used, or is in use.
pub fn migrate(path: &Path) -> Result<(i64, i64), OpenError> {
    let before = schema::version(&look(path)?, path)?;
    let _lock = Lock::take(path)?;
    schema::open(path, Durability::Full)?;
    Ok((before, KNOWN))
}

/// Returns the space of deleted rows to the file system. Returns the size before and after.
///
/// # Errors
/// If the file cannot be used, or is in use, or the disk has no space for the temporary copy.
pub fn vacuum(path: &Path) -> Result<(u64, u64), OpenError> {
    look(path)?;
    let size = || std::fs::metadata(path).map_or(0, |file| file.len());
    let _lock = Lock::take(path)?;
    let db = schema::open(path, Durability::Full)?;
    let whole = "PRAGMA wal_checkpoint(TRUNCATE)";
    let done = db.query_row(whole, [], |_| Ok(())).map(|()| size()).and_then(|before| {
        db.execute_batch("VACUUM")?;
        db.query_row(whole, [], |_| Ok(()))?;
        Ok((before, size()))
    });
    done.map_err(|error| error::opening(path, &error))
}

/// Opens an existing database for maintenance.
fn look(path: &Path) -> Result<Connection, OpenError> {
    if !path.is_file() {
        return Err(OpenError::Invalid(format!("there is no file {}", path.display())));
    }
    let db = schema::open_reader(path).map_err(|error| error::opening(path, &error))?;
    schema::version(&db, path)?;
    Ok(db)
}
