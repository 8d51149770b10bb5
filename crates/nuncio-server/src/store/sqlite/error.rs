//! Errors of SQLite, as errors of the store.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::store::{OpenError, StoreError};

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        // A full disk, a busy file or a failed read may recover; a damaged or read-only file does not.
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DiskFull
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::CannotOpen,
            ) => Self::down(error),
            // The timeout of a list.
            Some(ErrorCode::OperationInterrupted) => Self::busy(error),
            _ => Self::broken(error),
        }
    }
}

/// Turns an error into the reason for which a database could not be opened.
pub(super) fn opening(path: &Path, error: &Error) -> OpenError {
    let (place, detail) = (path.display().to_string(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotOurs { place },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Corrupt { place, detail },
        Some(ErrorCode::ReadOnly) => OpenError::ReadOnly { place },
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            OpenError::Denied { place, detail }
        }
        _ => OpenError::Other { place, detail },
    }
}

/// A copy of the error for another caller.
pub(super) fn again(error: &StoreError) -> StoreError {
    let words = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if error.is_down() { StoreError::down(words) } else { StoreError::broken(words) }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn what_may_heal_by_itself_is_told_from_what_does_not() {
        let cases = [
            (ffi::SQLITE_FULL, true),
            (ffi::SQLITE_BUSY, true),
            (ffi::SQLITE_BUSY_SNAPSHOT, true),
            (ffi::SQLITE_IOERR_FSYNC, true),
            (ffi::SQLITE_IOERR_WRITE, true),
            (ffi::SQLITE_INTERRUPT, true),
            (ffi::SQLITE_CORRUPT, false),
            (ffi::SQLITE_NOTADB, false),
            (ffi::SQLITE_READONLY, false),
            (ffi::SQLITE_READONLY_DBMOVED, false),
            (ffi::SQLITE_CONSTRAINT_UNIQUE, false),
            (ffi::SQLITE_MISUSE, false),
        ];
        for (code, down) in cases {
            let error = StoreError::from(Error::SqliteFailure(ffi::Error::new(code), None));
            assert_eq!((error.is_down(), again(&error).is_down()), (down, down), "{code}: {error}");
            assert_eq!(again(&error).to_string(), error.to_string());
        }
    }
}
