//! Merges several files: `include`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::digest;

use super::{
    expand::expand,
    parse::parse,
    problem::{Findings, Problem, Severity},
    tree::{Node, SourceText, Value},
};

/// Maximum size of a file: far more than anybody writes by hand.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The files that were read, and the folders in which new ones may appear.
#[derive(Default, Debug)]
pub(crate) struct Files {
    /// Every file, with the SHA-256 of its content.
    pub(crate) read: Vec<(PathBuf, [u8; 32])>,
    /// Every folder that was searched.
    pub(crate) folders: Vec<PathBuf>,
    /// Refuses to read files.
    is_sealed: bool,
}

impl Files {
    /// Refuses to read files.
    pub(crate) fn sealed() -> Self {
        Self { is_sealed: true, ..Self::default() }
    }

    /// Reads a file, and notes its hash.
    pub(crate) fn text(&mut self, path: &Path) -> Result<String, String> {
        if self.is_sealed {
            return Err("cannot be read: files are not allowed here".to_owned());
        }
        let failed = |error: std::io::Error| format!("cannot be read: {error}");
        let size = fs::metadata(path).map_err(failed)?.len();
        if size > MAX_FILE_BYTES {
            return Err(format!("is too large: {size} bytes, expected at most {MAX_FILE_BYTES}"));
        }
        let bytes = fs::read(path).map_err(failed)?;
        let mut sum = [0; 32];
        sum.copy_from_slice(digest::digest(&digest::SHA256, &bytes).as_ref());
        // A table with mistakes is read several times.
        if !self.read.iter().any(|(known, _)| known == path) {
            self.read.push((path.to_owned(), sum));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        self.look_at(folder.unwrap_or(Path::new(".")));
        String::from_utf8(bytes).map_err(|_| "is not text; expected UTF-8".to_owned())
    }

    fn look_at(&mut self, folder: &Path) {
        if !self.folders.iter().any(|known| known == folder) {
            self.folders.push(folder.to_owned());
        }
    }
}

/// The tree of a file and of the files it includes; `None` if the file cannot be read.
pub(crate) fn load(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    files: &mut Files,
    findings: &mut Findings,
) -> Option<Node> {
    let mut tree = one(path, variable, files, findings)?;
    let Some(include) = tree.find(&["include"]).cloned() else { return Some(tree) };
    if let Value::List(patterns) = &include.value {
        for (at, node) in patterns.iter().enumerate() {
            let Value::Text(pattern) = &node.value else { continue };
            let folder = node.spot.folder().unwrap_or(Path::new(""));
            match matching(folder, pattern, files) {
                Ok(found) => {
                    for path in found {
                        let Some(other) = one(&path, variable, files, findings) else { continue };
                        join(&mut tree, other, &mut Vec::new(), findings);
                    }
                }
                Err(wrong) => {
                    let path = ["include".to_owned(), at.to_string()];
                    findings.refuse(&path, &node.spot, wrong);
                }
            }
        }
    }
    Some(tree)
}

fn one(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    files: &mut Files,
    findings: &mut Findings,
) -> Option<Node> {
    let text = match files.text(path) {
        Ok(text) => text,
        Err(wrong) => {
            findings.problems.push(Problem::general(Severity::Error, format!("{}: {wrong}", path.display())));
            return None;
        }
    };
    parse_text(path, &text, variable, findings)
}

/// The tree of a text; `None` if it is invalid TOML.
pub(crate) fn parse_text(
    path: &Path,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    findings: &mut Findings,
) -> Option<Node> {
    let text = Arc::new(SourceText { path: path.to_owned(), text: text.to_owned() });
    let known = findings.problems.len();
    let mut tree = parse(&text, &mut findings.problems);
    if findings.problems.len() > known {
        return None;
    }
    expand(&mut tree, &mut Vec::new(), variable, findings);
    Some(tree)
}

/// The files that match a pattern, sorted by name. Without a star there must be one.
fn matching(folder: &Path, pattern: &str, files: &mut Files) -> Result<Vec<PathBuf>, String> {
    let (within, name) = pattern.rsplit_once('/').map_or(("", pattern), |(within, name)| (within, name));
    let within = if pattern.starts_with('/') && within.is_empty() { "/" } else { within };
    if within.contains('*') {
        return Err("a star can stand for a part of a file name, not of a folder name".to_owned());
    }
    let folder = folder.join(within);
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![folder.join(name)]) };
    if end.contains('*') {
        return Err("expected at most one star, such as conf.d/*.toml".to_owned());
    }
    let shown = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    files.look_at(shown);
    let entries = match fs::read_dir(shown) {
        Ok(entries) => entries,
        // An absent folder is like an empty one: it may be created later.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: cannot be read: {error}", shown.display())),
    };
    let fits = |name: &str| {
        name.len() >= start.len() + end.len()
            && name.starts_with(start)
            && name.ends_with(end)
            && !name.starts_with('.')
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> = names.filter(|name| fits(name)).map(|name| folder.join(name)).collect();
    found.sort();
    Ok(found)
}

/// Merges another file. Agents and issuers are merged, any other key may be set only once.
fn join(into: &mut Node, from: Node, path: &mut Vec<String>, findings: &mut Findings) {
    let (Value::Table(known), Value::Table(table)) = (&mut into.value, from.value) else { return };
    for (key, node) in table {
        path.push(key.clone());
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        if words == ["include"] {
            let text = "an included file cannot include others; move this key to the first file";
            findings.refuse(path, &node.key, text);
            path.pop();
            continue;
        }
        match known.get_mut(&key) {
            None => drop(known.insert(key, node)),
            Some(first) => {
                let is_agent = matches!(*words, ["agents", _]);
                match (&mut first.value, node.value) {
                    (Value::List(items), Value::List(more)) if words == ["identity", "jwt"] => {
                        items.extend(more);
                    }
                    (Value::Table(_), value @ Value::Table(_)) if !is_agent => {
                        join(first, Node { value, ..Node::table(node.spot) }, path, findings);
                    }
                    _ => {
                        let text = format!("is set in two files; also in {}", first.key.origin());
                        findings.refuse(path, &node.key, text);
                    }
                }
            }
        }
        path.pop();
    }
}
