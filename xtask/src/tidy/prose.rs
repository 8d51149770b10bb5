//! Measures comments: how many doc comments open with a question word, in product code and in tests, and how many
//! lines of comments of product code replace a noun by a relative clause. CONTRIBUTING.md, "Comments and documents",
//! has the rules.

use super::{Finding, Source, Violation};

/// A share of comments, with the highest value that the repository may have.
struct Measure {
    name: &'static str,
    max_percent: f64,
    counted: usize,
    /// The comments that count against the measure, as file and line.
    found: Vec<(usize, usize)>,
}

/// The first words of a doc comment that name no subject.
const QUESTION_WORDS: [&str; 9] =
    ["What", "Who", "Whom", "Whose", "Where", "How", "Which", "Whoever", "Whatever"];

/// Words that open a relative clause without a noun before it.
const CLAUSE_WORDS: [&str; 7] = ["what", "who", "whom", "whose", "whoever", "whatever", "whichever"];

/// Percent of doc comments that may open with a question word.
const MAX_OPENINGS: f64 = 4.0;

/// Percent of comment lines that may have a clause word.
const MAX_CLAUSES: f64 = 3.0;

/// Lists the comments of a measure that is above its maximum.
pub(super) fn check(sources: &[Source]) -> Vec<Violation<'_>> {
    let mut openings = Measure::new("doc comments that open with a question word", MAX_OPENINGS);
    let mut test_openings =
        Measure::new("doc comments of tests that open with a question word", MAX_OPENINGS);
    let mut clauses = Measure::new("comment lines with a clause in place of a noun", MAX_CLAUSES);
    for (file, source) in sources.iter().enumerate().filter(|(_, source)| is_measured(source)) {
        let body = if source.is_test() { 0 } else { source.body_len() };
        let mut continues = false;
        for (line, text) in (1..).zip(source.text.lines()) {
            let Some(comment) = Comment::of(text) else {
                continues = false;
                continue;
            };
            let is_product = line <= body;
            if is_product {
                clauses.count((file, line), has_clause(comment.text));
            }
            if comment.is_doc && !continues {
                let openings = if is_product { &mut openings } else { &mut test_openings };
                openings.count((file, line), opens_with_question(comment.text));
            }
            continues = comment.is_doc;
        }
    }
    [openings, test_openings, clauses]
        .iter()
        .filter(|measure| measure.is_exceeded())
        .flat_map(|measure| measure.report(sources))
        .collect()
}

fn is_measured(source: &Source) -> bool {
    source.is_rust() && !source.is_under("fuzz") && !source.is_generated()
}

/// One line of a comment.
struct Comment<'a> {
    is_doc: bool,
    text: &'a str,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("//")?;
        let doc = rest.strip_prefix(['/', '!']);
        Some(Self { is_doc: doc.is_some(), text: doc.unwrap_or(rest).trim_start() })
    }
}

fn opens_with_question(text: &str) -> bool {
    words(text).next().is_some_and(|word| QUESTION_WORDS.contains(&word))
}

fn has_clause(text: &str) -> bool {
    words(text).any(|word| CLAUSE_WORDS.iter().any(|clause| word.eq_ignore_ascii_case(clause)))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

impl Measure {
    fn new(name: &'static str, max_percent: f64) -> Self {
        Self { name, max_percent, counted: 0, found: Vec::new() }
    }

    fn count(&mut self, place: (usize, usize), found: bool) {
        self.counted += 1;
        self.found.extend(found.then_some(place));
    }

    fn percent(&self) -> f64 {
        100.0 * self.found.len() as f64 / self.counted.max(1) as f64
    }

    fn is_exceeded(&self) -> bool {
        self.percent() > self.max_percent
    }

    fn report<'a>(&self, sources: &'a [Source]) -> impl Iterator<Item = Violation<'a>> {
        let advice = format!(
            "{}: {:.1} %, the maximum is {:.1} %; say the subject (CONTRIBUTING.md, \"Comments and documents\")",
            self.name,
            self.percent(),
            self.max_percent
        );
        let violation = move |&(file, line): &(usize, usize)| {
            let source: &'a Source = &sources[file];
            Violation { path: &source.path, finding: Finding { line, advice: advice.clone() } }
        };
        self.found.iter().map(violation).collect::<Vec<_>>().into_iter()
    }
}
