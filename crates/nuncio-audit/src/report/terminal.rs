//! The report in the terminal: plain text for 80 columns, with colour on request.

mod screen;

use self::screen::{Screen, Style};
use super::{
    baseline::{Change, ChangeKind, Changes},
    digest::{self, Topic, Variant},
    format::Options,
    links,
    names::{Names, version_and_binding},
    score::{Score, Tally, score},
    text, words,
};
use crate::{AuditResult, Verdict};

/// Variants of a finding that are shown with their evidence.
const MAX_VARIANTS: usize = 3;
/// Lines of an observation or an expectation.
const MAX_EVIDENCE_LINES: usize = 12;

/// The report for the terminal.
#[must_use]
pub fn terminal(result: &AuditResult, options: &Options<'_>) -> String {
    let score = score(result);
    let mut screen = Screen::new(options.colour);
    head(&mut screen, result);
    if result.grounds.no_card {
        // Grade, score and coverage of nothing would mislead.
        screen.blank();
        screen.styled(Style::Strong, &format!("No grade: no agent card at {}", text::line(&result.target)));
    } else {
        grade(&mut screen, &score);
        categories(&mut screen, &score);
        interfaces(&mut screen, result);
        capabilities(&mut screen, result);
    }
    findings(&mut screen, result);
    unseen(&mut screen, result);
    if let Some(changes) = options.changes {
        show_changes(&mut screen, changes, &Names::new(result));
    }
    foot(&mut screen, result);
    screen.finish()
}

fn head(screen: &mut Screen, result: &AuditResult) {
    let card = result.card.as_ref();
    let name = card.map_or_else(|| text::line(&result.target), |card| text::line(&card.name));
    screen.title(&format!("A2A audit of {name}"));
    screen.field("target", &text::line(&result.target));
    match card {
        Some(card) => {
            screen.field("version", &text::line(&card.version));
            let shapes = text::names(card.shapes.iter().map(String::as_str));
            screen.field("card", &format!("{} (form of {shapes})", text::line(&card.url)));
        }
        None => screen.field("card", "none"),
    }
    let depths: Vec<&str> = result.depths.iter().map(|depth| words::depth_name(*depth)).collect();
    screen.field("date", &format!("{}, depth {}", text::line(&result.started), depths.join(", ")));
}

fn grade(screen: &mut Screen, score: &Score) {
    screen.blank();
    let overall = &score.overall;
    let line = format!(
        "Grade {}   score {}   coverage {}",
        score.letter(),
        percent(overall.score),
        percent(overall.coverage)
    );
    screen.styled(Style::Strong, &line);
    for cap in &score.caps {
        let limit =
            cap.at_most.map_or_else(|| "no grade".to_owned(), |grade| format!("at most {}", grade.as_str()));
        screen.text(2, &format!("{limit}: {}", cap.reason));
    }
}

fn percent(value: Option<u8>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value} %"))
}

fn categories(screen: &mut Screen, score: &Score) {
    screen.heading("Scores");
    screen.plain(&row(
        "category",
        ["score", "coverage", "pass", "loose", "fail", "info", "unseen"].map(str::to_owned),
    ));
    for category in &score.categories {
        screen.plain(&row(&category.title, cells(&category.tally)));
    }
    screen.plain(&row("all", cells(&score.overall)));
}

fn cells(tally: &Tally) -> [String; 7] {
    let counts = [tally.pass, tally.loose, tally.fail, tally.info, tally.unseen];
    let [pass, loose, fail, info, unseen] =
        counts.map(|count| if count == 0 { "·".to_owned() } else { count.to_string() });
    [percent(tally.score), percent(tally.coverage), pass, loose, fail, info, unseen]
}

fn row(title: &str, cells: [String; 7]) -> String {
    let [score, coverage, pass, loose, fail, info, unseen] = cells;
    format!("  {title:<22}{score:>7}{coverage:>10}{pass:>7}{loose:>7}{fail:>6}{info:>6}{unseen:>8}")
}

fn interfaces(screen: &mut Screen, result: &AuditResult) {
    if result.interfaces.is_empty() {
        return;
    }
    screen.heading("Interfaces");
    for report in &result.interfaces {
        let name = text::line(&version_and_binding(&report.id));
        let state = words::reachability_name(report.reachability);
        let url = text::line(&report.id.url);
        screen.hanging(Style::Plain, 2, 38, &format!("{name:<16}{state}"), &url);
        screen.labelled(4, "reason", &text::line(&report.reason));
    }
}

