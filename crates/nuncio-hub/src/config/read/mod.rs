//! From what is written to what is meant. Every mistake is noted, and reading goes on.

mod agent;
mod hub;

use std::{
    fmt::Display,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use http::{HeaderName, HeaderValue};
use nuncio_client::notification::WebhookSecret;
use url::Url;

use super::{
    Secret,
    file::{Files, Node, Problem, Severity},
    raw::{self, SecretText},
};

/// Reads one tree.
pub(crate) struct Reader<'a> {
    tree: &'a Node,
    files: Files,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(tree: &'a Node, files: Files, problems: Vec<Problem>) -> Self {
        Self { tree, files, problems }
    }

    /// What was read on the way, and what was wrong.
    pub(crate) fn done(self) -> (Files, Vec<Problem>) {
        (self.files, self.problems)
    }

    fn note<K: AsRef<str>>(&mut self, severity: Severity, path: &[K], text: impl Into<String>) {
        let problem = match self.tree.find(path) {
            Some(node) => Problem::about(severity, path, node, text),
            None => Problem::at(severity, path, &self.tree.nearest(path).key, text),
        };
        self.problems.push(problem);
    }

    fn wrong<K: AsRef<str>>(&mut self, path: &[K], text: impl Into<String>) {
        self.note(Severity::Error, path, text);
    }

    fn warn<K: AsRef<str>>(&mut self, path: &[K], text: impl Into<String>) {
        self.note(Severity::Warning, path, text);
    }

    /// True if somebody has said it.
    fn is_said<K: AsRef<str>>(&self, path: &[K]) -> bool {
        self.tree.find(path).is_some_and(|node| !node.spot.is_default())
    }

    fn is_in_file<K: AsRef<str>>(&self, path: &[K]) -> bool {
        self.tree.find(path).is_some_and(|node| node.spot.is_file())
    }

    /// Something that has a form. The words of its own error say which.
    fn parse<T: FromStr<Err: Display>>(&mut self, path: &[&str], text: &str) -> Option<T> {
        text.parse().map_err(|wrong: T::Err| self.wrong(path, wrong.to_string())).ok()
    }

    /// Several of them.
    fn parse_all<T: FromStr<Err: Display>>(&mut self, path: &[&str], texts: &[String]) -> Vec<T> {
        let mut found = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let at = at.to_string();
            found.extend(self.parse::<T>(&[path, &[&at]].concat(), text));
        }
        found
    }

    /// An address for HTTP. Credentials have their own keys.
    fn url(&mut self, path: &[&str], text: &str) -> Option<Url> {
        let plain = |url: &Url| {
            matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
        };
        let url = Url::parse(text).ok().filter(plain);
        if url.is_none() {
            self.wrong(path, "expected an address such as https://example.com, without credentials");
        }
        url
    }

    /// A path, seen from the file that names it.
    fn path(&self, path: &[&str], text: &str) -> PathBuf {
        match self.tree.find(path).and_then(|node| node.spot.folder()) {
            Some(folder) => folder.join(text),
            None => PathBuf::from(text),
        }
    }

    fn paths(&self, path: &[&str], texts: &[String]) -> Vec<PathBuf> {
        let seen = |(at, text): (usize, &String)| self.path(&[path, &[&at.to_string()]].concat(), text);
        texts.iter().enumerate().map(seen).collect()
    }

    /// The secret in a file.
    fn secret_file(&mut self, path: &[&str], text: &str) -> Option<Secret> {
        let file = self.path(path, text);
        match self.files.text(&file) {
            Ok(text) => {
                if is_open(&file) {
                    self.warn(path, "others can read this secret; make the file 0600");
                }
                let secret = text.strip_suffix('\n').unwrap_or(&text);
                let secret = secret.strip_suffix('\r').unwrap_or(secret);
                if secret.is_empty() {
                    self.wrong(path, "the file is empty; expected a secret");
                }
                Some(Secret::new(secret))
            }
            Err(wrong) => {
                self.wrong(path, wrong);
                None
            }
        }
    }

    /// A secret that is said here or in a file, and not both.
    fn secret(
        &mut self,
        table: &[&str],
        key: &str,
        here: Option<&Secret>,
        file: Option<&String>,
    ) -> Option<Secret> {
        let file_key = format!("{key}_file");
        let file_path = [table, &[&file_key]].concat();
        match (here, file) {
            (Some(_), Some(_)) => {
                self.wrong(&file_path, format!("there is {key}, too; say one of them"));
                None
            }
            (Some(here), None) => Some(here.clone()),
            (None, Some(file)) => self.secret_file(&file_path, file),
            (None, None) => None,
        }
    }

    fn secret_text(&mut self, path: &[&str], text: &SecretText) -> Option<Secret> {
        match text {
            SecretText::Here(secret) => Some(secret.clone()),
            SecretText::There(raw::SecretFile { file }) => {
                self.secret_file(&[path, &["file"]].concat(), file)
            }
        }
    }

    /// Headers with values that are nobody's business.
    fn headers<'t>(
        &mut self,
        path: &[&str],
        texts: impl IntoIterator<Item = (&'t String, &'t SecretText)>,
    ) -> Vec<(HeaderName, Secret)> {
        let mut headers = Vec::new();
        for (name, text) in texts {
            let path = [path, &[name.as_str()]].concat();
            let Some(header) = self.header_name(&path, name) else { continue };
            let Some(secret) = self.secret_text(&path, text) else { continue };
            if HeaderValue::from_str(secret.reveal()).is_err() {
                self.wrong(&path, "this cannot stand in a header; expected one line of plain characters");
            }
            headers.push((header, secret));
        }
        headers
    }

    fn header_name(&mut self, path: &[&str], name: &str) -> Option<HeaderName> {
        let header = HeaderName::from_bytes(name.as_bytes()).ok();
        if header.is_none() {
            self.wrong(path, "is no name of a header; expected one such as X-Api-Key");
        }
        header
    }

    /// Secrets of webhooks, here and in files.
    fn webhook_secrets(&mut self, table: &[&str], here: &[Secret], files: &[String]) -> Vec<Secret> {
        let mut secrets = Vec::new();
        for (at, secret) in here.iter().enumerate() {
            let at = at.to_string();
            let path = [table, &["secrets", &at]].concat();
            secrets.extend(self.webhook_secret(&path, secret.clone()));
        }
        for (at, file) in files.iter().enumerate() {
            let at = at.to_string();
            let path = [table, &["secret_files", &at]].concat();
            let Some(secret) = self.secret_file(&path, file) else { continue };
            secrets.extend(self.webhook_secret(&path, secret));
        }
        secrets
    }

    fn webhook_secret(&mut self, path: &[&str], secret: Secret) -> Option<Secret> {
        match secret.reveal().parse::<WebhookSecret>() {
            Ok(_) => Some(secret),
            Err(wrong) => {
                self.wrong(path, wrong.to_string());
                None
            }
        }
    }
}

/// Some mounts of secrets cannot do better, so it is no reason to refuse.
fn is_open(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}
