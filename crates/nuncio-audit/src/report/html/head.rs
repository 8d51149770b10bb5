//! The head of the page with grade and facts, and its foot.

use nuncio_protocol::Version;

use super::{link, percent};
use crate::{
    AuditResult, CardFacts,
    report::{
        links,
        markup::Markup,
        score::Score,
        text::{date, line, names},
        words,
    },
};

/// The name of the agent; its address if it has no card.
pub(super) fn name(result: &AuditResult) -> String {
    line(result.card.as_ref().map_or(&result.target, |card| &card.name))
}

pub(super) fn head(page: &mut Markup, result: &AuditResult, score: &Score) {
    page.nest("header", &[], |page| {
        page.nest("div", &[], |page| {
            grade(page, score);
            page.nest("div", &[("class", "about")], |page| {
                page.element("h1", &[], &format!("A2A audit of {}", name(result)));
                facts(page, result);
                caps(page, score);
            });
        });
    });
    page.line();
}

fn grade(page: &mut Markup, score: &Score) {
    let letter = score.letter();
    let label =
        score.grade.map_or_else(|| "No grade".to_owned(), |grade| format!("Grade {}", grade.as_str()));
    let class = format!("grade {}", score.grade.map_or("none", |grade| grade.as_str()));
    page.nest("div", &[("class", &class), ("role", "img"), ("aria-label", &label)], |page| {
        page.element("b", &[("aria-hidden", "true")], letter);
        page.element(
            "small",
            &[("aria-hidden", "true")],
            if score.grade.is_some() { "grade" } else { "no grade" },
        );
    });
}

fn facts(page: &mut Markup, result: &AuditResult) {
    let depths: Vec<&str> = result.depths.iter().map(|depth| words::depth_name(*depth)).collect();
    page.nest("dl", &[("class", "facts")], |page| {
        fact(page, "Target", &line(&result.target));
        match &result.card {
            Some(card) => card_facts(page, card),
            None => fact(page, "Card", "none"),
        }
        fact(page, "Date", date(&result.started));
        fact(page, "Depth", &depths.join(", "));
    });
}

fn card_facts(page: &mut Markup, card: &CardFacts) {
    fact(
        page,
        "Card",
        &format!("{} (form of {})", line(&card.url), names(card.shapes.iter().map(String::as_str))),
    );
    fact(page, "Version", &line(&card.version));
    if let Some(provider) = &card.provider {
        fact(page, "Provider", &line(provider));
    }
    for (label, list) in
        [("Skills", &card.skills), ("Security", &card.security_schemes), ("Extensions", &card.extensions)]
    {
        if !list.is_empty() {
            fact(page, label, &names(list.iter().map(String::as_str)));
        }
    }
}

fn fact(page: &mut Markup, name: &str, value: &str) {
    page.element("dt", &[], name);
    page.element("dd", &[], value);
}

fn caps(page: &mut Markup, score: &Score) {
    if score.caps.is_empty() {
        return;
    }
    page.nest("ul", &[("class", "caps")], |page| {
        for cap in &score.caps {
            let limit = cap
                .at_most
                .map_or_else(|| "No grade".to_owned(), |grade| format!("At most {}", grade.as_str()));
            page.element("li", &[], &format!("{limit}: {}", cap.reason));
        }
    });
}

/// Score, coverage and the numbers of verdicts.
pub(super) fn tiles(page: &mut Markup, score: &Score) {
    let overall = &score.overall;
    let tiles = [
        (percent(overall.score), "score"),
        (percent(overall.coverage), "coverage"),
        (overall.pass.to_string(), "passed"),
        (overall.fail.to_string(), "failed (MUST)"),
        (overall.loose.to_string(), "loose (SHOULD)"),
        (overall.info.to_string(), "information"),
        (overall.unseen.to_string(), "unseen"),
    ];
    page.nest("ul", &[("class", "tiles"), ("aria-label", "Numbers")], |page| {
        for (value, label) in tiles {
            page.nest("li", &[], |page| {
                page.element("b", &[], &value);
                page.element("span", &[], label);
            });
        }
    });
    page.line();
}

pub(super) fn foot(page: &mut Markup, result: &AuditResult) {
    page.line();
    page.nest("footer", &[], |page| {
        if result.deadline_passed {
            page.element("p", &[], "The deadline ended the audit early.");
        }
        if !result.left_running.is_empty() {
            let ids = names(result.left_running.iter().map(String::as_str));
            page.element("p", &[], &format!("Tasks that the audit began and could not cancel: {ids}"));
        }
        let (requests, messages) = (result.requests_sent, result.messages_sent);
        page.element(
            "p",
            &[],
            &format!(
                "{requests} requests, {messages} messages sent, from {} to {}.",
                line(&result.started),
                line(&result.finished)
            ),
        );
        page.nest("p", &[], |page| {
            page.text("Specifications: ");
            link(page, links::specification(Version::V1_0), "A2A 1.0.0");
            page.text(", ");
            link(page, links::specification(Version::V0_3), "A2A 0.3.0");
            page.text(&format!(". Made by nuncio audit {}.", line(&result.auditor)));
        });
    });
}
