//! The API itself: its version and its document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::route::routes;

routes! {
    /// Shows the version of the hub.
    ShowAbout: GET "", "about" {} -> About;

    /// Shows this document.
    ShowDocument: GET "/openapi.json", "openapi" {} -> Value;
}

/// The hub that answers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct About {
    /// The version of the hub.
    pub version: String,
}
