//! The token of whoever administers the hub: made at each start, in a file that only its owner can read.
//!
//! | | |
//! |---|---|
//! | a file that a crashed hub left behind | is replaced: its token is worth nothing |
//! | two hubs | have two ports, and so two files; of two that are told the same file, the later one has it |
//! | something else under that name, a symbolic link too | is replaced, never followed or written into |
//! | at a clean end | the file goes, if it is still ours |

use std::{
    env, fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use aws_lc_rs::{constant_time, rand};

/// How many random bytes a token has.
const BYTES: usize = 32;

/// What whoever administers the hub has to show.
#[derive(Clone)]
pub(super) struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    fn new() -> Result<Self> {
        Ok(Self(random_hex::<BYTES>()?.into()))
    }

    /// How long it takes tells nothing about how much of a guess is right.
    pub(super) fn is(&self, given: &str) -> bool {
        constant_time::verify_slices_are_equal(self.0.as_bytes(), given.as_bytes()).is_ok()
    }
}

fn random_hex<const N: usize>() -> Result<String> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).context("the system gives no random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Where the commands of this user look for the token of the hub with this admin port; `None` if the user has
/// no place for such files.
#[must_use]
pub fn admin_token_file(port: u16) -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| {
        env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local").join("state"))
    })?;
    Some(state.join("nuncio").join(format!("admin-{port}.token")))
}

/// A token in its file, until this goes.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    token: Token,
}

impl TokenFile {
    /// Makes a token and writes it, where it is wanted or where the commands look for it.
    pub(super) fn write(wanted: Option<&Path>, port: u16) -> Result<Self> {
        const ELSE: &str = "name another file by --admin-token-file, or say --admin off";
        let path = match wanted {
            Some(path) => path.to_owned(),
            None => {
                let path = admin_token_file(port).with_context(|| {
                    format!("there is no home directory for the token of administration; {ELSE}")
                })?;
                if let Some(directory) = path.parent() {
                    own(directory).with_context(|| {
                        format!("cannot make the directory {} ours alone; {ELSE}", directory.display())
                    })?;
                }
                path
            }
        };
        let token = Token::new()?;
        put(&path, &token).with_context(|| {
            format!("cannot write the token of administration to {}; {ELSE}", path.display())
        })?;
        Ok(Self { path, token })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn token(&self) -> &Token {
        &self.token
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Another hub may have been told the same file meanwhile.
        if fs::read_to_string(&self.path).is_ok_and(|text| self.token.is(text.trim_end()))
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the token's file could not be removed");
        }
    }
}

/// Writes a file of its own and gives it the name: nobody sees half a token, and nothing that has the name
/// already is opened.
fn put(path: &Path, token: &Token) -> Result<()> {
    let name = path.file_name().context("expected the name of a file")?;
    let mut other = std::ffi::OsString::from(".");
    other.push(name);
    other.push(format!(".{}", random_hex::<8>()?));
    let other = path.with_file_name(other);
    let written = create(&other)
        .and_then(|mut file| writeln!(file, "{}", token.0))
        .and_then(|()| fs::rename(&other, path));
    if written.is_err() {
        // It may not have come to be.
        let _ = fs::remove_file(&other);
    }
    Ok(written?)
}

/// A new file that only its owner can read.
fn create(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A directory that only its owner can enter, made if there is none.
fn own(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    #[cfg(unix)]
    fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_random_and_not_shown() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!((one.0.len(), format!("{one:?}")), (2 * BYTES, "Token(…)".to_owned()));
        assert!(one.is(&one.0));
        for wrong in [&*other.0, "", &one.0[1..], &format!("{}0", one.0)] {
            assert!(!one.is(wrong), "{wrong}");
        }
    }
}
