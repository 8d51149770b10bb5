//! The report as SARIF 2.1.0: a rule per check, a result per broken demand.
//!
//! Met demands and facts are left out, because viewers show every result as a problem.

use jiff::Timestamp;
use nuncio_protocol::Version;
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    baseline::{Change, Changes},
    format::Options,
    json::pretty,
    links,
    names::version_and_binding,
    score::score,
    text::{block, line},
    words,
};
use crate::{AuditResult, Check, Finding, Level, Verdict, catalogue};

/// The address of the schema of SARIF 2.1.0.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The SARIF report.
#[must_use]
pub fn sarif(result: &AuditResult, options: &Options<'_>) -> String {
    let broken: Vec<&Finding> = result
        .findings
        .iter()
        .filter(|finding| matches!(finding.verdict, Verdict::Fail | Verdict::Loose))
        .collect();
    let rules = rules(&broken);
    let results: Vec<Value> =
        broken.iter().map(|finding| sarif_result(finding, result, &rules, options.changes)).collect();
    let driver = json!({
        "name": "nuncio audit",
        "version": line(&result.auditor),
        "rules": rules.iter().map(|check| rule(check)).collect::<Vec<_>>(),
    });
    let run = json!({
        "tool": { "driver": driver },
        "invocations": [invocation(result)],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": properties(result),
    });
    pretty(&json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] }))
}

/// The checks of the results, each once.
fn rules(findings: &[&Finding]) -> Vec<&'static Check> {
    let mut rules: Vec<&Check> = Vec::new();
    for check in findings.iter().filter_map(|finding| catalogue::find(&finding.check)) {
        if !rules.contains(&check) {
            rules.push(check);
        }
    }
    rules
}

fn rule(check: &Check) -> Value {
    let help = format!("{}\n\n{}", check.why, check.fix);
    json!({
        "id": check.id,
        "shortDescription": { "text": check.title },
        "fullDescription": { "text": check.why },
        "help": { "text": help },
        "helpUri": help_uri(check),
        "defaultConfiguration": { "level": if check.level == Level::Must { "error" } else { "warning" } },
        "properties": { "tags": ["a2a", check.area.as_str()] },
    })
}

/// The section of the newest version that has the demand.
fn help_uri(check: &Check) -> String {
    let versions = [Version::V1_0, Version::V0_3];
    let section = versions.into_iter().find_map(|version| Some((version, check.sections.of(version)?)));
    section.map_or_else(
        || links::specification(Version::V1_0).to_owned(),
        |(version, section)| links::section(version, section),
    )
}

fn sarif_result(
    finding: &Finding,
    result: &AuditResult,
    rules: &[&Check],
    changes: Option<&Changes>,
) -> Value {
    let mut value = Map::new();
    value.insert("ruleId".to_owned(), line(&finding.check).into());
    if let Some(index) = rules.iter().position(|rule| rule.id == finding.check) {
        value.insert("ruleIndex".to_owned(), index.into());
    }
    value.insert("kind".to_owned(), "fail".into());
    value.insert(
        "level".to_owned(),
        if finding.verdict == Verdict::Fail { "error" } else { "warning" }.into(),
    );
    value.insert("message".to_owned(), json!({ "text": message(finding) }));
    value.insert("locations".to_owned(), json!([location(finding, result)]));
    value.insert("partialFingerprints".to_owned(), json!({ "checkAndInterface/v1": fingerprint(finding) }));
    if let Some(changes) = changes {
        value.insert("baselineState".to_owned(), baseline_state(finding, changes).into());
    }
    value.insert("properties".to_owned(), evidence(finding));
    Value::Object(value)
}

/// The reason, the place and the fix in a paragraph, for viewers that show only the message.
fn message(finding: &Finding) -> String {
    let check = catalogue::find(&finding.check);
    let place = finding.interface.as_ref().map_or_else(
        || "The agent".to_owned(),
        |interface| format!("The interface {}", line(&version_and_binding(interface))),
    );
    let section = finding
        .section
        .as_deref()
        .map_or_else(String::new, |section| format!(" (section {})", line(section)));
    let demand = check.map_or("", |check| check.title);
    let fix = check.map_or("", |check| check.fix);
    let text = format!("{place} breaks “{demand}”{section}: {}\n{fix}", line(&finding.reason));
    plain_text(&text)
}

/// Escapes the braces of placeholders, and the brackets of links where the text has one.
fn plain_text(text: &str) -> String {
    let text = text.replace('{', "{{").replace('}', "}}");
    if text.contains("](") { text.replace('[', "\\[").replace(']', "\\]") } else { text }
}

fn location(finding: &Finding, result: &AuditResult) -> Value {
    let url = finding.interface.as_ref().map(|interface| interface.url.as_str());
    let url = url.or_else(|| result.card.as_ref().map(|card| card.url.as_str())).unwrap_or(&result.target);
    let name = finding
        .interface
        .as_ref()
        .map_or_else(|| "agent".to_owned(), |interface| line(&version_and_binding(interface)));
    let logical = json!([{ "fullyQualifiedName": format!("{name} {}", line(url)), "kind": "resource" }]);
    match Url::parse(url) {
        Ok(url) => json!({
            "physicalLocation": { "artifactLocation": { "uri": url.as_str() } },
            "logicalLocations": logical,
        }),
        Err(_) => json!({ "logicalLocations": logical }),
    }
}

/// The identity of a finding over runs.
fn fingerprint(finding: &Finding) -> String {
    let interface = finding.interface.as_ref();
    let interface = interface.map_or_else(String::new, |interface| {
        format!(" {} {}", line(&version_and_binding(interface)), line(&interface.url))
    });
    format!("{}{interface}", line(&finding.check))
}

fn baseline_state(finding: &Finding, changes: &Changes) -> &'static str {
    let is_this = |change: &&Change| change.check == finding.check && change.interface == finding.interface;
    match changes.changes.iter().find(is_this) {
        None => "unchanged",
        Some(change)
            if change.before.is_some_and(|before| matches!(before, Verdict::Fail | Verdict::Loose)) =>
        {
            "updated"
        }
        Some(_) => "new",
    }
}

fn evidence(finding: &Finding) -> Value {
    let mut evidence = Map::new();
    evidence.insert("requirementLevel".to_owned(), words::level_name(finding.level).into());
    for (name, text) in
        [("observed", &finding.observed), ("expected", &finding.expected), ("repeat", &finding.repeat)]
    {
        if let Some(text) = text {
            evidence.insert(name.to_owned(), block(text).into());
        }
    }
    Value::Object(evidence)
}

fn invocation(result: &AuditResult) -> Value {
    let mut invocation = Map::new();
    invocation.insert("executionSuccessful".to_owned(), (!result.deadline_passed).into());
    for (name, time) in [("startTimeUtc", &result.started), ("endTimeUtc", &result.finished)] {
        if let Ok(time) = time.parse::<Timestamp>() {
            invocation.insert(name.to_owned(), time.to_string().into());
        }
    }
    Value::Object(invocation)
}

fn properties(result: &AuditResult) -> Value {
    let score = score(result);
    let depths: Vec<&str> = result.depths.iter().map(|depth| words::depth_name(*depth)).collect();
    json!({
        "target": line(&result.target),
        "depths": depths,
        "grade": score.grade,
        "score": score.overall,
    })
}
