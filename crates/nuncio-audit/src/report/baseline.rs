//! The differences between two audits of one agent.
//!
//! A finding is found again by its check, the version and binding of its interface and the path of its URL,
//! so that the same agent at another address (another port, staging and production) can be compared.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    score::{Grade, score},
    words,
};
use crate::{AuditResult, Finding, InterfaceId, Verdict, audit::FORMAT};

/// The changes since an earlier audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The time of the earlier audit.
    pub since: String,
    /// The grade then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_before: Option<Grade>,
    /// The grade now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_now: Option<Grade>,
    /// The score then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_before: Option<u8>,
    /// The score now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_now: Option<u8>,
    /// The findings that differ, in the order of the new audit; findings that are gone come last.
    pub changes: Vec<Change>,
}

/// A finding that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The direction.
    pub kind: ChangeKind,
    /// The id of the check.
    pub check: String,
    /// The interface; absent for a finding about the whole agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceId>,
    /// The verdict then; absent for a finding that is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Verdict>,
    /// The verdict now; absent for a finding that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Verdict>,
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// A demand is broken that was not, or more gravely than before.
    Worse,
    /// A demand is met, or broken less gravely than before.
    Better,
    /// The verdict is another, and neither better nor worse: seen for the first time, or no longer.
    Other,
}

/// The reason for which a baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The text is no JSON report.
    #[error("it is not a JSON report of an audit: {0}; make one with --report FILE.json")]
    Malformed(#[from] serde_json::Error),
    /// The report has a form that this version does not read.
    #[error(
        "it has format {found}, and this version reads format {FORMAT}; make a new one with --report FILE.json"
    )]
    Format {
        /// The format of the report.
        found: u32,
    },
}

impl ChangeKind {
    /// The word for reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Other => "other",
        }
    }
}

impl Change {
    /// The verdicts then and now, as `pass → fail`.
    #[must_use]
    pub fn verdicts(&self) -> String {
        let name = |verdict: Option<Verdict>| verdict.map_or("–", words::verdict_name);
        format!("{} → {}", name(self.before), name(self.now))
    }
}

impl Changes {
    /// True if a demand is broken that was not broken before.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.changes.iter().any(|change| change.kind == ChangeKind::Worse)
    }

    /// Grade and score then and now, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let grade = |grade: Option<Grade>| grade.map_or("–", Grade::as_str);
        let score = |score: Option<u8>| score.map_or_else(|| "–".to_owned(), |score| format!("{score} %"));
        let [worse, better, other] = [ChangeKind::Worse, ChangeKind::Better, ChangeKind::Other];
        format!(
            "grade {} → {}, score {} → {}; {} worse, {} better, {} other",
            grade(self.grade_before),
            grade(self.grade_now),
            score(self.score_before),
            score(self.score_now),
            self.of(worse).count(),
            self.of(better).count(),
            self.of(other).count(),
        )
    }

    /// The changes in this direction.
    pub fn of(&self, kind: ChangeKind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
    }
}

/// Reads the result in a JSON report.
///
/// # Errors
/// If the text is no report, or has another format.
pub fn parse(text: &str) -> Result<AuditResult, BaselineError> {
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let Form { format: found } = serde_json::from_str(text)?;
    if found != FORMAT {
        return Err(BaselineError::Format { found });
    }
    Ok(serde_json::from_str(text)?)
}

/// Compares an audit with an earlier one.
#[must_use]
pub fn compare(old: &AuditResult, new: &AuditResult) -> Changes {
    let (before, now) = (score(old), score(new));
    Changes {
        since: old.started.clone(),
        grade_before: before.grade,
        grade_now: now.grade,
        score_before: before.overall.score,
        score_now: now.overall.score,
        changes: changes(old, new),
    }
}

fn changes(old: &AuditResult, new: &AuditResult) -> Vec<Change> {
    let mut earlier: BTreeMap<Key, &Finding> = keyed(old).collect();
    let mut changes = Vec::new();
    for (key, finding) in keyed(new) {
        let before = earlier.remove(&key).map(|finding| finding.verdict);
        changes.extend(change(finding, before, Some(finding.verdict)));
    }
    let gone = keyed(old).filter(|(key, _)| earlier.contains_key(key));
    changes.extend(gone.filter_map(|(_, finding)| change(finding, Some(finding.verdict), None)));
    changes
}

fn change(finding: &Finding, before: Option<Verdict>, now: Option<Verdict>) -> Option<Change> {
    let kind = direction(before, now)?;
    Some(Change { kind, check: finding.check.clone(), interface: finding.interface.clone(), before, now })
}

/// The direction of a change; `None` if nothing changed, or if nothing was seen both times.
fn direction(before: Option<Verdict>, now: Option<Verdict>) -> Option<ChangeKind> {
    let seen = |verdict: Option<Verdict>| verdict.filter(|verdict| *verdict != Verdict::Unseen);
    let (before, now) = (seen(before), seen(now));
    if before == now {
        return None;
    }
    let kind = match (before.map_or(0, gravity), now.map_or(0, gravity)) {
        (before, now) if now > before => ChangeKind::Worse,
        // A breach that is no longer seen is not known to be mended.
        (before_gravity, now_gravity) if now_gravity < before_gravity && now.is_some() => ChangeKind::Better,
        _ => ChangeKind::Other,
    };
    Some(kind)
}

/// The gravity of a verdict.
fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fail => 2,
        Verdict::Loose => 1,
        Verdict::Pass | Verdict::Info | Verdict::Unseen => 0,
    }
}

/// The identity of a finding over audits: the check, the interface without its host, and the number of
/// earlier findings with the same identity.
type Key<'a> = (&'a str, Option<(&'a str, &'a str, String)>, usize);

fn keyed(result: &AuditResult) -> impl Iterator<Item = (Key<'_>, &Finding)> {
    let mut counts = BTreeMap::new();
    result.findings.iter().map(move |finding| {
        let interface = finding.interface.as_ref().map(identity);
        let count: &mut usize = counts.entry((finding.check.as_str(), interface.clone())).or_default();
        *count += 1;
        ((finding.check.as_str(), interface, *count), finding)
    })
}

fn identity(interface: &InterfaceId) -> (&str, &str, String) {
    let path = Url::parse(&interface.url).map_or_else(|_| String::new(), |url| url.path().to_owned());
    (&interface.version, &interface.binding, path)
}
