//! Citations: the ids of requirements, traps and contradictions that comments, tests and documents name.
//!
//! `docs/requirements.md` has a row for each id. A citation without a row cannot be resolved; a row without a
//! citation is out of date. Features have their rows in `docs/seeds.md`, whether they are cited or not.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::{Finding, Violation, seeds, source::Source};

/// The page that lists every cited id.
pub(super) const PAGE: &str = "docs/requirements.md";

/// The kinds of ids: requirements, traps, contradictions, and five kinds of features.
const PREFIXES: [&str; 8] = ["REQ", "T", "C", "N", "R", "V", "B", "L"];

/// The marks of a wrapped comment, which may separate the two ends of a range beside its `to`.
const COMMENT_MARKS: [char; 4] = ['/', '!', '*', '#'];

/// An id with the place where it stands.
struct Citation<'a> {
    id: String,
    prefix: &'a str,
    digits: &'a str,
    line: usize,
    start: usize,
    end: usize,
}

/// Reports citations that the page does not list, and rows of the page that nothing cites.
pub(super) fn check(sources: &[Source]) -> Vec<Violation<'_>> {
    let mut violations = Vec::new();
    let (rows, repeated) = rows(sources);
    for (id, line) in repeated {
        let advice = format!("lists {id} a second time; keep one row");
        violations.push(Violation { path: PAGE, finding: Finding { line, advice } });
    }
    let features = seeds::ids(sources);
    let mut cited = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path != PAGE) {
        for (id, line) in cited_ids(&source.text) {
            if !rows.contains_key(&id) && !features.contains(id.as_str()) {
                let advice = format!(
                    "cites {id}, which {PAGE} does not list; correct the id, \
                     or add a row that says what it demands and where the specification says it"
                );
                violations.push(Violation { path: &source.path, finding: Finding { line, advice } });
            }
            cited.insert(id);
        }
    }
    for (id, line) in rows.into_iter().filter(|(id, _)| !cited.contains(id)) {
        let advice =
            format!("lists {id}, which no other file cites; delete the row, or cite {id} where it applies");
        violations.push(Violation { path: PAGE, finding: Finding { line, advice } });
    }
    violations
}

/// The ids in the first cells of the page's tables, with their lines; then the ids that have a second row.
fn rows(sources: &[Source]) -> (BTreeMap<String, usize>, Vec<(String, usize)>) {
    let page = sources.iter().find(|source| source.path == PAGE);
    let mut rows = BTreeMap::new();
    let mut repeated = Vec::new();
    for (line, text) in (1..).zip(page.map_or("", |page| &page.text).lines()) {
        let cell = text.strip_prefix('|').and_then(|row| row.split('|').next()).unwrap_or_default().trim();
        let Some(citation) = citations(cell).pop().filter(|citation| citation.id == cell) else { continue };
        match rows.entry(citation.id) {
            Entry::Vacant(row) => {
                row.insert(line);
            }
            Entry::Occupied(row) => repeated.push((row.key().clone(), line)),
        }
    }
    (rows, repeated)
}

/// Every id that a text cites, with its line; `A-1 to A-3` cites `A-2` too.
fn cited_ids(text: &str) -> Vec<(String, usize)> {
    let citations = citations(text);
    let mut ids = Vec::new();
    for (at, citation) in citations.iter().enumerate() {
        ids.push((citation.id.clone(), citation.line));
        if let Some(last) = citations.get(at + 1).filter(|next| is_range(text, citation, next)) {
            ids.extend(between(citation, last).map(|id| (id, citation.line)));
        }
    }
    ids
}

fn citations(text: &str) -> Vec<Citation<'_>> {
    let mut citations = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for (dash, _) in text.match_indices('-') {
        let before = text[..dash].trim_end_matches(|c: char| c.is_ascii_uppercase());
        let after = text[dash + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        let (start, end) = (before.len(), text.len() - after.len());
        let (prefix, digits) = (&text[start..dash], &text[dash + 1..end]);
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        if is_whole && !digits.is_empty() && PREFIXES.contains(&prefix) {
            line += text[counted..start].matches('\n').count();
            counted = start;
            let id = text[start..end].to_owned();
            citations.push(Citation { id, prefix, digits, line, start, end });
        }
    }
    citations
}

/// Whether a character continues a word or an encoded blob.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

fn is_range(text: &str, first: &Citation<'_>, last: &Citation<'_>) -> bool {
    let is_space = |c: char| c.is_whitespace() || COMMENT_MARKS.contains(&c);
    first.prefix == last.prefix && text[first.end..last.start].trim_matches(is_space) == "to"
}

/// The ids inside of a range, without its ends.
fn between(first: &Citation<'_>, last: &Citation<'_>) -> impl Iterator<Item = String> {
    let number = |citation: &Citation<'_>| citation.digits.parse::<u16>().unwrap_or_default();
    let (prefix, width) = (first.prefix, first.digits.len());
    (number(first) + 1..number(last)).map(move |number| format!("{prefix}-{number:0width$}"))
}
