//! The outcome of a check on one interface, with its evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalogue::{Area, Level};

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The demand is met.
    Pass,
    /// A recommendation (SHOULD) is not met.
    Loose,
    /// A requirement (MUST) is not met.
    Fail,
    /// Worth knowing, counted by no score: contested points, and facts.
    Info,
    /// Not observed: the finding says why.
    Unseen,
}

/// The reason for which a check was not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// It needs a greater depth (`--send`, `--push`, `--as`).
    Depth,
    /// The interface did not answer, or not as an A2A agent.
    Unreachable,
    /// The agent did not answer in time.
    Slow,
    /// The agent asked for credentials that the audit does not have.
    Credentials,
    /// A condition of the check was not met, such as a task that is still running.
    Setup,
    /// The card does not declare the subject of the check.
    Undeclared,
    /// The deadline of the whole audit had passed.
    Deadline,
}

/// An interface of the agent, in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceId {
    /// The protocol version, `1.0` or `0.3`.
    pub version: String,
    /// The binding as cards name it: `JSONRPC`, `HTTP+JSON` or `GRPC`.
    pub binding: String,
    /// The URL on the card.
    pub url: String,
}

/// The outcome of one check, for the agent or for one of its interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The id of the check in the catalogue.
    pub check: String,
    /// The area of the check.
    pub area: Area,
    /// The strength of the demand.
    pub level: Level,
    /// The interface; absent for a finding about the card or the whole agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceId>,
    /// The section of the specification of that version, such as `3.1.4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The class of reasons of an unseen check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
    /// The verdict in one sentence: the difference, or the reason for which nothing was seen. For contested
    /// points it has both readings. Empty for most passed checks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The observation, word for word where it is short ("before").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// The demanded form ("after").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// A shell command that repeats the request; credentials are variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// The exchange behind the verdict, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Excerpt>,
}

/// An exchange with the agent, shortened and without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Excerpt {
    /// The request: its line, headers and body.
    pub request: String,
    /// The response: status, headers and the beginning of the body.
    pub response: String,
}

impl Finding {
    /// True if the verdict counts in the score.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        matches!(self.verdict, Verdict::Pass | Verdict::Loose | Verdict::Fail)
    }
}
