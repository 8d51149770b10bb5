//! The report in Markdown.

mod checklist;
mod escape;
mod findings;

use self::escape::{code, prose};
use super::{
    acceptance::{Acceptance, acceptance},
    baseline::{ChangeKind, Changes},
    digest::{self, Priority},
    format::Options,
    links,
    names::Names,
    score::{Score, score},
    text, words,
};
use crate::{AuditResult, CardFacts};
use nuncio_protocol::Version;

/// The report in Markdown.
#[must_use]
pub fn markdown(result: &AuditResult, options: &Options<'_>) -> String {
    let score = score(result);
    let sections = [
        head(result),
        summary(&score),
        options.changes.map_or_else(String::new, |since| changes(result, since)),
        interfaces(result),
        capabilities(result),
        recommendations(result),
        findings::section(result),
        unseen(result),
        acceptance_list(result),
        checklist::section(result),
        foot(result),
    ];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

fn head(result: &AuditResult) -> String {
    let name = result.card.as_ref().map_or(&result.target, |card| &card.name);
    let depths: Vec<&str> = result.depths.iter().map(|depth| words::depth_name(*depth)).collect();
    let mut out = format!("# A2A audit of {}\n\n| subject | value |\n|---|---|\n", prose(name));
    let mut row = |label: &str, value: &str| out.push_str(&format!("| {label} | {value} |\n"));
    row("target", &code(&result.target));
    match &result.card {
        Some(card) => card_rows(card, &mut row),
        None => row("card", "none"),
    }
    row("date", text::date(&result.started));
    row("depth", &depths.join(", "));
    row("auditor", &format!("nuncio {}", prose(&result.auditor)));
    out
}

fn card_rows(card: &CardFacts, row: &mut impl FnMut(&str, &str)) {
    row("card", &code(&card.url));
    row("form of the card", &code(&text::names(card.shapes.iter().map(String::as_str))));
    row("version of the agent", &code(&card.version));
    if let Some(provider) = &card.provider {
        row("provider", &code(provider));
    }
    for (label, names) in [
        ("skills", &card.skills),
        ("security schemes", &card.security_schemes),
        ("extensions", &card.extensions),
    ] {
        if !names.is_empty() {
            row(label, &code(&text::names(names.iter().map(String::as_str))));
        }
    }
}

fn percent(value: Option<u8>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value} %"))
}

fn summary(score: &Score) -> String {
    let overall = &score.overall;
    let mut out = format!(
        "## Grade {}\n\n**Score {}, coverage {}.** MUST weighs 3 and SHOULD 1, over the checks that were seen.\n\n",
        score.letter(),
        percent(overall.score),
        percent(overall.coverage)
    );
    for cap in &score.caps {
        let limit =
            cap.at_most.map_or_else(|| "No grade".to_owned(), |grade| format!("At most {}", grade.as_str()));
        out.push_str(&format!("- {limit}: {}\n", cap.reason));
    }
    if !score.caps.is_empty() {
        out.push('\n');
    }
    out.push_str("| category | score | coverage | pass | loose | fail | info | unseen |\n");
    out.push_str("|---|---:|---:|---:|---:|---:|---:|---:|\n");
    let categories = score.categories.iter().map(|category| (category.title.clone(), category.tally));
    for (title, tally) in categories.chain([("**all**".to_owned(), score.overall)]) {
        out.push_str(&format!(
            "| {title} | {} | {} | {} | {} | {} | {} | {} |\n",
            percent(tally.score),
            percent(tally.coverage),
            tally.pass,
            tally.loose,
            tally.fail,
            tally.info,
            tally.unseen
        ));
    }
    out
}

fn changes(result: &AuditResult, changes: &Changes) -> String {
    let names = Names::new(result);
    let mut out =
        format!("## Changes since {}\n\n{}\n", text::date(&changes.since), prose(&changes.summary()));
    let rows = [ChangeKind::Worse, ChangeKind::Better, ChangeKind::Other]
        .into_iter()
        .flat_map(|kind| changes.of(kind));
    let rows: Vec<String> = rows
        .map(|change| {
            let interface =
                change.interface.as_ref().map_or_else(|| "the agent".to_owned(), |id| code(&names.of(id)));
            format!(
                "| {} | {} | {interface} | {} |\n",
                change.kind.as_str(),
                code(&change.check),
                change.verdicts()
            )
        })
        .collect();
    if !rows.is_empty() {
        out.push_str("\n| change | check | interface | verdict |\n|---|---|---|---|\n");
        out.extend(rows);
    }
    out
}

