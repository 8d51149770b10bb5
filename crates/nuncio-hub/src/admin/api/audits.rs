//! Audits of agents: run, shown.

use std::fmt;

use nuncio_audit::{
    Depth,
    report::{Grade, JsonReport},
};
use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{route::routes, schema::Time};

routes! {
    /// Audits an agent: compares its card, its behaviour and the specification. A remote agent is called at its own
    /// address and with the hub's credentials for it, every other agent at the address of this hub.
    AuditAgent: POST "/agents/{name}:audit", "agents.audit" { path name, body options: AuditRequest, } -> AgentAudit,
        trail AgentAudited;

    /// Shows the latest audit of an agent with its report.
    ShowAudit: GET "/agents/{name}/audit", "agents.showAudit" { path name, } -> AgentAudit;
}

/// The depth of an audit.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AuditRequest {
    /// Send messages with this text, at most three over each interface, and cancel their tasks. The agent gets no
    /// message by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<String>,
    /// The API key or token of a caller, for an agent of this hub that only known callers may call. It is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    pub key: Option<String>,
    /// Seconds for the whole audit; 60 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub deadline_seconds: Option<u64>,
}

/// An audit with its report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentAudit {
    #[serde(flatten)]
    pub summary: AuditSummary,
    /// The report, by the schema `audit-report.schema.json` of the documentation; absent if it is too large to be
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub report: Option<Box<JsonReport>>,
}

/// The outcome of an audit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditSummary {
    /// The time of its end.
    #[schemars(with = "Time")]
    pub at: Timestamp,
    /// The address that was audited.
    pub target: String,
    /// The depths: `look`, and `send` if messages were sent.
    pub depths: Vec<Depth>,
    /// The grade, A to F; absent without a card, or if nothing was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Percent of the possible points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// Percent of the applicable checks that were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<u8>,
    /// Number of requirements (MUST) that are not met.
    pub failed: u32,
    /// Number of recommendations (SHOULD) that are not met.
    pub loose: u32,
    /// Number of messages sent to the agent.
    pub messages_sent: u32,
}

/// Options without the key.
impl fmt::Debug for AuditRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditRequest").field("send", &self.send).finish_non_exhaustive()
    }
}
