//! The JSON report, by a published schema: the result with its score, recommendations and the texts of checks.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use super::{
    acceptance::{AcceptanceItem, acceptance},
    baseline::Changes,
    bounds::bounded,
    digest::{Recommendation, recommendations},
    format::Options,
    score::{Score, score},
    text,
};
use crate::{AuditResult, Check, catalogue};

/// The JSON report of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonReport {
    /// The result.
    #[serde(flatten)]
    pub result: AuditResult,
    /// The score and the grade.
    pub score: Score,
    /// The recommended changes: high, then medium, then low.
    pub recommendations: Vec<Recommendation>,
    /// The acceptance list.
    pub acceptance: Vec<AcceptanceItem>,
    /// The changes since the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// The checks of the findings, by id.
    pub checks: BTreeMap<String, CheckText>,
}

/// The texts of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckText {
    /// The demand in one sentence.
    pub title: String,
    /// The harm to callers of an agent that breaks it.
    pub why: String,
    /// The change that mends it.
    pub fix: String,
}

/// The JSON report. Invisible characters are escaped, so that it can be read in a terminal.
#[must_use]
pub fn json(result: &AuditResult, options: &Options<'_>) -> String {
    pretty(&JsonReport::new(result, options.changes))
}

/// The JSON Schema (2020-12) of the JSON report.
#[must_use]
pub fn schema() -> Schema {
    let mut schema = schema_for!(JsonReport);
    schema.insert("title".to_owned(), "Report of nuncio audit".into());
    schema
}

impl JsonReport {
    /// The report of a result, with every text cut to its bound.
    #[must_use]
    pub fn new(result: &AuditResult, changes: Option<&Changes>) -> Self {
        let result = bounded(result);
        let ids = result.findings.iter().map(|finding| finding.check.as_str());
        let checks = ids.filter_map(catalogue::find).map(|check| (check.id.to_owned(), check.into()));
        Self {
            score: score(&result),
            recommendations: recommendations(&result),
            acceptance: acceptance(&result),
            changes: changes.map(bounded),
            checks: checks.collect(),
            result,
        }
    }
}

impl From<&Check> for CheckText {
    fn from(check: &Check) -> Self {
        Self { title: check.title.to_owned(), why: check.why.to_owned(), fix: check.fix.to_owned() }
    }
}

/// Pretty JSON with a line feed at its end.
pub(super) fn pretty(value: &impl Serialize) -> String {
    // Of our types only maps with keys that are no strings could fail, and there are none.
    let json = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut out = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        // Outside of strings JSON has no hidden characters but line feeds.
        if text::is_hidden(character) && character != '\n' {
            let mut units = [0; 2];
            out.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(character);
        }
    }
    out.push('\n');
    out
}
