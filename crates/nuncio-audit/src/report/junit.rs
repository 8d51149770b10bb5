//! The report as JUnit XML: a suite per category, a case per finding.

use super::{
    format::Options,
    markup::Markup,
    names::version_and_binding,
    text::{block, line},
    words,
};
use crate::{Area, AuditResult, Finding, Verdict, catalogue};

/// The XML declaration.
const PROLOGUE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// The JUnit report. A finding is a failure if [`super::FailOn`] includes it, skipped if it was unseen, and passed
/// otherwise.
#[must_use]
pub fn junit(result: &AuditResult, options: &Options<'_>) -> String {
    let mut xml = Markup::new(PROLOGUE);
    let all: Vec<&Finding> = result.findings.iter().collect();
    let name = format!("A2A audit of {}", line(&result.target));
    // The root has no number of skipped cases, by the schemas of JUnit reports.
    xml.nest("testsuites", &attributes(&name, &counts(&all, options))[..4], |xml| {
        for area in Area::ALL {
            let cases: Vec<&Finding> = all.iter().copied().filter(|finding| finding.area == *area).collect();
            if !cases.is_empty() {
                suite(xml, *area, &cases, result, options);
            }
        }
        xml.line();
    });
    xml.finish()
}

/// The numbers of cases, failures and skipped cases.
fn counts(cases: &[&Finding], options: &Options<'_>) -> [String; 3] {
    let failures = cases.iter().filter(|finding| options.fail_on.includes(finding.verdict)).count();
    let skipped = cases.iter().filter(|finding| finding.verdict == Verdict::Unseen).count();
    [cases.len(), failures, skipped].map(|count| count.to_string())
}

fn attributes<'a>(
    name: &'a str,
    [tests, failures, skipped]: &'a [String; 3],
) -> [(&'static str, &'a str); 5] {
    [("name", name), ("tests", tests), ("failures", failures), ("errors", "0"), ("skipped", skipped)]
}

fn suite(xml: &mut Markup, area: Area, cases: &[&Finding], result: &AuditResult, options: &Options<'_>) {
    xml.line();
    let counts = counts(cases, options);
    let started = line(&result.started);
    let attributes =
        [&attributes(area.title(), &counts)[..], &[("timestamp", &started), ("time", "0")]].concat();
    xml.nest("testsuite", &attributes, |xml| {
        for finding in cases {
            xml.line();
            case(xml, finding, options);
        }
        xml.line();
    });
}

fn case(xml: &mut Markup, finding: &Finding, options: &Options<'_>) {
    let name = case_name(finding);
    let class = format!("nuncio.audit.{}", finding.area.as_str());
    xml.nest("testcase", &[("classname", &class), ("name", &name), ("time", "0")], |xml| {
        match finding.verdict {
            verdict if options.fail_on.includes(verdict) => {
                let kind = words::level_name(finding.level);
                let attributes = [("type", kind), ("message", &message(finding))];
                xml.element("failure", &attributes, &details(finding));
            }
            Verdict::Unseen => xml.empty("skipped", &[("message", &message(finding))]),
            Verdict::Loose | Verdict::Info => xml.element("system-out", &[], &details(finding)),
            Verdict::Pass | Verdict::Fail => {}
        }
    });
}

/// The id of the check, with its interface; the URL tells interfaces of one version and binding apart.
fn case_name(finding: &Finding) -> String {
    let id = line(&finding.check);
    match &finding.interface {
        Some(interface) => {
            format!("{id} [{} {}]", line(&version_and_binding(interface)), line(&interface.url))
        }
        None => id,
    }
}

fn message(finding: &Finding) -> String {
    if finding.reason.is_empty() {
        catalogue::find(&finding.check).map_or_else(String::new, |check| check.title.to_owned())
    } else {
        line(&finding.reason)
    }
}

/// The evidence and the advice, a paragraph each.
fn details(finding: &Finding) -> String {
    let check = catalogue::find(&finding.check);
    let verdict = words::verdict_name(finding.verdict);
    let section =
        finding.section.as_deref().map_or_else(String::new, |section| format!(", section {}", line(section)));
    let parts = [
        (verdict, Some(format!("{}{section}: {}", words::level_name(finding.level), message(finding)))),
        ("demand", check.map(|check| check.title.to_owned())),
        ("observed", finding.observed.as_deref().map(block)),
        ("expected", finding.expected.as_deref().map(block)),
        ("why", check.map(|check| check.why.to_owned())),
        ("fix", check.map(|check| check.fix.to_owned())),
        ("repeat", finding.repeat.as_deref().map(block)),
    ];
    let parts = parts.into_iter().filter_map(|(label, part)| Some(format!("{label}: {}", part?)));
    parts.collect::<Vec<_>>().join("\n")
}
