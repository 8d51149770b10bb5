//! The tables and their migrations.
//!
//! They are in a schema of their own, `nuncio`: they cannot collide or be confused with tables of another
//! application, and can be dumped, granted or dropped by one name.

use tokio_postgres::error::SqlState;

use super::{
    address::Address,
    link::{PgSession, code},
};
use crate::store::{OpenError, StoreError};

/// The migrations from an empty database to the current version, which is their number. Never change one,
/// only add.
const STEPS: [&str; 5] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
];

/// The current version.
pub(super) const KNOWN: i64 = STEPS.len() as i64;

/// Serializes migrations of several processes; the number has no meaning.
const LOCK: &str = "SELECT pg_advisory_xact_lock(2602001)";

/// Migrates the database to the current version; returns the version before.
pub(super) async fn migrate(session: &PgSession, address: &Address) -> Result<i64, OpenError> {
    let other = |error: StoreError| refused(&error, address);
    session.run("BEGIN").await.map_err(other)?;
    let found = step_by_step(session, address).await;
    let end = if found.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = session.run(end).await;
    let found = found?;
    ended.map_err(other)?;
    Ok(found)
}

async fn step_by_step(session: &PgSession, address: &Address) -> Result<i64, OpenError> {
    let other = |error: StoreError| refused(&error, address);
    session.run(LOCK).await.map_err(other)?;
    let found = version(session, address).await?;
    let steps = usize::try_from(found).ok().and_then(|found| STEPS.get(found..));
    let newer = || OpenError::NewerSchema { place: address.place.clone(), found, known: KNOWN };
    let steps = steps.ok_or_else(newer)?;
    for step in steps {
        session.run(step).await.map_err(other)?;
    }
    if !steps.is_empty() {
        session.execute("UPDATE nuncio.schema_version SET version = $1", &[&KNOWN]).await.map_err(other)?;
    }
    Ok(found)
}

/// The version of the database: the number of applied migrations.
pub(super) async fn version(session: &PgSession, address: &Address) -> Result<i64, OpenError> {
    let other = |error: StoreError| refused(&error, address);
    const LOOK: &str =
        "SELECT to_regnamespace('nuncio') IS NOT NULL, to_regclass('nuncio.schema_version') IS NOT NULL";
    let row = session.query_opt(LOOK, &[]).await.map_err(other)?;
    let (schema, table) = row.map_or((false, false), |row| (row.get(0), row.get(1)));
    if !table {
        // An empty schema of this name may have been created for us.
        const EMPTY: &str =
            "SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('nuncio') LIMIT 1";
        let foreign = schema && session.query_opt(EMPTY, &[]).await.map_err(other)?.is_some();
        return if foreign { Err(OpenError::NotOurs { place: address.place.clone() }) } else { Ok(0) };
    }
    let row = session.query_opt("SELECT version FROM nuncio.schema_version", &[]).await.map_err(other)?;
    row.map(|row| row.get(0)).ok_or_else(|| OpenError::NotOurs { place: address.place.clone() })
}

/// The error of a pooler in transaction mode.
pub(super) fn shared_session(address: &Address) -> OpenError {
    let detail = "a pooler shares its sessions between connections (transaction mode); set pool_mode = session \
                  for this database, or connect to PostgreSQL itself";
    OpenError::Other { place: address.place.clone(), detail: detail.to_owned() }
}

/// Turns a server's error into the reason for which the store could not be opened.
pub(super) fn refused(error: &StoreError, address: &Address) -> OpenError {
    let place = address.place.clone();
    let detail = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    match code(error) {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => OpenError::Denied { place, detail },
        Some(code) if code.code().starts_with("28") => OpenError::Denied { place, detail },
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => OpenError::ReadOnly { place },
        // A statement was prepared in another session than this one.
        Some(code)
            if *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT =>
        {
            shared_session(address)
        }
        Some(code) if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            OpenError::Corrupt { place, detail }
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            OpenError::Other { place, detail: format!("{detail}; create the database first") }
        }
        None if detail.contains("password missing") => OpenError::Denied { place, detail },
        None if detail.contains("does not allow writes") => OpenError::ReadOnly { place },
        _ if error.is_down() => OpenError::Unreachable { place, detail },
        _ => OpenError::Other { place, detail },
    }
}
