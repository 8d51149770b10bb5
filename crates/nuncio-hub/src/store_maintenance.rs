//! Maintenance of a store without a hub: check, backup, migrate, vacuum.

use std::path::Path;

use nuncio_server::store::{OpenError, postgres, sqlite};

use crate::{config::Data, root_key};

/// The schema version of a store, before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

/// The size of a store in bytes, before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vacuumed {
    pub before: u64,
    pub after: u64,
}

/// Checks a store and lists problems; changes nothing. Works while a hub runs.
///
/// # Errors
/// The store cannot be read.
pub async fn check(data: &Data) -> Result<Vec<String>, OpenError> {
    match data {
        Data::Memory { .. } => Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintenance::check).await,
        Data::Postgres { url, .. } => postgres::maintenance::check(url.reveal()).await,
    }
}

/// Copies a store into a new file and returns its size in bytes. Works while a hub runs.
///
/// # Errors
/// The store cannot be read, or `to` exists.
pub async fn backup(data: &Data, to: &Path) -> Result<u64, OpenError> {
    let to = to.to_owned();
    match data {
        Data::Memory { .. } => Err(nothing()),
        Data::Sqlite { path, .. } => file(path, move |path| copy(path, &to)).await,
        Data::Postgres { url, .. } => postgres::maintenance::backup(url.reveal(), &to).await,
    }
}

/// Copies the file with its root key: sealed data in it is unreadable without the key.
fn copy(path: &Path, to: &Path) -> Result<u64, OpenError> {
    let bytes = sqlite::maintenance::backup(path, to)?;
    let (key, copy) = (root_key::beside(path), root_key::beside(to));
    if key.exists() {
        let copied = std::fs::copy(&key, &copy);
        copied.map_err(|error| OpenError::Other {
            place: copy.display().to_string(),
            detail: format!("the key of the hub could not be copied: {error}"),
        })?;
    }
    Ok(bytes)
}

/// Migrates a store to the schema version of this program.
///
/// # Errors
/// The store cannot be opened, or is of a newer version.
pub async fn migrate(data: &Data) -> Result<Migrated, OpenError> {
    let (from, to) = match data {
        Data::Memory { .. } => return Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintenance::migrate).await?,
        Data::Postgres { url, .. } => postgres::maintenance::migrate(url.reveal()).await?,
    };
    Ok(Migrated { from, to })
}

/// Returns the space of deleted data to the system.
///
/// # Errors
/// The store cannot be opened; a SQLite file cannot be while a hub runs.
pub async fn vacuum(data: &Data) -> Result<Vacuumed, OpenError> {
    let (before, after) = match data {
        Data::Memory { .. } => return Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintenance::vacuum).await?,
        Data::Postgres { url, .. } => postgres::maintenance::vacuum(url.reveal()).await?,
    };
    Ok(Vacuumed { before, after })
}

fn nothing() -> OpenError {
    OpenError::Invalid("the memory store needs no maintenance; name a file or a database".to_owned())
}

/// Runs disk work on a blocking thread.
async fn file<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let (owned, place) = (path.to_owned(), path.display().to_string());
    let done = tokio::task::spawn_blocking(move || work(&owned)).await;
    done.unwrap_or_else(|error| Err(OpenError::Other { place, detail: error.to_string() }))
}
