//! The hubs of a store, and a summary of this one for a report.

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{route::routes, schema::Time};

routes! {
    /// Lists the hubs that share the store, this one first. Each renews its record every 20 seconds.
    ListHubs: GET "/hubs", "hubs.list" {} -> HubList;

    /// Collects the state of this hub for a report: version, figures, health, agents, hubs, the configuration without
    /// secrets, and the last rows of the trail. It has no content of tasks.
    ShowDiagnostics: GET "/diagnostics", "hub.diagnostics" {} -> Diagnostics;
}

/// The hubs of the store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HubList {
    pub hubs: Vec<HubInfo>,
}

/// A hub.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HubInfo {
    /// Its address as callers see it.
    pub url: String,
    /// The address it listens on.
    pub listen: String,
    pub version: String,
    #[schemars(with = "Time")]
    pub started: Timestamp,
    /// The time of its last sign.
    #[schemars(with = "Time")]
    pub seen: Timestamp,
    /// The hub that answers.
    pub this: bool,
}

/// The state of a hub.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostics(pub Value);
