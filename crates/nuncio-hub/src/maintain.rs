//! Looks after a store from outside of a hub.

use std::path::Path;

use nuncio_server::store::{OpenError, postgres, sqlite};

use crate::{config::Data, master};

/// The versions of a store, before and after.
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

/// What is wrong with a store; nothing is changed. Also while a hub runs.
///
/// # Errors
/// It cannot be looked at.
pub async fn check(data: &Data) -> Result<Vec<String>, OpenError> {
    match data {
        Data::Memory { .. } => Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintain::check).await,
        Data::Postgres { url, .. } => postgres::maintain::check(url.reveal()).await,
    }
}

/// Copies a store into a new file, also while a hub runs; says how many bytes it has.
///
/// # Errors
/// It cannot be read, or there is something at `to`.
pub async fn backup(data: &Data, to: &Path) -> Result<u64, OpenError> {
    let to = to.to_owned();
    match data {
        Data::Memory { .. } => Err(nothing()),
        Data::Sqlite { path, .. } => file(path, move |path| copy(path, &to)).await,
        Data::Postgres { url, .. } => postgres::maintain::backup(url.reveal(), &to).await,
    }
}

/// The key goes with the tasks: without it, what is sealed in them is worth nothing.
fn copy(path: &Path, to: &Path) -> Result<u64, OpenError> {
    let bytes = sqlite::maintain::backup(path, to)?;
    let (key, copy) = (master::beside(path), master::beside(to));
    if key.exists() {
        let copied = std::fs::copy(&key, &copy);
        copied.map_err(|error| OpenError::Other {
            place: copy.display().to_string(),
            detail: format!("the key of the hub could not be copied: {error}"),
        })?;
    }
    Ok(bytes)
}

/// Brings a store to the version of this program.
///
/// # Errors
/// It cannot be opened, or is newer.
pub async fn migrate(data: &Data) -> Result<Migrated, OpenError> {
    let (from, to) = match data {
        Data::Memory { .. } => return Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintain::migrate).await?,
        Data::Postgres { url, .. } => postgres::maintain::migrate(url.reveal()).await?,
    };
    Ok(Migrated { from, to })
}

/// Gives back the room of what has been forgotten.
///
/// # Errors
/// It cannot be opened; a file also while a hub runs.
pub async fn vacuum(data: &Data) -> Result<Vacuumed, OpenError> {
    let (before, after) = match data {
        Data::Memory { .. } => return Err(nothing()),
        Data::Sqlite { path, .. } => file(path, sqlite::maintain::vacuum).await?,
        Data::Postgres { url, .. } => postgres::maintain::vacuum(url.reveal()).await?,
    };
    Ok(Vacuumed { before, after })
}

fn nothing() -> OpenError {
    OpenError::Invalid("there is nothing to look after in memory".to_owned())
}

/// Waits for the disk on a thread that may.
async fn file<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let (owned, place) = (path.to_owned(), path.display().to_string());
    let done = tokio::task::spawn_blocking(move || work(&owned)).await;
    done.unwrap_or_else(|error| Err(OpenError::Other { place, detail: error.to_string() }))
}
