//! Opening a database: how safe it has to be, and what may go wrong.

use std::path::PathBuf;

/// What a commit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// For the disk: what is committed survives a power failure.
    #[default]
    Full,
    /// Not for the disk: faster. What is committed survives the end of the process; a power failure may lose
    /// the last moments, but damages nothing.
    Relaxed,
}

/// Why a store could not be opened. The words say what to do, and never hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by process {pid}; stop that one first, or choose another file", .path.display())]
    LockedBy {
        /// The file.
        path: PathBuf,
        /// The process; 0 if it did not say.
        pid: u32,
    },
    /// A newer version has written it.
    #[error("{place} has schema version {found}, this version knows {known}; use a newer version")]
    NewerSchema {
        /// Which database.
        place: String,
        /// What it has.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// It has something else in it.
    #[error("{place} is not a task store; choose another place for the data")]
    NotOurs {
        /// Which database.
        place: String,
    },
    /// It is damaged.
    #[error(
        "{place} is damaged: {detail}; restore it from a backup, or look at it with `nuncio store check`"
    )]
    Corrupt {
        /// Which database.
        place: String,
        /// What the database says.
        detail: String,
    },
    /// It does not answer.
    #[error("{place} cannot be reached: {detail}")]
    Unreachable {
        /// Which database.
        place: String,
        /// What went wrong.
        detail: String,
    },
    /// We may not.
    #[error(
        "access to {place} was denied: {detail}; check the permissions, and for a database the user and the password"
    )]
    Denied {
        /// Which database.
        place: String,
        /// What the database says.
        detail: String,
    },
    /// It can be read only.
    #[error("{place} is read-only; the store needs to write to it and beside it")]
    ReadOnly {
        /// Which database.
        place: String,
    },
    /// The folder of the file is not there.
    #[error("the folder {} does not exist; make it first", .0.display())]
    NoSuchDirectory(PathBuf),
    /// The address or the options make no sense.
    #[error("{0}")]
    Invalid(String),
    /// Anything else.
    #[error("{place} cannot be opened: {detail}")]
    Other {
        /// Which database.
        place: String,
        /// What went wrong.
        detail: String,
    },
}
