//! The findings of the page, with observation and expectation side by side.

use super::{chip, code, link, tables::section};
use crate::{
    AuditResult, Excerpt, Finding, Verdict,
    report::{
        digest::{self, Topic, Variant},
        links,
        markup::Markup,
        text::{block, line, names},
        words,
    },
};

/// Variants of a finding that are shown with their evidence.
const MAX_VARIANTS: usize = 6;
/// Words of an anchor.
const MAX_ANCHOR_WORDS: usize = 6;

pub(super) fn section_of_findings(page: &mut Markup, result: &AuditResult) {
    let topics = digest::ranked(result);
    section(page, "Findings", |page| {
        if topics.is_empty() {
            page.element("p", &[], "Nothing to report on the checks that were seen.");
        }
        for topic in &topics {
            page.line();
            article(page, topic);
        }
    });
}

/// The anchor of a finding. Of the id it has letters and digits only, because it may be any text.
pub(super) fn anchor(check: &str, verdict: Verdict) -> String {
    let words =
        check.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: String = words.take(MAX_ANCHOR_WORDS).flat_map(|word| [word, "-"]).collect();
    format!("{words}{}", words::verdict_name(verdict))
}

fn article(page: &mut Markup, topic: &Topic<'_>) {
    let class = format!("is-{}", words::verdict_name(topic.verdict));
    page.nest("article", &[("class", &class), ("id", &anchor(topic.id, topic.verdict))], |page| {
        page.nest("h3", &[], |page| {
            chip(page, topic.verdict);
            page.element("span", &[], &topic.title());
            code(page, topic.id);
        });
        for (label, text) in [("Why: ", topic.why()), ("Fix: ", topic.fix())] {
            if !text.is_empty() {
                page.nest("p", &[], |page| {
                    page.element("strong", &[], label);
                    page.text(text);
                });
            }
        }
        topic.variants.iter().take(MAX_VARIANTS).for_each(|each| variant(page, each));
        if topic.variants.len() > MAX_VARIANTS {
            let left =
                topic.variants.iter().skip(MAX_VARIANTS).map(|variant| variant.interfaces.len().max(1));
            page.element(
                "p",
                &[("class", "dim")],
                &format!("And {} more findings like these.", left.sum::<usize>()),
            );
        }
    });
}

fn variant(page: &mut Markup, variant: &Variant<'_>) {
    let finding = variant.finding;
    page.nest("div", &[("class", "variant")], |page| {
        page.nest("p", &[], |page| place(page, variant));
        if finding.observed.is_some() || finding.expected.is_some() {
            page.nest("div", &[("class", "pair")], |page| {
                evidence(page, "Observed", finding.observed.as_deref());
                evidence(page, "Expected", finding.expected.as_deref());
            });
        }
        if let Some(repeat) = &finding.repeat {
            page.nest("div", &[("class", "repeat")], |page| evidence(page, "Repeat", Some(repeat)));
        }
        if let Some(excerpt) = &finding.exchange {
            exchange(page, excerpt);
        }
    });
}

/// The level, the section, the interfaces and the reason.
fn place(page: &mut Markup, variant: &Variant<'_>) {
    let finding: &Finding = variant.finding;
    page.text(words::level_name(finding.level));
    if let Some((version, section)) = links::cited(finding) {
        page.text(", ");
        link(page, &links::section(version, section), &format!("{version} section {}", line(section)));
    }
    if !variant.interfaces.is_empty() {
        page.text(&format!(", on {}", names(variant.interfaces.iter().map(String::as_str))));
    }
    if !finding.reason.is_empty() {
        page.text(&format!(": {}", line(&finding.reason)));
    }
}

fn evidence(page: &mut Markup, label: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    page.nest("div", &[], |page| {
        page.element("h4", &[], label);
        // A block that scrolls can be reached by keyboard.
        page.element("pre", &[("tabindex", "0")], &block(text));
    });
}

fn exchange(page: &mut Markup, excerpt: &Excerpt) {
    page.nest("details", &[], |page| {
        page.element("summary", &[], "Request and response");
        page.nest("div", &[("class", "pair")], |page| {
            evidence(page, "Request", Some(&excerpt.request));
            evidence(page, "Response", Some(&excerpt.response));
        });
    });
}
