//! The root key, from which the hub derives its others: in a file that only its user can read, created when
//! absent.
//!
//! It seals the secrets that callers entrust to the hub, so it is kept apart from a database that others
//! share.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nuncio_server::push::RootKey;

use crate::config::Data;

/// Loads the root key of this store.
pub(crate) fn load(data: &Data, file: Option<&Path>) -> Result<RootKey> {
    match (file, data) {
        (Some(file), _) => read_or_make(file),
        (None, Data::Memory { .. }) => Ok(RootKey::random()),
        (None, Data::Sqlite { path, .. }) => read_or_make(&beside(path)),
        (None, Data::Postgres { .. }) => bail!(
            "a database needs a key file, the same for every hub, which seals callers' secrets; \
             add --key-file FILE (created if absent; copy it to the other hubs), or --no-push"
        ),
    }
}

/// The default key file of a SQLite store.
#[must_use]
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

fn read_or_make(file: &Path) -> Result<RootKey> {
    match fs::read_to_string(file) {
        Ok(text) => {
            let key = parse(&text).with_context(|| format!("{}: is not a key of a hub", file.display()))?;
            warn_if_open(file);
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match make(file) {
            // Another hub has created it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_or_make(file),
            made => made.with_context(|| format!("{}: the key of the hub cannot be written", file.display())),
        },
        Err(error) => {
            Err(error).with_context(|| format!("{}: the key of the hub cannot be read", file.display()))
        }
    }
}

/// Warns and does not refuse: some mounts of secrets cannot have stricter permissions.
fn warn_if_open(file: &Path) {
    let open = fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0);
    if open {
        tracing::warn!(file = %file.display(), "others can read the key of the hub; make it 0600");
    }
}

fn parse(text: &str) -> Result<RootKey> {
    let wrong = "expected 32 bytes in base64; `openssl rand -base64 32` makes such a key";
    let bytes = STANDARD.decode(text.trim()).context(wrong)?;
    bytes.try_into().map(RootKey::new).map_err(|_| anyhow::anyhow!(wrong))
}

/// Writes the file completely before it gets its name: a file that exists contains a whole key.
fn make(file: &Path) -> io::Result<RootKey> {
    let key = RootKey::random();
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    // Left by a hub with the same process id that was stopped at this point.
    let _ = fs::remove_file(&unfinished);
    let mut written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let done = writeln!(written, "{}", STANDARD.encode(key.reveal()))
        .and_then(|()| written.sync_all())
        .and_then(|()| fs::hard_link(&unfinished, file));
    let _ = fs::remove_file(&unfinished);
    done.map(|()| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nuncio-key-{:032x}", rand::random::<u128>()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_key_is_made_once_and_for_nobody_else_to_read() {
        let folder = folder();
        let data = Data::Sqlite { path: folder.join("n.db"), durability: Default::default() };
        let made = load(&data, None).unwrap();
        let file = folder.join("n.db.key");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&data, None).unwrap().reveal(), made.reveal(), "the same again");
        assert_eq!(load(&data, Some(&file)).unwrap().reveal(), made.reveal());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        assert_ne!(load(&Data::Memory { keep_finished: 1 }, None).unwrap().reveal(), made.reveal());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_as_it_is() {
        let folder = folder();
        let file = folder.join("key");
        for text in ["", "hello", "AAAA"] {
            fs::write(&file, text).unwrap();
            let error = format!("{:#}", load(&Data::Memory { keep_finished: 1 }, Some(&file)).unwrap_err());
            assert!(error.contains("openssl rand -base64 32"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
