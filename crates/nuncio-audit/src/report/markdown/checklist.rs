//! The checklist: every check with its result per interface, the date and a link to the specification.

use super::{code, escape::prose};
use crate::{
    Area, AuditResult, Finding, Verdict, catalogue,
    report::{links, names::Names, text, words},
};

pub(super) fn section(result: &AuditResult) -> String {
    let names = Names::new(result);
    let mut out = format!("## Checklist of {}\n", text::date(&result.started));
    for area in Area::ALL {
        let findings: Vec<&Finding> =
            result.findings.iter().filter(|finding| finding.area == *area).collect();
        if !findings.is_empty() {
            out.push_str(&format!("\n### {}\n\n{}", area.title(), table(&findings, &names)));
        }
    }
    out
}

/// A row per check; findings of one check follow each other in a result.
fn table(findings: &[&Finding], names: &Names<'_>) -> String {
    let rows = findings.chunk_by(|one, next| one.check == next.check).map(|findings| row(findings, names));
    format!("| check | demand | section | result |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

fn row(findings: &[&Finding], names: &Names<'_>) -> String {
    let Some(first) = findings.first() else { return String::new() };
    let title = catalogue::find(&first.check).map_or("", |check| check.title);
    let level = words::level_name(first.level);
    format!(
        "| {} | {level}: {} | {} | {} |\n",
        code(&first.check),
        prose(title),
        sections(findings),
        results(findings, names)
    )
}

/// The sections of the findings, each once.
fn sections(findings: &[&Finding]) -> String {
    let mut links: Vec<String> = Vec::new();
    for finding in findings {
        let Some((version, section)) = links::cited(finding) else { continue };
        let link = format!("[{version}: {}]({})", prose(section), links::section(version, section));
        if !links.contains(&link) {
            links.push(link);
        }
    }
    links.join(", ")
}

/// The verdicts: one if all interfaces agree, otherwise one per interface.
fn results(findings: &[&Finding], names: &Names<'_>) -> String {
    let Some(first) = findings.first() else { return String::new() };
    if findings.iter().all(|finding| finding.verdict == first.verdict) {
        let count =
            if findings.len() > 1 { format!(" on {} interfaces", findings.len()) } else { String::new() };
        return format!("{}{count}", mark(first));
    }
    let each = findings
        .iter()
        .map(|finding| format!("{}: {}", prose(&names.or_agent(finding.interface.as_ref())), mark(finding)));
    each.collect::<Vec<_>>().join("<br>")
}

/// The verdict with its sign.
fn mark(finding: &Finding) -> String {
    let sign = match finding.verdict {
        Verdict::Pass => "✓",
        Verdict::Loose => "△",
        Verdict::Fail => "✗",
        Verdict::Info => "i",
        Verdict::Unseen => "–",
    };
    format!("{sign} {}", words::verdict_name(finding.verdict))
}
