//! Files as people write them, from text to settings.

mod agents;
mod fuzz;
mod init;
mod layers;
mod secrets;
mod wrong;

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Loaded, Problems, Source, Variables};

/// A folder with files, gone with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("nuncio-config-{:032x}", rand::random::<u128>()));
        fs::create_dir(&folder).unwrap();
        let folder = Self(folder);
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that nobody else can read.
    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn source(&self) -> Source {
        Source {
            file: Some(self.path("nuncio.toml")),
            variables: Variables::of(&[("NAME", "value"), ("SECONDS", "7"), ("YES", "true"), ("EMPTY", "")]),
            ..Source::default()
        }
    }

    /// A text without the path of the folder.
    pub(crate) fn short(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads a file in which the demo is served, if nothing else is.
pub(crate) fn load(text: &str) -> Result<Loaded, Problems> {
    Folder::new(&[("nuncio.toml", text)]).source().load()
}

pub(crate) fn must(result: Result<Loaded, Problems>) -> Loaded {
    result.unwrap_or_else(|problems| panic!("{problems}"))
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}
