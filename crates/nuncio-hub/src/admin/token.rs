//! The token of whoever administers the hub: made at each start, in a file that only its owner can read, or given
//! by the operator in a file of theirs.
//!
//! | | |
//! |---|---|
//! | no file is named | where the commands of this user look; else beside the data; else there is no administration |
//! | the file that is named holds a token of the operator's | it is the token; the file is left as it is |
//! | it holds one of ours, which a crashed hub left behind | is replaced: that token is worth nothing |
//! | two hubs | have two ports, and so two files; of two that are told the same file, the later one has it |
//! | something else under that name, or somebody else's | is replaced, never written into |
//! | at a clean end | the file goes, if it is still ours |

use std::{
    env, fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::{constant_time, rand};

/// How many random bytes a token has.
const BYTES: usize = 32;
/// How the tokens begin that we make: so we know them again, and so do scanners for secrets.
const OURS: &str = "nuncio_admin_";
/// A token of the operator's has at least so many characters.
const SHORTEST: usize = 32;

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
        Ok(Self(format!("{OURS}{}", random_hex::<BYTES>()?).into()))
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
    /// Made by us, and to be removed.
    is_ours: bool,
}

impl TokenFile {
    /// The token in the file that is named, made if the operator has put none there.
    pub(super) fn named(path: &Path) -> Result<Self> {
        const ELSE: &str = "name another file by --admin-token-file, or say --admin off";
        if let Some(token) = given(path)? {
            return Ok(Self { path: path.to_owned(), token, is_ours: false });
        }
        Self::write(path).with_context(|| {
            format!("cannot write the token of administration to {}; {ELSE}", path.display())
        })
    }

    /// A new token where the commands look for it, or else beside the data; `None` if there is no place for it.
    pub(super) fn usual(port: u16, data: Option<&Path>) -> Option<Self> {
        let usual = admin_token_file(port)
            .filter(|path| path.parent().is_some_and(|directory| own(directory).is_ok()));
        let beside = data.map(|data| {
            let mut path = data.as_os_str().to_owned();
            path.push(format!(".admin-{port}.token"));
            PathBuf::from(path)
        });
        [usual, beside].into_iter().flatten().find_map(|path| Self::write(&path).ok())
    }

    fn write(path: &Path) -> Result<Self> {
        let token = Token::new()?;
        put(path, &token)?;
        Ok(Self { path: path.to_owned(), token, is_ours: true })
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
        if self.is_ours
            && fs::read_to_string(&self.path).is_ok_and(|text| self.token.is(text.trim_end()))
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the token's file could not be removed");
        }
    }
}

/// The token that the operator has put there. What somebody else could have put there is none: whoever can
/// write to a shared directory would choose our token.
fn given(path: &Path) -> Result<Option<Token>> {
    if !(is_trusted(fs::symlink_metadata(path)) && is_trusted(fs::metadata(path))) {
        return Ok(None);
    }
    let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
    let text = text.trim_end();
    if text.is_empty() || text.starts_with(OURS) {
        return Ok(None);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if text.len() < SHORTEST || !text.bytes().all(is_plain) {
        bail!(
            "{}: is no token for administration; expected one line of at least {SHORTEST} letters, digits or \
             -._~+/=, such as `openssl rand -hex 32` makes, or no file, and one is made",
            path.display()
        );
    }
    Ok(Some(Token(text.into())))
}

/// Ours or the system's, and nobody else can write to it. Of a link the owner counts.
#[cfg(unix)]
fn is_trusted(metadata: io::Result<fs::Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.is_ok_and(|metadata| {
        let is_owned = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
        let is_closed = metadata.is_symlink() || metadata.is_file() && metadata.mode() & 0o022 == 0;
        is_owned && is_closed
    })
}

#[cfg(not(unix))]
fn is_trusted(_: io::Result<fs::Metadata>) -> bool {
    false
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
        assert_eq!((one.0.len(), format!("{one:?}")), (OURS.len() + 2 * BYTES, "Token(…)".to_owned()));
        assert!(one.is(&one.0));
        for wrong in [&*other.0, "", &one.0[1..], &format!("{}0", one.0)] {
            assert!(!one.is(wrong), "{wrong}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_of_the_operators_is_read_and_left_alone() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = env::temp_dir().join(format!("nuncio-token-{:032x}", ::rand::random::<u128>()));
        fs::create_dir(&folder).unwrap();
        let (file, link) = (folder.join("token"), folder.join("link"));
        let operators = "0123456789abcdef0123456789abcdef";
        let put = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        put(&format!("{operators}\n"), 0o644);
        symlink(&file, &link).unwrap();
        // Also by a link, which is how clusters mount secrets.
        for path in [&file, &link] {
            let opened = TokenFile::named(path).unwrap();
            assert!(opened.token().is(operators));
            drop(opened);
            assert_eq!(fs::read_to_string(path).unwrap().trim_end(), operators);
        }
        for wrong in ["short", "0123456789abcdef 0123456789abcdef", "0123456789abcdef0123456789abcdef\nx"] {
            put(wrong, 0o600);
            let error = TokenFile::named(&file).unwrap_err().to_string();
            assert!(error.contains("openssl rand -hex 32"), "{error}");
        }
        // Others could have put it there, a crashed hub has, or nobody has.
        for (text, mode) in [(operators, 0o666), (&format!("{OURS}{operators}"), 0o600), ("", 0o600)] {
            put(text, mode);
            let opened = TokenFile::named(&file).unwrap();
            assert!(!opened.token().is(operators), "{text} {mode:o}");
            drop(opened);
            assert!(!file.exists(), "it was ours");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
