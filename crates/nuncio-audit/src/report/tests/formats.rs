//! Tests of the content of reports.

use std::path::Path;

use super::{markup_reader::elements, sample::full};
use crate::{
    AuditResult, Verdict,
    report::{FailOn, Format, Options, html, json, junit, markdown, render, terminal},
};

#[test]
fn the_extension_names_the_format() {
    for (path, format) in [
        ("out.md", Some(Format::Markdown)),
        ("OUT.HTML", Some(Format::Html)),
        ("dir.v1/out.json", Some(Format::Json)),
        ("out.xml", Some(Format::Junit)),
        ("out.sarif", Some(Format::Sarif)),
        ("out.sarif.json", Some(Format::Sarif)),
        ("out.txt", None),
        ("out", None),
        (".md", None),
    ] {
        assert_eq!(Format::of_path(Path::new(path)), format, "{path}");
    }
}

#[test]
fn the_same_result_gives_the_same_bytes() {
    let (one, two) = (full(), full());
    for format in [Format::Markdown, Format::Html, Format::Json, Format::Junit, Format::Sarif] {
        let options = Options::default();
        assert_eq!(render(format, &one, &options), render(format, &two, &options), "{format:?}");
    }
}

/// Reports for people have the parts of the reports that people wrote by hand.
#[test]
fn reports_for_people_have_every_part() {
    let result = full();
    let options = Options::default();
    let parts = [
        "Weather agent",
        "Interfaces",
        "Declared and observed",
        "Recommendations",
        "Priority high",
        "Priority medium",
        "Priority low",
        "Findings",
        "Acceptance list",
        "Checklist of 2026-11-18",
        "Not seen",
        "https://a2a-protocol.org/v1.0.0/specification/",
        "https://a2a-protocol.org/v0.3.0/specification/",
        "148 requests, 6 messages sent",
    ];
    for report in [markdown(&result, &options), html(&result, &options)] {
        for part in parts {
            assert!(report.contains(part), "{part}");
        }
    }
}

/// The broken checks of a result.
fn broken(result: &AuditResult) -> impl Iterator<Item = &str> {
    let broken =
        result.findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Fail | Verdict::Loose));
    broken.map(|finding| finding.check.as_str())
}

#[test]
fn every_broken_demand_is_in_every_report_with_its_advice() {
    let result = full();
    let options = Options { fail_on: FailOn::Should, ..Options::default() };
    let mut reports =
        vec![("terminal", terminal(&result, &options).split_whitespace().collect::<Vec<_>>().join(" "))];
    for format in [Format::Markdown, Format::Html, Format::Json, Format::Junit, Format::Sarif] {
        reports.push(("file", render(format, &result, &options)));
    }
    for (name, report) in &reports {
        for check in broken(&result) {
            assert!(report.contains(check), "{name}: {check}");
        }
        for text in ["Clients read the card first", "curl -sS -X POST"] {
            let shown = text.starts_with("curl")
                || result.findings.iter().any(|f| f.check == "card.found" && f.verdict == Verdict::Fail);
            assert!(!shown || report.contains(text), "{name}: {text}");
        }
    }
}

#[test]
fn a_json_report_is_read_back_as_its_result() {
    let result = full();
    let report = json(&result, &Options::default());
    assert_eq!(crate::report::baseline::parse(&report).expect("our own report"), result);
}

#[test]
fn junit_counts_what_it_shows() {
    let result = full();
    for fail_on in [FailOn::Must, FailOn::Should] {
        let report = junit(&result, &Options { fail_on, ..Options::default() });
        let elements = elements(&report);
        let count = |name: &str| elements.iter().filter(|element| *element == name).count();
        let verdicts = |test: fn(FailOn, Verdict) -> bool| {
            result.findings.iter().filter(|finding| test(fail_on, finding.verdict)).count()
        };
        assert_eq!(count("testcase"), result.findings.len());
        assert_eq!(count("failure"), verdicts(FailOn::includes));
        assert_eq!(count("skipped"), verdicts(|_, verdict| verdict == Verdict::Unseen));
        let total =
            format!("tests=\"{}\" failures=\"{}\" errors=\"0\"", result.findings.len(), count("failure"));
        assert!(report.contains(&total), "{total}");
    }
}

#[test]
fn the_audit_fails_as_asked() {
    let mut result = full();
    assert!(FailOn::Must.is_met_by(&result));
    result.findings.retain(|finding| finding.verdict != Verdict::Fail);
    assert!(!FailOn::Must.is_met_by(&result) && FailOn::Should.is_met_by(&result));
    result.findings.retain(|finding| finding.verdict != Verdict::Loose);
    assert!(!FailOn::Should.is_met_by(&result));
}

/// Without a card there is nothing to grade.
#[test]
fn without_a_card_the_terminal_shows_no_figures() {
    let mut result = full();
    result.grounds.no_card = true;
    let shown = terminal(&result, &Options::default());
    assert!(shown.contains(&format!("No grade: no agent card at {}", result.target)), "{shown}");
    for words in ["\nGrade ", "   coverage ", "category  "] {
        assert!(!shown.contains(words), "{words}: {shown}");
    }
}