fn interfaces(result: &AuditResult) -> String {
    if result.interfaces.is_empty() {
        return String::new();
    }
    let mut out = "## Interfaces\n\n| version | binding | URL | state |\n|---|---|---|---|\n".to_owned();
    for report in &result.interfaces {
        let reason =
            if report.reason.is_empty() { String::new() } else { format!(": {}", prose(&report.reason)) };
        let state = words::reachability_name(report.reachability);
        let [version, binding, url] =
            [&report.id.version, &report.id.binding, &report.id.url].map(|part| code(part));
        out.push_str(&format!("| {version} | {binding} | {url} | {state}{reason} |\n"));
    }
    out
}

fn capabilities(result: &AuditResult) -> String {
    if result.capabilities.is_empty() {
        return String::new();
    }
    let mut out =
        "## Declared and observed\n\n| capability | declared | observed | result |\n|---|---|---|---|\n"
            .to_owned();
    for capability in &result.capabilities {
        let agrees = match capability.agrees {
            Some(true) => "agree",
            Some(false) => "**differ**",
            None => "not observed",
        };
        let [name, declared, observed] =
            [&capability.name, &capability.declared, &capability.observed].map(|part| prose(part));
        out.push_str(&format!("| {name} | {declared} | {observed} | {agrees} |\n"));
    }
    out
}

fn recommendations(result: &AuditResult) -> String {
    let all = digest::recommendations(result);
    if all.is_empty() {
        return "## Recommendations\n\nNone.\n".to_owned();
    }
    let mut out = "## Recommendations\n".to_owned();
    for priority in [Priority::High, Priority::Medium, Priority::Low] {
        let mut of_priority =
            all.iter().filter(|recommendation| recommendation.priority == priority).peekable();
        if of_priority.peek().is_some() {
            out.push_str(&format!("\n### Priority {}\n\n", priority.as_str()));
        }
        for recommendation in of_priority {
            out.push_str(&format!("1. {} ({})\n", prose(&recommendation.fix), code(&recommendation.check)));
        }
    }
    out
}

fn unseen(result: &AuditResult) -> String {
    let groups = digest::unseen(result);
    if groups.is_empty() {
        return String::new();
    }
    let mut out = "## Not seen\n\n| reason | findings | checks |\n|---|---:|---|\n".to_owned();
    for group in groups {
        let ids: Vec<String> = group.checks().into_iter().map(code).collect();
        out.push_str(&format!("| {} | {} | {} |\n", group.reason, group.findings.len(), ids.join(", ")));
    }
    out
}

fn acceptance_list(result: &AuditResult) -> String {
    let mut out = "## Acceptance list\n\n".to_owned();
    for item in acceptance(result) {
        let (mark, state) = match item.state {
            Acceptance::Met => ("x", ""),
            Acceptance::Broken => (" ", ": **not met**"),
            Acceptance::Unseen => (" ", ": not seen"),
        };
        let note = if item.note.is_empty() { String::new() } else { format!(" ({})", prose(&item.note)) };
        out.push_str(&format!("- [{mark}] {}{state}{note}\n", item.condition));
    }
    out
}

fn foot(result: &AuditResult) -> String {
    let mut out = "## The audit\n\n".to_owned();
    out.push_str(&format!("- {} requests, {} messages sent.\n", result.requests_sent, result.messages_sent));
    if result.deadline_passed {
        out.push_str("- The deadline ended the audit early.\n");
    }
    if !result.left_running.is_empty() {
        let ids = text::names(result.left_running.iter().map(String::as_str));
        out.push_str(&format!("- Tasks that the audit began and could not cancel: {}.\n", code(&ids)));
    }
    out.push_str(&format!(
        "- Specifications: [A2A 1.0.0]({}), [A2A 0.3.0]({}).\n",
        links::specification(Version::V1_0),
        links::specification(Version::V0_3)
    ));
    out
}
