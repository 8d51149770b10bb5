//! The way into the dashboard for holders of an admin token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::route::routes;

routes! {
    /// Makes a one-time code that signs a browser in to the dashboard.
    OpenDashboard: POST "/dashboard:open", "dashboard.open" {} -> DashboardCode, trail DashboardOpened;
}

/// A one-time code for the dashboard.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DashboardCode {
    /// The path to open in a browser, on the admin listener. It holds the code, which signs in one browser.
    pub path: String,
    /// Seconds until the code expires.
    pub expires_in_seconds: u64,
}

/// Without the code.
impl std::fmt::Debug for DashboardCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DashboardCode");
        shown.field("expires_in_seconds", &self.expires_in_seconds).finish_non_exhaustive()
    }
}
