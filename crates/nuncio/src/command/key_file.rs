//! Files with a key, for `--key-file`: only their owner can read them.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::exit;

/// A file that is open for a key before the hub is asked for one: a key that cannot be written would be lost. Without a key
/// the file is removed.
pub(super) struct KeyFile {
    path: PathBuf,
    /// The file that takes its place; the file itself if it is new.
    draft: PathBuf,
    file: File,
    is_written: bool,
}

impl KeyFile {
    /// A file that must not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        Self::open(path, path.to_owned())
    }

    /// A file whose content is replaced at once, if it exists.
    pub(super) fn replace(path: &Path) -> Result<Self> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        Self::open(path, draft.into())
    }

    fn open(path: &Path, draft: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
        let file = file.map_err(|error| exit::usage(format!("--key-file {}: {error}", draft.display())))?;
        Ok(Self { path: path.to_owned(), draft, file, is_written: false })
    }

    /// Writes the key; the path of the file for messages.
    pub(super) fn write(mut self, key: &str) -> Result<String> {
        let shown = self.path.display().to_string();
        // A draft with the key is kept: the key is not shown again.
        self.is_written = true;
        writeln!(self.file, "{key}")
            .and_then(|()| self.file.sync_all())
            .and_then(|()| if self.draft == self.path { Ok(()) } else { fs::rename(&self.draft, &self.path) })
            .with_context(|| format!("--key-file {shown}: the key cannot be written"))?;
        Ok(shown)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        if !self.is_written {
            // It was made by this command, and is empty.
            let _ = fs::remove_file(&self.draft);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_for_its_owner_and_overwrites_no_other() {
        let folder = std::env::temp_dir().join(format!("nuncio-key-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.key");
        drop(KeyFile::create(&path).unwrap());
        assert!(!path.exists(), "without a key there is no file");
        KeyFile::create(&path).unwrap().write("one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(KeyFile::create(&path).is_err(), "it exists");
        drop(KeyFile::replace(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
        KeyFile::replace(&path).unwrap().write("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
        fs::remove_dir_all(&folder).unwrap();
    }
}
