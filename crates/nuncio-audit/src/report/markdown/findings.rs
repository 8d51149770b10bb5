//! The findings with their evidence: observed, expected, why, fix, and a command to repeat the request.

use super::{
    code,
    escape::{fenced, prose},
};
use crate::{
    AuditResult, Finding,
    report::{
        digest::{self, Topic, Variant},
        links, words,
    },
};

/// Variants of a finding that are shown with their evidence.
const MAX_VARIANTS: usize = 6;

pub(super) fn section(result: &AuditResult) -> String {
    let topics = digest::ranked(result);
    if topics.is_empty() {
        return "## Findings\n\nNothing to report on the checks that were seen.\n".to_owned();
    }
    let topics: String = topics.iter().map(topic).collect();
    format!("## Findings\n{topics}")
}

fn topic(topic: &Topic<'_>) -> String {
    let verdict = words::verdict_name(topic.verdict);
    let mut out = format!("\n### {verdict}: {} ({})\n\n", prose(&topic.title()), code(topic.id));
    for (label, text) in [("Why", topic.why()), ("Fix", topic.fix())] {
        if !text.is_empty() {
            out.push_str(&format!("*{label}:* {}\n\n", prose(text)));
        }
    }
    out.extend(topic.variants.iter().take(MAX_VARIANTS).map(variant));
    if topic.variants.len() > MAX_VARIANTS {
        let left = topic.variants.iter().skip(MAX_VARIANTS).map(|variant| variant.interfaces.len().max(1));
        out.push_str(&format!("- and {} more findings like these\n", left.sum::<usize>()));
    }
    out
}

fn variant(variant: &Variant<'_>) -> String {
    let finding = variant.finding;
    let names: Vec<String> = variant.interfaces.iter().map(|name| code(name)).collect();
    let place = if names.is_empty() { "the agent".to_owned() } else { names.join(", ") };
    let level = words::level_name(finding.level);
    let mut out = format!("- {level}{} on {place}: {}\n", citation(finding), prose(&finding.reason));
    for (label, language, text) in [
        ("Observed", "", &finding.observed),
        ("Expected", "", &finding.expected),
        ("Repeat", "sh", &finding.repeat),
    ] {
        if let Some(text) = text {
            out.push_str(&format!("\n  {label}:\n\n{}", fenced(text, language, "  ")));
        }
    }
    out.push('\n');
    out
}

/// The section of the specification as a link.
fn citation(finding: &Finding) -> String {
    links::cited(finding).map_or_else(String::new, |(version, section)| {
        format!(", [{version} section {}]({})", prose(section), links::section(version, section))
    })
}
