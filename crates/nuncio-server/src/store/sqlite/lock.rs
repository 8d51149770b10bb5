//! One hub per file: a lock beside the database, with the number of the process that has it.
//!
//! SQLite's own locks let processes take turns; ours says that there is one, so that everything an earlier
//! one has left in progress is known to be abandoned.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use crate::store::OpenError;

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A program that is being started has a copy of our files for a moment; to close ours would not be enough.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Locks the database at `path`.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(OpenError::NoSuchDirectory(folder.to_owned()));
        }
        if path.is_dir() {
            return Err(OpenError::Invalid(format!("{} is a folder; name a file in it", path.display())));
        }
        let mut file = private(&beside(path, ".lock")).map_err(|error| unopened(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let pid = file.read_to_string(&mut pid).ok().and_then(|_| pid.trim().parse().ok());
                return Err(OpenError::LockedBy { path: path.to_owned(), pid: pid.unwrap_or(0) });
            }
            Err(TryLockError::Error(error)) => return Err(unopened(path, &error)),
        }
        let told = file.set_len(0).and_then(|()| file.rewind());
        let told = told.and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(|error| unopened(path, &error))?;
        Ok(Self { file })
    }
}

/// The path with something after it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file, or makes one that only its owner may read. SQLite gives the files beside the database the
/// same mode.
pub(super) fn private(path: &Path) -> io::Result<File> {
    options().create(true).open(path)
}

/// Makes a file that is not there yet, as [`private`].
pub(super) fn private_new(path: &Path) -> io::Result<File> {
    options().create_new(true).open(path)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Why a file could not be opened.
pub(super) fn unopened(path: &Path, error: &io::Error) -> OpenError {
    let place = path.display().to_string();
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { place },
        io::ErrorKind::PermissionDenied => OpenError::Denied { place, detail: error.to_string() },
        _ => OpenError::Other { place, detail: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_may_not_be_written_are_told_apart() {
        let told = |kind| unopened(Path::new("tasks.db"), &io::Error::from(kind)).to_string();
        assert!(told(io::ErrorKind::ReadOnlyFilesystem).starts_with("tasks.db is read-only"));
        assert!(told(io::ErrorKind::PermissionDenied).starts_with("access to tasks.db was denied"));
        assert!(told(io::ErrorKind::StorageFull).starts_with("tasks.db cannot be opened"));
    }
}
