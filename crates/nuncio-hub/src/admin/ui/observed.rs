//! Declared beside observed: what the card of an agent says, what its answers have shown, and its audits.

use askama::Template;
use axum::{extract::Path, response::IntoResponse as _};
use http::header;
use nuncio_audit::{
    Verdict,
    report::{self, FailOn, Format, JsonReport},
};

use super::{
    agent::{Head, Tab, head},
    form::Form,
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{AuditAgent, AuditRequest, AuditSummary, ObservedCapability, ShowAudit},
    audits,
    problem::AdminProblem,
};

/// Maximum number of findings that are listed.
const MAX_FINDINGS: usize = 200;

/// A capability by its calls.
struct SeenRow {
    name: String,
    declared: &'static str,
    observed: String,
    answered: u64,
    refused: u64,
    failed: u64,
}

/// A capability by the last audit.
struct AuditedRow {
    name: String,
    declared: String,
    observed: String,
    /// `agrees`, `differs` or `unknown`.
    verdict: &'static str,
}

/// The outcome of an audit.
struct AuditRow {
    at: String,
    grade: String,
    score: String,
    coverage: String,
    failed: u32,
    loose: u32,
    depths: String,
    messages: u32,
}

/// A demand that is not met.
struct FindingRow {
    check: String,
    title: String,
    verdict: String,
    interface: String,
    reason: String,
    observed: Option<String>,
    expected: Option<String>,
    fix: String,
    repeat: Option<String>,
}

#[derive(Template)]
#[template(path = "ui/agent_observed.html")]
struct ObservedPage {
    shell: Shell,
    head: Head,
    seen: Vec<SeenRow>,
    audited: Vec<AuditedRow>,
    audits: Vec<AuditRow>,
    findings: Vec<FindingRow>,
    is_remote: bool,
    has_report: bool,
    more: usize,
}

pub(super) async fn page(visit: Visit, Path(name): Path<String>) -> Answer {
    let (shell, head, details) = head(&visit, &name, Tab::Observed).await?;
    let report = match details.audits.first() {
        Some(_) => visit.call(audits::show, ShowAudit { name }).await?.report,
        None => None,
    };
    let (audited, findings) =
        report.as_deref().map(|report| (audited(report), findings(report))).unwrap_or_default();
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    render(&ObservedPage {
        shell,
        head,
        seen: details.observed.iter().map(seen).collect(),
        audited,
        audits: details.audits.iter().map(audit_row).collect(),
        findings: findings.into_iter().take(MAX_FINDINGS).collect(),
        is_remote: details.agent.url.is_some(),
        has_report: report.is_some(),
        more,
    })
}

fn seen(row: &ObservedCapability) -> SeenRow {
    let ObservedCapability { capability, declared, observed, answered, refused, failed } = *row;
    SeenRow {
        name: show::word(capability),
        declared: match declared {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        },
        observed: show::word(observed),
        answered,
        refused,
        failed,
    }
}

fn audit_row(summary: &AuditSummary) -> AuditRow {
    let percent = |part: Option<u8>| part.map_or_else(|| "–".to_owned(), |part| format!("{part} %"));
    AuditRow {
        at: summary.at.to_string(),
        grade: summary.grade.map_or_else(|| "none".to_owned(), show::word),
        score: percent(summary.score),
        coverage: percent(summary.coverage),
        failed: summary.failed,
        loose: summary.loose,
        depths: summary.depths.iter().map(show::word).collect::<Vec<_>>().join(", "),
        messages: summary.messages_sent,
    }
}

fn audited(report: &JsonReport) -> Vec<AuditedRow> {
    let row = |capability: &nuncio_audit::Capability| AuditedRow {
        name: show::cell(&capability.name),
        declared: show::cell(&capability.declared),
        observed: show::cell(&capability.observed),
        verdict: match capability.agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None => "unknown",
        },
    };
    report.result.capabilities.iter().map(row).collect()
}

fn findings(report: &JsonReport) -> Vec<FindingRow> {
    let broken =
        |verdict: Verdict| report.result.findings.iter().filter(move |finding| finding.verdict == verdict);
    let row = |finding: &nuncio_audit::Finding| {
        let texts = report.checks.get(&finding.check);
        let interface = finding.interface.as_ref();
        FindingRow {
            check: show::cell(&finding.check),
            title: show::cell(texts.map(|texts| &*texts.title).unwrap_or_default()),
            verdict: show::word(finding.verdict),
            interface: interface
                .map(|id| show::cell(&format!("{} {}", id.version, id.binding)))
                .unwrap_or_default(),
            reason: show::text(&finding.reason, 1000),
            observed: finding.observed.as_deref().map(|text| show::text(text, 1000)),
            expected: finding.expected.as_deref().map(|text| show::text(text, 1000)),
            fix: show::cell(texts.map(|texts| &*texts.fix).unwrap_or_default()),
            repeat: finding.repeat.as_deref().map(|text| show::text(text, 2000)),
        }
    };
    broken(Verdict::Fail).chain(broken(Verdict::Loose)).map(row).collect()
}

pub(super) async fn audit(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let options = AuditRequest {
        send: form.text("send"),
        key: form.text("key"),
        deadline_seconds: form.number("deadline")?,
    };
    let audited = visit.call(audits::audit, AuditAgent { name: name.clone(), options }).await?;
    let AuditRow { grade, failed, loose, .. } = audit_row(&audited.summary);
    let text = format!(
        "The audit has ended: grade {grade}, {failed} requirements and {loose} recommendations are not met."
    );
    visit.done(&format!("/ui/agents/{}/observed", show::segment(&name)), text)
}

/// The report of the last audit as a file.
pub(super) async fn report(visit: Visit, Path(name): Path<String>) -> Answer {
    let report = visit.call(audits::show, ShowAudit { name: name.clone() }).await?.report;
    let report = report.ok_or_else(|| {
        AdminProblem::not_found("the report of the last audit was too large to be stored; run another audit")
    })?;
    let (format, extension, media_type) = match visit.query.get("format") {
        Some("md") => (Format::Markdown, "md", "text/markdown; charset=utf-8"),
        Some("sarif") => (Format::Sarif, "sarif", "application/sarif+json"),
        Some("json") => (Format::Json, "json", "application/json"),
        _ => (Format::Html, "html", "text/html; charset=utf-8"),
    };
    let options =
        report::Options { changes: report.changes.as_ref(), fail_on: FailOn::default(), colour: false };
    let body = report::render(format, &report.result, &options);
    let name = show::file_name(&name);
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"audit-{name}.{extension}\"")),
    ];
    Ok((headers, body).into_response())
}
