//! Reports of an audit: for people (terminal, Markdown, HTML) and for machines (JSON, JUnit, SARIF).
//!
//! Reading order of the modules:
//!
//! | module | content |
//! |---|---|
//! | [`score`](fn@score) | points, coverage, grade and its caps |
//! | `digest`, `acceptance` | the findings as people read them: grouped and ranked; the acceptance list |
//! | [`baseline`] | the differences between two audits of one agent |
//! | `text`, `bounds`, `markup` | escaping and bounds of text that agents sent |
//! | `words`, `names`, `links` | the words of reports, the names of interfaces, the addresses of sections |
//! | `terminal`, `markdown`, `html`, `json`, `junit`, `sarif` | one format each |
//! | [`reference`](fn@reference) | the catalogue as a page of the documentation |
//!
//! **Invariants:** every string of a result is hostile and passes `text` or `markup` on its way out; a report
//! is a function of its result alone, so that the same result gives the same bytes.

mod acceptance;
pub mod baseline;
mod bounds;
mod digest;
mod format;
mod html;
mod json;
mod junit;
mod links;
mod markdown;
mod markup;
mod names;
mod reference;
mod sarif;
mod score;
mod terminal;
mod text;
mod words;

#[cfg(test)]
mod tests;

pub use self::{
    acceptance::{Acceptance, AcceptanceItem},
    digest::{Priority, Recommendation},
    format::{FailOn, Format, Options},
    html::html,
    json::{JsonReport, json, schema},
    junit::junit,
    markdown::markdown,
    reference::reference,
    sarif::sarif,
    score::{Cap, CategoryScore, Grade, Score, Tally, score},
    terminal::terminal,
};
use crate::AuditResult;

/// The report in this format.
#[must_use]
pub fn render(format: Format, result: &AuditResult, options: &Options<'_>) -> String {
    match format {
        Format::Markdown => markdown(result, options),
        Format::Html => html(result, options),
        Format::Json => json(result, options),
        Format::Junit => junit(result, options),
        Format::Sarif => sarif(result, options),
    }
}
