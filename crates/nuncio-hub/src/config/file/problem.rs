//! What is wrong, where, and what to do about it.

use std::{fmt, path::PathBuf};

use super::tree::{Node, Spot, Text, Value};

/// Keys whose values are nobody's business. Lines that name one are shown without what follows.
const SECRET: &[&str] =
    &["bearer", "password", "client_secret", "secrets", "headers", "otlp_headers", "env", "store"];
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
    /// The line itself, without secrets.
    pub source: String,
    /// How many characters are meant.
    width: usize,
}

impl Problem {
    /// About a file as a whole, or about nothing that is written.
    pub(crate) fn general(severity: Severity, text: impl Into<String>) -> Self {
        Self { severity, key: String::new(), text: text.into(), place: None, given: None }
    }

    /// About bytes of a file that have no key.
    pub(crate) fn in_text(text: &Text, span: std::ops::Range<usize>, what: impl Into<String>) -> Self {
        let place = Place::new(text, span, Path::Unknown);
        Self { place: Some(place), ..Self::general(Severity::Error, what) }
    }

    /// About a value, or about its key.
    pub(crate) fn at<K: AsRef<str>>(
        severity: Severity,
        path: &[K],
        spot: &Spot,
        value: Option<&Value>,
        text: impl Into<String>,
    ) -> Self {
        let words: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        let mut problem = Self { key: words.join("."), ..Self::general(severity, text) };
        match spot {
            Spot::File { text, span } => {
                let is_secret = words.iter().any(|word| is_secret(word));
                let path = if is_secret { Path::Secret } else { Path::Open };
                problem.place = Some(Place::new(text, span.clone(), path));
            }
            Spot::Flag(name) | Spot::Env(name) => {
                let shown = value.and_then(|value| shown_value(&words, value));
                problem.given = Some(shown.map_or_else(|| name.clone(), |value| format!("{name} {value}")));
            }
            Spot::Default => {}
        }
        problem
    }

    /// About a value.
    pub(crate) fn about<K: AsRef<str>>(
        severity: Severity,
        path: &[K],
        node: &Node,
        text: impl Into<String>,
    ) -> Self {
        Self::at(severity, path, &node.spot, Some(&node.value), text)
    }
}

/// What is known about a line.
#[derive(Clone, Copy)]
enum Path {
    Unknown,
    Open,
    Secret,
}

impl Place {
    fn new(text: &Text, span: std::ops::Range<usize>, path: Path) -> Self {
        let (line, column) = text.position(span.start);
        let source = text.line(span.start);
        let hide = match path {
            Path::Secret => true,
            // It may be the middle of a text of several lines, or a line of a table of secrets.
            Path::Unknown => {
                names_secret(source) || !source.contains(['=', '[']) || names_secret(text.header(span.start))
            }
            Path::Open => names_secret(source),
        };
        let shown = if hide { without_value(source) } else { without_user(source) };
        let room = shown.chars().count().saturating_sub(column - 1);
        let meant = text.text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        Self {
            file: text.path.clone(),
            line,
            column,
            source: shown,
            width: meant.chars().count().max(1).min(room),
        }
    }
}

fn is_secret(word: &str) -> bool {
    SECRET.iter().any(|secret| word.eq_ignore_ascii_case(secret))
}

/// True if a key of this line has a value that is nobody's business.
fn names_secret(line: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    line.split(|c: char| !is_word(c)).any(is_secret)
}

/// A line up to its first value.
fn without_value(line: &str) -> String {
    match line.split_once('=') {
        Some((key, _)) => format!("{key}= ***"),
        None => "***".to_owned(),
    }
}

/// A text without the user and the password of an address in it.
pub(crate) fn without_user(text: &str) -> String {
    let Some((before, after)) = text.split_once("://") else { return text.to_owned() };
    let end = after.find(['"', '\'', ' ', ',']).unwrap_or(after.len());
    match after[..end].rfind('@') {
        Some(at) => format!("{before}://***{}", &after[at..]),
        None => text.to_owned(),
    }
}

fn shown_value(path: &[&str], value: &Value) -> Option<String> {
    if path.iter().any(|word| is_secret(word)) {
        return None;
    }
    match value {
        Value::Text(text) => Some(without_user(text)).filter(|text| !text.is_empty()),
        Value::Integer(integer) => Some(integer.to_string()),
        Value::Bool(_) | Value::Float(_) | Value::Table(_) | Value::List(_) | Value::Date => None,
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

/// `nuncio.toml:12:1: …` with the line below; `--listen x: …`; or the words alone.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, &self.given) {
            (Some(place), _) => {
                write!(f, "{}:{}:{}: ", place.file.display(), place.line, place.column)?;
                if !self.key.is_empty() {
                    write!(f, "{}: ", self.key)?;
                }
                write!(f, "{}\n{place}", self.text)
            }
            (None, Some(given)) => write!(f, "{given}: {}", self.text),
            (None, None) if self.key.is_empty() => f.write_str(&self.text),
            (None, None) => write!(f, "{}: {}", self.key, self.text),
        }
    }
}

/// The line, and a mark below what is meant.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        write!(f, "  {number} | {}", self.source)?;
        if self.width > 0 {
            let before: String =
                self.source.chars().take(self.column - 1).map(|c| if c == '\t' { c } else { ' ' }).collect();
            write!(f, "\n  {} | {before}{}", " ".repeat(number.len()), "^".repeat(self.width))?;
        }
        Ok(())
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
