//! The findings as people read them: grouped by check, ranked by priority, with recommendations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{names::Names, text, words};
use crate::{AuditResult, Check, Depth, Finding, Unseen, Verdict, catalogue};

/// The priority of a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// A requirement (MUST) is not met.
    High,
    /// A recommendation (SHOULD) is not met.
    Medium,
    /// Worth a look.
    Low,
}

/// A recommended change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// The priority.
    pub priority: Priority,
    /// The id of the check.
    pub check: String,
    /// The demand.
    pub title: String,
    /// The change; of low priority, the fact to look at.
    pub fix: String,
    /// The names of the interfaces; empty for the whole agent.
    pub interfaces: Vec<String>,
}

/// The findings of one check with one verdict.
#[derive(Debug)]
pub(super) struct Topic<'a> {
    pub(super) id: &'a str,
    /// The check; `None` if this version of the catalogue does not have it.
    pub(super) check: Option<&'static Check>,
    pub(super) verdict: Verdict,
    pub(super) variants: Vec<Variant<'a>>,
}

/// Findings that differ in their interfaces only.
#[derive(Debug)]
pub(super) struct Variant<'a> {
    /// The first of the findings; its evidence stands for all.
    pub(super) finding: &'a Finding,
    /// The names of the interfaces; empty for the whole agent.
    pub(super) interfaces: Vec<String>,
}

impl Priority {
    /// The word for reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// The verdict whose findings have this priority.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::High => Verdict::Fail,
            Self::Medium => Verdict::Loose,
            Self::Low => Verdict::Info,
        }
    }

    fn of(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Fail => Some(Self::High),
            Verdict::Loose => Some(Self::Medium),
            Verdict::Info => Some(Self::Low),
            Verdict::Pass | Verdict::Unseen => None,
        }
    }
}

impl<'a> Topic<'a> {
    /// The demand; the id of a check that this version of the catalogue does not have.
    pub(super) fn title(&self) -> String {
        self.check.map_or_else(|| text::line(self.id), |check| check.title.to_owned())
    }

    pub(super) fn why(&self) -> &'static str {
        self.check.map_or("", |check| check.why)
    }

    /// The change that mends it; empty if nothing has to be changed.
    pub(super) fn fix(&self) -> &'static str {
        self.check.filter(|check| check.asks_for_change()).map_or("", |check| check.fix)
    }

    /// The recommended change; of a fact, the fact itself.
    fn advice(&self, priority: Priority) -> String {
        match self.variants.first() {
            Some(first) if priority == Priority::Low => text::line(&first.finding.reason),
            _ => self.fix().to_owned(),
        }
    }

    /// The names of the interfaces of all variants.
    fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.variants.iter().flat_map(|variant| &variant.interfaces)
    }
}

/// The findings with this verdict, by check, in the order of the result.
pub(super) fn topics(result: &AuditResult, verdict: Verdict) -> Vec<Topic<'_>> {
    let names = Names::new(result);
    let mut topics: Vec<Topic<'_>> = Vec::new();
    for finding in result.findings.iter().filter(|finding| finding.verdict == verdict) {
        match topics.iter_mut().find(|topic| topic.id == finding.check) {
            Some(topic) => topic.add(finding, &names),
            None => topics.push(Topic::new(finding, &names)),
        }
    }
    topics
}

impl<'a> Topic<'a> {
    fn new(finding: &'a Finding, names: &Names<'_>) -> Self {
        let check = catalogue::find(&finding.check);
        let variants = vec![Variant::new(finding, names)];
        Self { id: &finding.check, check, verdict: finding.verdict, variants }
    }

    fn add(&mut self, finding: &'a Finding, names: &Names<'_>) {
        match self.variants.iter_mut().find(|variant| variant.is_like(finding)) {
            Some(variant) => variant.interfaces.extend(finding.interface.iter().map(|id| names.of(id))),
            None => self.variants.push(Variant::new(finding, names)),
        }
    }
}

impl<'a> Variant<'a> {
    fn new(finding: &'a Finding, names: &Names<'_>) -> Self {
        Self { finding, interfaces: finding.interface.iter().map(|id| names.of(id)).collect() }
    }

    fn is_like(&self, other: &Finding) -> bool {
        let this = self.finding;
        this.interface.is_some() == other.interface.is_some()
            && this.reason == other.reason
            && this.observed == other.observed
            && this.expected == other.expected
    }
}

/// The broken demands and the facts worth knowing, the gravest first.
pub(super) fn ranked(result: &AuditResult) -> Vec<Topic<'_>> {
    [Verdict::Fail, Verdict::Loose, Verdict::Info]
        .into_iter()
        .flat_map(|verdict| topics(result, verdict))
        .collect()
}

/// The recommended changes: high, then medium, then low.
pub(super) fn recommendations(result: &AuditResult) -> Vec<Recommendation> {
    ranked(result).iter().filter_map(recommendation).collect()
}

fn recommendation(topic: &Topic<'_>) -> Option<Recommendation> {
    let priority = Priority::of(topic.verdict)?;
    let asks_for_change = topic.check.is_some_and(Check::asks_for_change);
    (asks_for_change || priority != Priority::Low).then(|| Recommendation {
        priority,
        check: topic.id.to_owned(),
        title: topic.title(),
        fix: topic.advice(priority),
        interfaces: topic.interfaces().cloned().collect(),
    })
}

/// Findings that were unseen for one reason.
#[derive(Debug)]
pub(super) struct UnseenGroup<'a> {
    /// The reason in one clause, with the option that helps.
    pub(super) reason: String,
    pub(super) findings: Vec<&'a Finding>,
}

impl<'a> UnseenGroup<'a> {
    /// The ids of the checks, each once.
    pub(super) fn checks(&self) -> Vec<&'a str> {
        let mut ids: Vec<&str> = Vec::new();
        for finding in &self.findings {
            if !ids.contains(&finding.check.as_str()) {
                ids.push(&finding.check);
            }
        }
        ids
    }
}

/// The unseen findings by their reason. Checks of a greater depth are grouped by the option that adds it.
pub(super) fn unseen(result: &AuditResult) -> Vec<UnseenGroup<'_>> {
    let mut groups: BTreeMap<(Option<Unseen>, Option<Depth>), Vec<&Finding>> = BTreeMap::new();
    for finding in result.findings.iter().filter(|finding| finding.verdict == Verdict::Unseen) {
        let depth = catalogue::find(&finding.check).map(|check| check.depth);
        let depth = depth.filter(|_| finding.unseen == Some(Unseen::Depth));
        groups.entry((finding.unseen, depth)).or_default().push(finding);
    }
    let group =
        |((unseen, depth), findings)| UnseenGroup { reason: words::unseen_reason(unseen, depth), findings };
    groups.into_iter().map(group).collect()
}
