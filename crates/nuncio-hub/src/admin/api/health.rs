//! The health of the hub and of its agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{agents::AgentHealth, route::routes};

routes! {
    /// Shows the health of the hub and of each agent.
    ShowHealth: GET "/health", "health.show" {} -> HubHealth;
}

/// The health of the hub. An agent that is down does not make the hub unready.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HubHealth {
    /// The hub accepts calls.
    pub ready: bool,
    /// The reasons why the hub does not accept calls.
    pub reasons: Vec<String>,
    /// The version of the hub.
    pub version: String,
    pub agents: Vec<AgentStatus>,
}

/// The health of an agent, by its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentStatus {
    pub name: String,
    #[serde(flatten)]
    pub health: AgentHealth,
}
