//! The result of an audit, which is also the JSON report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::Depth,
    outcome::{Finding, InterfaceId, Verdict},
};

/// The version of the form of [`AuditResult`].
pub const FORMAT: u32 = 1;

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditResult {
    /// The version of this form; 1.
    pub format: u32,
    /// The version of the auditor.
    pub auditor: String,
    /// The URL that was given.
    pub target: String,
    /// The depths of the run, beginning with `look`.
    pub depths: Vec<Depth>,
    /// The time of the first request (RFC 3339).
    pub started: String,
    /// The time of the last answer (RFC 3339).
    pub finished: String,
    /// The agent card; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardFacts>,
    /// The interfaces of the card, in its order, and whether they answered.
    pub interfaces: Vec<InterfaceReport>,
    /// The declared capabilities beside the observed ones.
    pub capabilities: Vec<Capability>,
    /// One outcome per check and interface, in the order of the catalogue, then of the interfaces.
    pub findings: Vec<Finding>,
    /// The facts that limit the grade.
    pub grounds: Grounds,
    /// The number of messages sent to the agent.
    pub messages_sent: u32,
    /// The number of requests of all kinds.
    pub requests_sent: u32,
    /// Tasks that the audit began and that could not be canceled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_running: Vec<String>,
    /// True if the deadline of the audit ended it early.
    #[serde(default)]
    pub deadline_passed: bool,
}

impl AuditResult {
    /// True if no requirement failed.
    #[must_use]
    pub fn is_free_of(&self, verdict: Verdict) -> bool {
        !self.findings.iter().any(|finding| finding.verdict == verdict)
    }
}

/// Facts from the agent card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardFacts {
    /// The URL at which it was found.
    pub url: String,
    /// The name of the agent.
    pub name: String,
    /// The agent's own version.
    pub version: String,
    /// The description, shortened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The organisation that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The protocol versions whose form the card has: `1.0`, `0.3`, or both.
    pub shapes: Vec<String>,
    /// The ids of its skills.
    pub skills: Vec<String>,
    /// The names and kinds of its security schemes.
    pub security_schemes: Vec<String>,
    /// True if calls need credentials by the card.
    pub requires_credentials: bool,
    /// The URIs of its extensions.
    pub extensions: Vec<String>,
    /// The number of its signatures.
    pub signatures: usize,
}

/// An interface of the card, as it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceReport {
    /// The interface.
    #[serde(flatten)]
    pub id: InterfaceId,
    /// The tenant on the card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether it answered.
    pub reachability: Reachability,
    /// The reason of an interface that did not answer, or was not called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The reachability of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reachability {
    /// It answers in its version and binding.
    Answers,
    /// It answers, but not as an agent of this version and binding.
    Wrong,
    /// It answers only callers with credentials that the audit does not have.
    Closed,
    /// Nothing answers.
    Silent,
    /// It answered too late.
    Slow,
    /// Its binding or version is unknown to the auditor.
    Unknown,
}

/// A capability: what the card says, and what the agent does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capability {
    /// The name, such as `streaming`.
    pub name: String,
    /// The statement of the card.
    pub declared: String,
    /// The observation.
    pub observed: String,
    /// Whether both agree; absent if nothing was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agrees: Option<bool>,
}

/// The facts that limit the grade, whatever the score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grounds {
    /// There is no agent card: no grade.
    pub no_card: bool,
    /// Interfaces of the card that do not answer: at most D.
    pub silent_interfaces: Vec<InterfaceId>,
    /// The card declares authentication that the agent does not enforce: F.
    pub auth_not_enforced: bool,
    /// A caller sees tasks of another: F.
    pub foreign_tasks_visible: bool,
}
