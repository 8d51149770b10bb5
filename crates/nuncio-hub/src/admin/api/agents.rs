//! Agents: listed, added, changed, removed.

use std::fmt;

use nuncio_protocol::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{audits::AuditSummary, route::routes, schema::Time};
use crate::registry::Settings;

routes! {
    /// Lists the agents that the hub serves.
    ListAgents: GET "/agents", "agents.list" {} -> Agents;

    /// Adds a remote agent, which speaks A2A at a URL. It is stored and served again after a restart.
    AddAgent: POST "/agents", "agents.add" { body agent: NewAgent, } -> AddedAgent,
        status CREATED, trail AgentAdded;

    /// Shows an agent with its cards.
    ShowAgent: GET "/agents/{name}", "agents.show" { path name, } -> AgentDetails;

    /// Changes the settings of an agent that was added by this API: a given value replaces, null removes.
    ChangeAgent: PATCH "/agents/{name}", "agents.change" {
        path name,
        body settings: AgentSettings,
        if_match version,
    } -> AgentDetails, trail AgentChanged;

    /// Stops serving an agent that was added by this API. Its tasks are kept.
    RemoveAgent: DELETE "/agents/{name}", "agents.remove" { path name, if_match version, } -> (),
        status NO_CONTENT, trail AgentRemoved;

    /// Fetches the card of a remote agent now.
    RefreshAgent: POST "/agents/{name}:refresh", "agents.refresh" { path name, } -> AgentDetails,
        trail AgentRefreshed;

    /// Shows the health of an agent.
    ShowAgentHealth: GET "/agents/{name}/health", "agents.health" { path name, } -> AgentHealth;
}

/// All agents.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Agents {
    pub agents: Vec<Agent>,
}

/// An agent that the hub serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub name: String,
    /// The kind of agent: `demo`, `remote` or `program`. Later versions may have more.
    pub kind: String,
    pub mode: TaskMode,
    pub origin: AgentOrigin,
    /// The address of a remote agent, without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The interface by which the hub calls a remote agent; absent until its card is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaks: Option<Interface>,
    pub health: AgentHealth,
    /// The interfaces by which callers reach the agent.
    pub interfaces: Vec<Interface>,
    /// Number of its tasks that run in this hub.
    pub tasks_in_flight: usize,
    /// The address of its card, for callers.
    pub card_url: String,
    pub description: String,
}

/// The owner of the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskMode {
    /// The hub owns them.
    Durable,
    /// The remote agent owns them; the hub forwards calls.
    Proxy,
}

/// The source that defines an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentOrigin {
    /// The command line of the hub.
    Flag,
    /// The configuration file.
    File,
    /// This API.
    Api,
}

/// A version and a binding of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    pub version: String,
    pub binding: String,
}

/// The health of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentHealth {
    pub state: HealthState,
    /// Time of the last change; absent: since the hub started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub since: Option<Timestamp>,
    /// The reason why the agent is degraded or down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// The agent has not been called yet.
    Unknown,
    Up,
    /// The agent answers, but not correctly.
    Degraded,
    Down,
}

/// An agent with its cards.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDetails {
    #[serde(flatten)]
    pub agent: Agent,
    /// The hub keeps its data in memory: its next restart loses what this API has added or changed.
    #[serde(default)]
    pub volatile: bool,
    /// The card that callers see, before it is signed.
    pub card: Value,
    /// The card of the remote agent, as it was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_card: Option<Value>,
    /// Its audits, latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audits: Vec<AuditSummary>,
    /// Capabilities of a remote agent as its card declares them, and as its answers since the hub started show them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<ObservedCapability>,
}

/// A capability of a remote agent, declared and observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedCapability {
    pub capability: Capability,
    /// Whether the card declares it; absent: cards do not declare it, or there is no card yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<bool>,
    pub observed: Observation,
    /// Calls that the agent has answered, by a result or by an error about the request.
    pub answered: u64,
    /// Calls that it has refused because it does not have the operation.
    pub refused: u64,
    /// Calls that failed by a fault of the agent or of the network.
    pub failed: u64,
}

/// Capabilities that answers show. Later versions may have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    Send,
    Streaming,
    PushNotifications,
    ExtendedCard,
    List,
    Cancel,
}

/// The evidence of an agent's answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Observation {
    /// There was no call yet.
    Unknown,
    /// It has answered.
    Works,
    /// It has only refused.
    Refused,
    /// All calls have failed.
    Fails,
}

/// An agent that was added.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedAgent {
    #[serde(flatten)]
    pub details: AgentDetails,
    /// The agent that answered at the root until now, because it was the only one. Now none does: `default_agent`
    /// or `--default` names one that should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_lost: Option<String>,
}

/// An agent to add: its name, and the keys that a configuration file has below `[agents.NAME]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NewAgent {
    /// The name of the agent: a to z, 0 to 9 and -, at most 63 characters.
    pub name: String,
    #[serde(flatten)]
    pub settings: AgentSettings,
}

/// Settings of an agent, by the keys that a configuration file has below `[agents.NAME]`.
///
/// A JSON object, because it is read like a part of a configuration file: by the same checks, with the same
/// errors.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentSettings(pub Map<String, Value>);

/// Keys only: values may be credentials.
impl fmt::Debug for AgentSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl JsonSchema for AgentSettings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AgentSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Settings::json_schema(generator)
    }
}
