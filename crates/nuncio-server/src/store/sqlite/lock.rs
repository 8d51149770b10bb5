//! One hub per file: a lock file beside the database, with the id of the process that holds the lock.
//!
//! SQLite's own locks let processes take turns. This one ensures that there is only one process, so that
//! everything that an earlier one left in progress is known to be abandoned.
//!
//! The lock belongs to the open file, and a forked process has a copy of that until it executes its program
//! (close-on-exec). A hub that is killed in between leaves the lock to its child for that moment. So taking a
//! lock waits while the holder is dead.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::store::OpenError;

/// The interval and number of retries for a lock whose holder is dead: 5 seconds in total.
const ORPHAN_RETRY_INTERVAL: Duration = Duration::from_millis(10);
const MAX_ORPHAN_RETRIES: usize = 500;

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child process that is being started has a copy of the file for a moment, so closing ours would
        // not suffice.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Locks the database at `path`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a file is opened by blocking calls, before anything is served"
    )]
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        Self::take_with(path, || std::thread::sleep(ORPHAN_RETRY_INTERVAL))
    }

    /// As [`Self::take`], with a function that waits.
    fn take_with(path: &Path, pause: impl FnMut()) -> Result<Self, OpenError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(OpenError::NoSuchDirectory(folder.to_owned()));
        }
        if path.is_dir() {
            return Err(OpenError::Invalid(format!("{} is a folder; name a file in it", path.display())));
        }
        let mut file = private(&beside(path, ".lock")).map_err(|error| unopened(path, &error))?;
        match lock(&mut file, pause) {
            Ok(()) => {}
            Err(LockRefusal::By(pid)) => return Err(OpenError::LockedBy { path: path.to_owned(), pid }),
            Err(LockRefusal::Failed(error)) => return Err(unopened(path, &error)),
        }
        let told = file.set_len(0).and_then(|()| file.rewind());
        let told = told.and_then(|()| writeln!(file, "{}", std::process::id()));
        told.map_err(|error| unopened(path, &error))?;
        Ok(Self { file })
    }
}

/// The reason for which the lock was not taken.
enum LockRefusal {
    /// This process holds it; 0 if it is unknown.
    By(u32),
    Failed(io::Error),
}

/// Locks the file; waits for a lock that a dead process has left to its child.
fn lock(file: &mut File, mut pause: impl FnMut()) -> Result<(), LockRefusal> {
    let mut retries = 0;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(LockRefusal::Failed(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let owner = owner(file);
        if retries >= MAX_ORPHAN_RETRIES || !owner.is_some_and(is_dead) {
            return Err(LockRefusal::By(owner.unwrap_or(0)));
        }
        retries += 1;
        pause();
    }
}

/// The process id in the file.
fn owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

/// True if there is no such process on this machine, or if it is a zombie. A process of another user counts
/// as alive.
#[cfg(unix)]
fn is_dead(pid: u32) -> bool {
    use rustix::{io::Errno, process};
    let raw = i32::try_from(pid).ok().and_then(process::Pid::from_raw);
    raw.is_some_and(|raw| process::test_kill_process(raw) == Err(Errno::SRCH)) || is_zombie(pid)
}

/// Reads the state, which follows the name in parentheses; the name may contain any character (proc(5)).
/// False on systems without this file.
#[cfg(unix)]
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(not(unix))]
fn is_dead(_: u32) -> bool {
    false
}

/// The path with a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file, or creates one that only its owner may read. SQLite gives the files beside the database the
/// same mode.
pub(super) fn private(path: &Path) -> io::Result<File> {
    options().create(true).open(path)
}

/// Creates a new file, as [`private`].
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

/// Turns an I/O error into the reason for which a file could not be opened.
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

    /// The id of a process that has ended.
    fn dead() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        pid
    }

    /// A lock file with this text, locked by another handle of the file, as a forked process has; and the
    /// path to lock.
    fn held(name: &str, text: &str) -> (File, PathBuf) {
        let path = std::env::temp_dir().join(format!("nuncio-lock-{}-{name}.db", std::process::id()));
        let mut file = private(&beside(&path, ".lock")).unwrap();
        file.lock().unwrap();
        file.set_len(0).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        (file, path)
    }

    fn forget(path: &Path) {
        std::fs::remove_file(beside(path, ".lock")).unwrap();
    }

    /// Guards against a former fault: about one start in a hundred after a kill was refused, because a child
    /// process had the lock until it executed its program.
    #[test]
    fn a_lock_whose_owner_is_dead_is_waited_for() {
        let (file, path) = held("orphan", &format!("{}\n", dead()));
        let (mut copy, mut pauses) = (Some(file), 0);
        let lock = Lock::take_with(&path, || {
            pauses += 1;
            // The child executes its program.
            if pauses == 3 {
                copy = None;
            }
        });
        assert!(lock.is_ok(), "{lock:?}");
        assert_eq!(pauses, 3);
        forget(&path);
    }

    #[test]
    fn a_lock_is_not_waited_for_for_ever_nor_of_a_process_that_lives() {
        let (dead, own) = (dead().to_string(), std::process::id().to_string());
        for (name, text, expected, waits) in [
            ("stays", &*dead, &*dead, MAX_ORPHAN_RETRIES),
            ("lives", &own, &own, 0),
            ("unknown", "", "0", 0),
            ("nonsense", "x", "0", 0),
        ] {
            let (_file, path) = held(name, text);
            let mut pauses = 0;
            let refused = Lock::take_with(&path, || pauses += 1).map(drop);
            let Err(OpenError::LockedBy { pid, .. }) = refused else { panic!("{name}: {refused:?}") };
            assert_eq!((pid.to_string().as_str(), pauses), (expected, waits), "{name}");
            forget(&path);
        }
    }

    #[test]
    fn files_that_may_not_be_written_are_told_apart() {
        let told = |kind| unopened(Path::new("tasks.db"), &io::Error::from(kind)).to_string();
        assert!(told(io::ErrorKind::ReadOnlyFilesystem).starts_with("tasks.db is read-only"));
        assert!(told(io::ErrorKind::PermissionDenied).starts_with("access to tasks.db was denied"));
        assert!(told(io::ErrorKind::StorageFull).starts_with("tasks.db cannot be opened"));
    }
}
