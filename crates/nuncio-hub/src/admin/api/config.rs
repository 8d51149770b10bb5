//! The configuration in force.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::route::routes;

routes! {
    /// Shows the configuration in force, without secrets, the origin of each value, and the difference that the last
    /// reload made.
    ShowConfig: GET "/config", "config.show" {} -> ConfigInForce;

    /// Reads the configuration again and applies its changes.
    ReloadConfig: POST "/config:reload", "config.reload" { query options: ReloadOptions, } -> Reloaded,
        trail ConfigReloaded;
}

/// The configuration in force: `config`, and `origins` by key. After a reload that changed something `lastReload` has
/// its time (`at`) and its `changes`, each with `key`, `before` and `after`. `refused` has the time and the `problems` of
/// the last reload, if it was refused.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConfigInForce(pub Value);

/// Options of a reload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReloadOptions {
    /// Apply it even if it is empty, or has lost its identity or all agents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The changes that a reload applied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// The files that were read; none if the hub was started without one.
    #[serde(default)]
    pub files: Vec<String>,
    /// Names of new agents.
    pub added: Vec<String>,
    /// Names of changed agents.
    pub changed: Vec<String>,
    /// Names of removed agents.
    pub removed: Vec<String>,
    /// Keys of other parts that have changed.
    pub parts: Vec<String>,
    /// Keys that take effect when the hub restarts.
    pub needs_restart: Vec<String>,
    /// The agent that answered at the root until now. Now none does: `default_agent` or `--default` names one that
    /// should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_lost: Option<String>,
}
