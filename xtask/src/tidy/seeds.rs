//! The rows of the seeds: every feature that the seed reports name, with the tests that show it.
//!
//! A row says that something works, so a test must show it. A test that was renamed or deleted leaves its rows without
//! proof.

use std::collections::BTreeSet;

use super::{Finding, Violation, source::Source};

/// The page with the rows.
pub(super) const PAGE: &str = "docs/seeds.md";

/// The verdict of a row that needs no test: a later capability brings the feature.
const LATER: &str = "later";

/// A row of the page: its line, its id, its verdict, and the names in its last cell.
struct Row<'a> {
    line: usize,
    id: &'a str,
    verdict: &'a str,
    shown_by: &'a str,
}

/// Reports rows without a test, and tests that do not exist.
pub(super) fn check(sources: &[Source]) -> Vec<Violation<'_>> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows(sources) {
        let mut report = |advice| {
            violations.push(Violation { path: PAGE, finding: Finding { line: row.line, advice } });
        };
        if !seen.insert(row.id) {
            report(format!("lists {} a second time; keep one row", row.id));
        }
        if row.verdict == LATER {
            continue;
        }
        let tests: Vec<&str> = row.shown_by.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            report(format!("{} names no test; name one that shows it, or the verdict is {LATER}", row.id));
        }
        for test in tests.into_iter().filter(|test| !exists(test, sources)) {
            report(format!("{} names the test {test}, which does not exist; correct the name", row.id));
        }
    }
    violations
}

/// The ids of all rows.
pub(super) fn ids(sources: &[Source]) -> BTreeSet<&str> {
    rows(sources).map(|row| row.id).collect()
}

fn rows(sources: &[Source]) -> impl Iterator<Item = Row<'_>> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |page| &page.text);
    (1..).zip(page.lines()).filter_map(|(line, text)| {
        let cells: Vec<&str> = text.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [id, _, verdict, shown_by] = cells[..] else { return None };
        let (prefix, number) = id.split_once('-')?;
        let is_id =
            prefix.len() == 1 && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then_some(Row { line, id, verdict, shown_by })
    })
}

/// True if a file, or a folder, of the first name has a function of the second.
fn exists(test: &str, sources: &[Source]) -> bool {
    let Some((file, function)) = test.split_once("::") else { return false };
    let (file, folder) = (format!("/{file}.rs"), format!("/{file}/"));
    let declaration = format!("fn {function}(");
    sources.iter().any(|source| {
        let is_home = source.path.ends_with(&file) || source.path.contains(&folder);
        is_home && source.is_rust() && source.text.contains(&declaration)
    })
}
