//! Tests with hostile text in every string of a result.

use super::{
    markup_reader::elements,
    sample::{HOSTILE_RESULT, full},
};
use crate::{
    AuditResult,
    report::{Format, Options, baseline, render, terminal, text},
};

/// Bytes of a report of hostile text.
const MAX_REPORT: usize = 16_000_000;

/// The report with changes, of a result against itself with other verdicts.
fn report(format: Option<Format>, result: &AuditResult) -> String {
    let old = super::sample::result_of(Vec::new());
    let mut changes = baseline::compare(&old, result);
    changes.since.clone_from(&result.started);
    let options = Options { changes: Some(&changes), ..Options::default() };
    match format {
        Some(format) => render(format, result, &options),
        None => terminal(result, &options),
    }
}

const FORMATS: [Option<Format>; 6] = [
    None,
    Some(Format::Markdown),
    Some(Format::Html),
    Some(Format::Json),
    Some(Format::Junit),
    Some(Format::Sarif),
];

#[test]
fn no_report_has_invisible_characters() {
    for format in FORMATS {
        let report = report(format, &HOSTILE_RESULT);
        // The word joiner is ours: it keeps forges from making links.
        let hidden =
            |character: &char| !matches!(character, '\n' | '\t' | '\u{2060}') && text::is_hidden(*character);
        let found: Vec<char> = report.chars().filter(hidden).collect();
        assert!(found.is_empty(), "{format:?}: {found:?}");
    }
}

#[test]
fn every_report_is_bounded() {
    let result = &*HOSTILE_RESULT;
    for format in FORMATS {
        let length = report(format, result).len();
        assert!(length < MAX_REPORT, "{format:?}: {length} bytes");
    }
}

#[test]
fn hostile_text_adds_no_element_to_a_page() {
    for format in [Format::Html, Format::Junit] {
        let known = elements(&report(Some(format), &full()));
        for element in elements(&report(Some(format), &HOSTILE_RESULT)) {
            assert!(known.contains(&element), "{format:?}: {element}");
        }
    }
}

#[test]
fn a_page_has_no_script_and_loads_nothing() {
    let page = report(Some(Format::Html), &HOSTILE_RESULT);
    assert!(page.contains("Content-Security-Policy"));
    for (at, _) in page.match_indices("href=\"") {
        let address = &page[at + 6..];
        let is_ours = ["https://a2a-protocol.org/", "#"].iter().any(|prefix| address.starts_with(prefix));
        assert!(is_ours, "{}", &address[..60]);
    }
    assert!(
        !elements(&page)
            .iter()
            .any(|element| matches!(element.as_str(), "script" | "img" | "link" | "iframe"))
    );
}

#[test]
fn hostile_text_adds_no_markup_to_markdown() {
    let report = report(Some(Format::Markdown), &HOSTILE_RESULT);
    for line in outside_fences(&report) {
        let outside = without_escapes(&outside_code(line));
        for markup in
            ["<script", "<img", "<!--", "![", "](javascript", "https://evil", "www.evil", "@someone"]
        {
            assert!(!outside.contains(markup), "{markup} in {line}");
        }
        for (at, _) in outside.match_indices("](") {
            assert!(outside[at + 2..].starts_with("https://a2a-protocol.org/"), "a foreign link in {line}");
        }
        assert!(!line.starts_with("# heading") && !line.starts_with("~~~"), "{line}");
    }
}

/// The lines that are not in a fenced block.
fn outside_fences(report: &str) -> Vec<&str> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for line in report.lines() {
        let ticks = line.trim_start();
        let ticks = &ticks[..ticks.len() - ticks.trim_start_matches('`').len()];
        match fence {
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => lines.push(line),
            Some(open) if line.trim() == open => fence = None,
            Some(open) => assert!(ticks.len() < open.len(), "a longer fence inside of a block: {line}"),
        }
    }
    assert_eq!(fence, None, "a block is not closed");
    lines
}

/// A line without its escaped characters.
fn without_escapes(line: &str) -> String {
    let mut characters = line.chars();
    let mut out = String::new();
    while let Some(character) = characters.next() {
        if character == '\\' {
            characters.next();
        } else {
            out.push(character);
        }
    }
    out
}

/// A line without its code spans, by the rules of CommonMark: a span ends at a run of as many backticks.
fn outside_code(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(begin) = rest.find('`') {
        let (before, from) = rest.split_at(begin);
        out.push_str(before);
        let run = from.len() - from.trim_start_matches('`').len();
        let (ticks, inside) = from.split_at(run);
        if before.ends_with('\\') {
            out.push_str(ticks);
            rest = inside;
            continue;
        }
        let mut at = 0;
        let end = loop {
            let next = at + inside[at..].find('`').expect("a code span ends in its line");
            let length = inside[next..].len() - inside[next..].trim_start_matches('`').len();
            if length == run {
                break next + length;
            }
            at = next + length;
        };
        rest = &inside[end..];
    }
    out.push_str(rest);
    out
}

#[test]
fn lines_of_the_terminal_have_eighty_columns() {
    for mut result in [full(), HOSTILE_RESULT.clone()] {
        // Commands are not broken, so that they can be copied.
        result.findings.iter_mut().for_each(|finding| finding.repeat = None);
        let report = report(None, &result);
        let longer: Vec<&str> = report.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(longer.is_empty(), "{longer:?}");
    }
}

#[test]
fn colour_is_used_on_request_only() {
    let result = full();
    let plain = terminal(&result, &Options::default());
    let coloured = terminal(&result, &Options { colour: true, ..Options::default() });
    assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}[1;31m"));
    let mut stripped = coloured;
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[36m", "\u{1b}[1;31m"] {
        stripped = stripped.replace(code, "");
    }
    assert_eq!(stripped, plain);
}