fn capabilities(screen: &mut Screen, result: &AuditResult) {
    if result.capabilities.is_empty() {
        return;
    }
    screen.heading("Declared and observed");
    for capability in &result.capabilities {
        let mark = match capability.agrees {
            Some(true) => "  ",
            Some(false) => "! ",
            None => "? ",
        };
        let name = text::line(&capability.name);
        let (declared, observed) = (text::line(&capability.declared), text::line(&capability.observed));
        let style = if capability.agrees == Some(false) { Style::Fail } else { Style::Plain };
        screen.hanging(style, 2, 26, &format!("{mark}{name}"), &format!("{declared} | {observed}"));
    }
    screen.text(2, "(declared | observed; ! they differ, ? not observed)");
}

fn findings(screen: &mut Screen, result: &AuditResult) {
    for verdict in [Verdict::Fail, Verdict::Loose, Verdict::Info] {
        let topics = digest::topics(result, verdict);
        if topics.is_empty() {
            continue;
        }
        screen.heading(match verdict {
            Verdict::Fail => "Requirements not met (high)",
            Verdict::Loose => "Recommendations not met (medium)",
            _ => "Worth knowing (low)",
        });
        for topic in &topics {
            show_topic(screen, topic);
        }
    }
}

fn show_topic(screen: &mut Screen, topic: &Topic<'_>) {
    let style = Style::of(topic.verdict);
    let label = words::verdict_name(topic.verdict).to_uppercase();
    let id = text::line(topic.id);
    screen.hanging(style, 2, 8, &label, &format!("{id}: {}", topic.title()));
    for variant in topic.variants.iter().take(MAX_VARIANTS) {
        show_variant(screen, variant);
    }
    if topic.variants.len() > MAX_VARIANTS {
        let left = topic.variants.iter().skip(MAX_VARIANTS).map(|variant| variant.interfaces.len().max(1));
        screen.text(8, &format!("and {} more findings like these", left.sum::<usize>()));
    }
    screen.labelled(8, "why", topic.why());
    screen.labelled(8, "fix", topic.fix());
    screen.blank();
}

fn show_variant(screen: &mut Screen, variant: &Variant<'_>) {
    let finding = variant.finding;
    let mut place = vec![words::level_name(finding.level).to_owned()];
    place.extend(
        links::cited(finding)
            .map(|(version, section)| format!("A2A {version} section {}", text::line(section))),
    );
    if !variant.interfaces.is_empty() {
        place.push(format!("on {}", text::names(variant.interfaces.iter().map(String::as_str))));
    }
    screen.text(8, &place.join(", "));
    screen.labelled(8, "reason", &text::line(&finding.reason));
    screen.evidence(8, "observed", finding.observed.as_deref(), MAX_EVIDENCE_LINES);
    screen.evidence(8, "expected", finding.expected.as_deref(), MAX_EVIDENCE_LINES);
    screen.command(8, "repeat", finding.repeat.as_deref());
}

fn unseen(screen: &mut Screen, result: &AuditResult) {
    let unseen = digest::unseen(result);
    if unseen.is_empty() {
        return;
    }
    screen.heading("Not seen");
    for group in unseen {
        let ids: Vec<&str> = group.checks();
        let line =
            format!("{} ({}): {}", group.reason, group.findings.len(), text::names(ids.iter().copied()));
        screen.hanging(Style::Plain, 2, 4, "", &line);
    }
}

fn show_changes(screen: &mut Screen, changes: &Changes, names: &Names<'_>) {
    screen.heading(&format!("Changes since {}", text::line(&changes.since)));
    screen.text(2, &changes.summary());
    for kind in [ChangeKind::Worse, ChangeKind::Better, ChangeKind::Other] {
        let style = match kind {
            ChangeKind::Worse => Style::Fail,
            ChangeKind::Better => Style::Pass,
            ChangeKind::Other => Style::Plain,
        };
        for change in changes.of(kind) {
            screen.hanging(style, 2, 10, kind.as_str(), &describe(change, names));
        }
    }
}

/// A change in one line.
fn describe(change: &Change, names: &Names<'_>) -> String {
    let place = change
        .interface
        .as_ref()
        .map_or_else(String::new, |interface| format!(" on {}", names.of(interface)));
    text::line(&format!("{}{place}: {}", change.check, change.verdicts()))
}

fn foot(screen: &mut Screen, result: &AuditResult) {
    screen.blank();
    if result.deadline_passed {
        screen.styled(Style::Loose, "The deadline ended the audit early.");
    }
    if !result.left_running.is_empty() {
        let ids = text::names(result.left_running.iter().map(String::as_str));
        screen.styled(Style::Fail, "Tasks that the audit began and could not cancel:");
        screen.text(2, &ids);
    }
    screen.plain(&format!("{} requests, {} messages sent", result.requests_sent, result.messages_sent));
}
