//! Problems of a configuration: the mistake, its position, and the remedy.
//!
//! A problem names keys and positions, never values: a secret may be under any key, mistyped, of the wrong
//! type or in the wrong place. The reader of the message has the file.

use std::{collections::BTreeSet, fmt, ops::Range, path::PathBuf};

use super::tree::{Node, SourceText, Spot};

/// Similarity from which a word is suggested in place of another (Jaro-Winkler).
const ALIKE: f64 = 0.8;
/// Similarity of two words that differ by one letter, or by two neighbours in the other order.
const SLIP: f64 = 0.9;
/// Minimum length of a word in which a slip is assumed.
const MIN_SLIP_CHARS: usize = 3;

/// The severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The hub cannot be started.
    Error,
    /// The hub can be started, but the operator should look at it.
    Warning,
}

/// A problem of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// The key that is wrong; empty for none.
    pub key: String,
    /// The mistake, and the remedy.
    pub text: String,
    /// Its position, if it is in a file.
    pub place: Option<Place>,
    /// The flag or the variable, if it is not in a file.
    given: Option<String>,
}

/// A position in a file.
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
    /// A problem of a whole file, or without a position.
    pub(crate) fn general(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, key: String::new(), text: text.into(), place: None, given: None }
    }

    /// A problem at bytes of a file that have no key.
    pub(crate) fn in_text(text: &SourceText, span: &Range<usize>, what: impl Into<String>) -> Self {
        Self { place: Some(Place::new(text, span)), ..Self::general(Severity::Error, what) }
    }

    /// A problem of a value or its key.
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
    fn new(text: &SourceText, span: &Range<usize>) -> Self {
        let (line, column) = text.position(span.start);
        Self { file: text.path.clone(), line, column }
    }
}

/// A suggestion, as the end of a sentence; empty if no known word is similar.
#[must_use]
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    match known.iter().map(|known| (likeness(word, known), known)).max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, known)) if likeness >= ALIKE => format!("; did you mean {known}?"),
        _ => String::new(),
    }
}

/// The known words that are most like this one, at most so many.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str], max: usize) -> Vec<&'a str> {
    let mut words = known.to_vec();
    words.sort_by(|a, b| likeness(word, b).total_cmp(&likeness(word, a)));
    words.truncate(max);
    words
}

/// The similarity of two words, from 0 to 1. One slip of the hand in a short word, which Jaro-Winkler hardly sees,
/// counts as similar.
fn likeness(word: &str, known: &str) -> f64 {
    let (word, known) = (word.to_ascii_lowercase(), known.to_ascii_lowercase());
    let similarity = strsim::jaro_winkler(&word, &known);
    let is_slip = known.len() >= MIN_SLIP_CHARS && strsim::osa_distance(&word, &known) == 1;
    if is_slip { similarity.max(SLIP) } else { similarity }
}

/// `nuncio.toml:12:1: listen: …`; `--listen: …`; or the text alone.
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

/// Collects mistakes, one per value: consequences of a mistake are not reported.
#[derive(Default, Debug)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    /// The keys of wrong values. They are left out when settings are read.
    wrong: BTreeSet<Vec<String>>,
}

impl Findings {
    /// Notes a mistake in a value.
    pub(crate) fn refuse<K: AsRef<str>>(&mut self, path: &[K], spot: &Spot, text: impl Into<String>) {
        self.problems.push(Problem::at(Severity::Error, path, spot, text));
        self.leave_out(path);
    }

    /// Notes keys that contradict each other. Their values are still read.
    pub(crate) fn clash(&mut self, path: &[&str], spot: &Spot, text: &str) {
        self.problems.push(Problem::at(Severity::Error, path, spot, text));
        self.leave_out(&[path, &[""]].concat());
    }

    /// Notes a missing key of a table. The other keys of the table are still read.
    pub(crate) fn miss(&mut self, path: &[String], key: &str, spot: &Spot) {
        self.problems.push(Problem::at(Severity::Error, path, spot, format!("{key} is missing")));
        self.leave_out(&[path, &[key.to_owned()]].concat());
    }

    /// Notes a mistake in the value at this path of a tree, or in the nearest one above it.
    pub(crate) fn refuse_in<K: AsRef<str>>(&mut self, tree: &Node, path: &[K], text: impl Into<String>) {
        self.refuse(path, tree.spot_of(path), text);
    }

    /// Notes a warning.
    pub(crate) fn warn_in<K: AsRef<str>>(&mut self, tree: &Node, path: &[K], text: impl Into<String>) {
        self.problems.push(Problem::at(Severity::Warning, path, tree.spot_of(path), text));
    }

    /// Leaves out a value with a known mistake.
    pub(crate) fn leave_out<K: AsRef<str>>(&mut self, path: &[K]) {
        self.wrong.insert(path.iter().map(|key| key.as_ref().to_owned()).collect());
    }

    /// True for a value that is left out.
    pub(crate) fn is_left_out(&self, path: &[String]) -> bool {
        self.wrong.contains(path)
    }

    /// True if there is a mistake at this path or below it.
    pub(crate) fn is_wrong_within<K: AsRef<str>>(&self, path: &[K]) -> bool {
        let is_within = |wrong: &Vec<String>| {
            wrong.len() >= path.len() && wrong.iter().zip(path).all(|(wrong, key)| wrong == key.as_ref())
        };
        self.wrong.iter().any(is_within)
    }
}

/// A list of problems.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// True if the hub cannot be started.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// The problems that prevent the start.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| problem.severity == Severity::Error)
    }

    /// True if any error is in a file.
    #[must_use]
    pub fn in_files(&self) -> bool {
        self.errors().any(|problem| problem.place.is_some())
    }
}

/// One per line: errors first, then by position.
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
