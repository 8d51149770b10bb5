//! The report in one HTML file: no script, no resource from elsewhere, for light and dark.

mod findings;
mod head;
mod lists;
mod tables;

use super::{format::Options, markup::Markup, score::score, text::line, words};
use crate::{AuditResult, Verdict};

/// The style sheet, which is part of the page.
const STYLE: &str = include_str!("html/style.css");

/// Forbids everything but the style sheet, should markup of an agent ever get into the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The report in HTML.
#[must_use]
pub fn html(result: &AuditResult, options: &Options<'_>) -> String {
    let score = score(result);
    let mut page = Markup::new("<!DOCTYPE html>");
    page.open("html", &[("lang", "en")]);
    begin(&mut page, result);
    page.open("body", &[]);
    page.element("a", &[("class", "skip"), ("href", "#report")], "To the report");
    head::head(&mut page, result, &score);
    page.nest("main", &[("id", "report")], |page| {
        head::tiles(page, &score);
        if let Some(changes) = options.changes {
            lists::changes(page, result, changes);
        }
        tables::categories(page, &score);
        tables::interfaces(page, result);
        tables::capabilities(page, result);
        lists::recommendations(page, result);
        findings::section_of_findings(page, result);
        tables::unseen(page, result);
        lists::acceptance_list(page, result);
        tables::checklist(page, result);
    });
    head::foot(&mut page, result);
    page.finish()
}

fn begin(page: &mut Markup, result: &AuditResult) {
    page.nest("head", &[], |page| {
        page.empty("meta", &[("charset", "utf-8")]);
        page.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
        page.empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
        page.empty("meta", &[("name", "referrer"), ("content", "no-referrer")]);
        page.element("title", &[], &format!("A2A audit of {}", head::name(result)));
        page.nest("style", &[], |page| page.raw(STYLE));
    });
    page.line();
}

/// The verdict as a chip: its word and its colour.
fn chip(page: &mut Markup, verdict: Verdict) {
    let word = words::verdict_name(verdict);
    page.element("span", &[("class", &format!("chip {word}"))], word);
}

/// A link to the specification, in a page of its own.
fn link(page: &mut Markup, address: &str, label: &str) {
    page.element("a", &[("href", address), ("rel", "noopener noreferrer")], label);
}

/// Text of the agent in one line, as code.
fn code(page: &mut Markup, text: &str) {
    page.element("code", &[], &line(text));
}

fn percent(value: Option<u8>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value} %"))
}
