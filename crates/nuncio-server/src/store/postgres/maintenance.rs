//! Maintenance of a database: check, backup, migrate, vacuum. None of it repairs anything, and hubs may run
//! meanwhile.

mod check;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

pub use self::check::check;
use super::{
    address::Address,
    link::PgSession,
    open,
    schema::{self, KNOWN},
};
use crate::store::{Durability, OpenError, StoreError};

/// The timeout of maintenance statements: long, because only the operator waits for them.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The store's settings suit queries of a few rows; these read whole tables.
const PLAN_FREELY: &str = "RESET enable_seqscan; RESET enable_bitmapscan; RESET enable_hashjoin; \
    RESET enable_mergejoin; RESET plan_cache_mode";

/// Copies the store, as of one moment, into a file for `pg_restore`, with `pg_dump`. Returns the size of the
/// copy.
///
/// # Errors
/// If the database is not ours or cannot be read, `pg_dump` is missing, or the file exists or cannot be
/// written.
pub async fn backup(url: &str, to: &Path) -> Result<u64, OpenError> {
    let address = Address::parse(url)?;
    look(&address).await?;
    let mut command = dump(&address)?;
    command.arg("--file").arg(to);
    create_new(to)?;
    let place = address.place.clone();
    let other = |detail: String| OpenError::Other { place, detail };
    let done = tokio::task::spawn_blocking(move || command.output()).await;
    let failure = match done {
        Ok(Ok(Output { status, .. })) if status.success() => None,
        Ok(Ok(Output { stderr, .. })) => Some(String::from_utf8_lossy(&stderr).trim().to_owned()),
        Ok(Err(error)) => Some(format!("pg_dump: {error}")),
        Err(error) => Some(format!("pg_dump: {error}")),
    };
    if let Some(failure) = failure {
        // A partial backup is useless.
        let _ = std::fs::remove_file(to);
        return Err(other(failure));
    }
    Ok(std::fs::metadata(to).map_or(0, |file| file.len()))
}

/// Migrates the schema to the current version, as opening the store would. Returns the version before and
/// after.
///
/// # Errors
/// If the database cannot be used.
pub async fn migrate(url: &str) -> Result<(i64, i64), OpenError> {
    let address = Address::parse(url)?;
    let session = open(&address, MAINTENANCE_TIMEOUT, Durability::Full).await?;
    let before = schema::migrate(&session, &address).await?;
    Ok((before, KNOWN))
}

/// Makes the space of deleted rows reusable, and updates the planner's statistics. Returns the size before
/// and after.
///
/// # Errors
/// If the database cannot be used.
pub async fn vacuum(url: &str) -> Result<(u64, u64), OpenError> {
    let address = Address::parse(url)?;
    let session = look(&address).await?;
    let refused = |error: StoreError| schema::refused(&error, &address);
    let before = size(&session).await.map_err(refused)?;
    for table in session.query(TABLES, &[]).await.map_err(refused)? {
        let table: &str = table.get(0);
        session.run(&format!("VACUUM (ANALYZE) nuncio.{table}")).await.map_err(refused)?;
    }
    Ok((before, size(&session).await.map_err(refused)?))
}

/// The existing tables: the schema may be older than this program.
const TABLES: &str = "SELECT relname::text FROM pg_catalog.pg_class
  WHERE relnamespace = 'nuncio'::regnamespace AND relkind = 'r' ORDER BY relname";

async fn size(session: &PgSession) -> Result<u64, StoreError> {
    const SIZE: &str = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
      WHERE relnamespace = 'nuncio'::regnamespace AND relkind = 'r'";
    let row = session.query_opt(SIZE, &[]).await?;
    Ok(row.map_or(0, |row| u64::try_from(row.get::<_, i64>(0)).unwrap_or_default()))
}

/// Opens an existing database of ours for maintenance.
async fn look(address: &Address) -> Result<PgSession, OpenError> {
    let session = open(address, MAINTENANCE_TIMEOUT, Durability::Full).await?;
    let found = schema::version(&session, address).await?;
    if found > KNOWN {
        return Err(OpenError::NewerSchema { place: address.place.clone(), found, known: KNOWN });
    }
    if found == 0 {
        return Err(OpenError::NotOurs { place: address.place.clone() });
    }
    session.run(PLAN_FREELY).await.map_err(|error| schema::refused(&error, address))?;
    Ok(session)
}

/// `pg_dump` for this address. All settings are in its environment, because other users can read a command
/// line.
fn dump(address: &Address) -> Result<Command, OpenError> {
    let program = find("pg_dump").ok_or_else(|| {
        OpenError::Invalid("pg_dump is missing: install the client programs of PostgreSQL".to_owned())
    })?;
    let mut command = Command::new(program);
    command.args(["--format=custom", "--schema=nuncio", "--no-password"]);
    command.envs(address.environment()).stdin(Stdio::null());
    Ok(command)
}

/// Searches `PATH`, then Debian's directories, newest version first.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.or_else(|| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
        let mut versions: Vec<PathBuf> = versions.flatten().map(|version| version.path()).collect();
        versions.sort_by_key(number);
        versions
            .into_iter()
            .rev()
            .map(|version| version.join("bin").join(program))
            .find(|file| file.is_file())
    })
}

/// Creates a file that only its owner may read.
fn create_new(to: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    made.map(drop).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            OpenError::Invalid(format!("{} exists; choose a new file for the backup", to.display()))
        }
        _ => OpenError::Invalid(format!("{} cannot be written: {error}", to.display())),
    })
}
