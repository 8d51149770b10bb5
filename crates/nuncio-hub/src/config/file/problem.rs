//! What is wrong, where, and what to do about it.
//!
//! A problem names keys and positions, never values: a secret may stand under any key, mistyped, of the wrong type or
//! in the wrong place. Whoever reads the message has the file.

use std::{collections::BTreeSet, fmt, ops::Range, path::PathBuf};

use super::tree::{Node, Spot, Text};

/// A word is taken for another one if it is this much like it (Jaro-Winkler).
const ALIKE: f64 = 0.8;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The hub cannot be started with it.
    Error,
    /// The hub starts, but somebody should look at it.
    Warning,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The key that it is about; empty for none.
    pub key: String,
    /// What is wrong and what to do.
    pub text: String,
    /// Where it is written, if it is in a file.
    pub place: Option<Place>,
    /// The flag or the variable that says it, if it is not in a file.
    given: Option<String>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl Problem {
    /// About a file as a whole, or about nothing that is written.
    pub(crate) fn general(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, key: String::new(), text: text.into(), place: None, given: None }
    }

    /// About bytes of a file that have no key.
    pub(crate) fn in_text(text: &Text, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { place: Some(Place::new(text, span)), ..Self::general(Severity::Error, what) }
    }

    /// About a value, or about its key.
    pub(crate) fn at<K: AsRef<str>>(
        severity: Severity,
        path: &[K],
        spot: &Spot,
        text: impl Into<String>,
    ) -> Self {
        let words: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        let mut problem = Self { key: words.join("."), ..Self::general(severity, text) };
        match spot {
            Spot::File { text, span } => problem.place = Some(Place::new(text, span)),
            Spot::Flag(name) | Spot::Env(name) => problem.given = Some(name.clone()),
            Spot::Default => {}
        }
        problem
    }
}

impl Place {
    fn new(text: &Text, span: &Range<usize>) -> Self {
        let (line, column) = text.position(span.start);
        Self { file: text.path.clone(), line, column }
    }
}

/// What was perhaps meant, as the end of a sentence; empty if nobody can guess.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    let word = word.to_ascii_lowercase();
    let likeness =
        known.iter().map(|known| (strsim::jaro_winkler(&word, &known.to_ascii_lowercase()), known));
    match likeness.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, known)) if likeness >= ALIKE => format!("; did you mean {known}?"),
        _ => String::new(),
    }
}

/// `nuncio.toml:12:1: listen: …`; `--listen: …`; or the words alone.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.given) {
            (Some(place), _) => {
                write!(f, "{}:{}:{}: ", place.file.display(), place.line, place.column)?;
                if !self.key.is_empty() {
                    write!(f, "{}: ", self.key)?;
                }
                f.write_str(&self.text)
            }
            (None, Some(given)) => write!(f, "{given}: {}", self.text),
            (None, None) if self.key.is_empty() => f.write_str(&self.text),
            (None, None) => write!(f, "{}: {}", self.key, self.text),
        }
    }
}

/// Mistakes as they are found, one per value: what follows from a mistake is not another one.
#[derive(Default, Debug)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    /// The keys of values that are wrong. They are left out, and reading goes on without them.
    wrong: BTreeSet<Vec<String>>,
}

impl Findings {
    /// Notes a mistake in a value.
    pub(crate) fn refuse<K: AsRef<str>>(&mut self, path: &[K], spot: &Spot, text: impl Into<String>) {
        self.problems.push(Problem::at(Severity::Error, path, spot, text));
        self.leave_out(path);
    }

    /// Notes keys that do not go together. Their values are read all the same.
    pub(crate) fn clash(&mut self, path: &[&str], spot: &Spot, text: &str) {
        self.problems.push(Problem::at(Severity::Error, path, spot, text));
        self.leave_out(&[path, &[""]].concat());
    }

    /// Notes that a table has no such key. What the table has is read all the same.
    pub(crate) fn miss(&mut self, path: &[String], key: &str, spot: &Spot) {
        self.problems.push(Problem::at(Severity::Error, path, spot, format!("{key} is missing")));
        self.leave_out(&[path, &[key.to_owned()]].concat());
    }

    /// Notes a mistake in the value at this path of a tree, or in the nearest above it.
    pub(crate) fn refuse_in<K: AsRef<str>>(&mut self, tree: &Node, path: &[K], text: impl Into<String>) {
        self.refuse(path, tree.spot_of(path), text);
    }

    /// Notes what somebody should look at.
    pub(crate) fn warn_in<K: AsRef<str>>(&mut self, tree: &Node, path: &[K], text: impl Into<String>) {
        self.problems.push(Problem::at(Severity::Warning, path, tree.spot_of(path), text));
    }

    /// Leaves out a value in which a mistake was noted.
    pub(crate) fn leave_out<K: AsRef<str>>(&mut self, path: &[K]) {
        self.wrong.insert(path.iter().map(|key| key.as_ref().to_owned()).collect());
    }

    /// True for a value that is left out.
    pub(crate) fn is_left_out(&self, path: &[String]) -> bool {
        self.wrong.contains(path)
    }

    /// True if something is wrong at this path or below it.
    pub(crate) fn is_wrong_within<K: AsRef<str>>(&self, path: &[K]) -> bool {
        let is_within = |wrong: &Vec<String>| {
            wrong.len() >= path.len() && wrong.iter().zip(path).all(|(wrong, key)| wrong == key.as_ref())
        };
        self.wrong.iter().any(is_within)
    }
}

/// All that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// True if the hub cannot be started.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// What the hub cannot be started with.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| problem.severity == Severity::Error)
    }

    /// True if any mistake is in a file, and not on the command line.
    #[must_use]
    pub fn in_files(&self) -> bool {
        self.errors().any(|problem| problem.place.is_some())
    }
}

/// One after the other, the errors first, then by their place.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<_> = self.0.iter().collect();
        let place =
            |problem: &Problem| problem.place.as_ref().map(|at| (at.file.clone(), at.line, at.column));
        sorted.sort_by_cached_key(|problem| (problem.severity, place(problem)));
        for (at, problem) in sorted.into_iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            if problem.severity == Severity::Warning {
                f.write_str("warning: ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
