//! Options and errors of opening a database.

use std::path::PathBuf;

/// The guarantee of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// A commit waits for the disk: it survives a power failure.
    #[default]
    Full,
    /// A commit does not wait for the disk, and is faster. It survives the end of the process; a power
    /// failure may lose the last commits, but damages nothing.
    Relaxed,
}

/// The reason for which a store could not be opened. Messages say what to do, and never contain a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by process {pid}; stop that one first, or choose another file", .path.display())]
    LockedBy {
        /// The file.
        path: PathBuf,
        /// The process; 0 if it is unknown.
        pid: u32,
    },
    /// A newer version has written it.
    #[error("{place} has schema version {found}, this version supports {known}; use a newer version")]
    NewerSchema {
        /// The database.
        place: String,
        /// The schema version of the database.
        found: i64,
        /// The newest schema version known here.
        known: i64,
    },
    /// It is not a task store: it is empty, or contains other data.
    #[error("{place} is not a task store; choose another file or database")]
    NotOurs {
        /// The database.
        place: String,
    },
    /// It is damaged.
    #[error(
        "{place} is damaged: {detail}; restore it from a backup, or look at it with `nuncio store check`"
    )]
    Corrupt {
        /// The database.
        place: String,
        /// The message of the database.
        detail: String,
    },
    /// It does not respond.
    #[error("{place} cannot be reached: {detail}")]
    Unreachable {
        /// The database.
        place: String,
        /// The cause.
        detail: String,
    },
    /// The permissions or credentials do not suffice.
    #[error(
        "access to {place} was denied: {detail}; check the permissions, and for a database the user and the password"
    )]
    Denied {
        /// The database.
        place: String,
        /// The message of the database.
        detail: String,
    },
    /// It is read-only.
    #[error("{place} is read-only: the store writes to it and beside it; change the permissions")]
    ReadOnly {
        /// The database.
        place: String,
    },
    /// The directory of the file does not exist.
    #[error("the folder {} does not exist; create it first", .0.display())]
    NoSuchDirectory(PathBuf),
    /// The address or the options are invalid.
    #[error("{0}")]
    Invalid(String),
    /// Anything else.
    #[error("{place} cannot be opened: {detail}")]
    Other {
        /// The database.
        place: String,
        /// The cause.
        detail: String,
    },
}
